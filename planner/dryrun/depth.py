"""From the log of a few blocks to the log of all: equal blocks make equal events.

A log is read as sweeps: stretches in which events of block 0, 1, 2 ... follow each other, or the other way round in backward. A
sweep of the shallow model becomes one of the deep model: each deep block gets the events of its stand-in, the shallow block of
the same kind between neighbours of the same kinds.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from planner.dryrun.log import EventLog

__all__ = ["NotRepeatable", "deepened", "shallow_blocks", "with_second_step"]

_EDGE = "edge"


class NotRepeatable(Exception):
    """The shallow log does not fall into sweeps, so that all blocks must be traced."""


# ---- which blocks to trace -------------------------------------------------------------------------------------------


def _neighbourhoods(kinds: Sequence[str]) -> list[tuple[str, ...]]:
    """Each block's kind with those before and after it."""
    padded = [_EDGE, *kinds, _EDGE]
    return [tuple(padded[i : i + 3]) for i in range(len(kinds))]


def shallow_blocks(kinds: Sequence[str]) -> list[int]:
    """Numbers of few blocks that show every neighbourhood of kinds that the whole model has, and no other.

    Stretches are cut out as long as that holds, the longest first: of 32 equal blocks three are left, first, middle and last.
    """
    wanted = set(_neighbourhoods(kinds))
    kept = list(range(len(kinds)))
    length = len(kept) - 1
    while length > 0:
        start = 1
        while start + length < len(kept):
            candidate = kept[:start] + kept[start + length :]
            if set(_neighbourhoods([kinds[i] for i in candidate])) == wanted:
                kept = candidate
            else:
                start += 1
        length = min(length - 1, len(kept) - 2)
    return kept


def _stand_ins(kinds: Sequence[str], kept: Sequence[int]) -> list[int]:
    """For each block of the whole model the shallow block (its position in `kept`) whose events it gets."""
    shallow: dict[tuple[str, ...], int] = {}
    for position, found in enumerate(_neighbourhoods([kinds[i] for i in kept])):
        shallow.setdefault(found, position)
    return [shallow[found] for found in _neighbourhoods(kinds)]


# ---- a second step from the first ------------------------------------------------------------------------------------


def with_second_step(log: EventLog) -> EventLog:
    """The log of two steps, made of one whose optimizer has stepped twice before it let the gradients go.

    Its windows are load, step 1 forward and backward (once per micro-batch), step 1 optimizer, step 2 optimizer, release. The
    second forward and backward repeat the first; what was born there and never dies (a workspace) is not born again.
    """
    result = EventLog(allocations=list(log.allocations))
    mortal = {~event for event in log.events if event < 0}
    windows = [(name, start, end) for name, start, end in log.windows() if name != "end"]
    optimizer = {name: (start, end) for name, start, end in windows if name.endswith("optimizer")}
    release = next((start, end) for name, start, end in windows if name == "release")
    passes = [window for window in windows if window[0] in ("step 1 forward", "step 1 backward")]
    copies: dict[int, int] = {}

    def write(start: int, end: int, *, copied: bool = False) -> None:
        for event, at in zip(log.events[start:end], log.at[start:end], strict=True):
            number = event if event >= 0 else ~event
            if copied and event >= 0 and number in mortal:
                copies[number] = len(result.allocations)
                result.allocations.append(log.allocations[number])
            if copied:
                if number not in copies:
                    continue
                number = copies[number]
            result.events.append(number if event >= 0 else ~number)
            result.at.append(at)

    result.mark("load")
    write(*windows[0][1:])
    for step in ("step 1", "step 2"):
        repeated = step == "step 2"
        for name, start, end in passes:
            result.mark(name.replace("step 1", step))
            write(start, end, copied=repeated)
        result.mark(f"{step} optimizer")
        write(*optimizer[f"{step} optimizer"])
        write(*release, copied=repeated)
    result.mark("end")
    return result


# ---- all blocks from a few -------------------------------------------------------------------------------------------


class _Stretch(NamedTuple):
    """Events that follow each other: of the blocks `runs` in one sweep, or of no block where `runs` is empty."""

    start: int
    end: int
    runs: tuple[tuple[int, int, int], ...] = ()  # (shallow block, start, end)


def _runs(log: EventLog, start: int, end: int, *, by_sign: bool) -> Iterator[tuple[int | None, int, int]]:
    """Maximal runs of events of one block; `by_sign` keeps births and deaths apart."""
    first = start
    for position in range(start + 1, end + 1):
        if (
            position == end
            or log.at[position] != log.at[first]
            or (by_sign and (log.events[position] < 0) != (log.events[first] < 0))
        ):
            yield log.at[first], first, position
            first = position


