"""What a data set comes to: rows, tokens, lengths; and what a sequence length does to it. Formulas take scalars or arrays."""

from functools import cached_property
from math import ceil, log2
from typing import Any, NamedTuple

from planner.architecture import Record
from planner.assumption import Assumption
from planner.delivery import DeliveryAssumptions
from planner.storage import StoragePolicy
from planner.texts import translated
from planner.workload import Workload

__all__ = ["LengthBar", "LengthBin", "Malformed", "Profile", "bin_end"]

_PARTS = (
    64  # bins of each doubling: every length has its own up to 128, above they are 0.8 to 1.6 % wide; some 1,500 for any data
)


def bin_end(length: int) -> int:
    """The longest length in the bin of `length`. Slider values, such as 1,024 or 3,072, all end a bin."""
    width = max(1, (1 << max(0, (length - 1).bit_length() - 1)) // _PARTS)
    return -(-length // width) * width


class LengthBin(NamedTuple):
    """Rows of nearly one length: the longest that belongs here, how many rows, and their tokens."""

    longest: int
    rows: int
    tokens: int


class LengthBar(NamedTuple):
    """Rows longer than `above` tokens and up to `to`: those that a sequence length leaves whole, and those that it cuts."""

    above: float
    to: float
    whole: int
    cut: int


class Malformed(NamedTuple):
    """A row that cannot be used: where it is and why, and nothing of what it holds."""

    file: str
    row: int
    reason: str
    detail: str = ""

    def text(self, language: str) -> str:
        """The reason as a sentence."""
        return translated(self.reason, language).format(detail=self.detail)


class Profile(Record):
    """A data set as measured once. `rows` are usable ones; `tokens` are estimated where `bytes_per_token` is set."""

    name: str
    sha256: str  # the version of the data
    file_bytes: int
    files: int = 1
    file_format: str
    formats: dict[str, int]  # rows by format of example
    rows: int
    malformed_rows: int
    malformed: tuple[Malformed, ...] = ()  # the first ones
    tokens: int
    longest_tokens: int
    histogram: tuple[LengthBin, ...]
    model: str = ""
    estimated: str = ""  # why tokens are estimated, with {model}; empty where the model's tokenizer counted them
    bytes_per_token: Assumption | None = None
    tokens_per_s: float | None = None  # of tokenising on this machine
    seconds: float

    @property
    def tokens_per_row(self) -> float:
        """Mean length; 0 where no row is usable."""
        return self.tokens / self.rows if self.rows else 0.0

    @cached_property
    def _columns(self) -> tuple[Any, Any]:
        """Rows and mean length of each bin, the shortest first."""
        import numpy as np

        rows = np.array([each.rows for each in self.histogram], dtype=float)
        return rows, np.array([each.tokens for each in self.histogram], dtype=float) / rows

    def quantile(self, share: Any) -> Any:
        """The length that `share` of the rows do not exceed, to a bin's width."""
        rows, length = self._columns
        if not self.rows:
            return 0.0
        place = rows.cumsum().searchsorted(share * self.rows - 1e-9)  # rounding must not pass over a whole bin
        return length[place.clip(max=len(length) - 1)]

    def truncated_rows_share(self, sequence_length: Any) -> Any:
        """Share of the rows that are longer than the sequence."""
        rows, _, longer = self._against(sequence_length)
        return ((longer > 0) * rows).sum(-1) / max(1, self.rows)

    def truncated_tokens_share(self, sequence_length: Any) -> Any:
        """Share of the tokens that are cut off where each row is one sequence."""
        rows, _, longer = self._against(sequence_length)
        return (longer * rows).sum(-1) / max(1, self.tokens)

    def padding_share(self, sequence_length: Any, micro_batch_size: Any = None) -> Any:
        """Share of the computed tokens that is padding, where rows are cut but not packed.

        Padded to the sequence length; or, with `micro_batch_size`, to the longest of so many rows drawn at random:
        E[max] = sum of l x (F(l)^B - F(l')^B), with F the share of rows up to l and l' the next shorter length.
        """
        import numpy as np

        rows, length, longer = self._against(sequence_length)
        if not self.rows:
            return longer.sum(-1)
        kept = length - longer
        mean = (kept * rows).sum(-1) / self.rows
        if micro_batch_size is None:
            return 1 - mean / sequence_length
        up_to = (rows.cumsum() / self.rows) ** np.asarray(micro_batch_size, dtype=float)[..., None]
        return 1 - mean / (kept * np.diff(up_to, prepend=0)).sum(-1)

    def packed_rows(self, sequence_length: Any) -> Any:
        """Full sequences that all tokens make where rows are packed, as planner.workload counts them."""
        return self.tokens / sequence_length

    def packing_gain(self, sequence_length: Any) -> Any:
        """Sequences without packing over sequences with it: how many times less is computed."""
        return self.rows / self.packed_rows(sequence_length) if self.tokens else 1.0

    def steps_per_epoch(self, sequence_length: Any, global_batch_size: Any, *, packing: bool) -> Any:
        """Optimizer steps, the last of them perhaps not full."""
        rows = self.packed_rows(sequence_length) if packing else self.rows
        return -(-rows // global_batch_size)

    def workload(self, base: Workload | None = None) -> Workload:
        """`base` with these examples and their mean length. Raises InvalidJob where no row is usable."""
        return Workload(**{**dict(base or Workload()), "examples": self.rows, "tokens_per_example": self.tokens_per_row})

    def storage_policy(self, base: StoragePolicy | None = None) -> StoragePolicy:
        """`base` with the size of these files."""
        return StoragePolicy(**{**dict(base or StoragePolicy()), "dataset_bytes": self.file_bytes})

    def delivery_assumptions(self, base: DeliveryAssumptions | None = None) -> DeliveryAssumptions:
        """`base` with the measured rate of tokenising, where a tokenizer was at hand."""
        base = base or DeliveryAssumptions()
        if self.tokens_per_s is None:
            return base
        rate, source = self.tokens_per_s, f"tokens/s measured on {self.name} with the tokenizer of {self.model}, on this machine"
        return base.model_copy(
            update={"tokenising": Assumption(value=rate, low=rate / 2, high=2 * rate, source=source, calibrated=True)}
        )

    def bars(self, sequence_length: int, most: int = 40) -> list[LengthBar]:
        """The histogram for a chart on a logarithmic axis: bars of one width there, `most` of them or fewer where that can be."""
        for parts in (32, 16, 8, 4):  # of each doubling
            whole: dict[int, int] = {}
            cut: dict[int, int] = {}
            for each in self.histogram:
                place = ceil(parts * log2(each.longest) - 1e-9)
                kind = cut if each.tokens > sequence_length * each.rows else whole
                kind[place] = kind.get(place, 0) + each.rows
            places = sorted({*whole, *cut})
            if not places or places[-1] - places[0] < most:
                break
        return [LengthBar(2 ** ((n - 1) / parts), 2 ** (n / parts), whole.get(n, 0), cut.get(n, 0)) for n in places]

    def _against(self, sequence_length: Any) -> tuple[Any, Any, Any]:
        """Rows and mean length of each bin, and by how much it is beyond the sequence length."""
        import numpy as np

        rows, length = self._columns
        return rows, length, np.maximum(length - np.asarray(sequence_length, dtype=float)[..., None], 0)
