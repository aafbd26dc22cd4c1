"""A plan as the files of a training engine, for what is beyond one pilot. What a target cannot say stands in its file's header.

No secret enters a file: tokens are read from the environment of the machine that trains.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from planner.credentials import refuse_secrets
from planner.errors import PlannerError
from planner.export.text import MARK
from planner.export.trl import trl_files
from planner.planfile import PlanFile

__all__ = ["TARGETS", "export", "write_export"]

TARGETS: dict[str, Callable[[PlanFile], dict[str, str]]] = {"trl": trl_files}


def export(plan: PlanFile, target: str) -> dict[str, str]:
    """Files of a target by their names, the main one first.

    Raises InvalidJob where the target has nothing that would do what is planned, or a text seems to hold a secret.
    """
    files = TARGETS[target](plan)
    refuse_secrets(files)
    return files


def write_export(folder: Path, files: dict[str, str]) -> None:
    """Write all files or none; a file that another hand wrote is not overwritten. Raises PlannerError, one sentence."""
    for name in files:
        path = folder / name
        if path.exists() and not _own(path):
            raise PlannerError(
                "{path!r} was not written by an export, so it is left as it is; name another folder", path=str(path)
            )
    parts = {folder / name: folder / f".{name}.part" for name in files}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part, content in zip(parts.values(), files.values(), strict=True):
            part.write_text(content, encoding="utf-8")
        for path, part in parts.items():
            part.replace(path)
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise PlannerError("{path!r} cannot be written ({problem})", path=str(folder), problem=problem) from error
    finally:
        for part in parts.values():
            with suppress(OSError):
                part.unlink()


def _own(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8") as file:
            return MARK in file.read(2000)
    except (OSError, UnicodeDecodeError):
        return False
