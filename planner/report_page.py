"""Sections of a report -> one HTML page that needs no network and prints well, or Markdown."""

from collections.abc import Sequence
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

from planner.figures import Figure
from planner.planfile import PlanFile
from planner.report import Section, report
from planner.tables import Table
from planner.texts import translated

__all__ = ["report_html", "report_markdown"]

_STYLES = ("workbook/tokens.css", "report.css")  # the workbook's colours, and the page


def report_html(plan: PlanFile, today: date, language: str = "en") -> str:
    """One page: styles inside, no script, nothing fetched."""
    title = _title(plan, language)
    style = "".join((Path(__file__).parent / name).read_text(encoding="utf-8") for name in _STYLES)
    sections = "".join(map(_section_html, report(plan, today, language)))
    made = escape(translated("Plan of {date}", language).format(date=today.isoformat()))
    return (
        f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f'<body class="planner-app"><main><h1>{escape(title)}</h1><p class="when">{made}</p>{sections}</main></body></html>\n'
    )


def report_markdown(plan: PlanFile, today: date, language: str = "en") -> str:
    """The same as Markdown: each picture is the sentence that says it."""
    parts = [f"# {_line(_title(plan, language))}", translated("Plan of {date}", language).format(date=today.isoformat())]
    for section in report(plan, today, language):
        parts.append(f"## {_line(section.title)}")
        parts += map(_line, section.sentences)
        parts += [f"**{_line(caption)}**\n\n{_table_markdown(table)}" for caption, table in section.tables]
    return "\n\n".join(parts) + "\n"


def _title(plan: PlanFile, language: str) -> str:
    return plan.title or translated("Fine-tuning plan: {model}", language).format(model=plan.job.architecture.name)


def _line(text: str) -> str:
    """A text of a user as one line that Markdown does not read as HTML, a link or a table cell."""
    return " ".join("".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in text).split())


def _table_markdown(table: Table) -> str:
    lines = [f"| {' | '.join(map(_line, row))} |" for row in (table.columns, *table.rows)]
    return "\n".join([lines[0], "|---" * len(table.columns) + "|", *lines[1:]])


def _section_html(section: Section) -> str:
    sentences = "".join(f"<p>{escape(text)}</p>" for text in section.sentences)
    chart = _bars(section.figure) if section.figure else ""
    tables = "".join(_table_html(caption, table) for caption, table in section.tables)
    return f"<section><h2>{escape(section.title)}</h2>{sentences}{chart}{tables}</section>"


def _table_html(caption: str, table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in table.columns)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in table.rows
    )
    return f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


# ---- a bar chart without a script ----------------------------------------------------------------------------------------


def _bars(figure: Figure) -> str:
    """The bars of a plotly figure, lying: stacked ones end to end, those with a base where they begin; lines across as marks."""
    traces: Sequence[dict[str, Any]] = [trace for trace in figure.spec["data"] if trace["type"] == "bar"]
    lying = any(trace.get("orientation") == "h" for trace in traces)
    names, sizes = ("y", "x") if lying else ("x", "y")
    rows: dict[str, list[tuple[float, float, str, str]]] = {}
    for trace in traces:
        for n, name in enumerate(trace[names]):
            parts = rows.setdefault(name, [])
            start = trace["base"][n] if "base" in trace else sum(size for _, size, _, _ in parts)
            parts.append((start, trace[sizes][n], trace["marker"]["color"], trace["customdata"][n]))
    limits = [shape["y0"] for shape in figure.spec["layout"].get("shapes", ()) if shape.get("type") == "line"]
    order = figure.spec["layout"].get("yaxis", {}).get("categoryarray", list(rows))
    top = (
        max([*limits, *(start + size for parts in rows.values() for start, size, _, _ in parts)], default=1)
        * (1.12 if lying else 1.02)
        or 1
    )
    lines = "".join(f'<span class="limit" style="left:{100 * level / top:.2f}%"></span>' for level in limits)
    body = "".join(_row(name, rows[name], top, lines, said=lying) for name in order if name in rows)
    return f'<div class="chart" role="img" aria-label="{escape(figure.alt)}">{body}</div>' + ("" if lying else _key(traces))


def _row(name: str, parts: list[tuple[float, float, str, str]], top: float, lines: str, *, said: bool) -> str:
    boxes = "".join(
        f'<span class="part" style="left:{100 * start / top:.2f}%;width:{100 * size / top:.2f}%;background:{escape(colour)}"></span>'
        + (f'<span class="said" style="left:{100 * (start + size) / top:.2f}%">{escape(text)}</span>' if said else "")
        for start, size, colour, text in parts
    )
    return f'<div class="row"><span>{escape(name)}</span><div class="track">{boxes}{lines}</div></div>'


def _key(traces: Sequence[dict[str, Any]]) -> str:
    keys = "".join(
        f'<span><i style="background:{escape(trace["marker"]["color"])}"></i>{escape(trace["name"])}</span>' for trace in traces
    )
    return f'<p class="key">{keys}</p>'
