"""A pilot in words, a table and a chart, in either language."""

from collections.abc import Sequence
from typing import Any

from planner.figures import Figure
from planner.pilot.compare import NAMES, Compared
from planner.pilot.record import Measurement
from planner.tables import Table, titles
from planner.texts import translated
from planner.units import format_duration, format_gib, format_number, format_share

__all__ = ["PHASE_NAMES", "comparison_table", "found_sentences", "loss_chart", "progress_text", "step_text"]

PHASE_NAMES = {
    "load": "model loaded", "adapters": "adapters attached", "resident": "step begun", "blocks": "blocks done", "forward": "forward",
    "backward": "backward", "optimizer": "optimizer step", "evaluation": "evaluation", "save": "checkpoint written",
}  # fmt: skip


def comparison_table(rows: Sequence[Compared], language: str = "en") -> Table:
    """Plan beside pilot, and how far the plan is from it."""

    def shown(value: float | None, unit: str) -> str:
        if value is None:
            return "–"
        return format_duration(value, language=language) if unit == "seconds" else format_gib(value, language=language)

    lines = [
        (
            translated(NAMES.get(row.name, row.name), language), shown(row.predicted, row.unit), shown(row.measured, row.unit),
            "–" if row.difference is None else format_share(row.difference, language=language),
        )
        for row in rows
    ]  # fmt: skip
    return Table(titles(language, "Part", "Plan", "Pilot", "Difference"), tuple(lines))


def step_text(event: dict[str, Any], language: str = "en") -> str:
    """One step of the log."""
    loss = "–" if event["loss"] is None else format_number(event["loss"], 3, language=language)
    line = translated("step {step} of {of}: {time}, loss {loss}" if event["of"] else "step {step}: {time}, loss {loss}", language)
    return line.format(step=event["step"], of=event["of"], time=format_duration(event["seconds"], language=language), loss=loss)


def progress_text(events: Sequence[dict[str, Any]], language: str = "en") -> str:
    """Where a pilot stands: the last step, or the last phase, or that it has begun."""
    for event in reversed(events):
        if event["event"] == "step":
            return step_text(event, language)
        if event["event"] == "phase":
            return translated(PHASE_NAMES[event["phase"]], language)
    return translated("the process has begun", language)


def loss_chart(losses: Sequence[float | None], language: str = "en") -> Figure:
    """The loss of each step; one that is no number is a gap."""
    name = translated("loss", language)
    steps = list(range(1, len(losses) + 1))
    data = [
        {
            "type": "scatter", "mode": "lines+markers", "x": steps, "y": list(losses), "name": name, "showlegend": False,
            "line": {"color": "var(--planner-series-1)", "width": 2}, "marker": {"color": "var(--planner-series-1)", "size": 5},
        }
    ]  # fmt: skip
    layout = {
        "separators": ",." if language == "tr" else ".,", "showlegend": False,
        "xaxis": {"title": {"text": translated("optimizer steps", language), "font": {"size": 13}}},
        "yaxis": {"title": {"text": name, "font": {"size": 13}}},
    }  # fmt: skip
    known = [loss for loss in losses if loss is not None]
    if not known:
        return Figure({"data": data, "layout": layout}, translated("no loss is a number", language))
    alt = translated("From {first} at {low} to {last} at {high}.", language)
    low, high = (format_number(loss, 3, language=language) for loss in (known[0], known[-1]))
    return Figure({"data": data, "layout": layout}, f"{name}: {alt.format(first=1, low=low, last=len(losses), high=high)}")


def found_sentences(found: Measurement, language: str = "en") -> list[str]:
    """What a pilot found beside memory and step time, a sentence each: data, evaluation, checkpoint, largest micro-batch."""

    def say(template: str, **values: Any) -> str:
        return translated(template, language).format(**values)

    sentences = []
    if found.blocks_run:
        blocks = " + ".join(str(count) for count in found.blocks_run)
        sentences.append(say("Extrapolated to the whole model from models of {blocks} blocks.", blocks=blocks))
    if found.largest_micro_batch is not None:
        sentences.append(
            say(
                "The largest micro-batch that went through is {size}, of {count} tried.",
                size=found.largest_micro_batch,
                count=len(found.tries),
            )
        )
    if found.rows:
        sentences.append(
            say(
                "{rows} rows were read and {failed} of them had no text; tokens are those of {tokenizer}.",
                rows=format_number(found.rows, 0, language=language),
                failed=found.rows_failed,
                tokenizer=found.tokenizer,
            )
        )
    if found.wait_share is not None and found.rows:
        share = format_share(found.wait_share, language=language)
        sentences.append(say("Waiting for data took {share} of the steps' time.", share=share))
    if found.evaluation_losses and (loss := found.evaluation_losses[-1]) is not None:
        sentences.append(say("The last evaluation's loss is {loss}.", loss=format_number(loss, 3, language=language)))
    if found.checkpoint_bytes is not None and found.checkpoint_seconds is not None:
        size, time = (
            format_gib(found.checkpoint_bytes, language=language),
            format_duration(found.checkpoint_seconds, language=language),
        )
        sentences.append(say("A checkpoint is {size} and took {time} to write.", size=size, time=time))
    if found.nvml_problem:
        sentences.append(say("The driver's figures are missing ({problem}).", problem=found.nvml_problem))
    return sentences
