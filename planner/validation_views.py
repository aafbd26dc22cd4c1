"""Predictions beside measurements as a chart and tables."""

import csv
import statistics
from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import Any

from planner.catalogues import data_folder
from planner.figures import Figure, in_gib
from planner.tables import Table, titles
from planner.texts import translated
from planner.units import MiB, format_gib, format_number, format_percent, format_share
from planner.validation.left_out import Row, left_out
from planner.validation.report import Judged, grouped, summary

__all__ = ["group_table", "left_out_table", "other_tools_table", "rows_table", "scatter", "summary_table", "worst_table"]

_SERIES = (("allocated", "circle"), ("reserved", "square"), ("device", "diamond"), ("unspecified", "cross"))
_TICKS = [2, 5, 10, 20, 50, 100]


def scatter(rows: Iterable[Judged]) -> Figure:
    """Predicted against measured, GiB on both axes, each point with its 90 % band; on the line nothing is wrong."""
    measured = [row for row in rows if row.run.quantity != "oom_above"]
    data = [
        {
            "type": "scatter", "mode": "lines", "x": [1, 150], "y": [1, 150], "name": "predicted = measured", "hoverinfo": "skip",
            "line": {"color": "var(--planner-axis)", "width": 1, "dash": "dot"},
        }
    ]  # fmt: skip
    for number, (quantity, symbol) in enumerate(_SERIES, 1):
        held = [row for row in measured if row.run.quantity == quantity]
        predicted = in_gib(row.predicted for row in held)
        band = {
            "type": "data", "symmetric": False, "array": in_gib(row.high - row.predicted for row in held),
            "arrayminus": in_gib(row.predicted - row.low for row in held), "thickness": 0.6, "width": 0,
        }  # fmt: skip
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": quantity, "x": in_gib(row.run.measured_bytes for row in held), "y": predicted,
                "error_y": band, "marker": {"symbol": symbol, "size": 6, "color": f"var(--planner-series-{number})"},
                "customdata": [f"{row.run.id}: {format_share(row.error)}" for row in held],
                "hovertemplate": "%{customdata}<extra></extra>",
            }
        )  # fmt: skip
    axis = {"type": "log", "tickvals": _TICKS}
    layout = {
        "xaxis": {**axis, "title": {"text": "measured, GiB per GPU", "font": {"size": 13}}},
        "yaxis": {**axis, "title": {"text": "predicted, GiB per GPU", "font": {"size": 13}}},
    }
    figures = summary(measured)["all"]
    alt = "No measured row."
    if figures["n"]:
        alt = (
            f"{figures['n']} measured peaks; half of the predictions are within {format_share(figures['median_ape'])} of them, "
            f"nine of ten within {format_share(figures['p90_ape'])}."
        )
    return Figure({"data": data, "layout": layout}, alt)


_COLUMNS = ("rows", "median error", "90th percentile", "bias", "in the 90 % band")
_SUMMED = {"all": "all, at the level published", "tokens_per_second": "tokens per second"}  # the others are named as in the file


def rows_table(rows: Iterable[Judged], language: str = "en") -> Table:
    """Each row: predicted, measured or what it ran out above, how far off, and the verdict on its card."""

    def size(num_bytes: float) -> str:
        return f"{format_number(num_bytes / MiB, language=language)} MiB"

    lines = []
    for row in rows:
        measured, error = size(row.run.measured_bytes), format_share(row.error, language=language)
        if row.run.quantity == "oom_above":
            measured, error = f"> {measured}", "–"
        names = (translated(row.run.quantity, language), translated(row.verdict, language))
        lines.append((row.run.id, names[0], size(row.predicted), measured, error, names[1]))
    return Table(titles(language, "run", "quantity", "predicted", "measured", "error", "verdict"), tuple(lines))


