"""Files are written whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

from planner.errors import PlannerError

__all__ = ["write_whole"]


def write_whole(path: str | os.PathLike[str], content: bytes) -> None:
    """Write beside the target, then take its place; what was there stays until then. Raises PlannerError, one sentence."""
    target = Path(path)
    part = target.parent / f".{target.name}.{os.getpid()}.part"
    try:
        part.write_bytes(content)
        part.replace(target)
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise PlannerError("{path!r} cannot be written ({problem})", path=str(target), problem=problem) from error
    finally:
        with suppress(OSError):
            part.unlink()
