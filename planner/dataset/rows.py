"""A file or folder of examples -> its rows, one after another, in little memory: JSON lines, CSV, text, Parquet and Arrow."""

import csv
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from planner.dataset.examples import FIELDS, RowProblem, example_text, knows
from planner.errors import PlannerError

__all__ = ["COLUMNAR", "ROW_LIMIT_BYTES", "SUFFIXES", "Reader", "Row"]

ROW_LIMIT_BYTES = 2 * 2**20  # of one row: half a million tokens; tokenising one takes some 100 bytes of memory for each
SUFFIXES = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".arrow": "arrow",
    ".txt": "text",
}  # fmt: skip
COLUMNAR = ("parquet", "arrow")
_METADATA = ("dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json")  # of save_to_disk, and of the Hub
_PACKED = (b"\x1f\x8b", b"(\xb5/\xfd", b"PK\x03\x04", b"BZh", b"\xfd7zXZ")
_CHUNK_BYTES = 2**20
_DEEPEST = 3  # folders below the one that is named


class Row(NamedTuple):
    """One row: its number in its file, counted from 1, and its text in a known format, or what is wrong with it."""

    file: str
    number: int
    text: str = ""
    format: str = ""
    problem: RowProblem | None = None


class Reader:
    """The rows of `path`: a file, or a folder as the Hub or `save_to_disk` has it, of which the training split is read.

    `watch` is called with `done_bytes` of `total_bytes` now and then, and may raise to end the reading. A row beyond
    `row_limit_bytes` is passed over and never held. Raises PlannerError, one sentence, for what cannot be read at all.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        row_limit_bytes: int = ROW_LIMIT_BYTES,
        hashed: bool = False,
        watch: Callable[[], None] = lambda: None,
    ) -> None:
        self.path, self._limit, self._watch = Path(path), row_limit_bytes, watch
        with _said(self.path):
            self.files, self.format = _found(self.path)
            self._stats = [file.stat() for file in self.files]
        self.file_bytes = sum(found.st_size for found in self._stats)
        if not self.file_bytes:
            raise PlannerError("{path!r} is empty", path=str(path))
        self.total_bytes = self.file_bytes * (2 if hashed and self.format in COLUMNAR else 1)
        self.done_bytes = 0
        self._hash = hashlib.sha256() if hashed else None
        self._digests: list[str] = []

    def __iter__(self) -> Iterator[Row]:
        for file, size in zip(self.files, self._stats, strict=True):
            before = self.done_bytes
            with _said(file), open(file, "rb", buffering=_CHUNK_BYTES) as opened:
                self._check(opened, file)
                for number, value in self._values(opened, file, size.st_size):
                    yield _row(file.name, number, value, self._limit)
                if self._hash and self.format in COLUMNAR:
                    opened.seek(0)
                    while self._took(opened.read(_CHUNK_BYTES)):
                        pass
            if self._hash:
                self._digests.append(f"{self._hash.hexdigest()}  {file.name}\n")
                self._hash = hashlib.sha256()
            self.done_bytes = before + size.st_size * self.total_bytes // self.file_bytes

    @property
    def sha256(self) -> str:
        """Of the file as `sha256sum` has it, once it was read; of several the hash of the lines that `sha256sum` prints."""
        whole = self._digests[0].split()[0] if len(self._digests) == 1 else ""
        return whole or hashlib.sha256("".join(self._digests).encode()).hexdigest()

    def check_unchanged(self) -> None:
        """Raise PlannerError where a file is another than when the reading began."""
        for file, before in zip(self.files, self._stats, strict=True):
            with _said(file):
                now = file.stat()
            if (now.st_size, now.st_mtime_ns, now.st_ino) != (before.st_size, before.st_mtime_ns, before.st_ino):
                raise PlannerError("{path!r} changed while it was read; try again once nothing writes to it", path=str(file))

    def _took(self, piece: bytes) -> bool:
        """Count and hash what was read."""
        before = self.done_bytes // _CHUNK_BYTES
        self.done_bytes += len(piece)
        if self._hash:
            self._hash.update(piece)
        if self.done_bytes // _CHUNK_BYTES != before:
            self._watch()
        return bool(piece)

    def _check(self, opened: IO[bytes], file: Path) -> None:
        """Raise PlannerError for a file that is none of rows."""
        start = opened.peek(4096)[:4096]  # type: ignore[attr-defined]
        if start.startswith(_PACKED):
            raise PlannerError("{path!r} is compressed; unpack it first", path=str(file))
        if start.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise PlannerError("{path!r} is UTF-16; save it as UTF-8", path=str(file))
        if self.format == "jsonl" and start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            raise PlannerError("{path!r} is one JSON array; write one object on each line: jq -c '.[]'", path=str(file))
        if self.format not in COLUMNAR and b"\0" in start:
            raise PlannerError("{path!r} is no text; give JSONL, CSV, Parquet, Arrow or text", path=str(file))

    def _values(self, opened: IO[bytes], file: Path, size: int) -> Iterator[tuple[int, Any]]:
        if self.format in COLUMNAR:
            return self._columnar(opened, file, size)
        lines = self._lines(opened)
        if self.format == "csv":
            return self._csv(lines, file)
        filled = ((number, line) for number, line in lines if isinstance(line, RowProblem) or line.strip())
        return _json_lines(filled) if self.format == "jsonl" else filled

    def _lines(self, opened: IO[bytes]) -> Iterator[tuple[int, str | RowProblem]]:
        """Each line with its number; one that is too long is passed over in pieces."""
        number = 0
        while piece := opened.readline(self._limit + 1):
            number += 1
            self._took(piece)
            if len(piece) > self._limit and not piece.endswith(b"\n"):
                while (rest := opened.readline(_CHUNK_BYTES)) and self._took(rest) and not rest.endswith(b"\n"):
                    pass
                yield number, _too_long(self._limit)
                continue
            try:
                yield number, piece.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                yield number, RowProblem("it is not UTF-8")

    def _csv(self, lines: Iterator[tuple[int, str | RowProblem]], file: Path) -> Iterator[tuple[int, Any]]:
        """Records below a header. One whose quote never closes ends at the limit, and reading goes on behind it."""
        csv.field_size_limit(max(csv.field_size_limit(), self._limit))  # of the process; 128 KiB is too short for a text
        _, first = next(lines, (1, ""))
        delimiter = max("\t;,", key=first.count) if isinstance(first, str) else ","
        header = _cells(first, delimiter) if isinstance(first, str) else None
        if header is None:
            raise PlannerError("the header of {path!r} cannot be read; save the file as UTF-8", path=str(file))
        _check_columns(header, file)
        held: list[str] = []
        begun = size = quotes = 0
        for number, line in lines:
            if isinstance(line, RowProblem):
                yield begun or number, line
                held, begun, size, quotes = [], 0, 0, 0
                continue
            if not held and not line.strip():
                continue
            held.append(line)
            begun, size, quotes = begun or number, size + len(line), quotes + line.count('"')
            if quotes % 2 == 0:
                yield begun, _record("".join(held), header, delimiter)
            elif size > self._limit:
                yield begun, RowProblem("a quote is not closed")
            else:
                continue
            held, begun, size, quotes = [], 0, 0, 0
        if held:
            yield begun, RowProblem("a quote is not closed")

    def _columnar(self, opened: IO[bytes], file: Path, size: int) -> Iterator[tuple[int, Any]]:
        """Rows of Parquet, or of Arrow as the `datasets` library keeps it; in batches, of the columns that are known."""
        rows = 0  # in the file, where its format says so
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError as error:
            raise PlannerError(
                "Parquet and Arrow files need the package 'pyarrow': pip install 'finetune-planner[data]'"
            ) from error
        try:
            if self.format == "parquet":
                # Not pre_buffer, and a small buffer: else whole row groups are held.
                table = parquet.ParquetFile(opened, pre_buffer=False, buffer_size=_CHUNK_BYTES)
                names = table.schema_arrow.names
                rows = table.metadata.num_rows
                batches = table.iter_batches(batch_size=256, columns=[name for name in names if name in FIELDS])
            else:
                stream = pa.ipc.open_stream(opened)
                names, batches = stream.schema.names, (batch.select(_known(batch.schema.names)) for batch in stream)
            _check_columns(names, file)
            number, before = 0, self.done_bytes
            for batch in batches:
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
                self.done_bytes = before + (size * number // rows if rows else min(opened.tell(), size))
                self._watch()
            self.done_bytes = before + size
        except pa.ArrowException as error:
            kind = self.format.capitalize()
            raise PlannerError("{path!r} cannot be read as {kind}; write it again", path=str(file), kind=kind) from error


@contextmanager
def _said(path: Path) -> Iterator[None]:
    """What the system says of a file, as one sentence."""
    try:
        yield
    except PlannerError:
        raise
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise PlannerError("{path!r} cannot be read ({problem})", path=str(path), problem=problem) from error
    except ValueError as error:  # a null byte in the name
        raise PlannerError("{path!r} cannot be read ({problem})", path=str(path), problem=type(error).__name__) from error


def _found(path: Path) -> tuple[list[Path], str]:
    """The files to read, in order, and their format."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return [path], SUFFIXES.get(path.suffix.lower(), "text")
    if not stat.S_ISDIR(mode):
        raise PlannerError("{path!r} is neither a file nor a folder; give JSONL, CSV, Parquet, Arrow or text", path=str(path))
    found: dict[str, list[Path]] = {}
    for folder, folders, names in os.walk(path):  # does not follow links to folders
        below = Path(folder).relative_to(path)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if len(below.parts) < _DEEPEST else []
        for name in sorted(names):
            kind = SUFFIXES.get(Path(name).suffix.lower())
            # `datasets` keeps its maps in cache-*; is_file leaves out pipes and links that lead nowhere
            if kind and name not in _METADATA and not name.startswith((".", "cache-")) and Path(folder, name).is_file():
                found.setdefault(kind, []).append(Path(folder, name))
    if not found:
        raise PlannerError("the folder {path!r} holds no JSONL, CSV, Parquet, Arrow or text file", path=str(path))
    # A README.txt beside the data is none of them.
    kind, files = max(found.items(), key=lambda item: sum(file.stat().st_size for file in item[1]))
    training = [file for file in files if any(part.startswith("train") for part in file.relative_to(path).parts)]
    return training or files, kind


