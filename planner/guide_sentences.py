"""The guide's answer in plain words, what could go wrong, and the words of the field explained."""

from datetime import date
from functools import partial

from planner.guide import Guided
from planner.offer_views import machine_text, price_age
from planner.sentences import method_name
from planner.texts import translated
from planner.units import format_duration, format_percent, format_usd

__all__ = ["GLOSSARY", "answer_lines", "risk_lines"]

# A word as it stands in the sentences -> what it means.
GLOSSARY = {
    "VRAM": "The memory on the graphics card. A job that needs more than there is stops with an error.",
    "fine-tuning": "Training a finished language model a little further, on examples of your own.",
    "LoRA": "Only small added matrices are trained, the model itself stays as it is: far less memory, a result of some MB.",
    "QLoRA": "LoRA on a model that is held in 4 bits a number instead of 16: a quarter of the memory for weights, somewhat slower.",
    "adapter": "What LoRA trains and saves: a small file that is used together with the model it was trained on.",
    "checkpoint": "A copy of the state of training on disk, from which it can go on after an interruption.",
    "token": "A piece of text as the model reads it: three quarters of a word in English, about half a word in Turkish.",
    "spot": "Spare machines at a lower price, which the provider may take back at any time.",
    "on demand": "Machines at the full price that stay yours until you give them back.",
    "micro-batch": "How many examples the card works on at once: more is faster, and takes more memory.",
}


def answer_lines(found: Guided, language: str) -> tuple[tuple[str, str], ...]:
    """What to do, with what, for how much, how long, each under its title."""
    row, low, high = found.row, found.best, found.worst
    assert row.placement
    say = partial(translated, language=language)
    usd, time = partial(format_usd, language=language), partial(format_duration, language=language)
    between = say("{middle} ({low} to {high})")
    return (
        (say("Method"), method_name(row.placement.job, language)),
        (say("Machine"), f"{row.provider.name} {row.offer.instance_type}, {machine_text(row)}"),
        (say("Cost"), between.format(middle=usd(row.usd), low=usd(low.usd), high=usd(high.usd))),
        (say("Done after"), between.format(middle=time(row.wall_s), low=time(low.wall_s), high=time(high.wall_s))),
    )


def risk_lines(found: Guided, today: date, language: str) -> tuple[str, ...]:
    """What could go wrong, and what to do about it."""
    row, say = found.row, partial(translated, language=language)
    assert row.placement
    free = format_percent(row.placement.headroom_share, language=language)
    memory = (
        say("VRAM is tight: the job may need more than the card has. Run the pilot of an hour first, or take a larger card.")
        if row.tight
        else say("VRAM: {free} of the card stay free by this plan. Longer examples than planned take more.").format(free=free)
    )
    lines = [memory]
    if not row.provider.storage_survives_stop:
        lines.append(
            say(
                "Storage is not known to survive a stop there: copy each checkpoint and the adapter away before you stop the machine."
            )
        )
    if found.spot:
        template = say(
            "As spot it costs about {usd} and takes {time}; it may be interrupted, so checkpoints must be written elsewhere."
        )
        usd, time = format_usd(found.spot.usd, language=language), format_duration(found.spot.wall_s, language=language)
        lines.append(template.format(usd=usd, time=time))
    if row.unknown:
        names = ", ".join(say(name) for name in row.unknown)
        lines.append(say("Nobody states for this offer: {names}. Ask before you rent.").format(names=names))
    lines.append(say("The price is of {date}; look at today's.").format(date=price_age(row, today, language)))
    lines.append(say("Nobody can promise a good result: try a few hundred examples first, and judge the answers yourself."))
    return tuple(lines)
