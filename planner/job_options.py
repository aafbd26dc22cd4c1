"""What the commands that take a job share: its options, and one sentence for bad input."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from planner.architecture import Record
from planner.errors import InvalidJob, PlannerError
from planner.hub import load_model
from planner.job import Job
from planner.pilot.calibrate import Calibration, calibrated
from planner.pilot.record import read_measurement
from planner.sharding import Kind, Offload

__all__ = [
    "BAD_INPUT", "DEFAULT_GPU", "DOES_NOT_FIT", "FITS", "bad_input", "calibration_of", "job_of", "job_options", "pilot_option",
    "sharding_options",
]  # fmt: skip

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


def job_options(command: Any, *, model_required: bool = True) -> Any:
    """A command with MODEL, --revision and one option for each field of the job."""
    command = click.option("--revision", default=None, help="branch, tag or commit of a model on the Hub")(command)
    for name in reversed([name for name in Job.model_fields if name != "architecture"]):
        command = _option(name)(command)
    return click.argument("model", required=model_required)(command)


def record_options(record: type[Record], command: Any, **helps: str) -> Any:
    """A command with one option for each number of a record that `helps` names."""
    for name, text in reversed(helps.items()):
        field = record.model_fields[name]
        kind = float if "float" in str(field.annotation) else int
        shown = "" if field.default is None else f"  [default: {field.default}]"
        command = click.option(f"--{name.replace('_', '-')}", name, default=None, type=kind, help=text + shown)(command)
    return command


def sharding_options(command: Any) -> Any:
    """A command with the options that say how several GPUs share the job."""
    kinds, offloads = click.Choice(get_args(Kind)), click.Choice(get_args(Offload))
    for option in (
        click.option("--offload", type=offloads, default="none", show_default=True, help="what lies in host memory (ZeRO, FSDP)"),
        click.option("--gpus-per-node", type=int, default=8, show_default=True, help="GPUs of one node"),
        click.option("--sharding", type=kinds, default="fsdp", show_default=True, help="how several GPUs share the job"),
        click.option("--num-gpus", type=int, default=1, show_default=True, help="GPUs; sizes of the job are per GPU"),
    ):
        command = option(command)
    return command


def pilot_option(command: Any) -> Any:
    """A command with --pilot, whose file `calibration_of` reads."""
    text = "plan with what a pilot measured (its measurement.json), where that holds"
    return click.option("--pilot", "record", metavar="FILE", help=text)(command)


def calibration_of(record: str | None) -> Calibration | None:
    """The plan's assumptions with a pilot's figures; None where no record is named. Raises PlannerError for one that cannot calibrate."""
    return calibrated(read_measurement(Path(record))) if record else None


def job_of(model: str, revision: str | None, options: dict[str, Any]) -> Job:
    """The job that the options spell out; what is not given is the job's own default."""
    given = {name: value for name, value in options.items() if value is not None}
    for name in ("target_modules", "modules_to_save"):
        if name in given:
            given[name] = tuple(part.strip() for part in given[name].split(",") if part.strip())
    return Job(architecture=load_model(model, revision=revision), **given)


@contextmanager
def bad_input(language: str) -> Iterator[None]:
    """End with one sentence on standard error and exit status 2 where something in here raises a PlannerError."""
    try:
        yield
    except PlannerError as error:
        options = {option for parameter in click.get_current_context().command.params for option in parameter.opts}
        named = isinstance(error, InvalidJob) and f"--{error.field.replace('_', '-')}" in options
        flag = f"--{error.field.replace('_', '-')}: " if named else ""
        click.echo(f"planner: {flag}{error.text(language)}", err=True)
        sys.exit(BAD_INPUT)
