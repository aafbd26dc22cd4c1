"""From plan to run in five steps, in the order of the seeds: each is open, ready, passed or failed, and says why.

A step is passed when a person confirms what it says; a change of that opens it again. The fourth is judged by a pilot's record.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from planner.catalogues import find_gpu
from planner.pilot.record import Measurement
from planner.plan import Note
from planner.planfile import PlanFile, plan_values

__all__ = ["STEPS", "Criterion", "State", "Step", "confirm", "criteria", "five_steps"]

State = Literal["open", "ready", "passed", "failed"]

# Step -> the fields of the plan that it fixes.
_FIELDS: dict[str, tuple[str, ...]] = {
    "target": ("title", "purpose", "example", "data", "job.architecture"),
    "method": ("job", "gpu", "sharding"),
    "settings": ("job", "workload", "policy", "learning_rate", "warmup_share", "seed"),
    "pilot": ("acceptance",),
    "delivery": ("policy", "offer", "care", "hand_over"),
}  # fmt: skip
_BATCH = ("sequence_length", "micro_batch_size", "gradient_accumulation_steps", "packing")
STEPS = tuple(_FIELDS)


class Criterion(NamedTuple):
    """One thing that a pilot must show; `passed` is None where it was not measured."""

    name: str
    asked: float | bool
    measured: float | bool | None
    passed: bool | None


@dataclass(frozen=True)
class Step:
    """One step: `missing` is what it still needs, `problems` what speaks against it."""

    name: str
    state: State
    missing: tuple[Note, ...] = ()
    problems: tuple[Note, ...] = ()
    criteria: tuple[Criterion, ...] = field(default=())


def five_steps(plan: PlanFile) -> tuple[Step, ...]:
    """The five steps as the plan stands."""
    return tuple(_step(plan, name) for name in STEPS)


def confirm(plan: PlanFile, step: str) -> PlanFile:
    """The plan with a step confirmed as it stands now."""
    return plan.changed(confirmed=tuple({**dict(plan.confirmed), step: _fingerprint(plan, step)}.items()))


def _fingerprint(plan: PlanFile, step: str) -> str:
    """16 hex digits that change when anything changes that the step fixes."""
    values = plan_values(plan)
    job = dict(values["job"])
    model = job.pop("architecture")
    batch = {name: job.pop(name) for name in _BATCH if name in job}
    known: dict[str, Any] = values | {"job.architecture": model, "job": batch if step == "settings" else [model, job]}
    fixed = {name: known.get(name) for name in _FIELDS[step]}
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:16]


def _step(plan: PlanFile, name: str) -> Step:
    if name == "pilot":
        return _pilot_step(plan)
    missing, problems = tuple(_MISSING[name](plan)), tuple(_PROBLEMS.get(name, _nothing)(plan))
    if problems:
        return Step(name, "failed", missing, problems)
    if missing:
        return Step(name, "open", missing)
    return Step(name, "passed" if dict(plan.confirmed).get(name) == _fingerprint(plan, name) else "ready")


def _nothing(_plan: PlanFile) -> Iterator[Note]:
    yield from ()


def _target(plan: PlanFile) -> Iterator[Note]:
    if not plan.purpose:
        yield Note("what the model is trained for is not written down", {})
    if not plan.data.name:
        yield Note("the data are not named", {})
    if not plan.example:
        yield Note("no example is written down", {})


def _does_not_fit(plan: PlanFile) -> Iterator[Note]:
    predicted = plan.plan
    if predicted.verdict == "does not fit":
        yield Note("the job does not fit on {gpu}", {"gpu": predicted.gpu.label})


def _batches(plan: PlanFile) -> Iterator[Note]:
    rows = plan.job.micro_batch_size * plan.job.gradient_accumulation_steps
    rows *= plan.sharding.data_parallel if plan.sharding else 1
    if rows != plan.workload.global_batch_size:
        yield Note(
            "{rows} rows per optimizer step by micro-batch, accumulation and GPUs, but {asked} are planned",
            {"rows": rows, "asked": plan.workload.global_batch_size},
        )


def _delivery(plan: PlanFile) -> Iterator[Note]:
    if not plan.hand_over.checkpoints:
        yield Note("no place for checkpoints is named", {})
    if not plan.hand_over.result:
        yield Note("where the result goes is not said", {})
    if not plan.hand_over.check:
        yield Note("how the result is checked is not said", {})
    if plan.care.own_machines:
        if not plan.care.access:
            yield Note("who may access the data is not said", {})
        if not plan.care.deletion:
            yield Note("who deletes the data, and when, is not said", {})


def _careless(plan: PlanFile) -> Iterator[Note]:
    if plan.care.own_machines and not plan.care.encrypted_transfer:
        yield Note("personal data are moved unencrypted", {})


_MISSING: dict[str, Callable[[PlanFile], Iterator[Note]]] = {
    "target": _target, "method": _nothing, "settings": _nothing, "delivery": _delivery,
}  # fmt: skip
_PROBLEMS: dict[str, Callable[[PlanFile], Iterator[Note]]] = {
    "method": _does_not_fit, "settings": _batches, "delivery": _careless,
}  # fmt: skip


# ---- the pilot -----------------------------------------------------------------------------------------------------------


def _pilot_step(plan: PlanFile) -> Step:
    found = plan.pilot
    if found is None:
        return Step("pilot", "open", (Note("no pilot has run", {}),))
    if found.job != plan.job.model_dump(mode="json"):
        return Step("pilot", "open", (Note("the pilot ran another job than the plan's", {}),))
    judged = criteria(plan, found)
    if found.state not in ("done", "cancelled"):
        ended = Note("the pilot ended with: {problem}", {"problem": found.problem or found.state})
        return Step("pilot", "failed", problems=(ended,), criteria=judged)
    if any(criterion.passed is False for criterion in judged):
        return Step("pilot", "failed", criteria=judged)
    if any(criterion.passed is None for criterion in judged):
        return Step("pilot", "open", (Note("the pilot did not measure all that is asked", {}),), criteria=judged)
    return Step("pilot", "passed", criteria=judged)


def criteria(plan: PlanFile, found: Measurement) -> tuple[Criterion, ...]:
    """Each criterion that the plan asks for, held against what a pilot measured."""
    asked, judged = plan.acceptance, []

    def judge(name: str, limit: float | None, measured: float | None) -> None:
        if limit is not None:
            judged.append(Criterion(name, limit, measured, None if measured is None else measured <= limit))

    judge("peak", asked.peak_share, _peak_share(plan, found))
    judge("step", asked.step_s, found.step_seconds)
    judge("error rate", asked.error_rate, found.error_rate if found.steps else None)
    if asked.loss_falls:
        falls = _loss_falls(found)
        judged.append(Criterion("loss falls", True, falls, falls))
    return tuple(judged)


def _peak_share(plan: PlanFile, found: Measurement) -> float | None:
    """The most that the card held, else that the allocator had reserved, over the usable memory of the plan's card."""
    reserved = max((phase.get("peak_reserved_bytes", 0) for phase in found.phases.values()), default=0)
    seen = found.nvml.get("peak_used_bytes") or reserved
    return seen / find_gpu(plan.gpu).usable_memory_bytes if seen else None


def _loss_falls(found: Measurement) -> bool | None:
    """Whether the mean loss of the last third of the steps is below that of the first; None with fewer than six."""
    losses = [loss for loss in found.losses if loss is not None]
    third = len(losses) // 3
    if third < 2:
        return None
    return sum(losses[-third:]) < sum(losses[:third])
