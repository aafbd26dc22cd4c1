"""Known causes of a difference between plan and pilot, each with a test on the record's own figures."""

from collections.abc import Callable
from dataclasses import dataclass

from planner.compute import StepTime
from planner.hardware import Gpu
from planner.job import Job
from planner.memory import MemoryBreakdown
from planner.memory.resident import state_bytes
from planner.memory.widths import widths
from planner.pilot.record import Measurement
from planner.plan import Note, NumBytes
from planner.units import MiB

__all__ = ["Case", "cause_of", "peak_bytes"]

# Of one 4-bit layer beside its scales: 16 values of the format; double quantisation adds 256 of its own and an offset, all fp32.
# Source: bitsandbytes/functional.py, quantize_4bit and QuantState.
_TABLE_BYTES, _DOUBLE_TABLE_BYTES = 64, 1028
_EXPLAINS, _CLOSE, _AGREES = 0.5, 0.01, 0.03
_AT_THE_LIMIT, _BUSY = 0.92, 0.8
_SPEED = ("step", "tokens")


@dataclass(frozen=True)
class Case:
    """All that a cause may ask: the record and its predictions."""

    measurement: Measurement
    job: Job
    gpu: Gpu | None
    memory: MemoryBreakdown
    time: StepTime | None


def peak_bytes(measurement: Measurement, kind: str) -> int:
    """The most `allocated` or `reserved` bytes over all phases; 0 where no GPU memory was measured."""
    return max((phase.get(f"peak_{kind}_bytes", 0) for phase in measurement.phases.values()), default=0)


def cause_of(name: str, closed_form: float, measured: float, case: Case) -> Note | None:
    """The first known cause that explains a figure's difference; where none does and it is 3 % or more, that is said."""
    more, off = measured - closed_form, abs(closed_form / measured - 1)
    for names, test in _EXACT:
        if name in names and (found := test(case, more)):
            return found
    if off <= _CLOSE:
        return None
    for names, test in _LIKELY:
        if name in names and (found := test(case, more)):
            return found
    matters = name in _SPEED or abs(more) > MiB
    return Note("no known cause", {}) if matters and off > _AGREES else None


def _explains(part: float, more: float) -> bool:
    return part > 0 and abs(more - part) <= _EXPLAINS * abs(more)


# ---- causes whose size is known ----------------------------------------------------------------------------------------


def _code_tables(case: Case, more: float) -> Note | None:
    job, a = case.job, case.job.architecture
    if job.quantization not in ("nf4", "fp4"):
        return None
    experts = a.num_experts if job.experts_as_linears else 0
    layers = sum(block.num_blocks * (len(block.linears) + experts * len(block.experts)) for block in a.blocks)
    least, most = layers * _TABLE_BYTES, layers * (_TABLE_BYTES + (_DOUBLE_TABLE_BYTES if job.double_quant else 0))
    if not least <= more <= 1.02 * most:  # tables may be shared between layers
        return None
    return Note("each of {count} 4-bit layers has tables of its format beside its scales", {"count": layers})


def _rotary_buffers(case: Case, more: float) -> Note | None:
    a = case.job.architecture
    if (
        not a.rotary or not 0 < more <= 8 * a.head_dim
    ):  # frequencies and their original copy, fp32; for two kinds of blocks at most
        return None
    return Note("rotary frequencies are buffers, and no weights", {})


def _paged_states(case: Case, more: float) -> Note | None:
    job = case.job
    if not job.optimizer_row.paged:
        return None
    paged = float(state_bytes(job, widths(job), on_card=False) - state_bytes(job, widths(job)))
    return (
        Note("{size} of paged states are outside PyTorch's allocator", {"size": NumBytes(paged)})
        if _explains(paged, more)
        else None
    )


def _other_processes(case: Case, more: float) -> Note | None:
    before = case.measurement.nvml.get("used_before_bytes", 0)
    return (
        Note("{size} were in use on the card before the pilot", {"size": NumBytes(before)}) if _explains(before, more) else None
    )


_Tests = tuple[tuple[tuple[str, ...], Callable[[Case, float], Note | None]], ...]
_EXACT: _Tests = (
    (("quantization_state",), _code_tables), (("weights",), _rotary_buffers), (("optimizer_states",), _paged_states),
    (("context", "on the card"), _other_processes),
)  # fmt: skip


# ---- causes that the record shows, without a size -----------------------------------------------------------------------


def _expandable_segments(case: Case, more: float) -> Note | None:
    options = str(case.measurement.environment.get("allocator_options", ""))
    if more > 0 or "expandable_segments:true" not in options.replace(" ", "").lower():
        return None
    return Note("expandable segments leave less unused than the plan assumes", {})


def _fragmentation(case: Case, _more: float) -> Note | None:
    """The allocator's doing only where what is allocated was as planned."""
    allocated, reserved = (peak_bytes(case.measurement, kind) for kind in ("allocated", "reserved"))
    peak = case.memory.peak
    if not allocated or abs(peak.allocated / allocated - 1) > _AGREES:
        return None
    values = {"percent": reserved / allocated - 1, "assumed_percent": float(peak.reserved / peak.allocated) - 1}
    return Note("the allocator reserves {percent} beyond what is allocated; the plan assumes {assumed_percent}", values)


def _context_band(case: Case, _more: float) -> Note | None:
    peak, used = case.memory.peak, case.measurement.nvml["peak_used_bytes"]
    return Note("within the band that the plan states", {}) if peak.low <= used <= peak.high else None


def _slower(case: Case) -> bool:
    return case.time is not None and (case.measurement.step_seconds or 0) > case.time.seconds


def _power_limit(case: Case, _more: float) -> Note | None:
    watts, gpu = case.measurement.nvml.get("mean_watts", 0), case.gpu
    if not _slower(case) or gpu is None or not gpu.tdp_watts or watts < _AT_THE_LIMIT * gpu.tdp_watts:
        return None
    return Note("the card is at its power limit: {watts} of {limit} W", {"watts": round(watts), "limit": round(gpu.tdp_watts)})


def _waits_for_the_host(case: Case, _more: float) -> Note | None:
    busy = case.measurement.nvml.get("mean_utilisation")
    if not _slower(case) or busy is None or busy > _BUSY:
        return None
    return Note("the card waits for the host: it is busy {percent} of the time", {"percent": busy})


def _speed_band(case: Case, _more: float) -> Note | None:
    time, seconds = case.time, case.measurement.step_seconds
    within = time is not None and seconds is not None and time.low_s <= seconds <= time.high_s
    return Note("within the band that the plan states", {}) if within else None


_LIKELY: _Tests = (
    (("slack", "reserved"), _expandable_segments), (("slack", "reserved", "on the card"), _fragmentation),
    (("context", "on the card"), _context_band), (_SPEED, _power_limit), (_SPEED, _waits_for_the_host), (_SPEED, _speed_band),
)  # fmt: skip
