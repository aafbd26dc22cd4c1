"""Records in words and tables, in either language: one, two side by side, many; and what holds a pilot's stages back."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from planner.five_steps import five_steps
from planner.pilot.record import Measurement
from planner.plan_views import steps_table
from planner.record import Experiment
from planner.record.bottleneck import bottlenecks
from planner.record.diff import Change, Outcome
from planner.sentences import METHOD_NAMES
from planner.tables import Table, titles
from planner.texts import translated
from planner.units import format_duration, format_gib, format_number, format_percent

__all__ = ["BOTTLENECKS", "bottleneck_texts", "changes_table", "outcomes_table", "record_table", "record_text", "runs_table"]

BOTTLENECKS = {
    "memory": "memory", "compute": "compute", "data loading": "data loading", "disk": "disk", "CPU": "the CPU (launches, collating)",
}  # fmt: skip
_STAGES = {"training": "training", "micro-batch": "a larger micro-batch", "checkpoints": "checkpoint writes"}
_MEASURES = {
    "memory in use": "memory in use", "time waiting for data": "time waiting for data", "time with a kernel running": "time with a kernel running",
    "bytes per second": "written per second",
}  # fmt: skip
_OUTCOMES = {
    "predicted peak": "predicted peak", "measured peak": "measured peak", "predicted step": "predicted step", "measured step": "measured step",
    "last loss": "last loss",
}  # fmt: skip


def bottleneck_texts(found: Measurement, usable_memory_bytes: float, language: str = "en") -> list[str]:
    """A sentence for each stage that a pilot measured."""
    texts = []
    for row in bottlenecks(found, usable_memory_bytes):
        value = (
            format_gib(row.value, language=language)
            if row.measure == "bytes per second"
            else format_percent(row.value, language=language)
        )
        template = (
            "{stage} is held back by {what} ({measure}: {value})"
            if row.what
            else "nothing measured holds {stage} back ({measure}: {value})"
        )
        texts.append(
            translated(template, language).format(
                stage=translated(_STAGES[row.stage], language), what=translated(BOTTLENECKS[row.what], language) if row.what else "",
                measure=translated(_MEASURES[row.measure], language), value=value,
            )
        )  # fmt: skip
    return texts


def record_table(record: Experiment, language: str = "en") -> Table:
    """One record: what was run on what, predicted, measured and made."""
    plan, said, pilot = record.plan, record.prediction, record.plan.pilot
    gib = partial(format_gib, language=language)
    band = f"{gib(said.low_bytes)} – {gib(said.high_bytes)}"
    rows = [
        ("Made", record.made.date().isoformat()), ("Model", plan.job.architecture.name),
        ("Method", translated(METHOD_NAMES[plan.job.method], language)),
        ("Data", f"{plan.data.name or '–'} {plan.data.sha256[:12]}".strip()), ("Card", plan.plan.gpu.label), ("Seed", str(plan.seed)),
        ("Predicted peak", f"{gib(said.device_bytes)} ({band})"),
        ("Predicted step", format_duration(said.step_s, language=language) if said.step_s else "–"),
        ("Measured step", format_duration(pilot.step_seconds, language=language) if pilot and pilot.step_seconds else "–"),
        ("Last loss", format_number(record.losses[-1], 3, language=language) if record.losses else "–"),
        ("Evaluation", ", ".join(f"{name} {format_number(value, 3, language=language)}" for name, value in record.evaluation.items()) or "–"),
        ("Files", f"{len(record.checkpoints)}, {gib(sum(file.bytes for file in record.checkpoints))}"),
        ("Tokenizer", record.tokenizer.sha256[:12] if record.tokenizer else "–"),
        ("Environment", ", ".join(f"{name} {version}" for name, version in record.environment.items()) or "–"),
    ]  # fmt: skip
    return Table(titles(language, "Part", "Record"), tuple((translated(name, language), value) for name, value in rows))


def record_text(record: Experiment, language: str = "en") -> str:
    """The same for a terminal, with the five steps and what holds the pilot's stages back."""
    pilot = record.plan.pilot
    held = bottleneck_texts(pilot, record.plan.plan.gpu.usable_memory_bytes, language) if pilot else []
    rows = "\n".join(f"{name}: {value}" for name, value in record_table(record, language).rows)
    steps = "\n".join(f"{name}: {state} ({why})" for name, state, why in steps_table(five_steps(record.plan), language).rows)
    return "\n".join([rows, "", steps, *(["", *held] if held else [])])


def changes_table(changes: Sequence[Change], language: str = "en") -> Table:
    """Per changed field: both values, what it alone does to memory and time, and whether it can move the loss."""
    columns = titles(language, "Field", "Before", "After", "Memory", "Training time", "Can move the loss")
    rows = tuple(
        (
            change.field, _shown(change.before), _shown(change.after), _signed(change.peak_bytes, format_gib, language),
            _signed(change.training_s, format_duration, language), translated("yes" if change.moves_loss else "no", language),
        )
        for change in changes
    )  # fmt: skip
    return Table(columns, rows)


def outcomes_table(outcomes: Sequence[Outcome], language: str = "en") -> Table:
    """Per figure: before and after."""

    def cell(outcome: Outcome, value: float | None) -> str:
        if value is None:
            return "–"
        if "peak" in outcome.name:
            return format_gib(value, language=language)
        return format_number(value, 3, language=language) if "loss" in outcome.name else format_duration(value, language=language)

    rows = tuple((translated(_OUTCOMES[x.name], language), cell(x, x.before), cell(x, x.after)) for x in outcomes)
    return Table(titles(language, "Figure", "Before", "After"), rows)


def runs_table(records: Sequence[tuple[str, Experiment]], language: str = "en") -> Table:
    """Many records under their names, a row each: the lines of `record_table` that one compares."""
    wanted = titles(language, "Model", "Method", "Card", "Predicted peak", "Predicted step", "Measured step", "Last loss")
    rows = []
    for name, record in records:
        cells = {title: value for title, value in record_table(record, language).rows}  # noqa: C416
        rows.append((name, *(cells[column] for column in wanted)))
    return Table((*titles(language, "Run"), *wanted), tuple(rows))


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return "–" if value in (None, "") else str(value)


def _signed(value: float | None, show: Callable[..., str], language: str) -> str:
    if value is None:
        return "–"
    return ("+" if value > 0 else "−" if value < 0 else "") + show(abs(value), language=language)
