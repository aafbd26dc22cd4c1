"""The plan for people who decide: verdict, pictures, cost, risks, checklist and evidence, as sections of either language.

`planner.report_page` makes one HTML page or Markdown of them.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from functools import partial
from typing import NamedTuple

from planner.catalogues import load_gpus, load_providers
from planner.errors import PlannerError
from planner.figures import Figure, memory_by_method
from planner.five_steps import Step, five_steps
from planner.offer_views import bill_table, delivery_chart, landmarks, offers_table
from planner.permalink import link_of
from planner.pilot.compare import compared, verdict
from planner.pilot_views import cause_texts, comparison_table
from planner.plan import compared_plans
from planner.plan_views import checklist_table, copies_table, criteria_table, settings_table, steps_table
from planner.planfile import PlanFile
from planner.prices import current_offers
from planner.ranking import Ranked, cheapest, fastest, rank_offers
from planner.record_views import bottleneck_texts
from planner.remedies import remedies
from planner.run_sentences import answer_text, spot_text
from planner.sentences import model_summary, note_text, note_texts, remedy_text, verdict_text
from planner.tables import Table, methods_table, titles
from planner.texts import translated
from planner.validation_views import left_out_table

__all__ = ["Section", "report"]


class Section(NamedTuple):
    """A part of the report: its heading, sentences, a picture, and tables under their captions."""

    title: str
    sentences: tuple[str, ...] = ()
    figure: Figure | None = None
    tables: tuple[tuple[str, Table], ...] = ()


def report(plan: PlanFile, today: date, language: str = "en") -> tuple[Section, ...]:
    """The sections, the verdict first. Offers are those of the cache of prices, else those shipped, as of `today`."""
    return tuple(_sections(plan, today, language))


def _sections(plan: PlanFile, today: date, language: str) -> Iterator[Section]:
    say = partial(translated, language=language)
    predicted, steps = plan.plan, five_steps(plan)
    job = predicted.job
    wishes = plan.cared_wishes
    ranked = rank_offers(plan.demand, current_offers().offers, load_providers(), load_gpus(), wishes)
    chosen = _chosen(plan, ranked)
    what = f"{job.architecture.name}: {model_summary(job.architecture, language)}"
    answer = answer_text(chosen, today, language) if chosen else say("No offer answers these wishes.")
    opening = tuple(filter(None, (plan.purpose, what, verdict_text(predicted, language), answer)))
    yield Section(say("Verdict"), opening, tables=((say("Five steps"), steps_table(steps, language)),))
    plans = compared_plans(predicted)
    figure = memory_by_method(plans, language)
    yield Section(
        say("Memory"),
        (figure.alt, *note_texts(predicted, language)),
        figure,
        ((say("The methods side by side"), methods_table(plans, language)),),
    )
    yield Section(say("Settings"), tables=((say("What is run"), settings_table(plan, language)),))
    if chosen and chosen.delivery and chosen.bill:
        path = delivery_chart(chosen.delivery, language)
        rows = (chosen, cheapest(ranked), fastest(ranked), *landmarks(ranked).values())
        others = {row.offer.key: row for row in rows if row}
        tables = (
            (say("The bill"), bill_table(chosen.bill, language)),
            (say("Offers"), _short(offers_table(list(others.values()), today, language))),
        )
        yield Section(say("Time and cost"), (path.alt,), path, tables)
    yield Section(say("Risks"), tuple(_risks(plan, chosen, steps, language)))
    if plan.pilot:
        yield from _pilot(plan, steps, language)
    care = (
        (say("Care for the data"), checklist_table(plan, language)),
        (say("Where copies arise"), copies_table(plan, language)),
    )
    yield Section(say("Care for the data"), tables=care)
    yield Section(
        say("Evidence"),
        (say("Published runs, each publisher left out of what predicts it:"),),
        tables=((say("How wrong the predictions are"), _evidence(language)),),
    )
    yield from _link(plan, language)


def _link(plan: PlanFile, language: str) -> Iterator[Section]:
    with suppress(PlannerError):  # texts too long for a link; the file has them
        how = translated("Give the plan file to the workbook, or put this behind its address:", language)
        yield Section(translated("To open this plan again", language), (how, f"?plan={link_of(plan)}"))


def _chosen(plan: PlanFile, ranked: list[Ranked]) -> Ranked | None:
    """The offer that the plan names, where it still answers; else the cheapest with the plan's card, else the cheapest."""
    named = [row for row in ranked if row.offer.key == plan.offer and row.feasible]
    return cheapest(named) or cheapest(row for row in ranked if row.offer.gpu_id == plan.gpu) or cheapest(ranked)


def _short(table: Table) -> Table:
    """The columns of the table of offers that a page has room for: machine, cost, time, price, and what to mind."""
    kept = (0, 1, 2, 3, 4, 9, 10, 11)
    columns, *rows = (tuple(row[n] for n in kept) for row in (table.columns, *table.rows))
    return Table(columns, tuple(rows))


def _risks(plan: PlanFile, chosen: Ranked | None, steps: tuple[Step, ...], language: str) -> Iterator[str]:
    predicted = plan.plan
    if predicted.verdict == "tight":
        yield translated("The card lies inside the band of the prediction: run a pilot before you rely on it.", language)
    if predicted.verdict != "fits":
        yield from (remedy_text(remedy, language) for remedy in remedies(predicted.job, predicted.gpu, predicted.sharding))
    if chosen and chosen.spot_run:
        yield from spot_text(chosen, plan.cared_wishes, language).split("\n")
    if chosen and chosen.unknown:
        names = ", ".join(translated(name, language) for name in chosen.unknown)
        yield translated("Nobody states this of the offer; it is counted at the dearest known: {names}.", language).format(
            names=names
        )
    yield translated("Prices are list prices before tax; they move monthly. Ask the provider before you rely on one.", language)
    if not plan.pilot:
        yield translated("No pilot has run: memory and time are predictions.", language)
    for step in steps:
        for note in step.problems:
            yield note_text(note, language)


def _pilot(plan: PlanFile, steps: tuple[Step, ...], language: str) -> Iterator[Section]:
    assert plan.pilot
    rows = compared(plan.pilot)
    judged = next(step.criteria for step in steps if step.name == "pilot")
    held = bottleneck_texts(plan.pilot, plan.plan.gpu.usable_memory_bytes, language)
    tables = [(translated("Predicted and measured", language), comparison_table(rows, language))] if rows else []
    if judged:
        tables.insert(0, (translated("Criteria", language), criteria_table(judged, language)))
    sentences = (note_text(verdict(plan.pilot, rows), language), *held, *cause_texts(rows, language))
    yield Section(translated("Pilot", language), sentences, tables=tuple(tables))


def _evidence(language: str) -> Table:
    """The rows by quantity; those by publisher are in the README and the notebook."""
    found = left_out_table()
    return Table(titles(language, *found.columns), tuple((translated(row[0], language), *row[1:]) for row in found.rows[:5]))
