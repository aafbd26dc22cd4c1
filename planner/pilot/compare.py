"""A pilot's figures beside the plan's: component by component, phase by phase, and step time; with a verdict in one sentence.

Three sides: the closed form, a dry run where there is one, and the pilot.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from planner.catalogues import find_gpu
from planner.compute import SpeedAssumptions, StepTime, step_time
from planner.dryrun.summary import DryRunSummary
from planner.errors import PlannerError, UnknownName
from planner.hardware import Gpu
from planner.job import Job
from planner.memory import Assumptions, MemoryBreakdown, memory_breakdown
from planner.pilot.causes import Case, cause_of, peak_bytes
from planner.pilot.record import Measurement
from planner.plan import Note
from planner.sharding import Sharding

__all__ = ["COMPONENTS", "DURING", "NAMES", "VERDICTS", "Compared", "card_of", "compared", "verdict"]

# What stays, as the worker counts it when a backward is over.
_RESIDENT = ("weights", "quantization_state", "adapters", "gradients", "optimizer_states")
# All that a bar chart shows: with what a step saves and makes, and what is not PyTorch's tensors.
COMPONENTS = (*_RESIDENT, "activations", "logits", "slack", "context")
# Phases of the worker, and the instants of the closed form that they cover.
_PHASES = {
    "load": ("load",), "forward": ("forward",), "backward": ("loss", "backward_start", "backward_end"), "optimizer": ("optimizer",),
    "evaluation": ("evaluation",), "save": ("save",),
}  # fmt: skip
NAMES = {
    "quantization_state": "quantisation scales", "optimizer_states": "optimizer states", "logits": "logits and loss",
    "slack": "allocator slack", "context": "CUDA context", "load": "load, peak", "forward": "forward, peak",
    "backward": "loss and backward, peak", "optimizer": "optimizer step, peak", "evaluation": "evaluation, peak", "save": "save, peak",
    "step": "one optimizer step", "tokens": "tokens per second",
}  # fmt: skip
# Where memory can run out.
DURING = {
    "load": "loading the model", "adapters": "attaching adapters", "forward": "forward", "backward": "loss and backward",
    "optimizer": "optimizer step", "evaluation": "evaluation", "save": "writing a checkpoint",
}  # fmt: skip
_ENDS = {
    "cancelled": "the pilot was cancelled after {steps} of {asked} steps",
    "out of memory": "the pilot ran out of memory after {steps} of {asked} steps, in the phase: {what} ({problem})",
    "failed": "the pilot failed after {steps} of {asked} steps ({problem})",
    "died": "the pilot's process died after {steps} of {asked} steps ({problem})",
}
_THROUGH, _HOLDS = "the pilot went through: {steps} steps", "the plan holds: {name} is furthest off, by {share}"
_OFF = "the plan is off: {name} by {share}"
VERDICTS = (*_ENDS.values(), _THROUGH, _HOLDS, _OFF)
_CLOSE = 0.05
_SMALL = 0.02  # of the largest figure: what is smaller decides nothing


class Compared(NamedTuple):
    """One figure of three sides: bytes, or `seconds` or `tokens/s` where `unit` says so. None: not known on this side.

    `cause` is what of the record explains the pilot's difference from the closed form, where something does.
    """

    name: str
    closed_form: float | None
    dry_run: float | None
    measured: float | None
    unit: str = "bytes"
    cause: Note | None = None

    @property
    def residual(self) -> float | None:
        """The closed form less the measurement, in the row's unit."""
        return None if self.closed_form is None or self.measured is None else self.closed_form - self.measured

    @property
    def difference(self) -> float | None:
        """The closed form over the measurement, less one."""
        return self.closed_form / self.measured - 1 if self.closed_form is not None and self.measured else None

    @property
    def dry_difference(self) -> float | None:
        """The dry run over the measurement, less one."""
        return self.dry_run / self.measured - 1 if self.dry_run is not None and self.measured else None


def card_of(measurement: Measurement) -> Gpu | None:
    """The card that a pilot ran on; None for a processor, and for a card that the catalogue does not have."""
    try:
        return find_gpu(measurement.environment.get("gpu", ""))
    except UnknownName:
        return None


def compared(
    measurement: Measurement,
    gpu: Gpu | None = None,
    dry_run: DryRunSummary | None = None,
    *,
    assumptions: Assumptions | None = None,
    speed: SpeedAssumptions | None = None,
) -> list[Compared]:
    """Every figure that the pilot has beside its predictions. A run on a CPU has no GPU memory: only what stays is compared.

    `gpu` is the card that it ran on, else the one that the record names.
    """
    job, gpu = Job(**measurement.job), gpu or card_of(measurement)
    sharding = Sharding(**measurement.sharding) if measurement.sharding else None
    memory = memory_breakdown(job, gpu, assumptions, sharding)
    time = _time(measurement, job, gpu, sharding, speed)
    rows = [
        *_components(measurement, memory, dry_run), *_phases(measurement, memory, dry_run), *_levels(measurement, memory, dry_run),
        *_speed(measurement, time),
    ]  # fmt: skip
    case = Case(measurement, job, gpu, memory, time)
    return [
        row._replace(cause=cause_of(row.name, row.closed_form, row.measured, case)) if row.closed_form and row.measured else row
        for row in rows
    ]