def _known(names: list[str]) -> list[str]:
    return [name for name in names if name in FIELDS]


def _check_columns(names: list[str], file: Path) -> None:
    if not knows(names):
        raise PlannerError(
            "the columns of {path!r} are of no known format; name them text, prompt and completion, messages, or instruction and output",
            path=str(file),
        )


def _too_long(limit: int) -> RowProblem:
    return RowProblem("it is longer than {detail} MiB", f"{limit / 2**20:g}")


def _row(file: str, number: int, value: Any, limit: int) -> Row:
    """What was read as a row with its text."""
    try:
        if isinstance(value, RowProblem):
            raise value
        kind, text = example_text(value)
        text = text.strip("\r\n")
        if len(text.encode()) > limit:
            raise _too_long(limit)
    except RowProblem as problem:
        return Row(file, number, problem=problem)
    except UnicodeEncodeError:
        return Row(file, number, problem=RowProblem("it has half of a surrogate pair"))
    return Row(file, number, text, kind)


def _json_lines(lines: Iterator[tuple[int, str | RowProblem]]) -> Iterator[tuple[int, Any]]:
    for number, line in lines:
        if isinstance(line, RowProblem):
            yield number, line
            continue
        try:
            value = json.loads(line)
            yield number, value if isinstance(value, dict) else None
        except json.JSONDecodeError as error:
            yield number, RowProblem("it is no valid JSON, from column {detail} on", str(error.colno))
        except (ValueError, RecursionError):
            yield number, RowProblem("it is JSON that cannot be read: a number too long, or nested too deep")


def _cells(text: str, delimiter: str) -> list[str] | None:
    """Cells of one record; None where its quotes, or bare carriage returns, are none of CSV."""
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True), None)
    except csv.Error:
        return None


def _record(text: str, header: list[str], delimiter: str) -> Any:
    cells = _cells(text, delimiter)
    if cells is None:
        return RowProblem("its quotes are not those of CSV")
    if len(cells) > len(header):
        return RowProblem("it has more cells than the header")
    if len(cells) < len(header):
        return RowProblem("it has fewer cells than the header")
    return dict(zip(header, cells, strict=True))
