"""The `planner offers` command: rental offers for one job, the cheapest and the fastest, and the prices of today."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

import click

from planner.catalogues import load_gpus, load_providers
from planner.job_options import DOES_NOT_FIT, FITS, bad_input, calibration_of, job_of, job_options, pilot_option, record_options
from planner.offer_views import cost_against_time, landmarks, mind_text, offers_table
from planner.placement import Demand
from planner.planfile import plan_of_offer, write_plan
from planner.prices import REFRESHABLE, current_offers, refresh_prices
from planner.ranking import Ranked, Wishes, cheapest, fastest, rank_offers
from planner.run_sentences import answer_text, spot_text
from planner.spot import SpotTerms
from planner.storage import StoragePolicy
from planner.texts import LANGUAGES, translated
from planner.workload import Workload

__all__ = ["offers"]

_WORKLOAD = {
    "examples": "training examples", "tokens_per_example": "their mean length in tokens", "epochs": "times that each is seen",
    "evaluation_examples": "examples evaluated after each epoch", "global_batch_size": "rows per optimizer step over all GPUs",
}  # fmt: skip
_POLICY = {
    "checkpoint_steps": "steps between checkpoints", "checkpoints_kept": "checkpoints kept",
    "kept_days": "days that the disk is kept with no machine running",
}  # fmt: skip
_TERMS = {
    "interruptions_per_hour": "of spot machines; assumed where you know no better", "waiting_s": "seconds until a new spot machine is there",
    "restart_s": "seconds that it takes to go on",
}  # fmt: skip
_WISHES = {
    "--deadline": ("deadline_hours", "done within so many hours"), "--budget": ("budget_usd", "for no more than so many US dollars"),
}  # fmt: skip
_FLAGS = {
    "spot": "spot prices, with interruptions", "persistent_storage": "storage survives a stop", "free_egress": "no fee for what leaves",
    "fine_billing": "billed by the second or minute", "ssh": "SSH", "docker": "own Docker images", "jupyter": "Jupyter",
    "several_nodes": "machines are connected",
}  # fmt: skip


def _options(command: Any) -> Any:
    for name, text in reversed(_FLAGS.items()):
        command = click.option(f"--{name.replace('_', '-')}", name, is_flag=True, help=text)(command)
    for record, helps in ((SpotTerms, _TERMS), (StoragePolicy, _POLICY), (Workload, _WORKLOAD)):
        command = record_options(record, command, **helps)
    for flag, (field, text) in reversed(_WISHES.items()):
        command = click.option(flag, field, default=None, type=float, help=text)(command)
    return command


@click.command()
@partial(job_options, model_required=False)
@_options
@pilot_option
@click.option("--provider", "providers", multiple=True, help="only this provider; may be given more than once")
@click.option("--region", default="", help="only offers of this region, where the region is known")
@click.option("--all", "show_all", is_flag=True, help="also the offers that are no answer, and why")
@click.option(
    "--write-plan",
    "plan_path",
    metavar="FILE",
    help="write the plan, with the cheapest offer, to a file: what export, record and report take",
)
@click.option("--limit", type=click.IntRange(1), default=15, show_default=True, help="rows shown")
@click.option("--refresh", is_flag=True, help="fetch today's prices into your cache first (extra: prices)")
@click.option("--json", "as_json", is_flag=True, help="one JSON document on standard output")
@click.option("--language", type=click.Choice(LANGUAGES), default="en", help="language of the answer")
def offers(
    model: str | None,
    revision: str | None,
    providers: tuple[str, ...],
    region: str,
    record: str | None,
    show_all: bool,
    plan_path: str | None,
    limit: int,
    refresh: bool,
    as_json: bool,
    language: str,
    **options: Any,
) -> None:
    """Rank rental offers for one job: exit status 0 when one answers, 1 when none does, 2 on bad input.

    MODEL is a catalogue name, a path to a config.json or its folder, or an id on the Hugging Face Hub; it may be left out with
    --refresh.
    """

    def taken(names: Iterable[str]) -> dict[str, Any]:
        return {name: value for name in names if (value := options.pop(name)) is not None}

    with bad_input(language):
        wishes = Wishes(**taken(field for field, _ in _WISHES.values()), **taken(_FLAGS), providers=providers, region=region)
        workload, policy, terms = Workload(**taken(_WORKLOAD)), StoragePolicy(**taken(_POLICY)), SpotTerms(**taken(_TERMS))
        if refresh:
            _refresh(providers, language)
        if model is None:
            if refresh:
                return
            raise click.UsageError("Missing argument 'MODEL'.")
        found = calibration_of(record)
        demand = Demand(job_of(model, revision, options), workload, policy, terms)
        if found:
            demand = replace(demand, assumptions=found.memory, speed=found.speed)
        current = current_offers()
        if current.problem:
            click.echo(f"planner: {current.problem.text(language)}", err=True)
        ranked = rank_offers(demand, current.offers, load_providers(), load_gpus(), wishes)
        if plan_path:
            write_plan(plan_path, plan_of_offer(demand, wishes, cheapest(ranked)))
    today = datetime.now(UTC).date()
    shown = [row for row in ranked if row.feasible or show_all][:limit]
    if as_json:
        click.echo(json.dumps(_document(demand, ranked, today), indent=2, allow_nan=False))
    else:
        click.echo(_report(demand, ranked, shown, wishes, today, language))
    sys.exit(FITS if any(row.feasible for row in ranked) else DOES_NOT_FIT)


def _refresh(providers: tuple[str, ...], language: str) -> None:
    """Fetch, and say what came and what did not, one provider a line, on standard error."""
    found = refresh_prices(providers or REFRESHABLE)
    for name, count in found.offers.items():
        click.echo(f"{name}: {translated('{count} offers', language).format(count=count)}", err=True)
    for name, problem in found.problems.items():
        click.echo(f"{name}: {problem.text(language)}", err=True)
    for name, count in found.unknown_cards.items():
        click.echo(translated("left out: {count} of card {name}", language).format(count=count, name=name), err=True)


def _report(demand: Demand, ranked: Sequence[Ranked], shown: Sequence[Ranked], wishes: Wishes, today: date, language: str) -> str:
    parts = [cost_against_time(ranked, today, language).alt, ""]
    for title, found in (("Cheapest", cheapest(ranked)), ("Fastest", fastest(ranked)), *landmarks(ranked).items()):
        if found:
            parts.append(f"{translated(title, language)}: {answer_text(found, today, language)}")
    best = cheapest(ranked)
    if best and best.spot_run:
        parts += ["", spot_text(best, wishes, language)]
    return "\n".join([*parts, "", offers_table(shown, today, language).text()])


def _document(demand: Demand, ranked: Sequence[Ranked], today: date) -> dict[str, Any]:
    """The ranking as JSON; seconds, bytes and US dollars."""
    best = {"cheapest": cheapest(ranked), "fastest": fastest(ranked), **landmarks(ranked)}
    return {
        "model": demand.job.architecture.name,
        "job": demand.job.model_dump(mode="json", exclude={"architecture"}),
        "workload": demand.workload.model_dump(mode="json"),
        **{name: ranked.index(row) if row else None for name, row in best.items()},
        "offers": [_row(row, today) for row in ranked],
    }


def _row(row: Ranked, today: date) -> dict[str, Any]:
    place, path, bill, spot = row.placement, row.delivery, row.bill, row.spot_run
    return {
        "provider": row.provider.id, "instance_type": row.offer.instance_type, "tier": row.offer.tier, "gpu": row.offer.gpu_id,
        "gpu_count": row.offer.gpu_count, "feasible": row.feasible, "mind": mind_text(row, "en"), "unknown": list(row.unknown),
        "usd": bill and bill.usd, "at_most_usd": bill and bill.at_most_usd, "bill": bill and {line.name: line.usd for line in bill.lines},
        "wall_s": path and path.wall_s, "billed_s": path and path.billed_s,
        "stages_s": path and {stage.name: stage.seconds for stage in path.stages},
        "nodes": place and place.nodes, "sharding": place and place.sharding and place.sharding.kind,
        "micro_batch_size": place and place.job.micro_batch_size,
        "gradient_accumulation_steps": place and place.job.gradient_accumulation_steps,
        "device_bytes": place and int(place.device_bytes), "headroom_share": place and place.headroom_share,
        "step_s": place and float(place.step.seconds), "tokens_per_s": place and float(place.step.tokens_per_s),
        "spot": spot and {"interruptions": spot.interruptions, "mean_s": spot.mean_s, "sd_s": spot.sd_s, "lost_s": spot.lost_s},
        "usd_per_hour": row.offer.usd_per_hour, "spot_usd_per_hour": row.offer.spot_usd_per_hour,
        "price_date": row.offer.price_date and row.offer.price_date.isoformat(), "price_age_days": row.offer.age_days(today),
        "source": row.offer.source,
    }  # fmt: skip
