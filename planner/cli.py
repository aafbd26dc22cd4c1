"""The `planner` command: serve the workbook, open JupyterLab, or estimate one job in the terminal."""

import io
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from planner.catalogues import find_gpu, load_gpus
from planner.dataset_command import dataset
from planner.dryrun_command import dryrun
from planner.errors import PlannerError
from planner.export_command import export_plan
from planner.figures import COMPONENT_NAMES
from planner.job_options import (
    BAD_INPUT,
    DEFAULT_GPU,
    DOES_NOT_FIT,
    FITS,
    bad_input,
    calibration_of,
    job_of,
    job_options,
    pilot_option,
    sharding_options,
)
from planner.nodes import cards_needed
from planner.offers_command import offers
from planner.pilot_command import pilot
from planner.plan import Plan, cards_that_fit, largest_that_fits, make_plan
from planner.planfile import PlanFile, write_plan
from planner.record_command import record as record_group
from planner.remedies import remedies
from planner.report_command import report
from planner.sentences import model_summary, need_text, note_texts, remedy_text, verdict_text
from planner.sharding import sharding_of
from planner.tables import lines_text, methods_table
from planner.texts import LANGUAGES, translated
from planner.units import format_gib
from planner.validate_command import validate
from planner.workload import Workload

__all__ = ["main"]


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--port", type=int, default=None, help="port on this machine; else the first free one from 8866")
@click.option("--no-browser", is_flag=True, help="do not open a browser")
@click.version_option(package_name="finetune-planner")
@click.pass_context
def planner(context: click.Context, port: int | None, no_browser: bool) -> None:
    """Plan the memory of a fine-tuning job. Without a command: open the workbook in the browser."""
    if context.invoked_subcommand is None:
        context.invoke(app, port=port, no_browser=no_browser)


@planner.command()
@click.option("--port", type=int, default=None, help="port on this machine; else the first free one from 8866")
@click.option("--no-browser", is_flag=True, help="do not open a browser")
@click.option("--ip", default="127.0.0.1", show_default=True, help="address to listen on; 0.0.0.0 is every one of this machine")
@click.option("--token", default="", envvar="PLANNER_TOKEN", help="a word that visitors must give (or PLANNER_TOKEN)")
@click.option("--notebook", type=click.Path(path_type=Path), default=None, help="a notebook of your own, with your own switches")
def app(port: int | None, no_browser: bool, ip: str, token: str, notebook: Path | None) -> None:
    """Serve the workbook with Voila, on this machine only unless asked otherwise."""
    from planner.serve import serve_app

    os.environ.pop("PLANNER_TOKEN", None)  # the kernels of visitors inherit the rest
    serve_app(port=port, open_browser=not no_browser, ip=ip, token=token, notebook=notebook)


@planner.command()
@click.option("--port", type=int, default=None, help="port on this machine; else the first free one from 8888")
@click.option("--no-browser", is_flag=True)
def lab(port: int | None, no_browser: bool) -> None:
    """Open JupyterLab on the notebooks."""
    from planner.serve import serve_lab

    serve_lab(port=port, open_browser=not no_browser)


@planner.command()
@job_options
@sharding_options
@click.option("--gpu", default=DEFAULT_GPU, show_default=True, help="card to fit on, by id or name")
@pilot_option
@click.option("--write-plan", "plan_path", metavar="FILE", help="write the plan to a file: what export, record and report take")
@click.option("--explain", is_flag=True, help="every line with its formula, numbers and source")
@click.option("--json", "as_json", is_flag=True, help="one JSON document on standard output")
@click.option("--language", type=click.Choice(LANGUAGES), default="en", help="language of the answer")
def estimate(
    model: str,
    gpu: str,
    num_gpus: int,
    sharding: str,
    gpus_per_node: int,
    offload: str,
    revision: str | None,
    record: str | None,
    plan_path: str | None,
    explain: bool,
    as_json: bool,
    language: str,
    **options: Any,
) -> None:
    """Estimate one job: exit status 0 when it fits, 1 when it does not, 2 on bad input.

    MODEL is a catalogue name, a path to a config.json or its folder, or an id on the Hugging Face Hub.
    """
    with bad_input(language):
        job = job_of(model, revision, options)
        found = calibration_of(record)
        plan = make_plan(job, find_gpu(gpu), found and found.memory, sharding_of(job, num_gpus, sharding, gpus_per_node, offload))
        if plan_path:
            rows = job.micro_batch_size * job.gradient_accumulation_steps * (plan.sharding.data_parallel if plan.sharding else 1)
            write_plan(
                plan_path, PlanFile(job=job, gpu=plan.gpu.id, sharding=plan.sharding, workload=Workload(global_batch_size=rows))
            )
    click.echo(json.dumps(_document(plan), indent=2, allow_nan=False) if as_json else _report(plan, explain, language))
    sys.exit(FITS if plan.fits else DOES_NOT_FIT)


