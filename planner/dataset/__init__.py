"""The user's own data: read row by row in little memory, told what is wrong with it, and measured in tokens of the model."""

import os
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator

from planner.dataset.profile import LengthBin, Malformed, Profile, bin_end
from planner.dataset.rows import ROW_LIMIT_BYTES, Reader, Row
from planner.dataset.tokens import BYTES_PER_TOKEN, Counter
from planner.errors import PlannerError

__all__ = ["ROW_LIMIT_BYTES", "LengthBin", "Malformed", "Profile", "Reader", "Row", "dataset_texts", "measure_dataset"]

_FIRST = 20  # malformed rows that are named
_BATCH_ROWS, _BATCH_CHARACTERS = 1000, 2**20


def dataset_texts(path: str | os.PathLike[str]) -> Iterator[str]:
    """The text of each usable row. Raises PlannerError, one sentence, where the path cannot be read."""
    return (row.text for row in Reader(path) if not row.problem)


def measure_dataset(
    path: str | os.PathLike[str],
    model: str | None = None,
    *,
    allow_hub: bool = False,
    progress: Callable[[int, int, int], None] = lambda done_bytes, total_bytes, rows: None,
    cancelled: Callable[[], bool] = lambda: False,
    row_limit_bytes: int = ROW_LIMIT_BYTES,
) -> Profile:
    """Read all of `path` once (Parquet and Arrow twice, for the hash) and measure it with the tokenizer of `model`.

    `progress` hears of bytes done, bytes in all and rows so far; both it and `cancelled` are called about once a megabyte.
    Raises PlannerError, one sentence: for a path that cannot be read, one that changes meanwhile, or when cancelled.
    """
    begun = time.perf_counter()
    counter = Counter(model, allow_hub=allow_hub)
    rows_by_length: Tally[int] = Tally()
    tokens_by_length: Tally[int] = Tally()
    formats: Tally[str] = Tally()
    malformed: list[Malformed] = []
    rows_failed = longest = 0

    def watch() -> None:
        if cancelled():
            raise PlannerError("measuring {path!r} was cancelled", path=str(path))
        progress(reader.done_bytes, reader.total_bytes, formats.total() + rows_failed)

    reader = Reader(path, row_limit_bytes=row_limit_bytes, hashed=True, watch=watch)

    def count(texts: list[str]) -> int:
        found = counter.lengths(texts)
        for length in found:
            end = bin_end(length)
            rows_by_length[end] += 1
            tokens_by_length[end] += length
        return max(found, default=0)

    held: list[str] = []
    characters = 0
    for row in reader:
        if row.problem:
            rows_failed += 1
            if len(malformed) < _FIRST:
                malformed.append(Malformed(row.file, row.number, row.problem.reason, row.problem.detail))
            continue
        formats[row.format] += 1
        held.append(row.text)
        characters += len(row.text)
        if len(held) >= _BATCH_ROWS or characters >= _BATCH_CHARACTERS:
            longest = max(longest, count(held))
            held, characters = [], 0
    longest = max(longest, count(held))
    reader.check_unchanged()
    tokens = tokens_by_length.total()
    return Profile(
        name=reader.path.resolve().name, sha256=reader.sha256, file_bytes=reader.file_bytes, files=len(reader.files),
        file_format=reader.format, formats=dict(formats.most_common()), rows=formats.total(), malformed_rows=rows_failed,
        malformed=tuple(malformed), tokens=tokens, longest_tokens=longest,
        histogram=tuple(LengthBin(end, rows, tokens_by_length[end]) for end, rows in sorted(rows_by_length.items())),
        model=counter.model, estimated=counter.estimated, bytes_per_token=BYTES_PER_TOKEN if counter.estimated else None,
        tokens_per_s=tokens / counter.seconds if counter.name and tokens and counter.seconds else None,
        seconds=time.perf_counter() - begun,
    )  # fmt: skip
