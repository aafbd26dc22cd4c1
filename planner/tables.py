"""Plans -> tables: columns and rows of ready text, for HTML, a terminal or a DataFrame."""

from collections.abc import Sequence
from functools import partial
from html import escape
from typing import Any, NamedTuple

from planner.figures import COMPONENT_NAMES, INSTANT_NAMES
from planner.memory import Line, MemoryBreakdown
from planner.nodes import Need
from planner.plan import Plan, missing_on_card
from planner.remedies import Remedy
from planner.sentences import OUTCOMES, method_name, need_text
from planner.texts import translated
from planner.units import format_count, format_gib

__all__ = [
    "SEGMENT_NAMES",
    "Table",
    "cards_table",
    "explain_table",
    "lines_text",
    "methods_table",
    "needs_table",
    "remedies_table",
]


SEGMENT_NAMES = {"consumer": "consumer (GDDR)", "workstation": "workstation", "datacenter": "data centre"}


class Table(NamedTuple):
    """Column titles and rows of text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def frame(self) -> Any:
        """The same as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=list(self.columns))

    def _repr_html_(self) -> str:
        """The same at the end of a notebook's cell: words to the left, figures to the right, nothing cut off."""

        def cell(tag: str, text: str, like: str) -> str:
            figure = len(like.split()) <= 2 and (like[:1].isdigit() or like[:1] in "+-–>$")
            side = "right" if figure else "left"
            return f'<{tag} style="text-align:{side};vertical-align:top;white-space:{"nowrap" if figure else "normal"}">{escape(text)}</{tag}>'

        heads = "".join(
            cell("th", title, first) for title, first in zip(self.columns, (*self.rows, self.columns)[0], strict=True)
        )
        body = "".join(f"<tr>{''.join(cell('td', text, text) for text in row)}</tr>" for row in self.rows)
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"

    def text(self) -> str:
        """The same for a terminal: names to the left, figures to the right."""
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]
        lines = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in (self.columns, *self.rows)]
        return "\n".join("  ".join(line) for line in lines)


def titles(language: str, *texts: str) -> tuple[str, ...]:
    """Column titles in the language."""
    return tuple(translated(text, language) for text in texts)


def methods_table(plans: Sequence[Plan], language: str = "en") -> Table:
    """Per method: trained parameters, the three levels of memory with the band, headroom on the card."""
    gib = partial(format_gib, language=language)
    columns = titles(language, "Method", "Trained", "Allocated", "Reserved", "On the card", "Band", "Headroom", "Verdict")
    rows = []
    for plan in plans:
        peak = plan.memory.peak
        trained = format_count(plan.job.trained_params, language=language)
        band = f"{gib(peak.low)} – {gib(peak.high)}"
        verdict = translated(plan.verdict, language)
        rows.append(
            (
                method_name(plan.job, language),
                trained,
                gib(peak.allocated),
                gib(peak.reserved),
                gib(peak.device),
                band,
                gib(plan.headroom_bytes),
                verdict,
            )
        )
    return Table(columns, tuple(rows))


def remedies_table(found: Sequence[Remedy], language: str = "en") -> Table:
    """Per change that needs less memory: what it saves, whether the job then fits, and what it costs."""
    rows = []
    for remedy in found:
        outcome, saved = OUTCOMES[remedy.plan.fits], format_gib(remedy.saved_bytes, language=language)
        rows.append(
            (translated(remedy.action, language), saved, translated(outcome, language), translated(remedy.cost, language))
        )
    return Table(titles(language, "Change", "Saves", "Outcome", "Cost"), tuple(rows))


def explain_table(memory: MemoryBreakdown, language: str = "en") -> Table:
    """Every line alive at the peak, the largest first: what it is, its formula, the numbers put in, and the source."""
    columns = titles(language, "Part", "Component", "Size", "Formula", "Numbers", "Source")
    lines = sorted(memory.peak_lines, key=lambda line: -line.bytes)
    rows = tuple(
        (
            line_name(line, language), translated(COMPONENT_NAMES[line.component], language), format_gib(line.bytes, language=language),
            line.formula, numbers_text(memory, line, language), line.source,
        )
        for line in lines if line.bytes
    )  # fmt: skip
    return Table(columns, rows)


def line_name(line: Line, language: str) -> str:
    """A line's name; what belongs to one block alone says so."""
    prefix = "one block: "
    name = line.name.removeprefix(prefix)
    return (translated(prefix, language) if name != line.name else "") + translated(name, language)


def numbers_text(memory: MemoryBreakdown, line: Line, language: str) -> str:
    """`T = 2,048, D = 4,096`: the numbers behind the letters of a line's formula."""
    return ", ".join(f"{letter} = {format_count(value, language=language)}" for letter, value in memory.numbers_of(line).items())


def lines_text(memory: MemoryBreakdown, language: str = "en") -> str:
    """The breakdown for a terminal: instants, then each line with formula, numbers and source."""
    blocks = []
    for instant in ("resident", *memory.allocated_at):
        lines = [line for line in memory.lines if line.instant == instant and line.bytes]
        if not lines:
            continue
        total = memory.allocated_at.get(instant)
        mark = f"  <- {translated('peak', language)}" if instant == memory.peak.instant else ""
        sum_text = f"  {format_gib(total, language=language)}" if total is not None else ""
        blocks.append(f"{translated(INSTANT_NAMES[instant], language)}{sum_text}{mark}")
        for line in lines:
            numbers = numbers_text(memory, line, language)
            blocks.append(
                f"  {format_gib(line.bytes, language=language):>10}  {line_name(line, language)}: {line.formula}"
                + (f"  [{numbers}]" if numbers else "")
            )
            blocks.append(f"              {line.source}")
    return "\n".join(blocks)


def cards_table(plans: Sequence[Plan], language: str = "en") -> Table:
    """Per card: usable memory, headroom, and what to mind there."""
    columns = titles(language, "Card", "Usable", "Headroom", "Verdict", "Mind")
    gib = partial(format_gib, language=language)
    rows = []
    for plan in plans:
        verdict = translated(plan.verdict, language)
        usable = gib(plan.gpu.usable_memory_bytes)
        rows.append((plan.gpu.label, usable, gib(plan.headroom_bytes), verdict, _short_notes(plan, language)))
    return Table(columns, tuple(rows))


def needs_table(needs: Sequence[Need], language: str = "en") -> Table:
    """Per card: how many of them hold the job, headroom on each, the link between them, and why."""
    columns = titles(language, "Card", "Cards", "Headroom", "Link", "Why")
    rows = []
    for need in needs:
        count = f"> {need.num_gpus}" if not need.plan.fits else str(need.num_gpus)
        link = "NVLink" if need.gpu.nvlink_bytes_per_s else "PCIe"
        headroom = format_gib(need.plan.headroom_bytes, language=language)
        rows.append((need.gpu.label, count, headroom, link if need.num_gpus > 1 else "", need_text(need, language)))
    return Table(columns, tuple(rows))


def _short_notes(plan: Plan, language: str) -> str:
    words = [translated(word, language) for word, _ in missing_on_card(plan.job, plan.gpu)]
    if plan.gpu.vendor != "NVIDIA":
        words.append(translated("not NVIDIA: libraries differ", language))
    return ", ".join(words)
