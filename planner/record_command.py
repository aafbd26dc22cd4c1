"""The `planner record` commands: make, show, compare and replay the record of an experiment."""

import json
import sys
from pathlib import Path

import click

from planner.job_options import DOES_NOT_FIT, FITS, bad_input
from planner.pilot.record import read_measurement
from planner.planfile import read_plan
from planner.record import experiment_of, read_record, replay, write_record
from planner.record.diff import changes, outcomes
from planner.record_views import changes_table, outcomes_table, record_text
from planner.texts import LANGUAGES, translated

__all__ = ["record"]

_language = click.option("--language", type=click.Choice(LANGUAGES), default="en", help="language of the answer")


@click.group()
def record() -> None:
    """Keep what was planned, predicted, measured and made in one file, compare two, and run one again."""


@record.command()
@click.argument("plan")
@click.option("--pilot", metavar="FILE", help="what a pilot measured (its measurement.json)")
@click.option("--run", "folder", metavar="FOLDER", help="output folder of the run: checkpoints, trainer state, tokenizer")
@click.option(
    "--out", metavar="FILE", default="record.json", show_default=True, help="where the record is written; never over another"
)
@_language
def make(plan: str, pilot: str | None, folder: str | None, out: str, language: str) -> None:
    """Write the record of PLAN, a plan file, with today's prediction."""
    with bad_input(language):
        found = read_measurement(Path(pilot)) if pilot else None
        made = experiment_of(read_plan(plan), Path(folder) if folder else None, found)
        write_record(out, made)
    click.echo(record_text(made, language))


@record.command()
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="the record as it is stored")
@_language
def show(file: str, as_json: bool, language: str) -> None:
    """What the record FILE says."""
    with bad_input(language):
        found = read_record(file)
    click.echo(found.model_dump_json(indent=1) if as_json else record_text(found, language))


@record.command()
@click.argument("before")
@click.argument("after")
@click.option("--json", "as_json", is_flag=True, help="one JSON document on standard output")
@_language
def diff(before: str, after: str, as_json: bool, language: str) -> None:
    """What changed between two records, and what each change does: exit status 0 when nothing did, 1 when something did."""
    with bad_input(language):
        a, b = read_record(before), read_record(after)
        found, figures = changes(a, b), outcomes(a, b)
    if as_json:
        document = {"changes": [change._asdict() for change in found], "outcomes": [outcome._asdict() for outcome in figures]}
        click.echo(json.dumps(document, indent=2, default=str))
    elif found:
        click.echo(f"{outcomes_table(figures, language).text()}\n\n{changes_table(found, language).text()}")
    else:
        click.echo(translated("Nothing differs but when they were made.", language))
    sys.exit(DOES_NOT_FIT if found else FITS)


@record.command("replay")
@click.argument("file")
@click.option("--out", metavar="FOLDER", default="replay", show_default=True, help="a new or empty folder")
@_language
def replay_command(file: str, out: str, language: str) -> None:
    """Write what it takes to run the record FILE again: its plan and the versions of its environment."""
    with bad_input(language):
        plan, lock = replay(read_record(file), Path(out))
    template = translated("{plan} and {lock} are written: give the first to planner export, install the second", language)
    click.echo(template.format(plan=plan, lock=lock))
