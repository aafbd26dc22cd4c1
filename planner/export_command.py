"""`planner export PLAN --to TARGET`: the plan as the files of a training engine."""

import sys
from pathlib import Path

import click

from planner.export import TARGETS, export, write_export
from planner.job_options import FITS, bad_input
from planner.planfile import read_plan
from planner.texts import LANGUAGES

__all__ = ["export_plan"]


@click.command("export")
@click.argument("plan", metavar="PLAN", type=click.Path(path_type=Path))
@click.option("--to", "target", type=click.Choice(list(TARGETS)), required=True, help="engine whose files are written")
@click.option("--out", type=click.Path(path_type=Path), help="folder to write to; else the main file on standard output")
@click.option("--language", type=click.Choice(LANGUAGES), default="en", help="language of the answer")
def export_plan(plan: Path, target: str, out: Path | None, language: str) -> None:
    """Write the files that a training engine needs for PLAN: exit status 0, or 2 on bad input.

    What the target cannot say stands in the header of its files; a token never does: machines read it from HF_TOKEN.
    """
    with bad_input(language):
        files = export(read_plan(plan), target)
        if out:
            write_export(out, files)
    click.echo("\n".join(str(out / name) for name in files) if out else next(iter(files.values())), nl=bool(out))
    sys.exit(FITS)
