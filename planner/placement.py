"""The best way to run a job on so many cards of a kind: how it is shared, with which micro-batch, and how long a step takes."""

import math
from dataclasses import dataclass, field
from typing import Any

from planner.compute import SpeedAssumptions, StepTime, step_time
from planner.errors import InvalidJob, PlannerError
from planner.hardware import Gpu
from planner.host_memory import HostMemory, host_memory
from planner.job import Job
from planner.memory import Assumptions, card_kind, memory_breakdown
from planner.nodes import ways_to_share
from planner.plan import Note, NumBytes, sweep
from planner.sharding import Sharding
from planner.spot import SpotTerms
from planner.storage import Storage, StoragePolicy, storage
from planner.workload import Workload

__all__ = ["Demand", "Placement", "Placements"]


@dataclass(frozen=True)
class Demand:
    """A job, how much of it, and what is kept."""

    job: Job
    workload: Workload = field(default_factory=Workload)
    policy: StoragePolicy = field(default_factory=StoragePolicy)
    terms: SpotTerms = field(default_factory=SpotTerms)
    changed_stages: tuple[tuple[str, float], ...] = ()
    prepare_on_gpu: bool = False
    assumptions: Assumptions | None = None  # None: the published ones
    speed: SpeedAssumptions | None = None


@dataclass(frozen=True)
class Placement:
    """The fastest way to run the job on so many cards of a kind: the job with its micro-batch, how it is shared, and its step."""

    job: Job
    gpu: Gpu
    sharding: Sharding | None
    nodes: int
    device_bytes: float
    high_bytes: float  # the upper end of what a card may need
    step: StepTime

    @property
    def tight(self) -> bool:
        """Whether the upper end of the band is beyond the card."""
        return self.high_bytes > self.gpu.usable_memory_bytes

    @property
    def headroom_share(self) -> float:
        """Part of a card's usable memory that stays free."""
        return 1 - self.device_bytes / self.gpu.usable_memory_bytes


class Placements:
    """Placements of one demand, each found once: memory depends on the kind of card only, time on the card."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self._needs: dict[Any, list[tuple[float, float]] | InvalidJob] = {}
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
        if rows % count:
            return Note("{rows} rows per optimizer step are not shared evenly by {count} GPUs", {"count": count, "rows": rows})
        ways = ways_to_share(self.demand.job, count, per_node) if count > 1 else [None]
        found, closest, refused = [], math.inf, None
        for sharding in ways:
            try:
                job, needed, high = self._largest_micro_batch(gpu, sharding, rows // count)
            except InvalidJob as error:
                refused = error
                continue
            closest = min(closest, needed - gpu.usable_memory_bytes)
            if needed > gpu.usable_memory_bytes:
                continue
            try:
                step = step_time(job, gpu, sharding, fabric_bytes_per_s=fabric, assumptions=self.demand.speed)
            except PlannerError as error:
                return Note(error.template, error.values)
            found.append(Placement(job, gpu, sharding, nodes, needed, high, step))
        if found:
            return min(found, key=lambda placement: (placement.tight, float(placement.step.seconds)))
        if refused and closest == math.inf:
            return Note(refused.template, refused.values)
        return Note("lacks {missing} on each {gpu}", {"missing": NumBytes(closest), "gpu": gpu.label})

    def _largest_micro_batch(self, gpu: Gpu, sharding: Sharding | None, rows: int) -> tuple[Job, float, float]:
        """The job with the largest micro-batch of `rows` per step and GPU whose whole band fits, else that fits, else of least need.

        With it what it needs, and the upper end of that. Raises InvalidJob.
        """
        key, limit = (card_kind(gpu, self.demand.assumptions), sharding, rows), gpu.usable_memory_bytes
        sizes = [size for size in range(1, min(rows, 128) + 1) if rows % size == 0]
        if key not in self._needs:
            try:
                self._needs[key] = self._needs_of(gpu, sharding, rows, sizes)
            except InvalidJob as error:
                self._needs[key] = error
        needs = self._needs[key]
        if isinstance(needs, InvalidJob):
            raise needs
        numbers = range(len(sizes))
        safe, fitting = ([i for i in numbers if needs[i][end] <= limit] for end in (1, 0))
        best = max(safe or fitting, default=min(numbers, key=lambda i: needs[i][0]))
        return self._with(sizes[best], rows), *needs[best]

    def _needs_of(self, gpu: Gpu, sharding: Sharding | None, rows: int, sizes: list[int]) -> list[tuple[float, float]]:
        """What each micro-batch needs, and the upper end of that.

        Rows that are not accumulated need no gradients beside those of their own backward: the largest is a job by itself.
        """
        import numpy as np

        whole = memory_breakdown(self._with(sizes[-1], rows), gpu, self.demand.assumptions, sharding).peak
        if not sizes[:-1]:
            return [(float(whole.device), float(whole.high))]
        several = sweep(self._with(1, rows), gpu, sharding, self.demand.assumptions, micro_batch_size=sizes[:-1]).peak
        ends = (np.broadcast_to(end, (len(sizes) - 1,)).tolist() for end in (several.device, several.high))
        return [*zip(*ends, strict=True), (float(whole.device), float(whole.high))]

    def _with(self, micro_batch_size: int, rows: int) -> Job:
        """The job with `rows` per step and GPU, so many at a time."""
        changes = {"micro_batch_size": micro_batch_size, "gradient_accumulation_steps": rows // micro_batch_size}
        return self.demand.job.model_copy(update=changes)
