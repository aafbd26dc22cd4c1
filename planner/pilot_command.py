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
from planner.job_options import BAD_INPUT, DOES_NOT_FIT, FITS, bad_input, job_of, job_options, sharding_options
from planner.pilot.calibrate import Calibration, calibrated
from planner.pilot.compare import Compared, card_of, compared, verdict
from planner.pilot.record import Measurement
from planner.pilot.run import Run, devices, missing_packages, start
from planner.pilot_views import calibration_table, cause_texts, comparison_table, found_sentences, step_text
from planner.sentences import note_text
from planner.sharding import sharding_of
from planner.texts import LANGUAGES, translated

__all__ = ["pilot"]

_OF_PILOT = ("steps", "minutes", "shallow", "largest_micro_batch", "data", "weights", "snapshot")  # fields of its request


@click.command()
@partial(job_options, model_required=False)
@sharding_options
@click.option("--steps", type=click.IntRange(2, 1_000_000), default=20, show_default=True, help="optimizer steps")
@click.option(
    "--minutes",
    type=click.FloatRange(0, 1440, min_open=True),
    help="the whole loop for so long, with evaluations and checkpoints",
)
@click.option("--shallow", is_flag=True, help="run models of a few blocks and extrapolate to all of them")
@click.option("--largest-micro-batch", is_flag=True, help="look for the largest micro-batch by trying")
@click.option("--data", type=click.Path(), help="rows to train on: JSONL, CSV, Parquet or text  [default: random tokens]")
@click.option("--weights", help="folder or Hub id of trained weights  [default: random ones of the same shapes]")
@click.option("--snapshot", is_flag=True, help="keep PyTorch's memory history of one step, for its own viewer")
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
    num_gpus: int,
    sharding: str,
    gpus_per_node: int,
    offload: str,
    cpu: bool,
    check: bool,
    runs: Path,
    as_json: bool,
    language: str,
    **options: Any,
) -> None:
    """Run a few real steps of one job and compare them with the plan.

    Exit status 0 when it went through, 1 when memory ran out, 2 on bad input or when it failed. MODEL is a catalogue name, a path
    to a config.json or its folder, or an id on the Hugging Face Hub.
    """
    cards = devices()
    if check:
        click.echo(_availability(cards, language))
        sys.exit(FITS if cards and not missing_packages() else DOES_NOT_FIT)
    of_pilot = {name: options.pop(name) for name in _OF_PILOT}
    with bad_input(language):
        if model is None:
            raise click.UsageError("Missing argument 'MODEL'.")
        if not cards and not cpu:
            raise PlannerError("no GPU is attached; rent one (planner offers), or try the pilot on the processor with --cpu")
        job = job_of(model, revision, options)
        shared = sharding_of(job, num_gpus, sharding, gpus_per_node, offload, integer_base=True)
        run = start(job, runs, device="cpu" if cpu else "cuda", sharding=shared, **of_pilot)
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
    if gpu is None or found.sharding or found.state == "cancelled":
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
    parts += found_sentences(found, language)
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
