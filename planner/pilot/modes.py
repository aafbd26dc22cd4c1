"""What a pilot does with its steps: so many, or for so long, or at two depths, or with ever larger micro-batches."""

import gc
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

from planner.dryrun import block_kinds
from planner.job import Job
from planner.pilot.measure import memory, new_peak
from planner.pilot.request import Request
from planner.pilot.steps import Events, Steps

__all__ = ["largest", "run", "shallow_depths"]

_PARTS = 4  # of a timed pilot: an evaluation and a checkpoint after each
_LARGEST = {"cpu": 8, "cuda": 4096}  # where a search ends; a processor has no limit that would say anything


def run(job: Job, request: Request, log: Events) -> None:
    """The whole pilot."""
    if request.shallow:
        _shallow(job, request, log)
    elif request.largest_micro_batch:
        _largest(job, request, log)
    elif request.minutes is not None:
        _timed(Steps(job, request, log), request.minutes * 60)
    else:
        steps = Steps(job, request, log)
        while steps.done < request.steps:
            steps.step(request.steps)
        _rows(steps)


def _rows(steps: Steps) -> None:
    """Say what was read of the user's file, in numbers."""
    found = steps.batches
    if not found.random:
        steps.log.write("data", rows=found.rows, rows_failed=found.rows_failed, tokenizer=found.tokenizer)


def _timed(steps: Steps, seconds: float) -> None:
    """The whole loop: training with an evaluation and a checkpoint after each part, at least three steps."""
    begun, parts = time.monotonic(), 0
    while parts < _PARTS:
        steps.step(None)
        elapsed = steps.ranks.most({"ms": int(1000 * (time.monotonic() - begun))})["ms"] / 1000  # all ranks agree
        if steps.done >= 3 and elapsed >= seconds * (parts + 1) / _PARTS:
            steps.evaluate()
            steps.save()
            parts = max(parts + 1, int(elapsed / seconds * _PARTS))
    _rows(steps)
    shutil.rmtree(Path(steps.request.log).parent / "checkpoint", ignore_errors=True)  # it was written to be measured


# ---- two depths -------------------------------------------------------------------------------------------------------


def shallow_depths(kinds: list[str]) -> list[list[int]]:
    """Numbers of the blocks of a few shallow models: two blocks of each kind, then for each kind four of it.

    Every figure of a step is a constant and a share per block of each kind, so these models give that of the whole one.
    """
    places = {kind: [i for i, found in enumerate(kinds) if found == kind] for kind in dict.fromkeys(kinds)}

    def first(counts: dict[str, int]) -> list[int]:
        return sorted(number for kind, found in places.items() for number in found[: counts.get(kind, 2)])

    return [first({}), *(first({kind: 4}) for kind, found in places.items() if len(found) > 2)]


def _shallow(job: Job, request: Request, log: Events) -> None:
    kinds = block_kinds(job)
    for kept in shallow_depths(kinds):
        log.write("depth", blocks=Counter(kinds[i] for i in kept), whole=Counter(kinds))
        steps = Steps(job, request, log, kept)
        while steps.done < max(4, request.steps // 3):
            steps.step(None)
        del steps
        _let_go(request.device)


# ---- the largest micro-batch ------------------------------------------------------------------------------------------


def largest(fits: Callable[[int], bool], limit: int) -> int:
    """The largest size up to `limit` that fits, by doubling and halving, where all smaller ones fit too; 0: not even one does."""
    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= limit and fits(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _largest(job: Job, request: Request, log: Events) -> None:
    steps = Steps(job.changed(micro_batch_size=1), request, log)

    def fits(size: int) -> bool:
        steps.job = steps.batches.job = job.changed(micro_batch_size=size)
        steps.done = 3  # no phases: the peak of two whole steps is what counts
        _let_go(request.device)
        new_peak(request.device)
        try:
            for _ in range(2):
                steps.step(None)
        except torch.OutOfMemoryError:
            log.write("try", micro_batch_size=size, fits=False, **memory(request.device))
            steps.optimizer.zero_grad(set_to_none=True)
            return False
        log.write("try", micro_batch_size=size, fits=True, **memory(request.device))
        return True

    log.write("largest", micro_batch_size=largest(fits, _LARGEST[request.device]))


def _let_go(device: str) -> None:
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
