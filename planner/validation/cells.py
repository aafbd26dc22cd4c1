"""One row of a table of measurements: its cells, and the answers of its prose where a column is missing."""

import re
from collections.abc import Mapping

from planner.errors import InvalidJob

__all__ = ["Cells", "Row"]

Cells = Mapping[str, str]


class Row:
    """Cells with the answers of the prose where a column is missing."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self.prose = " ".join((cells.get("framework", ""), cells.get("notes", ""))).lower()

    def text(self, column: str) -> str:
        return self.cells.get(column, "").strip()

    def whole(self, column: str, default: int | None = None) -> int:
        cell = self.text(column)
        if not cell and default is not None:
            return default
        if not cell:
            raise InvalidJob("{name} is not stated", name=column)
        value = float(cell)
        if value != int(value) or value < 1:
            raise InvalidJob("{name} is {given}; it must be a whole number of 1 or more", name=column, given=cell)
        return int(value)

    def flag(self, column: str, *, no: tuple[str, ...], yes: tuple[str, ...], default: bool) -> bool:
        """What a yes/no column says, or phrases of the prose; a "no" phrase wins."""
        cell = self.text(column)
        if cell in ("yes", "no"):
            return cell == "yes"
        if any(phrase in self.prose for phrase in no):
            return False
        return default or any(phrase in self.prose for phrase in yes)

    def version(self, package: str) -> tuple[int, int] | None:
        """Major and minor version of a package in the framework's text."""
        found = re.search(rf"\b{package}[ =]*v?(\d+)\.(\d+)", self.prose)
        return (int(found[1]), int(found[2])) if found else None
