"""Bands of the prediction: quantiles of measured over predicted, and how often they hold on sources that had no part in them.

Split-conformal by source: the band judged on a source comes from the other sources' rows alone, each source weighing the same.
Source: Vovk, Gammerman & Shafer 2005, Algorithmic Learning in a Random World, sec. 4.4; Barber et al. 2023, arXiv:2202.13415 (weights).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Ratio", "band", "coverage_left_out", "publisher"]


class Ratio(NamedTuple):
    """Measured over predicted, of one row."""

    regime: str
    source: str
    value: float


_FEWEST_SOURCES = 3
# Rows of one publisher share a machine and a program, and so their errors.
_PUBLISHERS = ("fms-acceleration", "litgpt", "qwen", "ms-swift", "fitcheck", "unsloth", "torchtune")


def publisher(source: str) -> str:
    """The publisher of a source: one for all tables of one project."""
    text = source.lower()
    return next((name for name in _PUBLISHERS if name in text), "issue threads" if "issue" in text else source)


def _quantile(rows: list[Ratio], share: float) -> float:
    """The value below which `share` of the weight lies; a source's weight is the square root of its rows."""
    counts = Counter(row.source for row in rows)
    ordered = sorted(rows, key=lambda row: row.value)
    total, passed = sum(counts[row.source] ** -0.5 for row in rows), 0.0
    for row in ordered:
        passed += counts[row.source] ** -0.5
        if passed >= share * total:
            return row.value
    return ordered[-1].value


def band(rows: Iterable[Ratio], regime: str, level: float = 0.9) -> tuple[float, float]:
    """Low and high ratio between which `level` of a regime's rows lie, as many below as above; of all rows where fewer than three
    sources tell of the regime.
    """
    everything = list(rows)
    own = [row for row in everything if row.regime == regime]
    known = own if len({row.source for row in own}) >= _FEWEST_SOURCES else everything
    return _quantile(known, (1 - level) / 2), _quantile(known, (1 + level) / 2)


def coverage_left_out(rows: Iterable[Ratio], level: float = 0.9) -> dict[str, tuple[int, int]]:
    """By regime: rows inside the band of the other sources, and all."""
    everything = list(rows)
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for source in {row.source for row in everything}:
        others = [row for row in everything if row.source != source]
        for regime in {row.regime for row in everything if row.source == source}:
            low, high = band(others, regime, level)
            held = [row for row in everything if (row.source, row.regime) == (source, regime)]
            found[regime][0] += sum(low <= row.value <= high for row in held)
            found[regime][1] += len(held)
    return {regime: (inside, count) for regime, (inside, count) in found.items()}