def _components(measurement: Measurement, memory: MemoryBreakdown, dry: DryRunSummary | None) -> Iterable[Compared]:
    at_step = dry.components_at.get("optimizer", {}) if dry else {}
    for name in _RESIDENT if measurement.components else ():
        yield Compared(name, _held(memory, name), at_step.get(name, 0) if at_step else None, float(measurement.components[name]))
    saved = _allocated(measurement, "blocks", less="resident")
    if saved is not None:
        head = _head_copy(memory)
        closed = memory.components_at("forward")
        both = [closed, dry.components_at["forward"]] if dry and "forward" in dry.components_at else [closed]
        # Until the head is entered: what blocks keep, and 16-bit copies of weights, the head's own apart.
        kept = [float(side.get("activations", 0) + side.get("temporaries", 0) - head) for side in both]
        logits = [float(side.get("logits", 0) + head) for side in both]
        yield Compared("activations", kept[0], kept[1] if dry else None, saved)
        yield Compared("logits", logits[0], logits[1] if dry else None, _at_the_loss(measurement))


def _phases(measurement: Measurement, memory: MemoryBreakdown, dry: DryRunSummary | None) -> Iterable[Compared]:
    for phase, instants in _PHASES.items():
        parts = ("blocks", "forward") if phase == "forward" else (phase,)
        found = max(measurement.phases.get(part, {}).get("peak_allocated_bytes", 0) for part in parts)
        if found:
            closed, run = _most(memory.allocated_at, instants), _most(dry.allocated_at, instants) if dry else None
            yield Compared(phase, closed, run, float(found))


def _levels(measurement: Measurement, memory: MemoryBreakdown, dry: DryRunSummary | None) -> Iterable[Compared]:
    allocated, reserved = (peak_bytes(measurement, kind) for kind in ("allocated", "reserved"))
    if not reserved:
        return
    peak, run = memory.peak, dry.peak if dry else None
    yield Compared("reserved", float(peak.reserved), float(run.reserved) if run else None, float(reserved))
    slack = float(run.reserved - run.allocated) if run else None
    yield Compared("slack", float(peak.reserved - peak.allocated), slack, float(reserved - allocated))
    if used := measurement.nvml.get("peak_used_bytes"):
        yield Compared("context", float(peak.device - peak.reserved), None, used - reserved)
        yield Compared("on the card", float(peak.device), float(run.device) if run else None, used)


def _speed(measurement: Measurement, time: StepTime | None) -> Iterable[Compared]:
    if measurement.step_seconds and time:
        yield Compared("step", float(time.seconds), None, measurement.step_seconds, "seconds")
        yield Compared("tokens", float(time.tokens_per_s), None, measurement.tokens_per_s, "tokens/s")


def _time(
    measurement: Measurement, job: Job, gpu: Gpu | None, sharding: Sharding | None, speed: SpeedAssumptions | None
) -> StepTime | None:
    if gpu is None or measurement.environment.get("device") == "cpu":
        return None
    try:
        return step_time(job, gpu, sharding, assumptions=speed)
    except PlannerError:  # of a card whose rates are not known
        return None


def _held(memory: MemoryBreakdown, component: str) -> float:
    """Bytes of a component when a backward is over; gradients are all there then, and none of the step's temporaries."""
    instant = "optimizer" if component == "gradients" else "resident"
    return float(sum(x.bytes for x in memory.lines if x.component == component and x.instant == instant))


def _head_copy(memory: MemoryBreakdown) -> float:
    """Bytes of the head's 16-bit copy, which autocast makes when blocks are over: a line of its own, or part of all weights' copies."""
    lines = {line.name: line.bytes for line in memory.lines_at("forward") if line.component == "temporaries"}
    whole = 2 * memory.job.architecture.embedding_params if memory.job.adapter is None and lines else 0
    return float(lines.get("head in 16 bit", whole))


def _allocated(measurement: Measurement, phase: str, *, less: str) -> float | None:
    now, before = (measurement.phases.get(name, {}).get("allocated_bytes") for name in (phase, less))
    return None if now is None or before is None else float(now - before)


def _at_the_loss(measurement: Measurement) -> float | None:
    """The most that head and loss add to what blocks have left; None where a block's own forward was fuller than that.

    The phase's end would not do: the loss has let go of most of it by then.
    """
    blocks, forward = (measurement.phases.get(name, {}) for name in ("blocks", "forward"))
    if "allocated_bytes" not in blocks or forward.get("peak_allocated_bytes", 0) == blocks.get("peak_allocated_bytes"):
        return None
    return float(forward["peak_allocated_bytes"] - blocks["allocated_bytes"]) if "peak_allocated_bytes" in forward else None


def _most(allocated_at: dict[str, Any], instants: Iterable[str]) -> float | None:
    return max((float(allocated_at[instant]) for instant in instants if instant in allocated_at), default=None)


def verdict(measurement: Measurement, rows: list[Compared]) -> Note:
    """One sentence: how the pilot ended, and how far the plan was off where it was off most.

    Slack and context count as parts of what is reserved and on the card.
    """
    values: dict[str, Any] = {"steps": measurement.steps, "asked": measurement.steps_asked, "problem": measurement.problem}
    if measurement.state != "done":
        values["what"] = DURING.get(measurement.during, "–")
        return Note(_ENDS[measurement.state], values)
    sizes = [row for row in rows if row.unit == "bytes" and row.name not in ("slack", "context") and row.difference is not None]
    largest = max((row.measured or 0 for row in sizes), default=0)
    sizes = [row for row in sizes if (row.measured or 0) > _SMALL * largest]
    if not sizes:
        return Note(_THROUGH, values)
    worst = max(sizes, key=lambda row: abs(row.difference or 0))
    values |= {"name": NAMES.get(worst.name, worst.name), "share": worst.difference}
    return Note(_HOLDS if abs(worst.difference or 0) <= _CLOSE else _OFF, values)
