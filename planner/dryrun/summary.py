"""What a dry run has found, small enough to cross between processes and to draw. No torch in here."""

import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

from pydantic import BaseModel, ConfigDict

from planner.dryrun.allocator import replay
from planner.dryrun.log import EventLog
from planner.dryrun.options import DEFAULT_OPTIONS, AllocatorOptions
from planner.dryrun.result import DryRun, module_kind
from planner.hardware import Gpu
from planner.memory.device import Peak
from planner.memory.lines import COMPONENTS, Line
from planner.units import KiB

__all__ = ["DryRunSummary", "RanOut", "Timeline", "summarised"]

_POINTS = 800  # of a timeline, about one a pixel
_SHARE = 0.12  # of the points that a phase gets at least, so that short ones can be seen
_LINES = 12


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Timeline(_Record):
    """Bytes while the model is loaded and through the second step, in the order of events (a dry run knows no seconds).

    Each point is the fullest event of a stretch of events: no peak is lost. Components with nothing at all are left out.
    """

    phases: tuple[tuple[str, int, int], ...]  # load, forward, backward or optimizer, and its half-open range of points
    components: dict[str, list[int]]
    allocated: list[int]
    reserved: list[int]


class RanOut(_Record):
    """Where the card's memory ran out: who asked for how many bytes, and what the allocator then had."""

    step: str  # `step 1`, `step 2`; empty while the model is loaded
    phase: str
    asked_by: str
    requested_bytes: int
    allocated_bytes: int
    cached_bytes: int
    free_bytes: int


class DryRunSummary(_Record):
    """A dry run in the shape of the closed form's answer, with its timeline and its verdict for one card. Bytes.

    It `fits` where the whole band is below the card's usable memory, is `tight` where the step runs through all the same, and
    does not fit where the allocator runs out.
    """

    verdict: Literal["fits", "tight", "does not fit"]
    peak: Peak
    allocated_at: dict[str, int]
    components_at: dict[str, dict[str, int]]
    peak_lines: tuple[Line, ...]  # the largest
    timeline: Timeline
    ran_out: RanOut | None
    traced_blocks: int
    versions: dict[str, str]
    seconds: float
    host_peak_bytes: int | None  # of the process that ran it; None where the system does not say


def summarised(found: DryRun, gpu: Gpu, *, seconds: float, options: AllocatorOptions = DEFAULT_OPTIONS) -> DryRunSummary:
    """The summary of a dry run that was made with these allocator options and no limit, and took `seconds`."""
    peak, usable, ran_out = found.peak, gpu.usable_memory_bytes, None
    if peak.device > usable:
        ran_out = _ran_out(found, int(usable - found.context.value), options)
    return DryRunSummary(
        verdict=peak.verdict(usable)
        if ran_out or peak.device <= usable
        else "tight",  # by giving back what is cached it goes through
        peak=peak,
        allocated_at=found.allocated_at,
        components_at={instant: found.components_at(instant) for instant in found.allocated_at},
        peak_lines=found.peak_lines[:_LINES],
        timeline=_timeline(found),
        ran_out=ran_out,
        traced_blocks=len(found.traced_blocks),
        versions=found.versions,
        seconds=seconds,
        host_peak_bytes=_host_peak_bytes(),
    )


def _ran_out(found: DryRun, capacity_bytes: int, options: AllocatorOptions) -> RanOut | None:
    log = found.log
    limited = replay(log.events, log.sizes, options=options, capacity_bytes=capacity_bytes, empty_cache_at=log.emptied_at)
    error = limited.out_of_memory
    if error is None:
        return None
    asking = log.allocations[log.events[error.position]]
    steps = [name.rpartition(" ") for start, name in log.marks if start <= error.position and name.startswith("step")]
    step, _, phase = steps[-1] if steps else ("", "", "load")
    return RanOut(
        step=step,
        phase=phase,
        asked_by=": ".join(filter(None, (module_kind(asking.module), asking.operator))),
        requested_bytes=error.requested_bytes,
        allocated_bytes=error.allocated_bytes,
        cached_bytes=error.reserved_bytes - error.allocated_bytes,
        free_bytes=error.free_bytes,
    )


def _timeline(found: DryRun) -> Timeline:
    log, allocated, reserved = found.log, found.replay.allocated, found.replay.reserved
    windows = list(log.windows())
    loaded = next(start for name, start, _ in windows if name == "step 1 forward")
    spans = [("load", 0, loaded)]
    spans += [
        (name.removeprefix("step 2 "), start, end) for name, start, end in windows if name.startswith("step 2") and end > start
    ]
    chosen: list[int] = []
    phases = []
    for (name, start, end), points in zip(spans, _points([end - start for _, start, end in spans]), strict=True):
        edges = [start + (end - start) * i // points for i in range(points + 1)]
        phases.append((name, len(chosen), len(chosen) + points))
        chosen += [max(range(*stretch), key=allocated.__getitem__) for stretch in pairwise(edges)]
    columns: dict[str, list[int]] = {name: [] for name in COMPONENTS}
    for position, sums in zip(chosen, _components_after(log, chosen), strict=True):
        sums["workspace"] += allocated[position] - sum(sums.values())  # as DryRun.components_at counts it
        for name, size in sums.items():
            columns[name].append(size)
    return Timeline(
        phases=tuple(phases),
        components={name: sizes for name, sizes in columns.items() if any(sizes)},
        allocated=[allocated[position] for position in chosen],
        reserved=[reserved[position] for position in chosen],
    )


def _points(events: Sequence[int]) -> list[int]:
    """How many points each phase gets: by its events, but a share for the shortest, and no more than it has events."""
    shares = [max(count / sum(events), _SHARE) for count in events]
    return [min(count, round(_POINTS * share / sum(shares))) for count, share in zip(events, shares, strict=True)]


def _components_after(log: EventLog, positions: Sequence[int]) -> Iterator[dict[str, int]]:
    """Live bytes by component after each of these events, given in their order."""
    live, position = dict.fromkeys(COMPONENTS, 0), 0
    for wanted in positions:
        for event in log.events[position : wanted + 1]:
            allocation = log.allocations[event if event >= 0 else ~event]
            live[allocation.category] += allocation.rounded_bytes if event >= 0 else -allocation.rounded_bytes
        position = wanted + 1
        yield dict(live)


def _host_peak_bytes() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * KiB
