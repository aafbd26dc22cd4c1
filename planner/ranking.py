"""Rental offers for a job: on each the best way to run it, what that takes and costs, and what makes it impossible."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from planner.architecture import Record
from planner.cost import Bill, Rates, bill, dearest_rates
from planner.delivery import Delivery, DeliveryAssumptions, Work, delivery
from planner.errors import UnknownName
from planner.hardware import Gpu, Offer, Provider
from planner.placement import Demand, Placement, Placements
from planner.plan import Note, NumBytes, missing_on_card
from planner.spot import SpotRun
from planner.storage import Storage

__all__ = ["ASKED", "Demand", "Placement", "Ranked", "Wishes", "both_ways", "cheapest", "fastest", "frontier", "rank_offers"]

_NODES = (2, 4, 8)
# What a wish asks of a provider, by its field.
ASKED = {
    "persistent_storage": "storage that survives a stop", "free_egress": "free egress", "fine_billing": "billing by the second or minute",
    "ssh": "SSH", "docker": "Docker images", "jupyter": "Jupyter", "several_nodes": "a network between machines",
}  # fmt: skip
_LONGEST_S = 10 * 365.25 * 86_400
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Wishes(Record):
    """What an offer must have; nothing is asked for unless it is set. Raises InvalidJob."""

    spot: bool = False
    deadline_hours: _Positive | None = None
    budget_usd: _Positive | None = None
    persistent_storage: bool = False
    free_egress: bool = False
    fine_billing: bool = False  # by the second or the minute
    ssh: bool = False
    docker: bool = False
    jupyter: bool = False
    several_nodes: bool = False  # a provider that connects machines
    own_machines: bool = False  # of the provider itself, not of members of a marketplace
    providers: tuple[str, ...] = ()
    region: str = ""


@dataclass(frozen=True)
class Ranked:
    """One offer, with what the job takes and costs there; `problems` says why it is no answer, `unknown` what nobody stated."""

    offer: Offer
    provider: Provider
    problems: tuple[Note, ...]
    unknown: tuple[str, ...] = ()
    placement: Placement | None = None
    delivery: Delivery | None = None
    bill: Bill | None = None
    spot_run: SpotRun | None = None

    @property
    def feasible(self) -> bool:
        """Whether nothing stands against it."""
        return not self.problems

    @property
    def tight(self) -> bool:
        """Whether it answers, but a card may need more than it has."""
        return self.placement is not None and self.placement.tight

    @property
    def usd(self) -> float:
        """The bill, with what is not known at the dearest rate of any provider; infinite where there is none."""
        return self.bill.at_most_usd if self.bill else math.inf

    @property
    def training_s(self) -> float:
        """Training with its evaluations and checkpoints; on spot as expected."""
        names = ("training", "evaluation", "checkpoint writes")
        return sum(x.seconds for x in self.delivery.stages if x.name in names) if self.delivery else math.inf

    @property
    def usd_sd(self) -> float:
        """Standard deviation of the cost, by the interruptions."""
        price = self.offer.spot_usd_per_hour or 0.0
        return (
            self.spot_run.billed_sd_s / 3600 * price * (self.placement.nodes if self.placement else 1) if self.spot_run else 0.0
        )

    @property
    def num_gpus(self) -> int:
        """Cards that run at once."""
        return self.offer.gpu_count * (self.placement.nodes if self.placement else 1)

    @property
    def gpu_hours(self) -> float:
        """Hours that all cards together are rented for."""
        return self.num_gpus * self.delivery.billed_s / 3600 if self.delivery else math.inf

    def probability_by(self, deadline_s: float) -> float:
        """Probability to be done that long after the first stage began; all but the training takes the time that is planned."""
        if self.spot_run is None:
            return float(self.wall_s <= deadline_s)
        return self.spot_run.probability_by(deadline_s - (self.wall_s - self.spot_run.mean_s))

    @property
    def wall_s(self) -> float:
        """From the first stage to the last; infinite where the job does not run."""
        return self.delivery.wall_s if self.delivery else math.inf


def rank_offers(
    demand: Demand,
    offers: Iterable[Offer],
    providers: Mapping[str, Provider],
    gpus: Mapping[str, Gpu],
    wishes: Wishes | None = None,
    assumptions: DeliveryAssumptions | None = None,
) -> list[Ranked]:
    """All offers: those that answer, then tight ones, then the others, each the cheapest first.

    A machine that is too small is tried in twos, fours and eights, where the speed of the network between them is known.

    Raises UnknownName for a provider that does not exist.
    """
    for name in wishes.providers if wishes else ():
        if name not in providers:
            raise UnknownName("provider", name, providers)
    wishes, assumptions = wishes or Wishes(), assumptions or DeliveryAssumptions()
    finder, dearest = Placements(demand), dearest_rates(providers.values())
    ranked = [
        _ranked(offer, providers[offer.provider_id], gpus, demand, wishes, finder, assumptions, dearest) for offer in offers
    ]
    return sorted(ranked, key=lambda found: (not found.feasible, found.tight, found.usd, found.wall_s))


def both_ways(
    row: Ranked,
    demand: Demand,
    providers: Mapping[str, Provider],
    gpus: Mapping[str, Gpu],
    assumptions: DeliveryAssumptions | None = None,
) -> tuple[Ranked, Ranked]:
    """The same machine on demand and as spot, whatever was wished for."""
    on_demand, spot = (
        rank_offers(demand, [row.offer], providers, gpus, Wishes(spot=spot), assumptions)[0] for spot in (False, True)
    )
    return on_demand, spot


def cheapest(ranked: Iterable[Ranked]) -> Ranked | None:
    """Of the offers that answer, the one that costs least: with a deadline, the cheapest that keeps it."""
    return min(_answers(ranked), key=lambda found: (found.usd, found.wall_s), default=None)


def fastest(ranked: Iterable[Ranked]) -> Ranked | None:
    """Of the offers that answer, the first to be done: with a budget, the fastest within it."""
    return min(_answers(ranked), key=lambda found: (found.wall_s, found.usd), default=None)


def frontier(ranked: Iterable[Ranked]) -> list[Ranked]:
    """Offers that no other one beats in both cost and time, the cheapest first."""
    best: list[Ranked] = []
    for found in sorted(_answers(ranked), key=lambda found: (found.usd, found.wall_s)):
        if not best or found.wall_s < best[-1].wall_s:
            best.append(found)
    return best


def _answers(ranked: Iterable[Ranked]) -> list[Ranked]:
    """Those that answer with room to spare; where there are none, the tight ones."""
    feasible = [found for found in ranked if found.feasible]
    return [found for found in feasible if not found.tight] or feasible


# ---- one offer -----------------------------------------------------------------------------------------------------------


def _ranked(
    offer: Offer, provider: Provider, gpus: Mapping[str, Gpu], demand: Demand, wishes: Wishes, finder: Placements,
    assumptions: DeliveryAssumptions, dearest: Rates,
) -> Ranked:  # fmt: skip
    problems = [*_against_wishes(offer, provider, wishes)]
    price = offer.spot_usd_per_hour if wishes.spot else offer.usd_per_hour
    if price is None:
        problems.append(Note("no spot price" if wishes.spot else "no on-demand price", {}))
    if offer.gpu_id is None:
        problems.append(Note("{gpu} is not in the catalogue of cards", {"gpu": offer.gpu_name}))
        return Ranked(offer, provider, tuple(problems))
    gpu = gpus[offer.gpu_id]
    problems += [note for _, note in missing_on_card(demand.job, gpu)]
    placement = finder.best(gpu, offer.gpu_count, 1, offer.fabric_bytes_per_s_per_gpu)
    linked = provider.multi_node and offer.fabric_bytes_per_s_per_gpu
    for nodes in _NODES if linked else ():
        if isinstance(placement, Placement) or offer.gpu_count * nodes > demand.workload.global_batch_size:
            break
        placement = finder.best(gpu, offer.gpu_count, nodes, offer.fabric_bytes_per_s_per_gpu)
    if isinstance(placement, Note):
        untold = ("network between machines",) if provider.multi_node and not linked else ()
        return Ranked(offer, provider, (*problems, placement), untold)
    disk, ram = finder.stores(placement.sharding)
    unknown = []
    for name, needed, has in (("RAM", ram.peak_bytes, offer.host_memory_bytes), ("disk", disk.peak_bytes, offer.disk_bytes)):
        if has is None:
            unknown.append(name)
        elif needed > has:
            problems.append(
                Note("needs {needed} of {name}, has {has}", {"needed": NumBytes(needed), "name": name, "has": NumBytes(has)})
            )
    if price is None:
        return Ranked(offer, provider, tuple(problems), tuple(unknown), placement)
    path, run = _path(placement, disk, demand, provider, wishes, assumptions)
    if path.wall_s > _LONGEST_S:
        return Ranked(offer, provider, (*problems, Note("not done in ten years", {})), tuple(unknown), placement)
    waiting = run.interruptions * run.terms.waiting_s if run else 0.0
    cost = bill(
        price, path.billed_s - waiting, provider, machines=placement.nodes, runs=1 + run.interruptions if run else 1,
        disk_bytes=disk.peak_bytes, kept_s=86_400 * demand.policy.kept_days, result_bytes=disk.result_bytes, dearest=dearest,
    )  # fmt: skip
    if wishes.deadline_hours is not None and path.wall_s > wishes.deadline_hours * 3600:
        problems.append(Note("not done by the deadline", {}))
    if wishes.budget_usd is not None and cost.at_most_usd > wishes.budget_usd:
        problems.append(Note("over the budget", {}))
    return Ranked(offer, provider, tuple(problems), (*unknown, *cost.unknown), placement, path, cost, run)


def _path(
    placement: Placement, disk: Storage, demand: Demand, provider: Provider, wishes: Wishes, assumptions: DeliveryAssumptions
) -> tuple[Delivery, SpotRun | None]:
    """The stages on this offer; on spot, training takes its expected time with evaluations, checkpoints and interruptions.

    Any one of several machines that is interrupted stops all. A training time that the user set is taken as it is.
    """
    workload, changed = demand.workload, dict(demand.changed_stages)
    step_s, evaluated = float(placement.step.seconds), workload.evaluation_share(placement.job)
    training_s = workload.steps(placement.job) * step_s
    evaluation_s, writes_s = evaluated * training_s, disk.num_checkpoints * disk.write_s
    run = None
    if wishes.spot and "training" not in changed:
        rate = demand.terms.interruptions_per_hour * placement.nodes
        notice_s = demand.terms.notice_s or provider.spot_notice_s or 0.0
        terms = demand.terms.model_copy(update={"interruptions_per_hour": rate, "notice_s": notice_s})
        interval_s = demand.policy.checkpoint_steps * step_s * (1 + evaluated)
        run = SpotRun(training_s + evaluation_s, interval_s, disk.write_s, terms)
        training_s, evaluation_s, writes_s = run.mean_s, 0.0, 0.0
    work = Work(
        training_s=training_s, evaluation_s=evaluation_s, checkpoints_s=writes_s, model_bytes=disk.model_bytes,
        dataset_bytes=disk.dataset_bytes, dataset_tokens=workload.examples * workload.tokens_per_example,
        merged_bytes=disk.result_bytes if placement.job.save == "merged" else 0, result_bytes=disk.result_bytes,
    )  # fmt: skip
    return delivery(work, assumptions, changed=changed, prepare_on_gpu=demand.prepare_on_gpu), run


def _against_wishes(offer: Offer, provider: Provider, wishes: Wishes) -> Iterable[Note]:
    """What was asked for and is not there; and what nobody stated, which does not count as there."""
    has: dict[str, bool | None] = {
        "persistent_storage": provider.storage_survives_stop,
        "free_egress": None if provider.egress_usd_per_gb is None else provider.egress_usd_per_gb == 0,
        "fine_billing": None if provider.billing is None else provider.billing in ("second", "minute"),
        "ssh": provider.ssh, "docker": provider.docker, "jupyter": provider.jupyter, "several_nodes": provider.multi_node,
    }  # fmt: skip
    for field, what in ASKED.items():
        if getattr(wishes, field) and not has[field]:
            yield Note("not known to have {what}" if has[field] is None else "has no {what}", {"what": what})
    if wishes.own_machines and (provider.kind == "marketplace" or offer.tier == "community cloud"):
        yield Note("the machine belongs to a member of a marketplace", {})
    if wishes.providers and provider.id not in wishes.providers:
        yield Note("another provider", {})
    if wishes.region and wishes.region.lower() not in offer.region.lower():
        yield Note("region is {region}", {"region": offer.region}) if offer.region else Note("region is not stated", {})