def summary_table(rows: Sequence[Judged], language: str = "en") -> Table:
    """Errors of all rows, by quantity, and by method, source and card."""
    total, say = summary(rows), partial(translated, language=language)
    lines = [
        (say(_SUMMED.get(name, name)), total[name])
        for name in ("all", "allocated", "reserved", "device", "unspecified", "tokens_per_second")
    ]
    for group, names in grouped(rows).items():
        lines += [(f"{say(group)}: {say(name)}", figures) for name, figures in names.items()]

    def percent(share: float | None, decimals: int = 1) -> str:
        return "–" if share is None else format_percent(share, decimals, language=language)

    def cells(figures: dict[str, Any]) -> tuple[str, ...]:
        bias = "–" if figures["bias"] is None else format_share(figures["bias"], language=language)
        covered = percent(figures["coverage"], 0) if "coverage" in figures else ""
        return str(figures["n"]), percent(figures["median_ape"]), percent(figures["p90_ape"]), bias, covered

    return Table(("", *titles(language, *_COLUMNS)), tuple((name, *cells(figures)) for name, figures in lines))


def group_table(rows: Sequence[Judged], group: str) -> Table:
    """Errors by `method`, `source` or `card`."""
    lines = []
    for name, found in grouped(rows)[group].items():
        shown = (format_percent(found["median_ape"], 1), format_percent(found["p90_ape"], 1), format_share(found["bias"]))
        lines.append((name, str(found["n"]), *shown, format_percent(found["coverage"])))
    return Table((group, *_COLUMNS), tuple(lines))


def _rows_of(name: str) -> list[dict[str, str]]:
    with (data_folder() / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def worst_table() -> Table:
    """The runs that are furthest off with each publisher left out, as many as have a mechanism, and that (data/worst_rows.csv)."""
    known = {row["id"]: row for row in _rows_of("worst_rows.csv")}
    found = sorted(
        ((predicted / row.run.measured_bytes - 1, predicted, row.run) for row, predicted, _ in left_out()),
        key=lambda x: -abs(x[0]),
    )
    lines = []
    for error, predicted, run in found[: len(known)]:
        shown = (format_gib(predicted), format_gib(run.measured_bytes), format_share(error))
        row = known.get(run.id, {"mechanism": "not looked at", "evidence": ""})
        lines.append((run.id, run.quantity, *shown, row["mechanism"], row["evidence"]))
    return Table(("run", "quantity", "predicted", "measured", "error", "mechanism", "evidence"), tuple(lines))


def other_tools_table() -> Table:
    """Errors of other tools on published runs (data/other_tools.csv)."""
    rows = _rows_of("other_tools.csv")
    names = {"median_percent": "median error", "p90_percent": "90th percentile", "bias_percent": "bias"}
    lines = tuple((row["tool"], row["rows"], *(f"{float(row[name]):.1f} %" for name in names), row["date"]) for row in rows)
    return Table(("tool", "rows", *names.values(), "date"), lines)


def _cells(name: str, rows: list[tuple[Row, float, bool]]) -> tuple[str, ...]:
    signed = [predicted / row.run.measured_bytes - 1 for row, predicted, _ in rows]
    sizes = sorted(map(abs, signed))
    p90 = sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]
    shown = (statistics.median(sizes), p90, statistics.median(signed))
    inside = statistics.fmean(held for _, _, held in rows)
    return name, str(len(rows)), *(f"{100 * value:.1f} %" for value in shown), f"{100 * inside:.0f} %"


@cache
def left_out_table() -> Table:
    """Errors by quantity and publisher: runs, median, 90th percentile, bias, share within the 90 % band."""
    rows = left_out()
    groups: list[tuple[str, list[tuple[Row, float, bool]]]] = [("all, at the level published", rows)]
    quantities, publishers = ("allocated", "reserved", "device", "unspecified"), sorted({row.publisher for row, _, _ in rows})
    groups += [(name, [found for found in rows if found[0].run.quantity == name]) for name in quantities]
    groups += [(name, [found for found in rows if found[0].publisher == name]) for name in publishers]
    return Table(("closed form, each publisher left out", *_COLUMNS), tuple(_cells(name, found) for name, found in groups))
