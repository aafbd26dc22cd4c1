"""Ranked offers -> table, cost against time, and the stages of a delivery as charts; nothing is computed here but display units."""

import math
from collections.abc import Sequence
from datetime import date
from functools import partial
from typing import Any

from planner.compute import StepTime
from planner.cost import Bill
from planner.delivery import Delivery
from planner.figures import Figure
from planner.placement import Demand
from planner.ranking import Ranked, frontier
from planner.sentences import note_text, sharding_text
from planner.storage import StorageLine
from planner.tables import Table, titles
from planner.texts import translated
from planner.units import format_count, format_duration, format_gib, format_number, format_percent, format_usd

__all__ = [
    "LANDMARKS", "bill_table", "both_ways_table", "cost_against_time", "cost_text", "delivery_chart", "delivery_table", "landmarks",
    "machine_text", "mind_text", "offers_table", "price_age", "step_table", "storage_table", "training_table",
]  # fmt: skip

_TICKS = [round(first * 10.0**power, 2) for power in range(-2, 6) for first in (1, 2, 5)]
_PAID, _NOT_PAID = "machine is paid", "no machine is paid"
# The positions that the source texts name; each is one card in several builds.
LANDMARKS = {
    "RTX 4090": ("rtx-4090-24",),
    "A100 80 GB": ("a100-sxm4-80", "a100-pcie-80"),
    "H100": ("h100-sxm5-80", "h100-pcie-80", "h100-nvl-94"),
}


def landmarks(ranked: Sequence[Ranked]) -> dict[str, Ranked]:
    """The best offer of each position, be it an answer or not."""
    found: dict[str, Ranked] = {}
    for name, ids in LANDMARKS.items():
        for row in ranked:
            if row.offer.gpu_id in ids:
                found[name] = row
                break
    return found


def price_age(ranked: Ranked, today: date, language: str = "en") -> str:
    """`2026-07-20, 134 days old`; an estimated date says so."""
    offer = ranked.offer
    if offer.price_date is None:
        return translated("date not known", language)
    template = "about {date}, up to {days} days old" if offer.price_date_estimated else "{date}, {days} days old"
    days = format_number(offer.age_days(today) or 0, language=language)
    return translated(template, language).format(date=offer.price_date.isoformat(), days=days)


def cost_text(ranked: Ranked, language: str) -> str:
    """The cost; up to which sum, where something in it is not known."""
    text = format_usd(ranked.usd, language=language)
    return translated("up to {usd}", language).format(usd=text) if ranked.bill and ranked.bill.unknown else text


def machine_text(ranked: Ranked) -> str:
    """Provider, instance, and how many cards of which kind."""
    nodes = ranked.placement.nodes if ranked.placement else 1
    times = f"{nodes} x " if nodes > 1 else ""
    return f"{times}{ranked.offer.gpu_count} x {ranked.offer.gpu_name}"


def offers_table(ranked: Sequence[Ranked], today: date, language: str = "en") -> Table:
    """Per offer: machine, time, money, price with its date, how the job runs there, and what makes it no answer."""
    columns = titles(
        language, "Provider", "Instance", "Cards", "Cost", "Done after", "Tokens/s", "Micro-batch", "Shared by", "Headroom", "Price",
        "Price date", "Mind",
    )  # fmt: skip
    rows = []
    for row in ranked:
        placement, spot = row.placement, row.spot_run is not None
        price = row.offer.spot_usd_per_hour if spot else row.offer.usd_per_hour
        per_hour = translated("{price} per hour", language).format(price=format_usd(price, language=language)) if price else "–"
        rows.append(
            (
                row.provider.name, row.offer.instance_type, machine_text(row),
                cost_text(row, language), format_duration(row.wall_s, language=language),
                format_number(float(placement.step.tokens_per_s), language=language) if placement else "–",
                str(placement.job.micro_batch_size) if placement else "–",
                sharding_text(placement.sharding, language) if placement and placement.sharding else "–",
                format_percent(placement.headroom_share, language=language) if placement else "–",
                per_hour, price_age(row, today, language), mind_text(row, language),
            )
        )  # fmt: skip
    return Table(columns, tuple(rows))


def mind_text(ranked: Ranked, language: str) -> str:
    """What stands against an offer, and what is not known of it."""
    parts = [note_text(note, language) for note in ranked.problems]
    if ranked.placement and ranked.placement.tight:
        high = format_gib(ranked.placement.high_bytes, language=language)
        parts.append(translated("tight: may need {high} on a card", language).format(high=high))
    if ranked.unknown:
        names = ", ".join(translated(name, language) for name in ranked.unknown)
        parts.append(translated("not known: {names}", language).format(names=names))
    return "; ".join(parts)


