"""Two dry runs at once on one machine, whoever asks: each takes a processor and about 0.5 GiB, the others wait their turn."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

if sys.platform != "win32":  # there the app serves one person
    import fcntl

__all__ = ["WAITING", "turn"]

WAITING = "waiting for another dry run to end"
_MOST_AT_ONCE = 2
_LOOK_SECONDS = 0.5


@asynccontextmanager
async def turn(progress: Callable[[str], None], folder: Path | None = None) -> AsyncIterator[None]:
    """Wait for one of the turns and hold it. A turn is a lock on a file: the system frees it when its holder dies."""
    folder = folder or _folder()
    descriptor = _taken(folder)
    if descriptor is None:
        progress(WAITING)
    while descriptor is None:
        await asyncio.sleep(_LOOK_SECONDS)
        descriptor = _taken(folder)
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _folder() -> Path:
    """One for each user of the machine, which nobody else can write."""
    folder = Path(tempfile.gettempdir()) / f"planner-turns-{os.getuid() if sys.platform != 'win32' else 0}"
    with suppress(OSError):  # there already, or nowhere to write: then nobody waits
        folder.mkdir(mode=0o700)
    return folder


def _taken(folder: Path) -> int | None:
    """The open file of a free turn, -1 where no turns can be kept, None where all are taken."""
    if sys.platform == "win32":
        return -1
    for number in range(_MOST_AT_ONCE):
        try:
            descriptor = os.open(folder / f"turn-{number}", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return -1
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        os.close(descriptor)
    return None
