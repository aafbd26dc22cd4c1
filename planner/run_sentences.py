"""What a ranked offer says, in words of either language: how it runs there, what it costs, what spot risks."""

from datetime import date

from planner.offer_views import cost_text, machine_text, mind_text, price_age
from planner.ranking import Ranked, Wishes
from planner.sentences import sharding_text
from planner.spot import SpotRun, break_even_rate, daly_interval_s, young_interval_s
from planner.texts import translated
from planner.units import format_duration, format_number, format_percent, format_usd

__all__ = ["answer_text", "spot_text"]


def answer_text(row: Ranked, today: date, language: str) -> str:
    """One offer in one sentence: machine, cost, time, how the job is shared, the price's date; or why it is no answer."""
    where = f"{row.provider.name} {row.offer.instance_type} ({machine_text(row)})"
    if not row.feasible:
        return translated("{where}: no answer, {why}", language).format(where=where, why=mind_text(row, language))
    assert row.placement
    way = translated("one GPU", language) if row.placement.sharding is None else sharding_text(row.placement.sharding, language)
    template = "{where}: {usd}, done after {time}; {way}, micro-batch {batch}; price of {date}"
    return translated(template, language).format(
        where=where, usd=cost_text(row, language), time=format_duration(row.wall_s, language=language), way=way,
        batch=row.placement.job.micro_batch_size, date=price_age(row, today, language),
    )  # fmt: skip


def spot_text(row: Ranked, wishes: Wishes, language: str) -> str:
    """What interruptions do to the run, the best checkpoint interval, the break-even with on-demand, and the deadline's chance."""
    run = row.spot_run
    assert run and row.delivery

    def time(seconds: float) -> str:
        return format_duration(seconds, language=language)

    def say(template: str, **values: str) -> str:
        return translated(template, language).format(**values)

    rate = run.terms.interruptions_per_hour
    parts = [
        say(
            "Spot at {rate} interruptions an hour: {mean} expected for training and checkpoints (standard deviation {sd}), {undisturbed} "
            "without interruption; {count} interruptions expected, {lost} of work lost.",
            rate=format_number(rate, 3, language=language), mean=time(run.mean_s), sd=time(run.sd_s), undisturbed=time(run.undisturbed_s),
            count=format_number(run.interruptions, 1, language=language), lost=time(run.lost_s),
        ),
        interval_text(run, language),
    ]  # fmt: skip
    if row.offer.usd_per_hour and row.offer.spot_usd_per_hour:
        even = break_even_rate(run, row.offer.spot_usd_per_hour, row.offer.usd_per_hour)
        template = "On demand ({price} per hour) costs the same from {even} interruptions an hour on."
        price = format_usd(row.offer.usd_per_hour, language=language)
        parts.append(say(template, price=price, even=format_number(even, 2, language=language)))
    if wishes.deadline_hours is not None:
        chance = format_percent(row.probability_by(wishes.deadline_hours * 3600), language=language)
        parts.append(say("Chance to be done within {time}: {chance}.", time=time(wishes.deadline_hours * 3600), chance=chance))
    return "\n".join(parts)


def interval_text(run: SpotRun, language: str) -> str:
    """The best checkpoint interval, and what the chosen one costs beside it."""
    rate = run.terms.interruptions_per_hour
    if not rate:
        return translated("Nothing interrupts: checkpoints cost only their writing.", language)
    there = run.best
    template = "A checkpoint takes {write}. Best interval: {best} (Young {young}, Daly {daly}), {there} expected; yours: {chosen}, {here} expected."
    shown = {
        "write": run.write_s, "best": there.interval_s, "young": young_interval_s(run.write_s, rate), "daly": daly_interval_s(run.write_s, rate),
        "there": there.mean_s, "chosen": run.interval_s, "here": run.mean_s,
    }  # fmt: skip
    return translated(template, language).format(
        **{name: format_duration(seconds, language=language) for name, seconds in shown.items()}
    )
