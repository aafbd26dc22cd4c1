"""A CSV file -> rows whose cells are read strictly: a bad one raises BadRow with file, line, column and value."""

import csv
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from planner.errors import BadRow, InvalidJob
from planner.units import GiB

__all__ = ["Row", "data_folder", "rows"]

_T = TypeVar("_T")
_Number = TypeVar("_Number", int, float)


class Row(NamedTuple):
    """The cells of one row, and where they stand; a cell that cannot be read raises BadRow with all of that."""

    cells: Mapping[str, str]
    file: str
    line: int

    def bad(self, column: str, expected: str) -> BadRow:
        return BadRow(
            "{file}, line {line}, column {column!r}: {value!r} is not {expected}",
            file=self.file, line=self.line, column=column, value=self.cells.get(column, "")[:80], expected=expected,
        )  # fmt: skip

    def broken(self, problem: InvalidJob) -> BadRow:
        return BadRow(
            "{file}, line {line}, column {column!r}: {problem}",
            field=problem.field, file=self.file, line=self.line, column=problem.field, problem=str(problem),
        )  # fmt: skip

    def text(self, column: str) -> str:
        if not self.cells[column]:
            raise self.bad(column, "a text; this column may not be blank")
        return self.cells[column]

    def texts(self, column: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.cells[column].split(";") if part.strip())

    def number(self, column: str, factor: float = 1) -> float | None:
        """The positive number in base units; `factor` is the size of the column's unit."""
        return self.convert(column, lambda cell: _positive(float(cell)) * factor, "a positive number or blank")

    def size(self, column: str) -> int | None:
        return self.convert(column, lambda cell: _positive(int(cell)), "a positive whole number or blank")

    def fee(self, column: str) -> float | None:
        return self.convert(column, lambda cell: _not_negative(float(cell)), "a number, 0 or more, or blank")

    def bytes(self, column: str) -> int | None:
        """Bytes of a column in GiB."""
        return self.convert(column, lambda cell: round(_positive(float(cell)) * GiB), "a positive number of GiB or blank")

    def whole(self, column: str) -> int | None:
        return self.convert(column, int, "a whole number or blank")

    def flag(self, column: str, yes: str = "yes", no: str = "no") -> bool | None:
        return self.convert(column, {yes: True, no: False}.__getitem__, f"{yes!r}, {no!r} or blank")

    def refuse_repeated(self, key: Hashable, seen: dict[Any, int], column: str) -> None:
        """Raise BadRow if an earlier row had that key; `seen` keeps the line of each."""
        if (first := seen.setdefault(key, self.line)) != self.line:
            raise self.bad(column, f"new: line {first} has it already")

    def convert(self, column: str, convert: Callable[[str], _T], expected: str) -> _T | None:
        cell = self.cells[column]
        try:
            return convert(cell) if cell else None
        except (ValueError, LookupError) as error:
            raise self.bad(column, expected) from error


def _positive(value: _Number) -> _Number:
    if not 0 < value < math.inf:
        raise ValueError(value)
    return value


def _not_negative(value: float) -> float:
    if not 0 <= value < math.inf:
        raise ValueError(value)
    return value


def rows(file: IO[str], columns: tuple[str, ...]) -> Iterator[Row]:
    name = Path(str(getattr(file, "name", "data"))).name
    reader = csv.DictReader(file, strict=True)
    header = tuple(reader.fieldnames or ())
    if header != columns:
        missing, unknown = (", ".join(sorted(some)) for some in (set(columns) - set(header), set(header) - set(columns)))
        raise BadRow(
            "{file}, line 1: the columns are not the expected ones (missing: {missing}; unknown: {unknown}; their order counts)",
            file=name, missing=missing or "none", unknown=unknown or "none",
        )  # fmt: skip
    try:
        for cells in reader:
            if None in cells or None in cells.values():
                problem = f"the row does not have {len(columns)} cells"
                raise BadRow("{file}, line {line}: {problem}", file=name, line=reader.line_num, problem=problem)
            yield Row(cells, name, reader.line_num)
    except csv.Error as error:
        raise BadRow("{file}, line {line}: {problem}", file=name, line=reader.line_num, problem=str(error)) from error


def data_folder() -> Path:
    """Where the CSV files are: inside the package when installed from a wheel, beside it in the repository."""
    package = Path(__file__).parents[1]
    inside = package / "data"
    return inside if inside.is_dir() else package.parent / "data"
