"""What a pilot measured as assumptions of the plan: the CUDA context, the allocator's slack, the share of the peak rate.

Each is used only where it holds: a context on cards of the same architecture (and, as far as one knows, the same driver), a slack
for the same method and attention kernel, a share of the peak on the very card. A figure outside its bounds is refused.
"""

from typing import NamedTuple

from planner.assumption import Assumption
from planner.compute import SpeedAssumptions, step_time
from planner.errors import PlannerError
from planner.hardware import Gpu
from planner.job import Job
from planner.memory import Assumptions
from planner.memory.device import context_key, slack_key
from planner.memory.widths import Kernel, attention_kernel, widths
from planner.pilot.causes import peak_bytes
from planner.pilot.compare import card_of
from planner.pilot.record import Measurement
from planner.plan import Note, NumBytes
from planner.roofline import card_rates

__all__ = ["Calibration", "Row", "calibrated"]

# Half the low end to twice the high end of the published band: what is outside has another process in it, or misses something.
_CONTEXT_BOUNDS = (0.5, 2.0)
# A slack is 1 or more by definition; the 95th percentile of the loosest published runs is 1.71 (planner.memory.device).
_MOST_SLACK = 2.0
# No matrix multiplication runs beyond the peak; published runs of all cards reach 25 % of it or more, so a tenth is something else.
_SHARES = (0.1, 1.0)
# Of a predicted step; where matrix multiplications take less, its time says little about them.
_LEAST_PART = 0.5
# A context grows as more kernels are loaded (an evaluation, a merge): a tenth either way.
_CONTEXT_BAND = 0.1
_FEWEST_STEPS = 5  # the first three are warm-up
_OF_THE_SHARE = ("matrix multiplications", "output head and loss", "attention", "recomputation")


class Row(NamedTuple):
    """One assumption before and after: its unit is `bytes`, `ratio` or `share`. `after` is None where the figure is refused."""

    name: str
    unit: str
    before: Assumption
    after: Assumption | None
    note: Note  # where it holds, or why it is refused


class Calibration(NamedTuple):
    """The assumptions with what a pilot measured in them, and what has changed."""

    memory: Assumptions
    speed: SpeedAssumptions
    rows: tuple[Row, ...]

    @property
    def useful(self) -> bool:
        """Whether anything was taken over."""
        return any(row.after for row in self.rows)


def calibrated(measurement: Measurement, memory: Assumptions | None = None, speed: SpeedAssumptions | None = None) -> Calibration:
    """`memory` and `speed` (None: the published ones) with the pilot's figures beside theirs, and the rows of what has changed.

    Raises PlannerError for a run on a processor, for one that did not go through, and for a card that the catalogue lacks.
    """
    memory, speed = memory or Assumptions(), speed or SpeedAssumptions()
    name = measurement.environment.get("gpu", "")
    if measurement.environment.get("device") == "cpu" or not name:
        raise PlannerError("a pilot on the processor says nothing about a GPU; run it on one to calibrate the plan")
    if measurement.sharding or measurement.blocks_run:
        raise PlannerError("only a pilot of the whole model on one GPU calibrates the plan")
    if measurement.state != "done":
        raise PlannerError("only a pilot that went through calibrates the plan; run it to its end")
    gpu = card_of(measurement)
    if gpu is None:
        raise PlannerError("the catalogue has no card named {name!r}, so its pilot cannot calibrate the plan", name=name)
    source = " ".join(filter(None, ("pilot", str(measurement.environment.get("date", "")), "on", gpu.label)))
    job = Job(**measurement.job)
    kernel = attention_kernel(job, widths(job), gpu.compute_capability)
    context = _context(measurement, gpu, memory, source)
    slack = _slack(measurement, job, kernel, memory, source)
    share = _share(measurement, job, gpu, speed, source)
    if context.after and gpu.compute_capability:
        found = {context_key(gpu.compute_capability): context.after}
        memory = memory.model_copy(update={"measured_context": memory.measured_context | found})
    if slack.after:
        memory = memory.model_copy(
            update={"measured_slack": memory.measured_slack | {slack_key(job.method, kernel): slack.after}}
        )
    if share.after:
        speed = _with_share(speed, gpu, share.after)
    return Calibration(memory, speed, (context, slack, share))


