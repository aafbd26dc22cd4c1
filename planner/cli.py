"""The `planner` command: serve the workbook, open JupyterLab, or estimate one job in the terminal."""

import io
import json
import sys
from typing import Any, Literal, get_args, get_origin

import click

from planner.catalogues import find_gpu, load_gpus
from planner.errors import InvalidJob, PlannerError
from planner.figures import COMPONENT_NAMES
from planner.hub import load_model
from planner.job import Job
from planner.plan import Plan, cards_that_fit, largest_that_fits, make_plan, remedies
from planner.sentences import model_summary, note_texts, remedy_text, verdict_text
from planner.tables import lines_text, methods_table
from planner.texts import LANGUAGES, translated
from planner.units import format_gib

__all__ = ["main"]

FITS, DOES_NOT_FIT, BAD_INPUT = 0, 1, 2
DEFAULT_GPU = "rtx-4090-24"

_HELP = {
    "method": "what is trained; freeze trains the last blocks only",
    "quantization": "format of the frozen base (qlora means nf4)",
    "double_quant": "quantise the quantisation scales too",
    "kbit_preparation": "PEFT's prepare_model_for_kbit_training: fp32 embeddings, head and norms",
    "precision": "mixed: fp32 trained parameters under autocast",
    "sequence_length": "tokens per row",
    "micro_batch_size": "rows per step and GPU",
    "gradient_checkpointing": "recompute blocks in backward",
    "loss": "plain, or one that never holds all logits",
    "keep_outputs": "the loop holds the model's output until after backward",
    "packing": "rows are full; else padded, with a mask",
    "target_modules": "linear layers with LoRA, separated by commas, or all-linear",
    "modules_to_save": "embed_tokens and lm_head to train as well, separated by commas",
    "autocast_adapter_dtype": "keep adapters of a 16-bit base in fp32, as PEFT does",
    "experts_as_linears": "mixtures of experts as transformers 4 had them",
    "trainable_layers": "blocks that layer freezing trains",
    "evaluation": "also plan an evaluation pass",
    "save": "what is saved: a checkpoint, or the merged model",
}


def _option(name: str) -> Any:
    """One command-line option for one field of the job."""
    field = Job.model_fields[name]
    flag, kind, shown = f"--{name.replace('_', '-')}", field.annotation, field.default
    text = _HELP.get(name, "")
    if kind is bool:
        return click.option(
            f"{flag}/--no-{flag[2:]}", name, default=None, help=f"{text}  [default: {'on' if shown else 'off'}]".strip()
        )
    if get_origin(kind) is tuple:
        return click.option(flag, name, default=None, metavar="NAMES", help=f"{text}  [default: {','.join(shown) or 'none'}]")
    if get_origin(kind) is Literal:
        choice = click.Choice([str(value) for value in get_args(kind)])
        return click.option(flag, name, default=None, type=choice, help=f"{text}  [default: {shown}]".strip())
    number = float if kind is float else int
    return click.option(flag, name, default=None, type=number, help=f"{text}  [default: {shown}]".strip())


def _job_options(command: Any) -> Any:
    for name in reversed([name for name in Job.model_fields if name != "architecture"]):
        command = _option(name)(command)
    return command


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--port", type=int, default=None, help="port on this machine; else the first free one from 8866")
@click.option("--no-browser", is_flag=True, help="do not open a browser")
@click.version_option(package_name="finetune-planner")
@click.pass_context
def planner(context: click.Context, port: int | None, no_browser: bool) -> None:
    """Plan the memory of a fine-tuning job. Without a command: open the workbook in the browser."""
    if context.invoked_subcommand is None:
        _app(port, no_browser)


@planner.command()
@click.option("--port", type=int, default=None, help="port on this machine; else the first free one from 8866")
@click.option("--no-browser", is_flag=True)
def app(port: int | None, no_browser: bool) -> None:
    """Serve the workbook with Voila on this machine."""
    _app(port, no_browser)


def _app(port: int | None, no_browser: bool) -> None:
    from planner.serve import serve_app

    serve_app(port=port, open_browser=not no_browser)


@planner.command()
@click.option("--port", type=int, default=None, help="port on this machine; else the first free one from 8888")
@click.option("--no-browser", is_flag=True)
def lab(port: int | None, no_browser: bool) -> None:
    """Open JupyterLab on the notebooks."""
    from planner.serve import serve_lab

    serve_lab(port=port, open_browser=not no_browser)


@planner.command()
@click.argument("model")
@_job_options
@click.option("--gpu", default=DEFAULT_GPU, show_default=True, help="card to fit on, by id or name")
@click.option("--revision", default=None, help="branch, tag or commit of a model on the Hub")
@click.option("--explain", is_flag=True, help="every line with its formula, numbers and source")
@click.option("--json", "as_json", is_flag=True, help="one JSON document on standard output")
@click.option("--language", type=click.Choice(LANGUAGES), default="en", help="language of the answer")
def estimate(
    model: str,
    gpu: str,
    revision: str | None,
    explain: bool,
    as_json: bool,
    language: str,
    **options: Any,
) -> None:
    """Estimate one job: exit status 0 when it fits, 1 when it does not, 2 on bad input.

    MODEL is a catalogue name, a path to a config.json or its folder, or an id on the Hugging Face Hub.
    """
    try:
        given = {name: value for name, value in options.items() if value is not None}
        for name in ("target_modules", "modules_to_save"):
            if name in given:
                given[name] = tuple(part.strip() for part in given[name].split(",") if part.strip())
        plan = make_plan(Job(architecture=load_model(model, revision=revision), **given), find_gpu(gpu))
    except PlannerError as error:
        click.echo(f"planner: {_flagged(error)}{error.text(language)}", err=True)
        sys.exit(BAD_INPUT)
    click.echo(json.dumps(_document(plan), indent=2, allow_nan=False) if as_json else _report(plan, explain, language))
    sys.exit(FITS if plan.fits else DOES_NOT_FIT)


def _flagged(error: PlannerError) -> str:
    return f"--{error.field.replace('_', '-')}: " if isinstance(error, InvalidJob) and error.field in Job.model_fields else ""


def _document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON; bytes are whole numbers."""
    memory, peak = plan.memory, plan.memory.peak
    return {
        "fits": plan.fits,
        "verdict": plan.verdict,
        "model": plan.job.architecture.name,
        "job": plan.job.model_dump(mode="json", exclude={"architecture"}),
        "gpu": {"id": plan.gpu.id, "name": plan.gpu.name, "usable_bytes": plan.gpu.usable_memory_bytes},
        "peak": {
            "allocated_bytes": int(peak.allocated), "reserved_bytes": int(peak.reserved), "device_bytes": int(peak.device),
            "low_bytes": int(peak.low), "high_bytes": int(peak.high), "instant": peak.instant,
        },
        "headroom_bytes": plan.headroom_bytes,
        "largest_micro_batch": largest_that_fits(plan.job, plan.gpu, "micro_batch_size"),
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
        parts += [f"- {remedy_text(remedy, language)}" for remedy in remedies(job, gpu)]
        larger = cards_that_fit(job, load_gpus().values())
        if larger:
            names = ", ".join(other.gpu.label for other in larger[:5])
            parts.append(translated("Smallest cards that hold it: {cards}", language).format(cards=names))
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
