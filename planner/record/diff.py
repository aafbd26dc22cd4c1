"""What changed between two records, and which of it explains the change in memory, time or loss.

Memory and time: the closed form with one change at a time, from the first plan. Loss: no formula tells it; the fields that can
move it are named.
"""

from statistics import fmean
from typing import Any, NamedTuple

from planner.catalogues import find_gpu
from planner.compute import step_time
from planner.errors import PlannerError
from planner.planfile import PlanFile
from planner.record import Experiment

__all__ = ["Change", "Outcome", "changes", "outcomes"]

# Fields that leave what is learnt as it was, up to rounding.
_SAME_LOSS = (
    "gpu", "sharding", "policy", "terms", "wishes", "offer", "changed_stages", "prepare_on_gpu", "acceptance", "care", "hand_over", "title",
    "job.gradient_checkpointing", "job.stack", "job.keep_outputs", "job.save", "job.evaluation", "job.eval_micro_batch_size", "job.loss",
)  # fmt: skip
_LEFT_OUT = ("version", "confirmed", "pilot")


class Change(NamedTuple):
    """A field that differs; what changing it alone does to the peak and to the training time, where the closed form tells."""

    field: str
    before: Any
    after: Any
    peak_bytes: float | None
    training_s: float | None
    moves_loss: bool


class Outcome(NamedTuple):
    """A figure of both records: predicted ones in bytes and seconds, measured ones where there was a pilot or a run."""

    name: str
    before: float | None
    after: float | None


def changes(a: Experiment, b: Experiment) -> tuple[Change, ...]:
    """Every field of plan and environment that differs, the largest effect on memory first."""
    one, two = _flat(a.plan), _flat(b.plan)
    found = []
    for field in dict.fromkeys([*one, *two]):
        if one.get(field) != two.get(field):
            peak, training = _effect(a.plan, b.plan, field)
            found.append(Change(field, one.get(field), two.get(field), peak, training, not field.startswith(_SAME_LOSS)))
    found.sort(key=lambda change: -abs(change.peak_bytes or 0))
    versions = (
        (name, a.environment.get(name), b.environment.get(name)) for name in dict.fromkeys([*a.environment, *b.environment])
    )
    found += [Change(f"environment.{name}", old, new, None, None, moves_loss=True) for name, old, new in versions if old != new]
    return tuple(found)


def outcomes(a: Experiment, b: Experiment) -> tuple[Outcome, ...]:
    """The figures that the changes are to explain."""
    pilots = (a.plan.pilot, b.plan.pilot)
    return (
        Outcome("predicted peak", a.prediction.device_bytes, b.prediction.device_bytes),
        Outcome("measured peak", _measured_peak(a), _measured_peak(b)),
        Outcome("predicted step", a.prediction.step_s, b.prediction.step_s),
        Outcome("measured step", *(found.step_seconds if found else None for found in pilots)),
        Outcome("last loss", _last_loss(a), _last_loss(b)),
    )


def _measured_peak(record: Experiment) -> float | None:
    """Bytes that the run's allocator held, else what its pilot's card held, else that pilot's allocator."""
    found = record.plan.pilot
    if record.peak_reserved_bytes or found is None:
        return record.peak_reserved_bytes
    reserved = max((phase.get("peak_reserved_bytes", 0) for phase in found.phases.values()), default=0)
    return found.nvml.get("peak_used_bytes") or reserved or None


def _last_loss(record: Experiment) -> float | None:
    """The mean of the last tenth of the losses: of the run, else of its pilot."""
    losses = record.losses or tuple(loss for loss in (record.plan.pilot.losses if record.plan.pilot else ()) if loss is not None)
    return fmean(losses[-max(len(losses) // 10, 1) :]) if losses else None


def _flat(plan: PlanFile) -> dict[str, Any]:
    """The plan's leaves by dotted name; the model and the sharding are one leaf each."""
    values = plan.model_dump(mode="json", exclude=set(_LEFT_OUT))
    values["job"]["architecture"] = plan.job.architecture.name
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and name != "sharding":
            flat |= {f"{name}.{inner}": leaf for inner, leaf in value.items()}
        else:
            flat[name] = value
    return flat


def _effect(one: PlanFile, two: PlanFile, field: str) -> tuple[float | None, float | None]:
    """What the plan `one` gains in peak bytes and training seconds when it takes `field` alone from `two`."""
    outer, _, inner = field.partition(".")
    if outer not in ("job", "gpu", "sharding", "workload"):
        return None, None
    try:
        if outer == "job":
            mixed = one.changed(job=one.job.changed(**{inner: getattr(two.job, inner)}))
        elif outer == "workload":
            mixed = one.changed(workload=one.workload.model_copy(update={inner: getattr(two.workload, inner)}))
        else:
            mixed = one.changed(**{outer: getattr(two, outer)})
        peak = float(mixed.plan.memory.peak.device - one.plan.memory.peak.device)
    except PlannerError:  # alone it makes no job, such as the method without its base
        return None, None
    try:
        return peak, _training_s(mixed) - _training_s(one)
    except PlannerError:  # the catalogue lacks a rate of the card
        return peak, None


def _training_s(plan: PlanFile) -> float:
    """All rows at the rate of one step, whatever number of rows per step the workload asks for."""
    rows = (
        plan.job.micro_batch_size * plan.job.gradient_accumulation_steps * (plan.sharding.data_parallel if plan.sharding else 1)
    )
    step = step_time(plan.job, find_gpu(plan.gpu), plan.sharding)
    return float(step.seconds * plan.workload.rows(plan.job) / rows)
