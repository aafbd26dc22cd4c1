"""Rental offers for a job: on each the best way to run it, what that takes and costs, and what makes it impossible."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from planner.architecture import Record
from planner.compute import StepTime, step_time
from planner.cost import Bill, Rates, bill, dearest_rates
from planner.delivery import Delivery, DeliveryAssumptions, Work, delivery
from planner.errors import InvalidJob, PlannerError
from planner.hardware import Gpu, Offer, Provider
from planner.job import Job
from planner.memory import card_kind, memory_breakdown
from planner.nodes import ways_to_share
from planner.plan import Note, NumBytes, missing_on_card, sweep
from planner.sharding import Sharding
from planner.spot import SpotRun, SpotTerms
from planner.storage import HostMemory, Storage, StoragePolicy, host_memory, storage
from planner.workload import Workload

__all__ = ["Demand", "Placement", "Ranked", "Wishes", "cheapest", "fastest", "frontier", "rank_offers"]

_NODES = (2, 4, 8)
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
    providers: tuple[str, ...] = ()
    region: str = ""


@dataclass(frozen=True)
class Demand:
    """A job, how much of it, and what is kept."""

    job: Job
    workload: Workload = field(default_factory=Workload)
    policy: StoragePolicy = field(default_factory=StoragePolicy)
    terms: SpotTerms = field(default_factory=SpotTerms)
    changed_stages: tuple[tuple[str, float], ...] = ()
    prepare_on_gpu: bool = False


@dataclass(frozen=True)
class Placement:
    """The fastest way to run the job on so many cards of a kind: the job with its micro-batch, how it is shared, and its step."""

    job: Job
    gpu: Gpu
    sharding: Sharding | None
    nodes: int
    device_bytes: float
    step: StepTime

    @property
    def headroom_share(self) -> float:
        """Part of a card's usable memory that stays free."""
        return 1 - self.device_bytes / self.gpu.usable_memory_bytes


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
    def usd(self) -> float:
        """The bill, with what is not known at the dearest rate of any provider; infinite where there is none."""
        return self.bill.at_most_usd if self.bill else math.inf

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
    """All offers, those that answer first, the cheapest first. A machine that is too small is tried in twos, fours and eights."""
    wishes, assumptions = wishes or Wishes(), assumptions or DeliveryAssumptions()
    finder, dearest = _Placements(demand), dearest_rates(providers.values())
    ranked = [
        _ranked(offer, providers[offer.provider_id], gpus, demand, wishes, finder, assumptions, dearest) for offer in offers
    ]
    return sorted(ranked, key=lambda found: (not found.feasible, found.usd, found.wall_s))


def cheapest(ranked: Iterable[Ranked]) -> Ranked | None:
    """Of the offers that answer, the one that costs least: with a deadline, the cheapest that keeps it."""
    return min((found for found in ranked if found.feasible), key=lambda found: (found.usd, found.wall_s), default=None)


def fastest(ranked: Iterable[Ranked]) -> Ranked | None:
    """Of the offers that answer, the first to be done: with a budget, the fastest within it."""
    return min((found for found in ranked if found.feasible), key=lambda found: (found.wall_s, found.usd), default=None)


def frontier(ranked: Iterable[Ranked]) -> list[Ranked]:
    """Offers that no other one beats in both cost and time, the cheapest first."""
    best: list[Ranked] = []
    for found in sorted((found for found in ranked if found.feasible), key=lambda found: (found.usd, found.wall_s)):
        if not best or found.wall_s < best[-1].wall_s:
            best.append(found)
    return best


# ---- the best way to run the job on so many cards ------------------------------------------------------------------------


