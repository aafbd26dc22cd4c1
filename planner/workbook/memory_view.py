"""The memory view: the methods beside each other, a step's instants, two curves, every part with its source, the cards that hold it."""

from collections.abc import Sequence
from functools import partial
from html import escape

import ipywidgets as widgets

from planner.catalogues import find_gpu, load_gpus
from planner.figures import Figure, memory_against, memory_by_instant, memory_by_method
from planner.nodes import cards_needed
from planner.plan import Plan, cards_that_fit, compared_plans, sweep
from planner.tables import SEGMENT_NAMES, cards_table, methods_table, needs_table
from planner.texts import translated
from planner.workbook.chart import Chart
from planner.workbook.page_html import box, folded, legend_html, table_html, why_html

__all__ = ["CHART_TITLES", "MemoryView"]

CHART_TITLES = {
    "method": "Memory by method", "instant": "Memory at each instant of a step", "length": "Against sequence length",
    "batch": "Against micro-batch size",
}  # fmt: skip

# Cards whose lines the two curves show, besides the chosen one: a step apart in memory.
_LANDMARKS = ("t4", "rtx-4090-24", "a100-sxm4-40", "a100-sxm4-80", "b200-sxm")


class MemoryView(widgets.VBox):
    """`steps` are the cards of the dry run and the pilot, `data` that of the user's own data, where there are any."""

    def __init__(self, *, steps: Sequence[widgets.Widget], data: widgets.Widget) -> None:
        self.methods, self.why, self.cards = (widgets.HTML() for _ in range(3))
        self.charts = {
            name: Chart(height=height) for name, height in (("method", 380), ("instant", 330), ("length", 320), ("batch", 320))
        }
        self._titles = {name: widgets.HTML() for name in self.charts}
        self._legends = {name: widgets.HTML() for name in ("method", "instant")}
        panels = {
            name: box("planner-card", self._titles[name], *([self._legends[name]] if name in self._legends else []), chart)
            for name, chart in self.charts.items()
        }
        super().__init__(
            [
                panels["method"], box("planner-card", self.methods), panels["instant"], *steps, box("planner-card", self.why),
                box("planner-columns", panels["length"], panels["batch"]), data, box("planner-card", self.cards),
            ]
        )  # fmt: skip
        self.add_class("planner-results")

    def translate(self, language: str) -> None:
        """The titles; all else is drawn."""
        for name, title in CHART_TITLES.items():
            self._titles[name].value = f"<h2>{escape(translated(title, language))}</h2>"

    def draw(self, plan: Plan, language: str) -> None:
        """What follows a slider."""
        say, plans = partial(translated, language=language), compared_plans(plan)
        self._show("method", memory_by_method(plans, language))
        self._show("instant", memory_by_instant(plan, language))
        for name, field in (("length", "sequence_length"), ("batch", "micro_batch_size")):
            self._show(name, _curve(plan, field, language))
        self.methods.value = table_html(methods_table(plans, language), language, caption=say("The methods side by side"))
        self.why.value = (
            f"<h2>{escape(say('Every part of the peak: formula, numbers and source'))}</h2>{why_html(plan.memory, language)}"
        )

    def draw_cards(self, plan: Plan, language: str) -> None:
        """What waits until the sliders rest."""
        self.cards.value = _cards(plan, language)

    def _show(self, name: str, figure: Figure) -> None:
        chart = self.charts[name]
        if chart.spec != figure.spec:
            chart.alt, chart.spec = figure.alt, figure.spec
        if name in self._legends:
            self._legends[name].value = legend_html(figure)


def _curve(plan: Plan, field: str, language: str) -> Figure:
    """Memory against one field, up to what the model or a large card allows."""
    job, gpu = plan.job, plan.gpu
    limit = min(job.architecture.max_position_embeddings, 32768) if field == "sequence_length" else 64
    chosen = getattr(job, field)
    values = sorted(
        {value for value in (2**n for n in range(16)) if (256 if field == "sequence_length" else 1) <= value <= limit} | {chosen}
    )
    cards = [
        gpu,
        *(card for card in map(find_gpu, _LANDMARKS) if abs(card.usable_memory_bytes / gpu.usable_memory_bytes - 1) > 0.2),
    ]
    return memory_against(
        field, values, sweep(job, gpu, plan.sharding, plan.assumptions, **{field: values}), chosen, cards, language
    )


def _cards(plan: Plan, language: str) -> str:
    """The cards that hold the job by class, each class folded under its count and its smallest card."""
    job, assumptions = plan.job, plan.assumptions
    fitting = cards_that_fit(job, load_gpus().values(), assumptions)
    title = f"<h2>{escape(translated('Cards that hold this job', language))}</h2>"
    parts = []
    if not fitting:
        parts.append(f"<p>{escape(translated('No single card in the catalogue holds this job.', language))}</p>")
    for segment, name in SEGMENT_NAMES.items():
        plans = [plan for plan in fitting if plan.gpu.segment == segment]
        if plans:
            line = translated("{segment}: {count} cards, the smallest is {card}", language)
            caption = line.format(segment=translated(name, language), count=len(plans), card=plans[0].gpu.label)
            parts.append(folded(caption, table_html(cards_table(plans, language), language, caption=caption)))
    needs = cards_needed(job, load_gpus().values(), assumptions=assumptions)
    caption = translated("How many cards of each kind it takes, and why", language)
    parts.append(folded(caption, table_html(needs_table(needs, language), language, caption=caption)))
    return f"{title}<div class='planner-scroll'>{''.join(parts)}</div>"
