"""A plan file in words and tables, in either language: its five steps, what a pilot must show, and the care for its data."""

from collections.abc import Sequence
from functools import partial

from planner.care import checklist, copies, transfer_s
from planner.five_steps import Criterion, Step
from planner.planfile import PlanFile
from planner.sentences import method_name, note_text
from planner.tables import Table, titles
from planner.texts import translated
from planner.units import format_duration, format_gib, format_number, format_percent

__all__ = [
    "CLASSES", "CRITERIA", "STATES", "STEP_NAMES", "checklist_table", "copies_table", "criteria_table", "settings_table", "step_texts", "steps_table",
]  # fmt: skip

STEP_NAMES = {
    "target": "Target model, data and example written down", "method": "Method chosen, alternatives compared",
    "settings": "Sequence length, batch and checkpoints fixed", "pilot": "Pilot held against its criteria",
    "delivery": "Checkpoints, delivery and check of the result",
}  # fmt: skip
STATES = {"open": "open", "ready": "ready", "passed": "passed", "failed": "failed"}
CRITERIA = {
    "peak": "peak of the card's memory",
    "step": "seconds a step",
    "error rate": "steps that fail",
    "loss falls": "loss falls",
}
CLASSES = {"public": "public", "internal": "internal", "personal": "personal", "special": "special categories"}
_CHECKS = {
    "classification": "classification", "places": "where the data may be", "machines": "whose machines", "transfer": "transfer",
    "disk": "disk", "access": "who may access", "deletion": "deletion", "deleted": "deletion recorded",
}  # fmt: skip


def steps_table(steps: Sequence[Step], language: str = "en") -> Table:
    """Per step: its number and name, its state, and what is missing or speaks against it."""
    rows = tuple(
        (
            f"{number}. {translated(STEP_NAMES[step.name], language)}", translated(STATES[step.state], language),
            "; ".join(step_texts(step, language)) or "–",
        )
        for number, step in enumerate(steps, 1)
    )  # fmt: skip
    return Table(titles(language, "Step", "State", "Missing or against it"), rows)


def step_texts(step: Step, language: str = "en") -> list[str]:
    """What speaks against a step, then what it still needs; criteria of a pilot that it did not meet."""
    notes = [note_text(note, language) for note in (*step.problems, *step.missing)]
    return [
        *notes,
        *(
            f"{translated(CRITERIA[c.name], language)}: {_value(c, c.measured, language)}"
            for c in step.criteria
            if c.passed is False
        ),
    ]


def criteria_table(judged: Sequence[Criterion], language: str = "en") -> Table:
    """Per criterion: what is asked, what was measured, passed or failed."""
    words = {True: "passed", False: "failed", None: "not measured"}
    rows = tuple(
        (
            translated(CRITERIA[c.name], language), _value(c, c.asked, language), _value(c, c.measured, language),
            translated(words[c.passed], language),
        )
        for c in judged
    )  # fmt: skip
    return Table(titles(language, "Criterion", "Asked for, at most", "Measured", "Outcome"), rows)


def _value(criterion: Criterion, value: float | bool | None, language: str) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return translated("yes" if value else "no", language)
    if criterion.name == "step":
        return format_duration(value, language=language)
    return format_percent(value, 1, language=language)


def settings_table(plan: PlanFile, language: str = "en") -> Table:
    """What is run, on what, and what becomes of it."""
    job, number = plan.job, partial(format_number, language=language)
    rows = (
        ("Method", method_name(job, language)), ("Sequence length", number(job.sequence_length)), ("Micro-batch size", number(job.micro_batch_size)),
        ("Gradient accumulation", number(job.gradient_accumulation_steps)), ("Rows per optimizer step", number(plan.workload.global_batch_size)),
        ("Training examples", number(plan.workload.examples)), ("Epochs", number(plan.workload.epochs)),
        ("Learning rate", f"{plan.learning_rate:g}"), ("Seed", str(plan.seed)), ("Steps between checkpoints", number(plan.policy.checkpoint_steps)),
        ("Data", f"{plan.data.name or '–'} {plan.data.sha256[:12]}".strip()), ("Checkpoints", plan.hand_over.checkpoints or "–"),
        ("Result", plan.hand_over.result or "–"), ("Check of the result", plan.hand_over.check or "–"),
    )  # fmt: skip
    return Table(titles(language, "Field", "Value"), tuple((translated(name, language), value) for name, value in rows))


def checklist_table(plan: PlanFile, language: str = "en") -> Table:
    """Per point of the checklist: whether it is settled, and how."""
    words = {True: "settled", False: "open", None: "not asked"}
    rows = []
    for check in checklist(plan):
        how = (
            translated(CLASSES[check.note.template], language)
            if check.name == "classification"
            else note_text(check.note, language)
        )
        if check.name == "transfer":
            how = translated("{how}, about {time}", language).format(
                how=how, time=format_duration(transfer_s(plan), language=language)
            )
        rows.append((translated(_CHECKS[check.name], language), translated(words[check.settled], language), how))
    return Table(titles(language, "Care for the data", "State", "How"), tuple(rows))


def copies_table(plan: PlanFile, language: str = "en") -> Table:
    """Per copy of the data: where it lies, its size, what deletes it, and when that was done."""
    done = {deleted.what: deleted.on.isoformat() for deleted in plan.care.deleted}
    rows = tuple(
        (
            translated(copy.what, language), translated(copy.where, language), format_gib(copy.bytes, language=language) if copy.bytes else "–",
            translated(copy.delete, language), done.get(copy.what, "–"),
        )
        for copy in copies(plan)
    )  # fmt: skip
    return Table(titles(language, "Copy", "Where", "Size", "Deleted by", "Deleted on"), rows)
