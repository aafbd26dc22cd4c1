"""Cards and offers: where the job runs, how long it takes, what it costs, and what spot risks."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from html import escape
from typing import Any

import ipywidgets as widgets

from planner.catalogues import load_gpus, load_providers
from planner.dataset import Profile
from planner.delivery import DeliveryAssumptions
from planner.errors import PlannerError
from planner.host_memory import host_memory
from planner.offer_views import (
    bill_table,
    both_ways_table,
    cost_against_time,
    delivery_chart,
    delivery_table,
    landmarks,
    offers_table,
    step_table,
    storage_table,
    training_table,
)  # fmt: skip
from planner.pilot.calibrate import Calibration
from planner.placement import Demand
from planner.plan import Plan
from planner.prices import REFRESHABLE, current_offers, refresh_prices
from planner.ranking import Ranked, Wishes, both_ways, cheapest, fastest, rank_offers
from planner.run_sentences import answer_text, spot_text
from planner.storage import storage
from planner.tables import titles
from planner.texts import translated
from planner.workbook.chart import Chart
from planner.workbook.offer_controls import OfferControls
from planner.workbook.page_html import box, folded, table_html

__all__ = ["OffersView"]

_SHOWN = 25  # rows of the table; the rest is folded


class OffersView(widgets.VBox):
    """Its controls, the answers, cost against time, the table, the stages of the chosen offer, disk and memory."""

    def __init__(
        self,
        plan: Callable[[], Plan],
        *,
        language: str,
        allow_refresh: bool = False,
        calibration: Callable[[], Calibration | None] = lambda: None,
        narrowed: Callable[[Wishes], Wishes] = lambda wishes: wishes,
    ) -> None:
        self._plan, self._language, self._quiet, self._calibration = plan, language, False, calibration
        self._narrowed = narrowed  # by the care for the data
        self.picked: tuple[str, str, str, str, int] | None = None  # the offer that the user chose, by its key
        self.controls = OfferControls(self.draw)
        self.data: Profile | None = None  # the user's own, measured
        self.ranked: list[Ranked] = []
        self.chosen = widgets.Dropdown()
        self.chosen.observe(self._on_chosen, names="value")
        self.heading, self.answers, self.table, self.prices, self.details, self.path_title = (widgets.HTML() for _ in range(6))
        self.cost, self.path = Chart(height=420), Chart(height=420)
        self.refresh = widgets.Button()
        self.refresh.on_click(lambda _button: asyncio.get_running_loop().create_task(self._fetch()))
        actions = [self.refresh] if allow_refresh else []
        super().__init__(
            [
                box("planner-card", self.heading, self.controls),
                box("planner-card", self.answers, self.cost),
                box("planner-card", self.prices, *actions, self.table),
                box("planner-card", self.path_title, self.chosen, self.path, self.details),
            ]
        )
        self.translate(language)

    def translate(self, language: str) -> None:
        """Everything in one language."""
        self._language = language
        say = partial(translated, language=language)
        self.heading.value = f"<h2>{escape(say('What there is to do, and what it may take'))}</h2>"
        self.path_title.value = f"<h2>{escape(say('From the first stage to the last'))}</h2>"
        self.refresh.description, self.chosen.description = say("Fetch today's prices"), say("Offer")
        self.controls.translate(language)

    def use_data(self, profile: Profile) -> None:
        """Count with the rows, lengths, bytes and tokenising rate of the user's data from now on."""
        self.data = profile
        self.controls.use_data(profile)

    def draw(self) -> None:
        """Rank for the controls as they stand; what is wrong is said below them, and the last good page stays."""
        try:
            plan, calibration = self._plan(), self._calibration()
            demand, wishes = self.controls.demand(plan.job), self._narrowed(self.controls.wishes())
            demand = replace(demand, assumptions=plan.assumptions, speed=calibration.speed if calibration else None)
            current = current_offers()
            self.ranked = rank_offers(demand, current.offers, load_providers(), load_gpus(), wishes, self._delivery())
        except PlannerError as error:
            self.controls.say(error.text(self._language))
            return
        self.controls.say(current.problem.text(self._language) if current.problem else "")
        self._demand, self._wishes = demand, wishes
        language, today = self._language, datetime.now(UTC).date()
        self.answers.value = self._answers()
        figure = cost_against_time(self.ranked, today, language)
        self.cost.alt, self.cost.spec = figure.alt, figure.spec
        answering = [row for row in self.ranked if row.feasible]
        self.prices.value = f"<h2>{escape(translated('Offers', language))}</h2>{_hint(_price_note(answering, language))}"
        self.table.value = self._tables(answering)
        options = [
            (f"{row.provider.name} {row.offer.instance_type}", index) for index, row in enumerate(self.ranked) if row.feasible
        ]
        self._quiet = True
        self.chosen.options = options
        picked = [index for _, index in options if self.ranked[index].offer.key == self.picked]
        self.chosen.value = picked[0] if picked else options[0][1] if options else None
        self._quiet = False
        self._draw_chosen()

    def _delivery(self) -> DeliveryAssumptions | None:
        return self.data.delivery_assumptions() if self.data else None

    def _answers(self) -> str:
        language, today = self._language, datetime.now(UTC).date()
        rows = []
        for title, found in (
            ("Cheapest", cheapest(self.ranked)),
            ("Fastest", fastest(self.ranked)),
            *landmarks(self.ranked).items(),
        ):
            if found:
                sign = "✓" if found.feasible else "✕"
                text = f"<strong>{escape(translated(title, language))}</strong>: {escape(answer_text(found, today, language))}"
                rows.append(f"<li><span aria-hidden='true'>{sign}</span> {text}</li>")
        best = cheapest(self.ranked)
        spot = spot_text(best, self._wishes, language) if best and best.spot_run else ""
        title = escape(translated("Cost against time", language))
        return f"<h2>{title}</h2><ul class='planner-advice' aria-live='polite'>{''.join(rows)}</ul>{_hint(spot)}"

    def _tables(self, answering: Sequence[Ranked]) -> str:
        language, today = self._language, datetime.now(UTC).date()
        say = partial(translated, language=language)
        caption = say("Offers that answer, the cheapest first")
        parts = [table_html(offers_table(answering[:_SHOWN], today, language), language, caption=caption)] if answering else []
        others = (
            (say("{count} more offers that answer").format(count=len(answering) - _SHOWN), answering[_SHOWN:]),
            (say("Offers that are no answer, and why"), [row for row in self.ranked if not row.feasible]),
        )
        for title, rows in others:
            if rows:
                parts.append(folded(title, table_html(offers_table(rows, today, language), language, caption=title)))
        return "".join(parts)

    def _on_chosen(self, _change: Any) -> None:
        if not self._quiet and self.chosen.value is not None:
            self.picked = self.ranked[self.chosen.value].offer.key
            self._draw_chosen()

    def _draw_chosen(self) -> None:
        language = self._language
        if self.chosen.value is None:
            self.path.layout.display, self.details.value = "none", ""
            return
        row = self.ranked[self.chosen.value]
        assert row.delivery and row.placement and row.bill
        self.path.layout.display = None
        figure = delivery_chart(row.delivery, language)
        self.path.alt, self.path.spec = figure.alt, figure.spec
        self.details.value = f"{_hint(figure.alt)}{self._details(row, self._demand)}"

    def _details(self, row: Ranked, demand: Demand) -> str:
        """The tables behind one offer, each folded."""
        language = self._language
        assert row.delivery and row.placement and row.bill
        job, sharding = row.placement.job, row.placement.sharding
        disk, ram = storage(job, demand.workload, demand.policy, sharding), host_memory(job, demand.policy, sharding)
        deadline_s = None if self._wishes.deadline_hours is None else 3600 * self._wishes.deadline_hours
        ways = both_ways(row, demand, load_providers(), load_gpus(), self._delivery())
        tables = (
            training_table(row, demand, language), both_ways_table(*ways, deadline_s, language), delivery_table(row.delivery, language),
            bill_table(row.bill, language), step_table(row.placement.step, language),
            storage_table(disk.lines, disk.peak_bytes, language), storage_table(ram.lines, ram.peak_bytes, language),
        )  # fmt: skip
        names = titles(
            language, "Training in numbers", "On demand and spot", "Stages, formulas and sources", "The bill", "One optimizer step",
            "Disk of one node", "Host memory of one node",
        )  # fmt: skip
        shown = zip(names, tables, strict=True)
        return "".join(folded(title, table_html(table, language, caption=title)) for title, table in shown)

    async def _fetch(self) -> None:
        """Today's prices, off the kernel's thread; what came and what did not is said one by one."""
        self.refresh.disabled = True
        language = self._language
        try:
            found = await asyncio.to_thread(refresh_prices, REFRESHABLE)
            came = translated("{count} offers", language)
            lines = [f"{name}: {came.format(count=count)}" for name, count in found.offers.items()]
            lines += [f"{name}: {problem.text(language)}" for name, problem in found.problems.items()]
            self.draw()
            self.prices.value += _hint("\n".join(lines))
        except PlannerError as error:
            self.controls.say(error.text(language))
        finally:
            self.refresh.disabled = False


def _price_note(answering: Sequence[Ranked], language: str) -> str:
    dates = sorted(row.offer.price_date for row in answering if row.offer.price_date)
    if not dates:
        return ""
    text = translated(
        "List prices of {first} to {last}, before tax; they move monthly. Ask the provider before you rely on one.", language
    )
    return text.format(first=dates[0].isoformat(), last=dates[-1].isoformat())


def _hint(text: str) -> str:
    return "".join(f'<p class="planner-hint">{escape(line)}</p>' for line in text.split("\n") if line)
