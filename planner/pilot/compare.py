"""A pilot's figures beside the plan's: component by component, phase by phase, and step time; with a verdict in one sentence."""

from typing import Any, NamedTuple

from planner.compute import step_time
from planner.errors import PlannerError
from planner.hardware import Gpu
from planner.job import Job
from planner.memory import MemoryBreakdown, memory_breakdown
from planner.pilot.record import Measurement
from planner.plan import Note

__all__ = ["NAMES", "VERDICTS", "Compared", "compared", "verdict"]

# What stays, as the worker counts it when a backward is over.
COMPONENTS = ("weights", "quantization_state", "adapters", "gradients", "optimizer_states")
# Phases of the worker, and the instants of the closed form that they cover.
PHASES = {
    "load": ("load",), "forward": ("forward",), "backward": ("loss", "backward_start", "backward_end"), "optimizer": ("optimizer",),
}  # fmt: skip
NAMES = {
    "quantization_state": "quantisation scales", "optimizer_states": "optimizer states", "forward": "forward, peak",
    "backward": "loss and backward, peak", "optimizer": "optimizer step, peak", "load": "load, peak", "step": "one optimizer step",
}  # fmt: skip
_ENDS = {
    "cancelled": "the pilot was cancelled after {steps} of {asked} steps",
    "out of memory": "the pilot ran out of memory after {steps} of {asked} steps ({problem})",
    "failed": "the pilot failed after {steps} of {asked} steps ({problem})",
    "died": "the pilot's process died after {steps} of {asked} steps ({problem})",
}
_THROUGH, _HOLDS = "the pilot went through: {steps} steps", "the plan holds: {name} is furthest off, by {share}"
_OFF = "the plan is off: {name} by {share}"
VERDICTS = (*_ENDS.values(), _THROUGH, _HOLDS, _OFF)
_CLOSE = 0.05
_SMALL = 0.02  # of the largest figure: what is smaller decides nothing


class Compared(NamedTuple):
    """One figure of the plan and of the pilot: bytes, or seconds where `unit` says so. None: not known on this side."""

    name: str
    predicted: float | None
    measured: float | None
    unit: str = "bytes"

    @property
    def difference(self) -> float | None:
        """The prediction over the measurement, less one."""
        return self.predicted / self.measured - 1 if self.predicted is not None and self.measured else None


def compared(measurement: Measurement, gpu: Gpu | None = None) -> list[Compared]:
    """Every figure that both sides have. A run on a CPU has no GPU memory: its components are compared, its peaks are not."""
    job = Job(**measurement.job)
    memory = memory_breakdown(job, gpu)
    rows = [
        Compared(name, _held(memory, name), float(measurement.components[name])) for name in COMPONENTS if measurement.components
    ]
    for phase, instants in PHASES.items():
        found = measurement.phases.get(phase, {}).get("peak_allocated_bytes")
        if found:
            rows.append(Compared(phase, float(max(memory.allocated_at[instant] for instant in instants)), float(found)))
    peaks = [phase.get("peak_reserved_bytes", 0) for name, phase in measurement.phases.items() if name != "load"]
    if any(peaks):
        rows.append(Compared("reserved", float(memory.peak.reserved), float(max(peaks))))
    if used := measurement.nvml.get("peak_used_bytes"):
        rows.append(Compared("on the card", float(memory.peak.device), used))
    if measurement.step_seconds and gpu is not None:
        try:
            predicted = float(step_time(job, gpu).seconds)
        except PlannerError:  # of a card whose rates are not known
            predicted = None
        rows.append(Compared("step", predicted, measurement.step_seconds, "seconds"))
    return rows


def _held(memory: MemoryBreakdown, component: str) -> float:
    """Bytes of a component when a backward is over; gradients are all there then, and none of the step's temporaries."""
    if component == "gradients":
        return float(sum(x.bytes for x in memory.lines if x.component == component and x.instant == "optimizer"))
    return float(sum(x.bytes for x in memory.lines if x.component == component and x.instant == "resident"))


def verdict(measurement: Measurement, rows: list[Compared]) -> Note:
    """One sentence: how the pilot ended, and how far the plan was off where it was off most."""
    values: dict[str, Any] = {"steps": measurement.steps, "asked": measurement.steps_asked, "problem": measurement.problem}
    if measurement.state != "done":
        return Note(_ENDS[measurement.state], values)
    largest = max((row.measured or 0 for row in rows if row.unit == "bytes"), default=0)
    sizes = [row for row in rows if row.unit == "bytes" and row.difference is not None and (row.measured or 0) > _SMALL * largest]
    if not sizes:
        return Note(_THROUGH, values)
    worst = max(sizes, key=lambda row: abs(row.difference or 0))
    values |= {"name": NAMES.get(worst.name, worst.name), "share": worst.difference}
    return Note(_HOLDS if abs(worst.difference or 0) <= _CLOSE else _OFF, values)
