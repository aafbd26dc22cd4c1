"""Rows of a file against predictions: errors at the level that each publishes, and their summary.

`allocated` is held against allocated, `reserved` against reserved, `device` and `unspecified` against what the card must hold.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from planner.compute import step_time
from planner.errors import PlannerError
from planner.memory import Assumptions, Peak, memory_breakdown
from planner.units import MiB
from planner.validation.intervals import publisher
from planner.validation.published import Published, Skipped

__all__ = ["Judged", "closed_form_peak", "grouped", "judged", "summary"]


@dataclass(frozen=True)
class Judged:
    """A row and its prediction; bytes per GPU. `error` is predicted over measured, less one."""

    run: Published
    peak: Peak
    predicted: float
    low: float
    high: float
    tokens_per_second: float | None  # predicted, where the row publishes a speed

    @property
    def error(self) -> float:
        return self.predicted / self.run.measured_bytes - 1

    @property
    def inside(self) -> bool:
        """Whether the measured value lies in the 90 % band."""
        return self.low <= self.run.measured_bytes <= self.high

    @property
    def usable_bytes(self) -> float | None:
        """What the card must not exceed: of a run that ran out, the size it is said to have exceeded."""
        if self.run.quantity == "oom_above":
            return self.run.measured_bytes
        return self.run.gpu.usable_memory_bytes if self.run.gpu else None

    @property
    def verdict(self) -> str:
        """As planner.plan gives it."""
        usable = self.usable_bytes
        return "card unknown" if usable is None else self.peak.verdict(usable)

    @property
    def explanation(self) -> str:
        """What the prediction rests on: the fullest instant and the stack."""
        job = self.run.job
        return f"peak at {self.peak.instant}; {job.stack_row.label}, transformers {job.transformers}, loss {job.loss}"

    def document(self) -> dict[str, Any]:
        """The row as JSON; sizes in MiB as published."""
        run = self.run
        oom = run.quantity == "oom_above"
        return {
            "id": run.id, "source": run.source, "quantity": run.quantity, "model": run.job.architecture.name, "method": run.job.method,
            "quantization": run.job.quantization, "gpu": run.gpu.label if run.gpu else "", "num_gpus": run.sharding.num_gpus if run.sharding else 1,
            "predicted_mib": round(self.predicted / MiB, 1), "measured_mib": round(run.measured_bytes / MiB, 1),
            "low_mib": round(self.low / MiB, 1), "high_mib": round(self.high / MiB, 1), "error": None if oom else round(self.error, 4),
            "inside": None if oom else self.inside, "verdict": self.verdict, "explanation": self.explanation,
            "tokens_per_second_measured": run.tokens_per_second, "tokens_per_second_predicted": self.tokens_per_second,
        }  # fmt: skip


def closed_form_peak(run: Published) -> Peak:
    """The closed form's peak. Raises InvalidJob where the libraries refuse the job on its GPUs."""
    return memory_breakdown(run.job, run.gpu, sharding=run.sharding).peak


def judged(
    rows: Iterable[Published | Skipped], peak_of: Callable[[Published], Peak] = closed_form_peak
) -> Iterator[Judged | Skipped]:
    """Each row with its prediction; one that cannot be predicted is skipped with the reason."""
    assumptions = Assumptions()
    for row in rows:
        if isinstance(row, Skipped):
            yield row
            continue
        try:
            peak = peak_of(row)
            speed = _speed(row)
        except PlannerError as error:
            yield Skipped(row.id, error)
            continue
        several = row.sharding is not None
        band = assumptions.need_several_gpus if several else assumptions.need_one_gpu
        predicted = peak.device
        if row.quantity == "allocated":
            predicted, band = peak.allocated, assumptions.allocated_several_gpus if several else assumptions.allocated_one_gpu
        elif row.quantity == "reserved":
            predicted = peak.reserved
        yield Judged(row, peak, float(predicted), float(predicted) * band.low, float(predicted) * band.high, speed)


def _speed(run: Published) -> float | None:
    """Predicted tokens per second of all GPUs, where the row publishes a speed of rows whose length is known."""
    if run.tokens_per_second is None or run.gpu is None or run.lengths != "exact" or run.quantity == "oom_above":
        return None
    return float(step_time(run.job, run.gpu, run.sharding).tokens_per_s)


def _figures(signed: list[float]) -> dict[str, Any]:
    sizes = sorted(map(abs, signed))
    if not sizes:
        return {"n": 0, "median_ape": None, "p90_ape": None, "bias": None}
    p90 = sizes[min(len(sizes) - 1, math.ceil(0.9 * len(sizes)) - 1)]
    return {"n": len(sizes), "median_ape": statistics.median(sizes), "p90_ape": p90, "bias": statistics.median(signed)}


def summary(rows: Iterable[Judged]) -> dict[str, Any]:
    """Errors by quantity, verdicts against what happened, coverage of the band, and speed. Shares, not percent."""
    everything = list(rows)
    measured = [row for row in everything if row.run.quantity != "oom_above"]
    oom = [row for row in everything if row.run.quantity == "oom_above"]
    fitted = [row for row in measured if row.usable_bytes is not None]
    speeds = [
        row.tokens_per_second / row.run.tokens_per_second - 1
        for row in measured
        if row.tokens_per_second and row.run.tokens_per_second
    ]
    return {
        **{
            quantity: _figures([row.error for row in measured if row.run.quantity == quantity])
            for quantity in ("allocated", "reserved", "device", "unspecified")
        },
        "all": _figures([row.error for row in measured]),
        "false_fits": sum(row.verdict == "fits" for row in oom),
        "oom_rows": len(oom),
        "oom_rows_with_middle_below": sum(row.peak.device <= row.run.measured_bytes for row in oom),
        "false_no_fits": sum(row.verdict == "does not fit" for row in fitted),
        "fit_rows": len(fitted),
        "interval_coverage": sum(row.inside for row in measured) / len(measured) if measured else None,
        "tokens_per_second": _figures(speeds),
    }  # fmt: skip


GROUPS: dict[str, Callable[[Judged], str]] = {
    "method": lambda row: row.run.job.quantization if row.run.job.quantization != "none" else row.run.job.method,
    "source": lambda row: publisher(row.run.source),
    "card": lambda row: row.run.gpu.label if row.run.gpu else "not named",
}


def grouped(rows: Iterable[Judged]) -> dict[str, dict[str, dict[str, Any]]]:
    """The figures by method, source and card, each with the coverage of the band."""
    measured = [row for row in rows if row.run.quantity != "oom_above"]
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for group, name_of in GROUPS.items():
        found[group] = {}
        for name in sorted({name_of(row) for row in measured}):
            held = [row for row in measured if name_of(row) == name]
            found[group][name] = _figures([row.error for row in held]) | {"coverage": sum(row.inside for row in held) / len(held)}
    return found
