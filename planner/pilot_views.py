"""A pilot in words, a table and a chart, in either language."""

from collections.abc import Sequence
from typing import Any

from planner.figures import Figure
from planner.pilot.compare import NAMES, Compared
from planner.tables import Table, titles
from planner.texts import translated
from planner.units import format_duration, format_gib, format_number, format_share

__all__ = ["PHASE_NAMES", "comparison_table", "loss_chart", "progress_text", "step_text"]

PHASE_NAMES = {
    "load": "model loaded", "adapters": "adapters attached", "forward": "forward", "backward": "backward", "optimizer": "optimizer step",
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
    line = translated("step {step} of {of}: {time}, loss {loss}", language)
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
