"""`planner validate FILE.csv`: the predictions against measurements, row by row and summed up."""

import csv
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from planner.errors import BadRow, PlannerError
from planner.job_options import FITS, bad_input
from planner.memory import Peak
from planner.texts import LANGUAGES, translated
from planner.units import format_percent
from planner.validation.published import Published, Skipped, published_run
from planner.validation.report import Judged, closed_form_peak, grouped, judged, summary
from planner.validation_views import rows_table, summary_table

__all__ = ["read_rows", "validate"]

_NEEDED = ("quantity", "peak_mib", "model", "method", "sequence_length")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--engine", type=click.Choice(["closed-form", "dry-run"]), default="closed-form", show_default=True, help="what predicts"
)
@click.option(
    "--cache", type=click.Path(path_type=Path), default=None, help="where dry runs are kept; else in the user's cache folder"
)
@click.option("--json", "as_json", is_flag=True, help="one JSON document on standard output")
@click.option("--language", type=click.Choice(LANGUAGES), default="en", help="language of the answer")
def validate(file: Path, engine: str, cache: Path | None, as_json: bool, language: str) -> None:
    """Hold predictions against the measurements of FILE, a CSV with the columns of data/measurements.csv.

    Each row is judged at the level that it publishes; a row that no job says is skipped, with the reason. Exit status 0 when the
    file was read, 2 on bad input.
    """
    with bad_input(language):
        rows = read_rows(file)
        _progress(translated("{count} rows", language).format(count=len(rows)))
        outcomes = list(judged(rows, _predictor(engine, rows, cache, language)))
    found = [row for row in outcomes if isinstance(row, Judged)]
    skipped = [row for row in outcomes if isinstance(row, Skipped)]
    if as_json:
        document = {
            "engine": engine, "summary": summary(found), "groups": grouped(found), "rows": [row.document() for row in found],
            "skipped": [{"id": row.id, "reason": row.reason} for row in skipped],
        }  # fmt: skip
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        click.echo(_report(found, skipped, language))
    sys.exit(FITS)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"{text} …", err=True)


def read_rows(path: Path) -> list[Published | Skipped]:
    """The rows of a file. Raises BadRow where it is no CSV with the columns that every row needs."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
            if missing:
                raise BadRow("{file} lacks the columns {missing}; see data/README.md", file=path.name, missing=", ".join(missing))
            cells = [
                {"id": f"line {number}"} | {k: v for k, v in row.items() if k and (k != "id" or v)}
                for number, row in enumerate(reader, 2)
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadRow("{file} cannot be read ({problem})", file=path.name, problem=str(error)) from error
    return [published_run(row) for row in cells]


def _predictor(engine: str, rows: list[Published | Skipped], cache: Path | None, language: str) -> Any:
    if engine == "closed-form":
        return closed_form_peak
    from planner.dryrun import missing_packages
    from planner.validation.dry import default_cache, dry_run_peaks

    if missing := missing_packages():
        raise PlannerError("a dry run needs the package {package!r}: pip install 'finetune-planner[pilot]'", package=missing[0])
    runs = [row for row in rows if isinstance(row, Published)]
    line = translated("{done} of {count}: {run}", language)
    peaks = dry_run_peaks(
        runs, cache or default_cache(), report=lambda done, of, name: _progress(line.format(done=done, count=of, run=name))
    )

    def peak_of(run: Published) -> Peak:
        found = peaks[run.id]
        if isinstance(found, PlannerError):
            raise found
        return found

    return peak_of


def _report(found: list[Judged], skipped: list[Skipped], language: str) -> str:
    say = partial(translated, language=language)
    parts = [rows_table(found, language).text()] if found else []
    parts += [f"{say('skipped')} {row.id}: {row.problem.text(language)}" for row in skipped]
    total = summary(found)
    parts += ["", summary_table(found, language).text(), ""]
    ran_out = say('{count} of {rows} runs that ran out of memory are called "fits"')
    ran = say('{count} of {rows} that ran are called "does not fit"')
    ends = [
        ran_out.format(count=total["false_fits"], rows=total["oom_rows"]),
        ran.format(count=total["false_no_fits"], rows=total["fit_rows"]),
    ]
    if total["interval_coverage"] is not None:
        share = format_percent(total["interval_coverage"], 1, language=language)
        ends.append(say("{share} lie in the 90 % band").format(share=share))
    return "\n".join([*parts, "; ".join([*ends, say("{count} rows skipped").format(count=len(skipped))])])