def cost_against_time(ranked: Sequence[Ranked], today: date, language: str = "en") -> Figure:
    """Each offer that answers as a point: hours against dollars, headroom as colour, the best of them joined, positions named."""
    answers = [row for row in ranked if row.feasible]
    best = frontier(answers)
    texts = [
        f"{row.provider.name} {row.offer.instance_type}<br>{machine_text(row)}<br>{cost_text(row, language)}, "
        f"{format_duration(row.wall_s, language=language)}<br>{price_age(row, today, language)}"
        for row in answers
    ]  # fmt: skip
    shares = [100 * row.placement.headroom_share for row in answers if row.placement]
    data: list[dict[str, Any]] = [
        {
            "type": "scatter", "mode": "lines", "name": translated("not beaten in both", language), "x": _hours(best), "y": _usd(best),
            "line": {"color": "var(--planner-axis)", "width": 1, "dash": "dot", "shape": "hv"}, "hoverinfo": "skip", "showlegend": False,
        },
        {
            "type": "scatter", "mode": "markers", "name": translated("offers", language), "x": _hours(answers), "y": _usd(answers),
            "customdata": texts, "hovertemplate": "%{customdata}<extra></extra>", "showlegend": False,
            "marker": {
                "size": 10, "color": shares, "cmin": 0, "cmax": 100, "colorscale": "Cividis", "showscale": True,
                "line": {"width": 1, "color": "var(--planner-ink)"},
                "colorbar": {"title": {"text": translated("headroom, %", language), "side": "right"}, "thickness": 12},
            },
        },
    ]  # fmt: skip
    labels = [
        {
            "x": math.log10(row.wall_s / 3600), "y": math.log10(row.usd), "text": name, "showarrow": True, "arrowhead": 2, "ax": 24, "ay": -26,
            "font": {"size": 12, "color": "var(--planner-ink)"}, "arrowcolor": "var(--planner-ink)", "bgcolor": "var(--planner-surface)",
        }
        for name, row in landmarks(ranked).items() if row.feasible
    ]  # fmt: skip
    layout = {
        "separators": ",." if language == "tr" else ".,", "showlegend": False, "annotations": labels,
        "xaxis": {"title": {"text": translated("done after, hours", language), "font": {"size": 13}}, "type": "log", "tickvals": _TICKS},
        "yaxis": {"title": {"text": translated("cost, USD", language), "font": {"size": 13}}, "type": "log", "tickvals": _TICKS},
    }  # fmt: skip
    if not best:
        return Figure({"data": data, "layout": layout}, translated("No offer answers these wishes.", language))
    alt = translated(
        "{count} offers answer; the cheapest costs {usd} and takes {time}, the fastest costs {dear} and takes {fast}.", language
    )
    first, last = best[0], best[-1]
    return Figure(
        {"data": data, "layout": layout},
        alt.format(
            count=len(answers), usd=format_usd(first.usd, language=language), time=format_duration(first.wall_s, language=language),
            dear=format_usd(last.usd, language=language), fast=format_duration(last.wall_s, language=language),
        ),
    )  # fmt: skip


def _hours(rows: Sequence[Ranked]) -> list[float]:
    return [round(row.wall_s / 3600, 4) for row in rows]


def _usd(rows: Sequence[Ranked]) -> list[float]:
    return [round(row.usd, 4) for row in rows]


def delivery_chart(path: Delivery, language: str = "en") -> Figure:
    """The stages from first to last, each where it lies in time; those without a rented machine are hatched."""
    unit, size = ("h", 3600) if path.wall_s > 7200 else ("min", 60)
    names = [translated(stage.name, language) for stage in path.stages]
    texts = [format_duration(stage.seconds, language=language) for stage in path.stages]
    data = []
    for billed, name in ((True, _PAID), (False, _NOT_PAID)):
        stages = [(n, t, stage) for n, t, stage in zip(names, texts, path.stages, strict=True) if stage.billed is billed]
        data.append(
            {
                "type": "bar", "orientation": "h", "name": translated(name, language), "y": [n for n, _, _ in stages],
                "base": [round(stage.start_s / size, 4) for _, _, stage in stages],
                "x": [round(stage.seconds / size, 4) for _, _, stage in stages], "customdata": [t for _, t, _ in stages],
                "hovertemplate": "%{y}: %{customdata}<extra></extra>", "text": [t for _, t, _ in stages], "textposition": "outside",
                "cliponaxis": False,
                "marker": {
                    "color": f"var(--planner-series-{1 if billed else 8})", "pattern": {"shape": "" if billed else "/"},
                },
            }
        )  # fmt: skip
    layout = {
        "barmode": "overlay", "separators": ",." if language == "tr" else ".,", "showlegend": False,
        "yaxis": {"autorange": "reversed", "categoryorder": "array", "categoryarray": names, "automargin": True},
        "xaxis": {"title": {"text": translated("hours" if unit == "h" else "minutes", language), "font": {"size": 13}}, "rangemode": "tozero"},
    }  # fmt: skip
    longest = max(path.stages, key=lambda stage: stage.seconds)
    alt = translated(
        "{total} from first to last, {billed} of it with a machine that is paid; the longest stage is {name}.", language
    )
    return Figure(
        {"data": data, "layout": layout},
        alt.format(
            total=format_duration(path.wall_s, language=language), billed=format_duration(path.billed_s, language=language),
            name=translated(longest.name, language),
        ),
    )  # fmt: skip


