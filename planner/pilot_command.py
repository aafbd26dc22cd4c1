"""The `planner pilot` command: a few real steps on the attached GPU, or on the CPU for trying, held against the plan."""

import asyncio
import json
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from planner.dryrun.process import dry_run_in_process
from planner.dryrun.summary import DryRunSummary
from planner.errors import PlannerError
from planner.job import Job
from planner.job_options import BAD_INPUT, DOES_NOT_FIT, FITS, bad_input, job_of, job_options
from planner.pilot.calibrate import Calibration, calibrated
from planner.pilot.compare import Compared, card_of, compared, verdict
from planner.pilot.record import Measurement
from planner.pilot.run import Run, devices, missing_packages, start
from planner.pilot_views import calibration_table, cause_texts, comparison_table, step_text
from planner.sentences import note_text
from planner.texts import LANGUAGES, translated

__all__ = ["pilot"]


@click.command()
@partial(job_options, model_required=False)
@click.option("--steps", type=click.IntRange(2, 100_000), default=20, show_default=True, help="optimizer steps")
@click.option("--cpu", is_flag=True, help="run on the processor, for trying: it measures no GPU memory")
@click.option("--check", is_flag=True, help="only say whether a pilot can run here")
@click.option(
    "--runs", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="folder of logs and records"
)
@click.option("--json", "as_json", is_flag=True, help="one JSON document on standard output")
@click.option("--language", type=click.Choice(LANGUAGES), default="en", help="language of the answer")
def pilot(
    model: str | None,
    revision: str | None,
    steps: int,
    cpu: bool,
    check: bool,
    runs: Path,
    as_json: bool,
    language: str,
    **options: Any,
) -> None:
    """Run a few real steps of one job, with random weights of its shapes, and compare them with the plan.

    Exit status 0 when it went through, 1 when memory ran out, 2 on bad input or when it failed. MODEL is a catalogue name, a path
    to a config.json or its folder, or an id on the Hugging Face Hub.
    """
    cards = devices()
    if check:
        click.echo(_availability(cards, language))
        sys.exit(FITS if cards and not missing_packages() else DOES_NOT_FIT)
    with bad_input(language):
        if model is None:
            raise click.UsageError("Missing argument 'MODEL'.")
        if not cards and not cpu:
            raise PlannerError("no GPU is attached; rent one (planner offers), or try the pilot on the processor with --cpu")
        run = start(job_of(model, revision, options), runs, device="cpu" if cpu else "cuda", steps=steps)
        try:
            _watch(run, language)
        except KeyboardInterrupt:
            run.cancel()
        found = run.finish()
    rows = compared(found, dry_run=None if cpu else _dry_run(found))
    calibration = None
    with suppress(PlannerError):  # a processor, or a run that did not go through
        calibration = calibrated(found)
    click.echo(_document(run, found, rows) if as_json else _report(run, found, rows, calibration, language))
    sys.exit({"done": FITS, "cancelled": FITS, "out of memory": DOES_NOT_FIT}.get(found.state, BAD_INPUT))


def _availability(cards: list[str], language: str) -> str:
    if missing := missing_packages():
        sentence = translated("a pilot needs {packages}: pip install 'finetune-planner[pilot]'", language)
        return sentence.format(packages=", ".join(missing))
    if not cards:
        return translated("no GPU is attached; rent one (planner offers), or try the pilot on the processor with --cpu", language)
    return translated("a pilot can run here, on {cards}", language).format(cards=", ".join(cards))


def _dry_run(found: Measurement) -> DryRunSummary | None:
    """The dry run of the job that was piloted, on the same card; after the pilot, whose speed it would change."""
    gpu = card_of(found)
    if gpu is None or found.state == "cancelled":
        return None
    with suppress(PlannerError):  # the libraries here are none that it knows, or it does not know the job
        return asyncio.run(dry_run_in_process(Job(**found.job), gpu))
    return None


def _watch(run: Run, language: str) -> None:
    """Follow the log until the process is over; each step is one line on a terminal's standard error."""
    seen = 0
    while True:
        running = run.running
        events = run.events()
        for event in events[seen:]:
            if event["event"] == "step" and sys.stderr.isatty():
                click.echo(step_text(event, language), err=True)
        seen = len(events)
        if not running:
            return
        time.sleep(0.2)


def _report(run: Run, found: Measurement, rows: list[Compared], calibration: Calibration | None, language: str) -> str:
    parts, say = [note_text(verdict(found, rows), language) + ".", ""], partial(translated, language=language)
    if rows:
        parts += [comparison_table(rows, language).text(), "", *(f"- {text}" for text in cause_texts(rows, language)), ""]
    if calibration:
        parts += [
            say("What this pilot says about the plan's assumptions"),
            "",
            calibration_table(calibration, language).text(),
            "",
        ]
    if calibration and calibration.useful:
        line = say("planner estimate --pilot {path} plans with these figures.")
        parts.append(line.format(path=run.folder / "measurement.json"))
    if found.environment.get("device") == "cpu":
        parts.append(translated("On the processor: sizes of what stays are real, peaks and times are no GPU's.", language))
    parts.append(translated("The record is {path}.", language).format(path=run.folder / "measurement.json"))
    return "\n".join(parts)


def _document(run: Run, found: Measurement, rows: list[Compared]) -> str:
    document = {
        "folder": str(run.folder),
        "measurement": found.model_dump(mode="json"),
        "compared": [
            {
                **row._asdict(), "residual": row.residual, "difference": row.difference, "dry_difference": row.dry_difference,
                "cause": row.cause and note_text(row.cause, "en"),
            }
            for row in rows
        ],
    }  # fmt: skip
    return json.dumps(document, indent=2, allow_nan=False)
