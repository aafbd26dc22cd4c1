"""`planner validate FILE.csv`: the predictions against measurements, row by row and summed up."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import click

from planner.errors import BadRow, InvalidJob, PlannerError
from planner.job_options import FITS, bad_input
from planner.memory import Peak
from planner.validation.published import Published, Skipped, published_run
from planner.validation.report import Judged, closed_form_peak, grouped, judged, summary

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
def validate(file: Path, engine: str, cache: Path | None, as_json: bool) -> None:
    """Hold predictions against the measurements of FILE, a CSV with the columns of data/measurements.csv.

    Each row is judged at the level that it publishes; a row that no job says is skipped, with the reason. Exit status 0 when the
    file was read, 2 on bad input.
    """
    with bad_input("en"):
        rows = read_rows(file)
        _progress(f"{len(rows)} rows")
        outcomes = list(judged(rows, _predictor(engine, rows, cache)))
    found = [row for row in outcomes if isinstance(row, Judged)]
    skipped = [row for row in outcomes if isinstance(row, Skipped)]
    if as_json:
        document = {
            "engine": engine, "summary": summary(found), "groups": grouped(found), "rows": [row.document() for row in found],
            "skipped": [{"id": row.id, "reason": row.reason} for row in skipped],
        }  # fmt: skip
        click.echo(json.dumps(document, indent=2, allow_nan=False))
    else:
        click.echo(_report(found, skipped))
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


def _predictor(engine: str, rows: list[Published | Skipped], cache: Path | None) -> Any:
    if engine == "closed-form":
        return closed_form_peak
    from planner.dryrun import missing_packages
    from planner.validation.dry import default_cache, dry_run_peaks

    if missing := missing_packages():
        raise PlannerError("a dry run needs the package {package!r}: pip install 'finetune-planner[pilot]'", package=missing[0])
    runs = [row for row in rows if isinstance(row, Published)]
    peaks = dry_run_peaks(runs, cache or default_cache(), report=_progress)

    def peak_of(run: Published) -> Peak:
        found = peaks.get(run.id, InvalidJob("not run dry: {reason}", reason="unknown"))
        if isinstance(found, PlannerError):
            raise found
        return found

    return peak_of


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _report(found: list[Judged], skipped: list[Skipped]) -> str:
    parts = []
    for row in found:
        run = row.run
        shown = "ran out above" if run.quantity == "oom_above" else f"{100 * row.error:+6.1f} %  measured"
        parts.append(
            f"{run.id:46} {run.quantity:11} predicted {row.predicted / 2**20:9.0f} MiB {shown} {run.measured_bytes / 2**20:9.0f}  {row.verdict}"
        )
    parts += [f"skipped {row.id}: {row.reason}" for row in skipped]
    total = summary(found)
    header = f"\n{'':26}{'n':>5}{'median':>10}{'p90':>10}{'bias':>10}{'coverage':>10}"
    parts.append(header)
    for name in ("all", "allocated", "reserved", "device", "unspecified", "tokens_per_second"):
        parts.append(_line(name.replace("_", " "), total[name]))
    for group, names in grouped(found).items():
        parts.append(f"by {group}")
        parts += [_line(f"  {name}", figures) for name, figures in names.items()]
    parts.append(
        f'\n{total["false_fits"]} of {total["oom_rows"]} runs that ran out are called "fits"; {total["false_no_fits"]} of {total["fit_rows"]} '
        f'that ran are called "does not fit"; {_percent(total["interval_coverage"])} lie in the 90 % band; {len(skipped)} rows skipped'
    )
    return "\n".join(parts)


def _line(name: str, figures: dict[str, Any]) -> str:
    cells = [_percent(figures[key]) for key in ("median_ape", "p90_ape", "bias")]
    return f"{name[:26]:26}{figures['n']:5}" + "".join(f"{cell:>10}" for cell in (*cells, _percent(figures.get("coverage"))))
