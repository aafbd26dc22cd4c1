"""A pilot in words, tables and charts, in either language."""

from collections.abc import Sequence
from typing import Any

from planner.assumption import Assumption
from planner.figures import Figure, base_layout, in_gib
from planner.pilot.calibrate import Calibration
from planner.pilot.compare import COMPONENTS, NAMES, Compared
from planner.pilot.record import Measurement
from planner.sentences import note_text
from planner.tables import Table, titles
from planner.texts import translated
from planner.units import MiB, format_duration, format_gib, format_number, format_percent, format_share

__all__ = [
    "PHASE_NAMES", "calibration_table", "cause_texts", "comparison_table", "components_chart", "found_sentences", "loss_chart", "progress_text",
    "step_text",
]  # fmt: skip

PHASE_NAMES = {
    "load": "model loaded", "adapters": "adapters attached", "resident": "step begun", "blocks": "blocks done", "forward": "forward",
    "backward": "backward", "optimizer": "optimizer step", "evaluation": "evaluation", "save": "checkpoint written",
}  # fmt: skip


# The three sides, each with its figure of a row and its colour.
_SIDES = (
    ("Closed form", "closed_form", "series-1"), ("Dry run", "dry_run", "series-2"),
    ("Pilot", "measured", "series-3"),
)  # fmt: skip


def comparison_table(rows: Sequence[Compared], language: str = "en") -> Table:
    """Closed form, dry run where there is one, and pilot; how far the first two are from the third."""
    with_dry_run = any(row.dry_run is not None for row in rows)

    def share(value: float | None) -> str:
        return "–" if value is None else format_share(value, language=language)

    def cells(row: Compared) -> tuple[str, ...]:
        closed, dry, pilot, residual = (
            _figure(value, row.unit, language) for value in (row.closed_form, row.dry_run, row.measured, row.residual)
        )
        name = translated(NAMES.get(row.name, row.name), language)
        if with_dry_run:
            return name, closed, dry, pilot, residual, share(row.difference), share(row.dry_difference)
        return name, closed, pilot, residual, share(row.difference)

    if with_dry_run:
        columns = titles(language, "Part", "Closed form", "Dry run", "Pilot", "Residual", "Closed form off by", "Dry run off by")
    else:
        columns = titles(language, "Part", "Closed form", "Pilot", "Residual", "Closed form off by")
    return Table(columns, tuple(map(cells, rows)))


def _figure(value: float | None, unit: str, language: str) -> str:
    if value is None:
        return "–"
    if unit == "bytes":
        return format_gib(value, language=language)
    return format_duration(value, language=language) if unit == "seconds" else format_number(value, language=language)


def cause_texts(rows: Sequence[Compared], language: str = "en") -> list[str]:
    """What explains residuals, a line for each cause with the parts that it is about."""
    parts: dict[str, list[str]] = {}
    for row in rows:
        if row.cause:
            name = translated(NAMES.get(row.name, row.name), language)
            parts.setdefault(note_text(row.cause, language), []).append(name)
    return [f"{', '.join(names)}: {cause}" for cause, names in parts.items()]


def components_chart(rows: Sequence[Compared], sentence: str, language: str = "en") -> Figure:
    """Three bars per component: closed form, dry run where there is one, pilot. `sentence` is the verdict, which it reads out."""
    shown = [row for row in rows if row.name in COMPONENTS]
    names = [translated(NAMES.get(row.name, row.name), language) for row in shown]
    data = []
    for side, field, colour in _SIDES:
        sizes = [getattr(row, field) for row in shown]
        if any(size is not None for size in sizes):
            name = translated(side, language)
            data.append(
                {
                    "type": "bar", "name": name, "x": names, "y": in_gib(size or 0 for size in sizes),
                    "customdata": [_figure(size, "bytes", language) for size in sizes],
                    "hovertemplate": "%{x}<br>" + name + ": %{customdata}<extra></extra>",
                    "marker": {"color": f"var(--planner-{colour})", "line": {"color": "var(--planner-surface)", "width": 1}},
                }
            )  # fmt: skip
    top = 1.1 * max((value for trace in data for value in trace["y"]), default=1.0)
    layout = base_layout(language, top, barmode="group", bargap=0.3, xaxis={"automargin": True})
    return Figure(
        {"data": data, "layout": layout}, f"{translated('Closed form, dry run and pilot by component', language)}: {sentence}"
    )


def calibration_table(calibration: Calibration, language: str = "en") -> Table:
    """Each assumption before and after, with its band, and where the new one holds or why it is refused."""

    def size(value: float, unit: str) -> str:
        if unit == "bytes":  # of contexts, which GiB would round away
            return f"{format_number(value / MiB, language=language)} MiB"
        return format_percent(value, 1, language=language) if unit == "share" else format_number(value, 3, language=language)

    def banded(row: Assumption | None, unit: str) -> str:
        return "–" if row is None else f"{size(row.value, unit)} ({size(row.low, unit)} – {size(row.high, unit)})"

    lines = [
        (
            translated(row.name, language), banded(row.before, row.unit), banded(row.after, row.unit), note_text(row.note, language),
        )
        for row in calibration.rows
    ]  # fmt: skip
    return Table(titles(language, "Assumption", "Before", "After", "Where it holds, or why it is refused"), tuple(lines))


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
    """What a pilot found beside memory and step time, a sentence each: where memory ran out, data, evaluation, checkpoint, largest micro-batch."""

    def say(template: str, **values: Any) -> str:
        return translated(template, language).format(**values)

    sentences = []
    if "allocated_bytes" in found.allocator:
        held, total = found.allocator, found.environment.get("gpu_memory_bytes", 0)
        sizes = {name: held.get(f"{name}_bytes", 0) for name in ("allocated", "reserved")} | {"total": total}
        line = "When memory ran out, tensors held {allocated} and PyTorch {reserved} of the card's {total}."
        sentences.append(say(line, **{name: format_gib(size, language=language) for name, size in sizes.items()}))
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
