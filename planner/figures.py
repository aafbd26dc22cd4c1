"""Plans -> charts: plain plotly JSON and the sentence that says the same. Nothing is computed here but the display unit.

A kernel that shows these need not import plotly. `Figure.plotly()` makes a plotly figure of one, for a notebook.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from planner.hardware import Gpu
from planner.memory import INSTANTS, MemoryBreakdown
from planner.plan import Plan
from planner.sentences import method_name, verdict_text
from planner.texts import translated
from planner.units import GiB, format_gib

__all__ = [
    "COMPONENT_NAMES", "INSTANT_NAMES", "PARTS", "Figure", "base_layout", "card_limit", "in_gib", "memory_against", "memory_by_instant",
    "memory_by_method",
]  # fmt: skip

# Parts of a bar: name, the components in it, colour. Bottom first.
PARTS = (
    ("weights", ("weights", "quantization_state"), "weights"),
    ("adapters", ("adapters",), "adapters"),
    ("gradients", ("gradients",), "gradients"),
    ("optimizer states", ("optimizer_states",), "optimizer"),
    ("activations", ("activations",), "activations"),
    ("logits and loss", ("logits",), "logits"),
    ("temporaries", ("temporaries", "workspace"), "temporary"),
)
RUNTIME = "allocator and CUDA context"
COMPONENT_NAMES = {
    "weights": "weights", "quantization_state": "quantisation scales", "adapters": "adapters", "gradients": "gradients",
    "optimizer_states": "optimizer states", "activations": "activations", "logits": "logits and loss",
    "temporaries": "temporaries", "workspace": "batch and workspace",
}  # fmt: skip
INSTANT_NAMES = {
    "load": "load", "forward": "end of forward", "loss": "loss", "backward_start": "backward, last block",
    "backward_end": "backward, first block", "optimizer": "optimizer step", "evaluation": "evaluation", "save": "save",
    "resident": "all the time",
}  # fmt: skip
_FIELD_NAMES = {"sequence_length": "Sequence length", "micro_batch_size": "Micro-batch size", "lora_rank": "LoRA rank"}
# Lines of several cards are told apart by dash as well as by their label.
_DASHES = ("dash", "dot", "dashdot", "longdash")


class Figure(NamedTuple):
    """A chart as plotly JSON, and its text alternative."""

    spec: dict[str, Any]
    alt: str

    def plotly(self) -> Any:
        """The same as a plotly figure, in plotly's own colours."""
        from plotly.graph_objects import Figure as PlotlyFigure

        return PlotlyFigure(_without_colours(self.spec))


def _without_colours(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_colours(item) for key, item in value.items() if not (isinstance(item, str) and item.startswith("var("))
        }
    return [_without_colours(item) for item in value] if isinstance(value, list | tuple) else value


def in_gib(value: Any) -> Any:
    """Bytes as GiB, short enough for JSON."""
    return [round(float(size) / GiB, 4) for size in value]


def _stack(rows: Sequence[tuple[str, dict[str, float]]], language: str) -> list[dict[str, Any]]:
    """One bar per row, one trace per part that any bar has; hovering says the part in GiB."""
    names = [(translated(name, language), parts, colour) for name, parts, colour in PARTS]
    names.append((translated(RUNTIME, language), (RUNTIME,), "runtime"))
    traces = []
    for name, parts, colour in names:
        sizes = [sum(sums.get(part, 0) for part in parts) for _, sums in rows]
        if any(sizes):
            texts = [format_gib(size, language=language) for size in sizes]
            traces.append(
                {
                    "type": "bar", "name": name, "x": [label for label, _ in rows], "y": in_gib(sizes), "customdata": texts,
                    "hovertemplate": "%{x}<br>" + name + ": %{customdata}<extra></extra>",
                    "marker": {"color": f"var(--planner-{colour})", "line": {"color": "var(--planner-surface)", "width": 1}},
                }
            )  # fmt: skip
    return traces


def card_limit(gpu: Gpu, language: str, *, dash: str = "dash") -> tuple[dict[str, Any], dict[str, Any]]:
    """The card's usable memory as a line across the chart, and its label."""
    level = gpu.usable_memory_bytes / GiB
    line = {
        "type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": level, "y1": level, "layer": "above",
        "line": {"color": "var(--planner-limit)", "width": 1.5, "dash": dash},
    }  # fmt: skip
    label = {
        "xref": "paper", "x": 1, "xanchor": "right", "y": level, "yanchor": "bottom", "showarrow": False,
        "text": f"{gpu.label} · {format_gib(gpu.usable_memory_bytes, language=language)}", "font": {"color": "var(--planner-limit)", "size": 12},
    }  # fmt: skip
    return line, label


def base_layout(language: str, top: float, **more: Any) -> dict[str, Any]:
    """What all charts of memory share: GiB from 0 to `top`, and the language's separators."""
    separators = ",." if language == "tr" else ".,"
    axis = {"title": {"text": "GiB", "font": {"size": 13}}, "range": [0, top], "rangemode": "tozero"}
    return {
        "barmode": "stack",
        "bargap": 0.45,
        "separators": separators,
        "yaxis": axis,
        "showlegend": False,  # the page shows one of its own: plotly's takes as long to draw as the bars
        **more,
    }


def _device_parts(memory: MemoryBreakdown) -> dict[str, float]:
    parts = dict(memory.components_at(memory.peak.instant))
    parts[RUNTIME] = memory.peak.device - memory.peak.allocated
    return parts


