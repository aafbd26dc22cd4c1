"""Files are written whole or not at all; records have a version, and a newer one is not guessed at."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from planner.errors import PlannerError

__all__ = ["read_small", "versioned", "write_whole"]


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


def read_small(path: Path, most_bytes: int) -> bytes:
    """The content of a file that is no larger than a plan or record can be. Raises PlannerError, one sentence."""
    try:
        if not path.is_file():
            raise PlannerError("there is no file {path!r}", path=str(path))
        if path.stat().st_size > most_bytes:
            raise PlannerError(
                "{path!r} has {size:,} bytes, more than a plan or record", path=str(path), size=path.stat().st_size
            )
        return path.read_bytes()
    except OSError as error:
        raise PlannerError("{path!r} cannot be read ({problem})", path=str(path), problem=error.strerror or str(error)) from error


def versioned(text: str | bytes, name: str, latest: int) -> dict[str, Any]:
    """The JSON object in `text`, of a version from 0 (none is given) to `latest`. Raises PlannerError, one sentence."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PlannerError("{name!r} cannot be read: it is not JSON ({problem})", name=name, problem=str(error)) from error
    if not isinstance(values, dict):
        raise PlannerError("{name!r} cannot be read: it is a JSON {kind}, not an object", name=name, kind=type(values).__name__)
    version = values.get("version", 0)
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise PlannerError("{name!r} cannot be read: its version is {version!r}", name=name, version=str(version))
    if version > latest:
        raise PlannerError(
            "{name!r} was written by a newer planner (version {version}; this one reads up to {known}); update the planner",
            name=name, version=version, known=latest,
        )  # fmt: skip
    return values