planner.add_command(dataset)
planner.add_command(dryrun)
planner.add_command(export_plan)
planner.add_command(offers)
planner.add_command(pilot)
planner.add_command(record_group)
planner.add_command(report)
planner.add_command(validate)


def _document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON; bytes are whole numbers."""
    memory, peak = plan.memory, plan.memory.peak
    return {
        "fits": plan.fits,
        "verdict": plan.verdict,
        "model": plan.job.architecture.name,
        "job": plan.job.model_dump(mode="json", exclude={"architecture"}),
        "sharding": asdict(plan.sharding) if plan.sharding else None,
        "gpu": {"id": plan.gpu.id, "name": plan.gpu.name, "usable_bytes": plan.gpu.usable_memory_bytes},
        "peak": {
            "allocated_bytes": int(peak.allocated), "reserved_bytes": int(peak.reserved), "device_bytes": int(peak.device),
            "low_bytes": int(peak.low), "high_bytes": int(peak.high), "instant": peak.instant,
        },
        "headroom_bytes": plan.headroom_bytes,
        "largest_micro_batch": largest_that_fits(plan.job, plan.gpu, "micro_batch_size", plan.sharding, plan.assumptions),
        "trained_params": int(plan.job.trained_params),
        "lines": [
            {
                "name": line.name, "component": line.component, "instant": line.instant, "bytes": int(line.bytes), "formula": line.formula,
                "numbers": memory.numbers_of(line), "source": line.source,
            }
            for line in memory.lines
        ],
        "notes": note_texts(plan, "en"),
    }  # fmt: skip


def _report(plan: Plan, explain: bool, language: str) -> str:
    job, gpu, peak = plan.job, plan.gpu, plan.memory.peak
    parts = [f"{job.architecture.name}: {model_summary(job.architecture, language)}", verdict_text(plan, language), ""]
    table = methods_table([plan], language)
    width = max(map(len, table.columns)) + 2
    parts += [f"  {title:<{width}}{value}" for title, value in zip(table.columns, table.rows[0], strict=True)]
    parts.append("")
    for component, size in plan.memory.components_at(peak.instant).items():
        parts.append(f"  {format_gib(size, language=language):>10}  {translated(COMPONENT_NAMES[component], language)}")
    parts += ["", *note_texts(plan, language)]
    if not plan.fits:
        parts += [f"- {remedy_text(remedy, language)}" for remedy in remedies(job, gpu, plan.sharding, plan.assumptions)]
        larger = cards_that_fit(job, load_gpus().values(), plan.assumptions)
        if larger:
            names = ", ".join(other.gpu.label for other in larger[:5])
            parts.append(translated("Smallest cards that hold it: {cards}", language).format(cards=names))
        (need,) = cards_needed(job, [gpu], assumptions=plan.assumptions)
        several = translated("How many {gpu} it takes: {count} ({why})", language)
        count = str(need.num_gpus) if need.plan.fits else f"> {need.num_gpus}"
        parts.append(several.format(gpu=gpu.label, count=count, why=need_text(need, language)))
    if explain:
        parts += ["", lines_text(plan.memory, language)]
    return "\n".join(parts)


def main() -> None:
    """Entry point: a PlannerError of any command is one sentence on standard error and exit status 2."""
    for stream in (sys.stdout, sys.stderr):  # a console that lacks a letter shows a stand-in for it
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        planner(standalone_mode=True)
    except PlannerError as error:
        click.echo(f"planner: {error}", err=True)
        sys.exit(BAD_INPUT)
