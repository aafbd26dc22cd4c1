"""Pieces of the page: boxes and HTML; whatever comes from a user or a file is escaped here."""

import re
from functools import partial
from html import escape
from typing import Any

import ipywidgets as widgets

from planner.figures import Figure
from planner.memory import MemoryBreakdown
from planner.plan import Plan
from planner.remedies import Remedy
from planner.sentences import note_texts, remedy_text, verdict_text, what_would_help
from planner.tables import Table, explain_table
from planner.texts import translated
from planner.units import format_gib, format_number

__all__ = ["box", "folded", "legend_html", "relabel", "table_html", "verdict_html", "why_html"]

# A cell that is a number with its unit, or a band of two, stands to the right.
_NUMBER = re.compile(r"–|[-+–%$<> ]*\d[\d.,]*( ?[%$\w]+)?( – .*)?")
# Sign and colour of each verdict; the word says it too.
PILLS = {"fits": ("✓", "good"), "tight": ("!", "tight"), "does not fit": ("✕", "bad")}


def pill(verdict: str, language: str) -> str:
    """The verdict as a word with a sign and a colour."""
    sign, colour = PILLS[verdict]
    return f'<span class="planner-pill planner-{colour}"><span aria-hidden="true">{sign}</span>{escape(translated(verdict, language))}</span>'


def verdict_html(plan: Plan, helpful: list[Remedy], largest: dict[str, int], language: str) -> str:
    """The verdict, the figures that one looks for first, what would help where it does not fit, and the notes."""
    sentence = verdict_text(plan, language) + ("" if plan.fits else " " + what_would_help(helpful, language))
    advice = "".join(f"<li>{escape(remedy_text(remedy, language))}</li>" for remedy in helpful)
    advice = (
        folded(
            translated("What would need less memory, and what it costs", language), f'<ul class="planner-advice">{advice}</ul>'
        )
        if advice
        else ""
    )
    notes = "".join(f'<p class="planner-note">{escape(note)}</p>' for note in note_texts(plan, language))
    return f'<p aria-live="polite">{pill(plan.verdict, language)}{escape(sentence)}</p>{_tiles(plan, largest, language)}{notes}{advice}'


def _tiles(plan: Plan, largest: dict[str, int], language: str) -> str:
    gib = partial(format_gib, language=language)
    peak = plan.memory.peak
    batch, length = (format_number(largest[field], language=language) for field in ("micro_batch_size", "sequence_length"))
    tiles = (
        ("Needs on the card", gib(peak.device), f"{gib(peak.low)} – {gib(peak.high)}"),
        ("Headroom", gib(plan.headroom_bytes), plan.gpu.label),
        ("Largest micro-batch", batch, translated("at this sequence length", language)),
        ("Longest sequence", length, translated("at this micro-batch", language)),
    )
    shown = "".join(
        f"<div class='planner-tile'><span>{escape(translated(name, language))}</span>"
        f"<strong>{escape(value)}</strong><small>{escape(note)}</small></div>"
        for name, value, note in tiles
    )
    return f"<div class='planner-tiles'>{shown}</div>"


def legend_html(figure: Figure) -> str:
    """Names and colours of a stacked chart's parts."""
    keys = ((trace["name"], trace["marker"]["color"]) for trace in figure.spec["data"])
    return (
        "<div class='planner-legend'>"
        + "".join(f"<span class='planner-key' style='--key:{colour}'>{escape(name)}</span>" for name, colour in keys)
        + "</div>"
    )


def table_html(table: Table, language: str, *, caption: str) -> str:
    """A table with a caption; numbers stand to the right, verdicts are pills."""
    verdicts = {translated(verdict, language): verdict for verdict in PILLS}

    def cell(text: str) -> str:
        if text in verdicts:
            return f"<td>{pill(verdicts[text], language)}</td>"
        number = " class='planner-number'" if _NUMBER.fullmatch(text) else ""
        return f"<td{number}>{escape(text)}</td>"

    head = "".join(f"<th scope='col'>{escape(title)}</th>" for title in table.columns)
    body = "".join(f"<tr><th scope='row'>{escape(first)}</th>{''.join(map(cell, rest))}</tr>" for first, *rest in table.rows)
    return (
        f"<div class='planner-table' tabindex='0' role='region' aria-label='{escape(caption)}'>"
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def why_html(memory: MemoryBreakdown, language: str) -> str:
    """Every part of the peak, the largest first, each to be opened: formula, numbers, source."""
    table = explain_table(memory, language)
    titles = [escape(title) for title in table.columns]
    parts = []
    for name, component, size, formula, numbers, source in table.rows:
        rows = "".join(
            f"<dt>{title}</dt><dd>{escape(value)}</dd>"
            for title, value in zip((titles[1], *titles[4:]), (component, numbers, source), strict=True)
            if value
        )
        content = f"<div class='planner-formula'>{escape(formula)}</div><dl>{rows}</dl>"
        parts.append(f"<details><summary><span>{escape(name)}</span><span>{escape(size)}</span></summary>{content}</details>")
    return f"<div class='planner-why'>{''.join(parts)}</div>"


def folded(summary: str, content: str) -> str:
    """A part that is folded until it is asked for; `content` is HTML."""
    return f"<div class='planner-why'><details><summary>{escape(summary)}</summary>{content}</details></div>"


def box(css_class: str, *children: widgets.Widget) -> widgets.VBox:
    """Widgets under each other, with a class of the style sheet."""
    found = widgets.VBox(list(children))
    found.add_class(css_class)
    return found


def relabel(control: widgets.Widget, options: Any) -> None:
    """Give a selection new options and keep its value: new options alone would choose the first. The browser hears of it once."""
    chosen = control.value
    with control.hold_sync():
        control.options, control.value = options, chosen