class _Placements:
    """Placements of one demand, each found once: memory depends on the kind of card only, time on the card."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self._needs: dict[Any, list[float] | InvalidJob] = {}
        self._placements: dict[Any, Placement | Note] = {}
        self._stores: dict[Any, tuple[Storage, HostMemory]] = {}

    def stores(self, sharding: Sharding | None) -> tuple[Storage, HostMemory]:
        """Disk and RAM of one node."""
        if sharding not in self._stores:
            job, policy = self.demand.job, self.demand.policy
            self._stores[sharding] = (storage(job, self.demand.workload, policy, sharding), host_memory(job, policy, sharding))
        return self._stores[sharding]

    def best(self, gpu: Gpu, per_node: int, nodes: int, fabric: float | None) -> Placement | Note:
        """The fastest way on `nodes` machines of `per_node` cards, or why there is none."""
        key = (gpu.id, per_node, nodes, fabric)
        if key not in self._placements:
            self._placements[key] = self._found(gpu, per_node, nodes, fabric)
        return self._placements[key]

    def _found(self, gpu: Gpu, per_node: int, nodes: int, fabric: float | None) -> Placement | Note:
        count, rows = per_node * nodes, self.demand.workload.global_batch_size
        if count > rows:
            return Note("{count} GPUs, but only {rows} rows per optimizer step", {"count": count, "rows": rows})
        ways = ways_to_share(self.demand.job, count, per_node) if count > 1 else [None]
        found, closest, refused = [], math.inf, None
        for sharding in ways:
            fitting = self._largest_micro_batch(gpu, sharding, rows // count)
            if isinstance(fitting, InvalidJob):
                refused = fitting
                continue
            job, needed = fitting
            closest = min(closest, needed - gpu.usable_memory_bytes)
            if needed > gpu.usable_memory_bytes:
                continue
            try:
                step = step_time(job, gpu, sharding, fabric_bytes_per_s=fabric)
            except PlannerError as error:
                return Note(error.template, error.values)
            found.append(Placement(job, gpu, sharding, nodes, needed, step))
        if found:
            return min(found, key=lambda placement: placement.step.seconds)
        if refused and closest == math.inf:
            return Note(refused.template, refused.values)
        return Note("lacks {missing} on each {gpu}", {"missing": NumBytes(closest), "gpu": gpu.label})

    def _largest_micro_batch(self, gpu: Gpu, sharding: Sharding | None, rows: int) -> tuple[Job, float] | InvalidJob:
        """The job with the largest micro-batch of `rows` per step and GPU that fits, and what it needs; else the least it needs."""
        import numpy as np

        job, key = self.demand.job, (card_kind(gpu), sharding, rows)
        sizes = [size for size in range(1, min(rows, 128) + 1) if rows % size == 0]
        if key not in self._needs:
            try:
                # Rows that are not accumulated need no gradients beside those of their own backward: one more job, by itself.
                whole = memory_breakdown(self._with(sizes[-1], rows), gpu, sharding=sharding).peak.device
                several = (
                    sizes[:-1] and sweep(self._with(1, max(rows, 2)), gpu, sharding, micro_batch_size=sizes[:-1]).peak.device
                )
                self._needs[key] = [*np.broadcast_to(several, (len(sizes) - 1,)).tolist(), float(whole)]
            except InvalidJob as error:
                self._needs[key] = error
        needs = self._needs[key]
        if isinstance(needs, InvalidJob):
            return needs
        last = max((i for i, needed in enumerate(needs) if needed <= gpu.usable_memory_bytes), default=0)
        if needs[last] > gpu.usable_memory_bytes:
            return job, min(needs)
        return self._with(sizes[last], rows), needs[last]

    def _with(self, micro_batch_size: int, rows: int) -> Job:
        """The job with `rows` per step and GPU, so many at a time."""
        changes = {"micro_batch_size": micro_batch_size, "gradient_accumulation_steps": rows // micro_batch_size}
        return self.demand.job.model_copy(update=changes)


# ---- one offer -----------------------------------------------------------------------------------------------------------


def _ranked(
    offer: Offer, provider: Provider, gpus: Mapping[str, Gpu], demand: Demand, wishes: Wishes, finder: _Placements,
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
    waiting = run.interruptions * run.terms.waiting_s if run else 0.0
    cost = bill(
        price, path.billed_s - waiting, provider, machines=placement.nodes, runs=1 + run.interruptions if run else 1,
        disk_bytes=disk.peak_bytes, result_bytes=disk.result_bytes, dearest=dearest,
    )  # fmt: skip
    if wishes.deadline_hours is not None and path.wall_s > wishes.deadline_hours * 3600:
        problems.append(Note("not done by the deadline", {}))
    if wishes.budget_usd is not None and cost.at_most_usd > wishes.budget_usd:
        problems.append(Note("over the budget", {}))
    return Ranked(offer, provider, tuple(problems), (*unknown, *cost.unknown), placement, path, cost, run)


def _path(
    placement: Placement, disk: Storage, demand: Demand, provider: Provider, wishes: Wishes, assumptions: DeliveryAssumptions
) -> tuple[Delivery, SpotRun | None]:
    """The stages on this offer; on spot, training takes its expected time with interruptions and checkpoints."""
    workload, step_s = demand.workload, float(placement.step.seconds)
    training_s = workload.steps(placement.job) * step_s
    evaluation_s = workload.evaluation_share(placement.job) * training_s
    writes_s = disk.num_checkpoints * disk.write_s
    run = None
    if wishes.spot:
        terms = demand.terms
        if provider.spot_notice_s and not terms.notice_s:
            terms = terms.model_copy(update={"notice_s": provider.spot_notice_s})
        run = SpotRun(training_s + evaluation_s, demand.policy.checkpoint_steps * step_s, disk.write_s, terms)
        try:
            training_s, evaluation_s, writes_s = run.mean_s, 0.0, 0.0
        except OverflowError:  # an interval so long that no segment ever ends
            training_s = math.inf
    work = Work(
        training_s=training_s, evaluation_s=evaluation_s, checkpoints_s=writes_s, model_bytes=disk.model_bytes,
        dataset_bytes=disk.dataset_bytes, dataset_tokens=workload.examples * workload.tokens_per_example,
        merged_bytes=disk.result_bytes if placement.job.save == "merged" else 0, result_bytes=disk.result_bytes,
    )  # fmt: skip
    changed = dict(demand.changed_stages)
    return delivery(work, assumptions, changed=changed, prepare_on_gpu=demand.prepare_on_gpu), run


def _against_wishes(offer: Offer, provider: Provider, wishes: Wishes) -> Iterable[Note]:
    """What was asked for and is not there; and what nobody stated, which does not count as there."""
    asked: tuple[tuple[bool, str, bool | None], ...] = (
        (wishes.persistent_storage, "storage that survives a stop", provider.storage_survives_stop),
        (wishes.free_egress, "free egress", None if provider.egress_usd_per_gb is None else provider.egress_usd_per_gb == 0),
        (wishes.fine_billing, "billing by the second or minute", provider.billing and provider.billing in ("second", "minute")),
        (wishes.ssh, "SSH", provider.ssh),
        (wishes.docker, "Docker images", provider.docker),
        (wishes.jupyter, "Jupyter", provider.jupyter),
        (wishes.several_nodes, "a network between machines", provider.multi_node),
    )  # fmt: skip
    for wanted, what, has in asked:
        if wanted and not has:
            yield Note("not known to have {what}" if has is None else "has no {what}", {"what": what})
    if wishes.providers and provider.id not in wishes.providers:
        yield Note("another provider", {})
    if wishes.region and wishes.region.lower() not in offer.region.lower():
        yield Note("region is {region}", {"region": offer.region}) if offer.region else Note("region is not stated", {})