def memory_by_method(plans: Sequence[Plan], language: str = "en", *, labels: Sequence[str] = ()) -> Figure:
    """A stacked bar per plan at its own peak, up to what the card must hold, with the card's usable memory as a line.

    Bars are named by their method, or by `labels`.
    """
    gpu = plans[0].gpu
    names = labels or [method_name(plan.job, language) for plan in plans]
    rows = [(name, _device_parts(plan.memory)) for name, plan in zip(names, plans, strict=True)]
    line, label = card_limit(gpu, language)
    # Bars far above the card are cut, and say so: else the others could not be read.
    largest, cut = max(plan.memory.peak.device for plan in plans), 2.2 * gpu.usable_memory_bytes
    top = 1.12 * max(gpu.usable_memory_bytes, min(largest, cut))
    totals = [
        {
            "x": name, "y": min(plan.memory.peak.device, 0.92 * top) / GiB, "yanchor": "bottom", "showarrow": False, "borderpad": 2,
            "text": f"<b>{format_gib(plan.memory.peak.device, language=language)}{' ↑' if plan.memory.peak.device > top else ''}</b>",
            "bgcolor": "var(--planner-surface)", "font": {"color": "var(--planner-ink)"},
        }
        for (name, _), plan in zip(rows, plans, strict=True)
    ]  # fmt: skip
    spec = {
        "data": _stack(rows, language),
        "layout": base_layout(language, top / GiB, shapes=[line], annotations=[*totals, label]),
    }
    alt = " ".join(f"{name}: {verdict_text(plan, language)}" for (name, _), plan in zip(rows, plans, strict=True))
    return Figure(spec, alt)


def memory_by_instant(plan: Plan, language: str = "en") -> Figure:
    """The instants of a run side by side, each stacked by component: so one sees when the peak is."""
    memory = plan.memory
    instants = [instant for instant in INSTANTS if instant in memory.allocated_at]
    rows = [(translated(INSTANT_NAMES[instant], language), memory.components_at(instant)) for instant in instants]
    peak = translated(INSTANT_NAMES[memory.peak.instant], language)
    line, label = card_limit(plan.gpu, language)
    mark = {
        "x": peak, "y": memory.peak.allocated / GiB, "yanchor": "bottom", "showarrow": False, "font": {"color": "var(--planner-ink)"},
        "text": f"<b>{translated('peak', language)} {format_gib(memory.peak.allocated, language=language)}</b>",
    }  # fmt: skip
    top = 1.15 * max(memory.peak.allocated, min(plan.gpu.usable_memory_bytes, 1.6 * memory.peak.allocated)) / GiB
    layout = base_layout(language, top, shapes=[line], annotations=[mark, label], bargap=0.3, xaxis={"automargin": True})
    alt = translated("Memory is fullest at: {instant}, with {size} allocated.", language).format(
        instant=peak, size=format_gib(memory.peak.allocated, language=language)
    )
    return Figure({"data": _stack(rows, language), "layout": layout}, alt)


def memory_against(
    field: str, values: Sequence[int], memory: MemoryBreakdown, chosen: int, gpus: Sequence[Gpu], language: str = "en"
) -> Figure:
    """Device memory against one field, with its low-high band and the usable memory of some cards.

    `memory` is the sweep of that field over `values` (planner.plan.sweep), `chosen` the job's own value.
    """
    name = translated(_FIELD_NAMES[field], language)
    x = [int(value) for value in values]
    texts = [format_gib(float(size), language=language) for size in memory.peak.device]
    colour = "var(--planner-series-1)"
    band = {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "hoverinfo": "skip",
        "showlegend": False,
        "line": {"width": 0, "color": colour},
    }
    data = [
        {**band, "y": in_gib(memory.peak.low)},
        {**band, "y": in_gib(memory.peak.high), "fill": "tonexty", "fillcolor": "var(--planner-band)"},
        {
            "type": "scatter", "mode": "lines+markers", "x": x, "y": in_gib(memory.peak.device), "customdata": texts, "showlegend": False,
            "hovertemplate": f"{name} %{{x}}: %{{customdata}}<extra></extra>", "line": {"color": colour, "width": 2},
            "marker": {"color": colour, "size": [11 if value == chosen else 5 for value in x]},
        },
    ]  # fmt: skip
    high = float(memory.peak.high[-1])
    top = 1.1 * max(high, min(gpus[0].usable_memory_bytes, 2 * high)) / GiB
    shown: list[Gpu] = []  # the first given comes first; a line too near to one already there would hide its label
    for gpu in gpus:
        level = gpu.usable_memory_bytes / GiB
        if level <= top and all(abs(level - other.usable_memory_bytes / GiB) > 0.08 * top for other in shown):
            shown.append(gpu)
    limits = [card_limit(gpu, language, dash=_DASHES[i % len(_DASHES)]) for i, gpu in enumerate(shown)]
    layout = base_layout(
        language, top, shapes=[line for line, _ in limits], annotations=[{**label, "x": 0.01, "xanchor": "left"} for _, label in limits],
        xaxis={"title": {"text": name, "font": {"size": 13}}, "type": "log", "tickvals": x, "ticktext": [str(value) for value in x]},
    )  # fmt: skip
    alt = translated("From {first} at {low} to {last} at {high}.", language).format(
        first=x[0], low=texts[0], last=x[-1], high=texts[-1]
    )
    return Figure({"data": data, "layout": layout}, f"{name}: {alt}")
