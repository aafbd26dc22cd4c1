"""`planner dryrun`: run the real step of one job on fake tensors, and say what it held when."""

import json
import sys
import time
from dataclasses import asdict
from typing import Any

import click

from planner.catalogues import find_gpu
from planner.comparison import components_table, dry_verdict_text, instants_table, peak_text, run_text
from planner.dryrun import DryRun, dry_run
from planner.dryrun.compare import by_instant
from planner.dryrun.options import AllocatorOptions, parse_options
from planner.dryrun.process import LOADING
from planner.dryrun.snapshot import write_snapshot
from planner.dryrun.summary import DryRunSummary, summarised
from planner.figures import COMPONENT_NAMES
from planner.job_options import DEFAULT_GPU, DOES_NOT_FIT, FITS, bad_input, job_of, job_options, sharding_options
from planner.plan import Plan, make_plan
from planner.sentences import model_summary, note_texts
from planner.sharding import sharding_of
from planner.texts import LANGUAGES, translated
from planner.timeline import memory_timeline, write_page
from planner.units import format_gib

__all__ = ["dryrun"]


@click.command()
@job_options
@sharding_options
@click.option("--gpu", default=DEFAULT_GPU, show_default=True, help="card to run on, by id or name")
@click.option("--full", is_flag=True, help="trace every block and both steps, not a few that are repeated")
@click.option("--allocator", default="", metavar="OPTIONS", help="as PYTORCH_CUDA_ALLOC_CONF has them")
@click.option("--timeline", metavar="FILE", help="save the chart of memory through the step as one HTML file")
@click.option("--snapshot", metavar="FILE", help="save the events for PyTorch's visualiser, https://docs.pytorch.org/memory_viz")
@click.option("--json", "as_json", is_flag=True, help="one JSON document on standard output")
@click.option("--language", type=click.Choice(LANGUAGES), default="en", help="language of the answer")
def dryrun(
    model: str,
    revision: str | None,
    gpu: str,
    num_gpus: int,
    sharding: str,
    gpus_per_node: int,
    offload: str,
    full: bool,
    allocator: str,
    timeline: str | None,
    snapshot: str | None,
    as_json: bool,
    language: str,
    **options: Any,
) -> None:
    """Run one job's step on fake tensors: exit status 0 when it runs through on the card, 1 when memory runs out, 2 on bad input.

    MODEL is a catalogue name, a path to a config.json or its folder, or an id on the Hugging Face Hub. No GPU and no weights are
    needed, but PyTorch and its libraries are.
    """

    def progress(text: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"{translated(text, language)} …", err=True)

    with bad_input(language):
        settings = parse_options(allocator)
        job = job_of(model, revision, options)
        shared = sharding_of(job, num_gpus, sharding, gpus_per_node, offload, integer_base=True)
        plan = make_plan(job, find_gpu(gpu), sharding=shared)
        begun = time.monotonic()
        progress(LOADING)
        found = dry_run(plan.job, plan.gpu, sharding=shared, full=full, allocator=settings, progress=progress)
        summary = summarised(found, plan.gpu, seconds=time.monotonic() - begun, options=settings)
        click.echo(json.dumps(_document(plan, summary), indent=2) if as_json else _report(plan, summary, language))
        if timeline:
            sentences = [dry_verdict_text(plan, summary, language), peak_text(plan, summary, language)]
            title = f"{translated('Dry run', language)}: {plan.job.architecture.name}"
            write_page(timeline, memory_timeline(summary, plan.gpu, language), title, sentences, language)
        if snapshot:
            _save_snapshot(snapshot, found, settings)
    sys.exit(DOES_NOT_FIT if summary.ran_out else FITS)


def _save_snapshot(path: str, found: DryRun, options: AllocatorOptions) -> None:
    log = found.log
    labels = [f"{a.category}: {a.module} {a.operator} {list(a.shape)} {a.dtype}" for a in log.allocations]
    write_snapshot(path, log.events, log.sizes, labels, options=options, empty_cache_at=log.emptied_at)


def _document(plan: Plan, found: DryRunSummary) -> dict[str, Any]:
    """The dry run as JSON, with the keys of `planner estimate --json` where it has the same thing; bytes are whole numbers."""
    peak = found.peak
    return {
        "fits": found.ran_out is None,
        "verdict": found.verdict,
        "model": plan.job.architecture.name,
        "job": plan.job.model_dump(mode="json", exclude={"architecture"}),
        "sharding": asdict(plan.sharding) if plan.sharding else None,
        "gpu": {"id": plan.gpu.id, "name": plan.gpu.name, "usable_bytes": plan.gpu.usable_memory_bytes},
        "peak": {
            "allocated_bytes": int(peak.allocated), "reserved_bytes": int(peak.reserved), "device_bytes": int(peak.device),
            "low_bytes": int(peak.low), "high_bytes": int(peak.high), "instant": peak.instant,
        },
        "ran_out": found.ran_out and found.ran_out.model_dump(),
        "instants": [
            {"instant": row.name, "allocated_bytes": row.dry_run, "closed_form_bytes": row.closed_form and int(row.closed_form),
             "components": found.components_at.get(row.name)}
            for row in by_instant(plan.memory, found)
        ],
        "lines": [
            {"name": line.name, "component": line.component, "bytes": line.bytes, "formula": line.formula, "source": line.source}
            for line in found.peak_lines
        ],
        "traced_blocks": found.traced_blocks,
        "versions": found.versions,
        "seconds": round(found.seconds, 1),
        "host_peak_bytes": found.host_peak_bytes,
        "notes": note_texts(plan, "en"),
    }  # fmt: skip


def _report(plan: Plan, found: DryRunSummary, language: str) -> str:
    architecture = plan.job.architecture
    parts = [f"{architecture.name}: {model_summary(architecture, language)}", dry_verdict_text(plan, found, language)]
    parts += [peak_text(plan, found, language), "", instants_table(plan, found, language).text(), ""]
    parts += [components_table(plan, found, language).text(), "", translated("The largest things alive at the peak:", language)]
    for line in found.peak_lines:
        component = translated(COMPONENT_NAMES[line.component], language)
        parts.append(f"  {format_gib(line.bytes, language=language):>10}  {line.name}: {line.formula}  ({component})")
    return "\n".join([*parts, "", *note_texts(plan, language), run_text(plan, found, language)])