def _context(measurement: Measurement, gpu: Gpu, memory: Assumptions, source: str) -> Row:
    before, reserved = memory.context(gpu.compute_capability), peak_bytes(measurement, "reserved")
    row = Row("CUDA context", "bytes", before, None, Note("the driver's own figure (NVML) is missing from the record", {}))
    used = measurement.nvml.get("peak_used_bytes")
    if not used or not reserved or not gpu.compute_capability:
        return row
    size = used - measurement.nvml.get("used_before_bytes", 0) - reserved
    published = Assumptions().context(gpu.compute_capability)
    low, high = _CONTEXT_BOUNDS[0] * published.low, _CONTEXT_BOUNDS[1] * published.high
    if not low <= size <= high:
        values = {"size": NumBytes(size), "low": NumBytes(low), "high": NumBytes(high)}
        return row._replace(
            note=Note("{size} is not what a CUDA context takes ({low} to {high}): something else is in the figure", values)
        )
    after = _assumption(size, size * (1 - _CONTEXT_BAND), size * (1 + _CONTEXT_BAND), source)
    holds = Note(
        "for cards of compute capability {capability} with the same driver", {"capability": context_key(gpu.compute_capability)}
    )
    return row._replace(after=after, note=holds)


def _slack(measurement: Measurement, job: Job, kernel: Kernel, memory: Assumptions, source: str) -> Row:
    before = memory.slack(job.method, kernel)
    row = Row("allocator slack", "ratio", before, None, Note("the record has no peaks of GPU memory", {}))
    allocated, reserved = (peak_bytes(measurement, kind) for kind in ("allocated", "reserved"))
    if not allocated or not reserved:
        return row
    ratio = reserved / allocated
    if not 1 <= ratio <= _MOST_SLACK:
        values = {"percent": ratio - 1, "most_percent": _MOST_SLACK - 1}
        return row._replace(
            note=Note(
                "{percent} beyond what is allocated is not between 0 and {most_percent}: the record contradicts itself, or the run was unusual",
                values,
            )
        )
    # One run does not say how far others stray: the published band stays, widened where the run is outside it.
    published = Assumptions().slack(job.method, kernel)
    after = _assumption(ratio, min(published.low, ratio), max(published.high, ratio), source)
    holds = Note("for {method} with the attention kernel {kernel}, on any card", {"method": job.method, "kernel": kernel.name})
    return row._replace(after=after, note=holds)


def _share(measurement: Measurement, job: Job, gpu: Gpu, speed: SpeedAssumptions, source: str) -> Row:
    """The share of the peak with which the predicted step takes as long as the measured one, all else as assumed."""
    published, seconds = SpeedAssumptions().matmul_share, measurement.step_seconds
    row = Row(
        "share of the peak rate", "share", published, None, Note("the record has too few steps to tell how long one takes", {})
    )
    try:
        rates, time = card_rates(job, gpu, speed), step_time(job, gpu, assumptions=speed)
    except PlannerError as error:
        return row._replace(note=Note(error.template, error.values))
    row = row._replace(
        before=speed.measured_matmul_share.get(gpu.id) or published.model_copy(update={"value": rates.matmul / rates.peak})
    )
    if not seconds or measurement.steps < _FEWEST_STEPS:
        return row
    part = sum(float(line.seconds) for line in time.lines if line.name in _OF_THE_SHARE) / float(time.seconds)
    if part < _LEAST_PART:
        return row._replace(
            note=Note("only {percent} of this step is matrix multiplications; a larger batch would tell", {"percent": part})
        )

    def seconds_at(share: float) -> float:
        return float(step_time(job, gpu, assumptions=_with_share(speed, gpu, _assumption(share, share, share, source))).seconds)

    low, high = _SHARES
    if not seconds_at(high) <= seconds <= seconds_at(low):
        return row._replace(note=Note("no share between a tenth and all of the peak gives a step as long as this one", {}))
    for _ in range(40):  # the step gets shorter as the share grows
        middle = (low + high) / 2
        low, high = (middle, high) if seconds_at(middle) > seconds else (low, middle)
    least, most = (high * edge / published.value for edge in (published.low, published.high))
    after = _assumption(high, least, min(most, 1.0), source)
    return row._replace(after=after, note=Note("on {gpu} only: another card reaches another share", {"gpu": gpu.label}))


def _with_share(speed: SpeedAssumptions, gpu: Gpu, share: Assumption) -> SpeedAssumptions:
    return speed.model_copy(update={"measured_matmul_share": speed.measured_matmul_share | {gpu.id: share}})


def _assumption(value: float, low: float, high: float, source: str) -> Assumption:
    return Assumption(value=value, low=low, high=high, source=source, calibrated=True)
