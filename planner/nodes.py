"""How many cards of a kind a job needs, and why: the smallest number of which each holds its part."""

from collections.abc import Iterable
from dataclasses import dataclass

from planner.errors import InvalidJob
from planner.hardware import Gpu
from planner.job import Job
from planner.memory import Assumptions, MemoryBreakdown, card_kind, memory_breakdown
from planner.plan import Plan
from planner.sharding import Sharding

__all__ = ["COUNTS", "Need", "cards_needed", "ways_to_share"]

COUNTS = (2, 4, 8, 16, 32, 64)  # cards of a node, and whole nodes


@dataclass(frozen=True)
class Need:
    """The smallest number of cards of one kind of which each holds its part of a job.

    `alone` is the plan on one card. Where none of COUNTS is enough, `num_gpus` is the last of them and `plan` does not fit; where
    the libraries cannot share the job in a way that helps, `refused` says why.
    """

    gpu: Gpu
    num_gpus: int
    alone: Plan
    plan: Plan
    refused: InvalidJob | None = None


def ways_to_share(job: Job, num_gpus: int, gpus_per_node: int = 8) -> list[Sharding]:
    """Ways to share the job, the one with least communication first; a 4-bit base is divided as FSDP-QLoRA stores it."""
    four_bit = job.quantization in ("nf4", "fp4")
    several_nodes = num_gpus > gpus_per_node and num_gpus % gpus_per_node == 0 and gpus_per_node > 1
    ways = [Sharding("ddp", num_gpus, gpus_per_node), Sharding("zero2", num_gpus, gpus_per_node)]
    if several_nodes:
        ways.append(Sharding("hybrid", num_gpus, gpus_per_node, divided_base=four_bit))
    return [*ways, Sharding("fsdp", num_gpus, gpus_per_node, divided_base=four_bit)]


def cards_needed(job: Job, gpus: Iterable[Gpu], gpus_per_node: int = 8, assumptions: Assumptions | None = None) -> list[Need]:
    """For each card, how many of them hold the job at its micro-batch; fewest first, then the smallest card."""
    memories: dict[tuple[tuple[int, ...], Sharding | None], MemoryBreakdown] = {}

    def plan_of(gpu: Gpu, sharding: Sharding | None) -> Plan:
        key = (card_kind(gpu, assumptions), sharding)
        if key not in memories:
            memories[key] = memory_breakdown(job, gpu, assumptions, sharding)
        return Plan(job, gpu, memories[key], sharding, assumptions)

    def need(gpu: Gpu) -> Need:
        alone = best = plan_of(gpu, None)
        refused = None
        for count in COUNTS if not alone.fits else ():
            for sharding in ways_to_share(job, count, gpus_per_node):
                try:
                    best = min(plan_of(gpu, sharding), best, key=lambda plan: plan.memory.peak.device)
                except InvalidJob as error:
                    refused = error
                    continue
                if best.fits:
                    return Need(gpu, count, alone, best)
        return Need(gpu, 1 if alone.fits else COUNTS[-1], alone, best, None if alone.fits else refused)

    return sorted(map(need, gpus), key=lambda found: (not found.plan.fits, found.num_gpus, found.gpu.usable_memory_bytes))