def _stretches(log: EventLog, start: int, end: int, last: int, *, by_sign: bool) -> Iterator[_Stretch]:
    """One window as sweeps and what lies between them. Raises NotRepeatable for a middle block that stands alone."""
    sweep: list[tuple[int, int, int]] = []
    for block, first, after in [*_runs(log, start, end, by_sign=by_sign), (None, end, end)]:
        follows = bool(sweep) and block is not None and block != sweep[-1][0]
        if follows and len(sweep) > 1:
            follows = (block > sweep[-1][0]) == (sweep[1][0] > sweep[0][0])  # type: ignore[operator]
        if follows or (not sweep and block is not None):
            sweep.append((block, first, after))  # type: ignore[arg-type]
            continue
        if sweep:
            if len(sweep) == 1 and sweep[0][0] not in (0, last):
                raise NotRepeatable(f"block {sweep[0][0]} stands alone at event {sweep[0][1]}")
            yield _Stretch(sweep[0][1], sweep[-1][2], tuple(sweep))
            sweep = []
        if block is None:
            if after > first:
                yield _Stretch(first, after)
        else:
            sweep = [(block, first, after)]


def deepened(log: EventLog, kinds: Sequence[str], kept: Sequence[int]) -> EventLog:
    """The log of the whole model from that of its blocks `kept`. Raises NotRepeatable where it cannot be made."""
    if len(kept) == len(kinds):
        return log
    stand_ins, last = _stand_ins(kinds, kept), len(kept) - 1
    deep_blocks: dict[int, list[int]] = defaultdict(list)
    for deep, shallow in enumerate(stand_ins):
        deep_blocks[shallow].append(deep)
    born: dict[int, tuple[int, int | None, int]] = {}  # shallow allocation -> sweep, block, its turn among the births there
    numbers: dict[tuple[int, int | None, int], int] = {}  # sweep, deep block, turn -> deep allocation, while it lives
    result, names = EventLog(), _Names()

    def birth(sweep: int, shallow: int | None, deep: int | None, turn: int, event: int) -> None:
        numbers[sweep, deep, turn] = len(result.allocations)
        result.events.append(len(result.allocations))
        allocation = log.allocations[event]
        if allocation.block is not None and deep is not None:
            shift = deep - (shallow or 0)
            block = allocation.block + shift
            allocation = replace(allocation, block=block, module=names.of(allocation.module, allocation.block, block))
        result.allocations.append(allocation)
        result.at.append(deep)

    def death(shallow: int | None, deep: int | None, event: int, final: int | None) -> None:
        sweep, block, turn = born[event]
        if block is None:
            targets: list[int | None] = [None]
        elif deep is None or shallow is None or deep == final:  # after the sweep, or at its end: all that are left
            targets = list(deep_blocks[block])
        else:
            targets = [deep + block - shallow]
        found = [number for target in targets if (number := numbers.pop((sweep, target, turn), None)) is not None]
        for number in found:
            result.events.append(~number)
            result.at.append(deep)
        if not found and block is not None and deep_blocks[block]:
            raise NotRepeatable(f"none of the blocks {targets} has allocation {turn} of sweep {sweep}")

    def write(start: int, end: int, sweep: int, shallow: int | None, deep: int | None, final: int | None = None) -> None:
        turn = 0
        for event in log.events[start:end]:
            if event >= 0 and log.allocations[event].category == "workspace":
                if (0, None, event) not in numbers:  # a library's workspace is made once, wherever its first call stands
                    birth(0, None, None, event, event)
            elif event >= 0:
                birth(sweep, shallow, deep, turn, event)
                turn += 1
            else:
                death(shallow, deep, ~event, final)

    sweep = 0
    for name, start, end in log.windows():
        result.mark(name)
        for stretch in _parsed(log, start, end, last, foreach=name.endswith("optimizer")):
            sweep += 1
            for block, first, after in stretch.runs or ((None, stretch.start, stretch.end),):
                mortals = (e for e in log.events[first:after] if e >= 0 and log.allocations[e].category != "workspace")
                born.update((event, (sweep, block, turn)) for turn, event in enumerate(mortals))
            if not stretch.runs:
                write(stretch.start, stretch.end, sweep, None, None)
                continue
            ranges = {block: (first, after) for block, first, after in stretch.runs}
            ascending = stretch.runs[0][0] <= stretch.runs[-1][0]
            sequence = [deep for deep, shallow in enumerate(stand_ins) if shallow in ranges]
            for deep in sequence if ascending else reversed(sequence):
                final = sequence[-1 if ascending else 0]
                write(*ranges[stand_ins[deep]], sweep, stand_ins[deep], deep, final)
    return result


def _parsed(log: EventLog, start: int, end: int, last: int, *, foreach: bool) -> list[_Stretch]:
    """foreach operators make all tensors and then drop all, so births and deaths of an optimizer are first read apart."""
    try:
        return list(_stretches(log, start, end, last, by_sign=foreach))
    except NotRepeatable:
        if not foreach:
            raise
        return list(_stretches(log, start, end, last, by_sign=False))


class _Names:
    """Module names with another block's number."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, int], str] = {}

    def of(self, module: str, shallow: int, deep: int) -> str:
        """`model.layers.1.mlp` of block 1 as block 7: `model.layers.7.mlp`."""
        key = (module, shallow, deep)
        if key not in self._known:
            self._known[key] = re.sub(rf"\.{shallow}(?=\.|$)", f".{deep}", module, count=1)
        return self._known[key]
