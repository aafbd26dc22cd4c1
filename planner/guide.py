"""Three questions (which model, how much data, what matters) to one plan with its price and time from best to worst case."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from planner.architecture import Architecture
from planner.delivery import DeliveryAssumptions
from planner.hardware import Gpu, Offer, Provider
from planner.job import Job
from planner.placement import Demand
from planner.planfile import PlanFile, plan_of_offer
from planner.ranking import Ranked, Wishes, cheapest, fastest, rank_offers
from planner.workload import Workload

__all__ = ["GOALS", "Guided", "guided"]

Goal = Literal["cheapest", "soonest", "safest"]
GOALS: tuple[Goal, ...] = ("cheapest", "soonest", "safest")
_METHODS: tuple[Literal["qlora", "lora"], ...] = (
    "qlora",
    "lora",
)  # what a first fine-tuning is done with; the other methods are in the engineers' view
_SPARE = 0.15  # of a card's memory, for who wants it safe
_SECONDS = ("boot", "environment", "deletion")  # the other assumptions are rates


@dataclass(frozen=True)
class Guided:
    """The answer: the offer as planned, the same with all that is assumed at its best and at its worst, and as spot where sold."""

    demand: Demand
    wishes: Wishes
    row: Ranked
    best: Ranked
    worst: Ranked
    spot: Ranked | None

    @property
    def plan(self) -> PlanFile:
        """The same as a plan for all other views."""
        return plan_of_offer(self.demand, self.wishes, self.row)


def guided(
    architecture: Architecture,
    examples: int,
    goal: Goal,
    offers: Iterable[Offer],
    providers: Mapping[str, Provider],
    gpus: Mapping[str, Gpu],
) -> Guided | None:
    """The best offer for the goal, on demand; None where none holds the model.

    cheapest and soonest are over QLoRA and LoRA; safest is the cheapest on a provider's own machine whose storage survives a stop,
    with 15 % of the card's memory free. Raises InvalidJob for a negative number of examples.
    """  # fmt: skip
    safe, best = goal == "safest", fastest if goal == "soonest" else cheapest
    wishes = Wishes(persistent_storage=safe, own_machines=safe)
    offers, found = list(offers), []
    for method in _METHODS:
        demand = Demand(Job(architecture=architecture, method=method), Workload(examples=examples))
        ranked = rank_offers(demand, offers, providers, gpus, wishes)
        if safe:
            ranked = [row for row in ranked if row.placement and row.placement.headroom_share >= _SPARE and not row.tight]
        found += [(demand, row) for row in ranked]
    row = best(row for _, row in found)
    if row is None:
        return None
    demand = next(demand for demand, other in found if other is row)
    (spot,) = rank_offers(demand, [row.offer], providers, gpus, Wishes(spot=True))
    ends = [_at_its(end, demand, row, providers, gpus, wishes) for end in ("best", "worst")]
    return Guided(demand, wishes, row, ends[0], ends[1], spot if spot.feasible else None)


def _at_its(
    end: str, demand: Demand, row: Ranked, providers: Mapping[str, Provider], gpus: Mapping[str, Gpu], wishes: Wishes
) -> Ranked:
    """The same offer with every assumption and the time of a step at one end of its band."""
    assert row.placement
    step, worst = row.placement.step, end == "worst"
    training = row.training_s * float((step.high_s if worst else step.low_s) / step.seconds)
    stages = (("training", training), ("evaluation", 0.0), ("checkpoint writes", 0.0))
    assumed = DeliveryAssumptions()
    changes = {}
    for name in DeliveryAssumptions.model_fields:
        band = getattr(assumed, name)
        changes[name] = band.model_copy(update={"value": band.high if worst == (name in _SECONDS) else band.low})
    changed = replace(demand, changed_stages=stages)
    return rank_offers(changed, [row.offer], providers, gpus, wishes, assumed.model_copy(update=changes))[0]
