"""The `planner report` command: a plan for people who decide, as one page or as Markdown."""

from datetime import UTC, datetime
from pathlib import Path

import click

from planner.errors import PlannerError
from planner.files import write_whole
from planner.job_options import bad_input
from planner.pilot.record import read_measurement
from planner.planfile import read_plan
from planner.report_page import report_html, report_markdown
from planner.texts import LANGUAGES

__all__ = ["report"]

_FORMS = {".html": report_html, ".md": report_markdown}


@click.command()
@click.argument("plan")
@click.option("--pilot", metavar="FILE", help="what a pilot measured (its measurement.json); else the plan's own")
@click.option(
    "--out",
    metavar="FILE",
    default="report.html",
    show_default=True,
    help="a page (.html) or Markdown (.md); - for Markdown here",
)
@click.option("--language", type=click.Choice(LANGUAGES), default="en", help="language of the report")
def report(plan: str, pilot: str | None, out: str, language: str) -> None:
    """The report of PLAN, a plan file: verdict, pictures, cost, risks, checklist and evidence."""
    today = datetime.now(UTC).date()
    with bad_input(language):
        found = read_plan(plan)
        if pilot:
            found = found.changed(pilot=read_measurement(Path(pilot)))
        if out == "-":
            click.echo(report_markdown(found, today, language), nl=False)
            return
        form = _FORMS.get(Path(out).suffix)
        if form is None:
            raise PlannerError("a report is a page or Markdown; give a name that ends in .html or .md, not {path!r}", path=out)
        write_whole(out, form(found, today, language).encode())
    click.echo(out)
