"""A dry run -> a chart of memory through the step, for the workbook and as a page of its own."""

import json
import os
from html import escape
from pathlib import Path
from typing import Any

from planner.dryrun.summary import DryRunSummary
from planner.figures import INSTANT_NAMES, PARTS, Figure, base_layout, card_limit, in_gib
from planner.files import write_whole
from planner.hardware import Gpu
from planner.plotly_js import plotly_js
from planner.texts import translated
from planner.units import GiB, format_gib

__all__ = ["PHASE_NAMES", "memory_timeline", "write_page"]

PHASE_NAMES = {"load": "load", "forward": "forward", "backward": "backward", "optimizer": "optimizer"}
_SHOWN_LINES = 3  # of what is alive at the peak
_HERE = Path(__file__).parent


def memory_timeline(found: DryRunSummary, gpu: Gpu, language: str = "en") -> Figure:
    """What is alive through loading and one step, stacked by component; what the allocator holds as a line above it.

    Phases are marked, and the peak says what of it is largest. From left to right stand allocations and releases in their order.
    """
    timeline, peak = found.timeline, found.peak
    x = list(range(len(timeline.allocated)))
    data = []
    for name, components, colour in PARTS:
        columns = [timeline.components[component] for component in components if component in timeline.components]
        if columns:
            sizes = [sum(values) for values in zip(*columns, strict=True)]
            colour = f"var(--planner-{colour})"
            line = {"width": 0, "shape": "hv", "color": colour}
            area = {"stackgroup": "alive", "fillcolor": colour, "marker": {"color": colour}}
            data.append(_trace(translated(name, language), x, sizes, line) | area)
    for name, sizes, colour, width in (
        (translated("allocated", language), timeline.allocated, "var(--planner-ink)", 1),
        (translated("reserved", language), timeline.reserved, "var(--planner-runtime)", 2),
    ):
        line = {"width": width, "shape": "hv", "color": colour}
        data.append(_trace(name, x, sizes, line) | {"marker": {"color": colour}})
    limit, label = card_limit(gpu, language)
    top = peak.reserved / 0.7 / GiB  # the peak's label stands above the reserved line
    # The card's name stands clear of the peak's label and of the reserved line.
    if 2 * _peak_at(found) > len(x):
        label |= {"x": 0.01, "xanchor": "left"}
    if peak.reserved > gpu.usable_memory_bytes:
        label |= {"yanchor": "top"}
    bounds = [_bound(first) for _, first, _ in timeline.phases[1:]]
    names = [_phase(translated(PHASE_NAMES[name], language), (first + end) / 2) for name, first, end in timeline.phases]
    layout = base_layout(
        language, top, hovermode="x unified", shapes=[limit, *bounds], annotations=[_peak(found, language), *names, label],
        xaxis={
            "range": [0, len(x)], "showticklabels": False, "showgrid": False, "unifiedhovertitle": {"text": " "},
            "title": {"text": translated("allocations and releases, in their order", language), "font": {"size": 13}},
        },
    )  # fmt: skip
    alt = translated("Memory is fullest at: {instant}, with {size} allocated.", language).format(
        instant=translated(INSTANT_NAMES[peak.instant], language), size=format_gib(peak.allocated, language=language)
    )
    return Figure({"data": data, "layout": layout}, alt)


def _trace(name: str, x: list[int], sizes: list[int], line: dict[str, Any]) -> dict[str, Any]:
    hover = f"{name}: %{{y:.3f}} GiB<extra></extra>"
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": in_gib(sizes), "line": line, "hovertemplate": hover}


def _bound(x: int) -> dict[str, Any]:
    line = {"color": "var(--planner-axis)", "width": 1, "dash": "dot"}
    return {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": line}


def _phase(name: str, x: float) -> dict[str, Any]:
    return {"text": name, "x": x, "yref": "paper", "y": 1, "yanchor": "bottom", "showarrow": False, "font": {"size": 12}}


def _peak_at(found: DryRunSummary) -> int:
    return found.timeline.allocated.index(max(found.timeline.allocated))


def _peak(found: DryRunSummary, language: str) -> dict[str, Any]:
    """The peak's label: its size and the largest things alive."""
    peak, at = found.peak, _peak_at(found)
    lines = [f"<b>{translated('peak', language)} {format_gib(peak.allocated, language=language)}</b>"]
    largest = found.peak_lines[:_SHOWN_LINES]
    lines += [f"{format_gib(line.bytes, language=language)} {escape(line.name.removesuffix(': parameter'))}" for line in largest]
    place = at / len(found.timeline.allocated)
    return {
        "x": at, "y": peak.allocated / GiB, "text": "<br>".join(lines), "align": "left", "font": {"size": 12, "color": "var(--planner-ink)"},
        "ax": 0, "ayref": "y", "ay": 1.03 * peak.reserved / GiB, "yanchor": "bottom",
        "xanchor": "left" if place < 0.3 else "right" if place > 0.7 else "center", "arrowhead": 2, "arrowwidth": 1,
        "arrowcolor": "var(--planner-ink)", "bgcolor": "var(--planner-surface)", "bordercolor": "var(--planner-line)", "borderpad": 4,
    }  # fmt: skip


def write_page(path: str | os.PathLike[str], figure: Figure, title: str, sentences: list[str], language: str = "en") -> None:
    """A chart as one HTML file that needs nothing else; written whole or not at all. Raises PlannerError where it cannot be."""
    workbook = _HERE / "workbook"
    legend = {"showlegend": True, "legend": {"orientation": "h", "traceorder": "normal", "y": -0.16}}
    spec = {**figure.spec, "layout": {**figure.spec["layout"], **legend, "margin": {"b": 110}}}
    state = json.dumps({"spec": spec, "alt": figure.alt, "height": 560}).replace("<", "\\u003c")
    page = _PAGE.format(
        language=language, title=escape(title), text="".join(f"<p>{escape(sentence)}</p>" for sentence in sentences), plotly=plotly_js(),
        style=(workbook / "tokens.css").read_text(encoding="utf-8"), chart=(workbook / "chart.js").read_text(encoding="utf-8"),
        state=state,
    )  # fmt: skip
    write_whole(path, page.encode())


# data-voila: the colours follow the reader's light or dark, as in the app.
_PAGE = """<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}
body {{ margin: 0; }}
main {{
  box-sizing: border-box; min-height: 100vh; padding: 24px;
  background: var(--planner-page); color: var(--planner-ink); font: 15px/1.5 system-ui, sans-serif;
}}
main > * {{ max-width: 1200px; margin: 0 auto 12px; }}
</style>
</head>
<body data-voila>
<main class="planner-app"><h1>{title}</h1>{text}<div id="chart"></div></main>
<script id="planner-plotly">{plotly}</script>
<script type="module">
{chart}
const state = {state};
render({{ model: {{ get: (name) => state[name], on() {{}}, off() {{}} }}, el: document.getElementById("chart") }});
</script>
</body>
</html>
"""
