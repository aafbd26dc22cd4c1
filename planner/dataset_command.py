"""`planner dataset`: measure a file or folder of examples: rows, what is malformed, tokens, and what a sequence length does to them."""

import json
import sys
from typing import Any

import click

from planner.dataset import Profile, measure_dataset
from planner.dataset_views import dataset_table, malformed_table, profile_texts
from planner.job import Job
from planner.job_options import DOES_NOT_FIT, FITS, bad_input
from planner.texts import LANGUAGES, translated
from planner.units import format_number, format_percent
from planner.workload import Workload

__all__ = ["dataset"]

_WORKLOAD, _JOB = Workload.model_fields, Job.model_fields


@click.command()
@click.argument("file")
@click.option(
    "--model", help="whose tokenizer counts: a catalogue name, a Hub id, a folder, or a tokenizer.json; else an estimate"
)
@click.option(
    "--sequence-length",
    type=click.IntRange(1, 2**27),
    default=_JOB["sequence_length"].default,
    show_default=True,
    help="tokens per row",
)
@click.option(
    "--micro-batch-size",
    type=click.IntRange(1, 2**20),
    default=8,
    show_default=True,
    help="rows that are padded to their longest",
)
@click.option(
    "--global-batch-size", type=click.IntRange(1, 2**24), default=_WORKLOAD["global_batch_size"].default, show_default=True,
    help="rows per optimizer step",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="one JSON document on standard output")
@click.option("--language", type=click.Choice(LANGUAGES), default="en", help="language of the answer")
def dataset(
    file: str,
    model: str | None,
    sequence_length: int,
    micro_batch_size: int,
    global_batch_size: int,
    as_json: bool,
    language: str,
) -> None:
    """Measure FILE: exit status 0 when it has usable rows, 1 when it has none, 2 on bad input.

    FILE is JSONL, CSV, Parquet, Arrow or text, or a folder of those as the Hub has it. It is read as a stream, and nothing of it is
    kept or shown.
    """
    batch = (sequence_length, micro_batch_size, global_batch_size)
    with bad_input(language):
        profile = measure_dataset(file, model, allow_hub=True, progress=_progress(language))
    if sys.stderr.isatty():
        click.echo("", err=True)
    click.echo(
        json.dumps(_document(profile, *batch), indent=2, allow_nan=False) if as_json else _report(profile, batch, language)
    )
    sys.exit(FITS if profile.rows else DOES_NOT_FIT)


def _progress(language: str) -> Any:
    shown = ""

    def progress(done_bytes: int, total_bytes: int, rows: int) -> None:
        nonlocal shown
        share = format_percent(min(1, done_bytes / total_bytes), language=language)
        if share != shown and sys.stderr.isatty():
            shown = share
            text = translated("{share} read, {rows} rows", language)
            click.echo(f"\r{text.format(share=share, rows=format_number(rows, language=language))} …", err=True, nl=False)

    return progress


def _document(profile: Profile, sequence_length: int, micro_batch_size: int, global_batch_size: int) -> dict[str, Any]:
    """The profile as JSON, and what the asked lengths do to it."""
    return {
        **profile.model_dump(mode="json"),
        "at": {
            "sequence_length": sequence_length, "micro_batch_size": micro_batch_size, "global_batch_size": global_batch_size,
            "truncated_rows_share": float(profile.truncated_rows_share(sequence_length)),
            "truncated_tokens_share": float(profile.truncated_tokens_share(sequence_length)),
            "padding_share": float(profile.padding_share(sequence_length)),
            "padding_share_to_longest": float(profile.padding_share(sequence_length, micro_batch_size)),
            "packed_rows": float(profile.packed_rows(sequence_length)), "packing_gain": float(profile.packing_gain(sequence_length)),
            "steps_per_epoch": int(profile.steps_per_epoch(sequence_length, global_batch_size, packing=False)),
            "steps_per_epoch_packed": int(profile.steps_per_epoch(sequence_length, global_batch_size, packing=True)),
        },
    }  # fmt: skip


def _report(profile: Profile, batch: tuple[int, int, int], language: str) -> str:
    parts = [*profile_texts(profile, batch[0], language), "", dataset_table(profile, *batch, language).text()]
    if profile.malformed:
        parts += ["", malformed_table(profile, language).text()]
    return "\n".join(parts)