def delivery_table(path: Delivery, language: str = "en") -> Table:
    """Per stage: when it starts, what it takes, whether a machine is paid, the formula and the source."""
    columns = titles(language, "Stage", "Starts after", "Takes", "Machine paid", "Formula", "Source")
    rows = tuple(
        (
            translated(stage.name, language), format_duration(stage.start_s, language=language),
            format_duration(stage.seconds, language=language), translated("yes" if stage.billed else "no", language), stage.formula, stage.source,
        )
        for stage in path.stages
    )  # fmt: skip
    return Table(columns, rows)


def bill_table(bill: Bill, language: str = "en") -> Table:
    """Per part of the bill: what it is, the formula, and the provider's page."""
    columns = titles(language, "Part", "Cost", "Formula", "Source")
    rows = []
    for line in bill.lines:
        feared = translated("not known, at most {usd}", language).format(usd=format_usd(line.at_most_usd, language=language))
        cost = feared if line.usd is None else format_usd(line.usd, language=language)
        rows.append((translated(line.name, language), cost, line.formula, line.source))
    return Table(columns, tuple(rows))


def step_table(step: StepTime, language: str = "en") -> Table:
    """Per part of an optimizer step: seconds, share, formula and source; then the whole with its interval."""
    columns = titles(language, "Part", "Takes", "Share", "Formula", "Source")
    whole = float(step.seconds)
    rows = [
        (
            translated(line.name, language), format_duration(float(line.seconds), language=language),
            format_percent(float(line.seconds) / whole, language=language), line.formula, line.source,
        )
        for line in step.lines if float(line.seconds) > 0
    ]  # fmt: skip
    band = f"{format_duration(float(step.low_s), language=language)} – {format_duration(float(step.high_s), language=language)}"
    mfu, hfu = (format_percent(float(share), 1, language=language) for share in (step.mfu, step.hfu))
    name = translated("whole step", language)
    rows.append(
        (name, format_duration(whole, language=language), format_percent(1, language=language), band, f"MFU {mfu}, HFU {hfu}")
    )
    return Table(columns, tuple(rows))


def storage_table(lines: Sequence[StorageLine], total: float, language: str = "en") -> Table:
    """Per part of a disk or of RAM: its size, formula and source; then the sum."""
    columns = titles(language, "Part", "Size", "Formula", "Source")
    rows = [(translated(x.name, language), format_gib(float(x.bytes), language=language), x.formula, x.source) for x in lines]
    return Table(columns, (*rows, (translated("together", language), format_gib(total, language=language), "", "")))


def training_table(row: Ranked, demand: Demand, language: str = "en") -> Table:
    """What the training comes to: steps, tokens, padding, GPU-hours."""
    assert row.placement
    job, workload = row.placement.job, demand.workload
    number = partial(format_number, language=language)
    rows = (
        (translated("optimizer steps", language), number(workload.steps(job))),
        (translated("tokens trained on", language), format_count(workload.trained_tokens(job), language=language)),
        (translated("padding", language), format_percent(workload.padding_share(job), language=language)),
        (translated("GPU-hours", language), number(row.gpu_hours, 1)),
    )
    return Table(titles(language, "Part", "Size"), rows)


def both_ways_table(on_demand: Ranked, spot: Ranked, deadline_s: float | None, language: str = "en") -> Table:
    """On demand beside spot: price, expected time and its spread, interruptions, cost, and the chance to keep a deadline."""
    time, usd, number = (partial(show, language=language) for show in (format_duration, format_usd, format_number))
    run = spot.spot_run
    prices = (on_demand.offer.usd_per_hour, spot.offer.spot_usd_per_hour)
    rows = [
        (translated("price per hour", language), *(usd(price) if price else "–" for price in prices)),
        (translated("expected time of training", language), time(on_demand.training_s), time(spot.training_s)),
        (translated("standard deviation", language), time(0), time(run.sd_s) if run else "–"),
        (translated("interruptions expected", language), number(0, 1), number(run.interruptions, 1) if run else "–"),
        (translated("expected cost", language), cost_text(on_demand, language), cost_text(spot, language)),
        (translated("standard deviation of the cost", language), usd(0), usd(spot.usd_sd) if run else "–"),
    ]
    if deadline_s is not None:
        chances = (
            format_percent(row.probability_by(deadline_s), language=language) if row.delivery else "–"
            for row in (on_demand, spot)
        )
        rows.append((translated("chance by the deadline", language), *chances))
    return Table(("", *titles(language, "on demand", "spot")), tuple(rows))
