"""An event log as a snapshot file that PyTorch's memory visualiser opens: https://docs.pytorch.org/memory_viz.

Keys: torch/csrc/cuda/Module.cpp (THCPModule_memorySnapshot) writes them, torch/cuda/_memory_viz.py reads them.
"""

import os
import pickle
from collections.abc import Sequence
from typing import Any

from planner.dryrun.allocator import CachingAllocator, Segment
from planner.dryrun.options import DEFAULT_OPTIONS, AllocatorOptions
from planner.files import write_whole

__all__ = ["write_snapshot"]

_Frames = list[dict[str, Any]]


def write_snapshot(
    path: str | os.PathLike[str],
    events: Sequence[int],
    sizes: Sequence[int],
    labels: Sequence[str],
    *,
    options: AllocatorOptions = DEFAULT_OPTIONS,
    capacity_bytes: int | None = None,
    empty_cache_at: frozenset[int] = frozenset(),
) -> None:
    """Replay a log as `allocator.replay` does and save every step; `labels[i]` is what the visualiser shows for allocation i.

    The file is written whole or not at all.
    """
    content = _snapshot(events, sizes, labels, options, capacity_bytes, empty_cache_at)
    write_whole(
        path, pickle.dumps(content, protocol=4)
    )  # as torch.cuda.memory._dump_snapshot: the visualiser reads no other format


def _snapshot(
    events: Sequence[int],
    sizes: Sequence[int],
    labels: Sequence[str],
    options: AllocatorOptions,
    capacity_bytes: int | None,
    empty_cache_at: frozenset[int],
) -> dict[str, Any]:
    trace: list[dict[str, Any]] = []
    frames = {label: _frames(label) for label in set(labels)}  # one object a label: pickle writes it once
    unknown: _Frames = []

    def record(action: str, address: int, nbytes: int, shown: _Frames = unknown) -> None:
        key = "device_free" if action == "oom" else "addr"
        trace.append({"action": action, key: address, "size": nbytes, "stream": 0, "time_us": len(trace), "frames": shown})

    allocator = CachingAllocator(options, capacity_bytes, record)
    addresses = [0] * len(sizes)
    live: dict[int, _Frames] = {}  # by address
    for position, event in enumerate(events):
        if position in empty_cache_at:
            allocator.empty_cache()
        number = event if event >= 0 else ~event
        nbytes, shown = sizes[number], frames[labels[number]]
        if event >= 0:
            address = allocator.malloc(nbytes)
            if address is None:
                record("oom", allocator.capacity_bytes - allocator.reserved_bytes, nbytes, shown)
                break
            if address:
                addresses[number], live[address] = address, shown
                record("alloc", address, nbytes, shown)
        elif address := addresses[number]:
            record("free_requested", address, nbytes, shown)
            record("free_completed", address, nbytes, shown)
            allocator.free(address)
            del live[address]
    segments = [_segment(segment, live, options.expandable_segments) for segment in allocator.segments()]
    return {"segments": segments, "device_traces": [trace]}


def _frames(label: str) -> _Frames:
    return [{"filename": "planner", "line": 0, "name": label}]


def _segment(segment: Segment, live: dict[int, _Frames], expandable: bool) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = []
    address = segment.address
    for size, requested, alive in segment.blocks:
        state = "active_allocated" if alive else "inactive"
        frames = live.get(address, [])
        blocks.append({"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames})
        address += size
    allocated = sum(size for size, _, alive in segment.blocks if alive)
    return {
        "device": 0,
        "address": segment.address,
        "total_size": segment.bytes,
        "allocated_size": allocated,
        "active_size": allocated,
        "requested_size": sum(requested for _, requested, _ in segment.blocks),
        "stream": 0,
        "segment_type": "small" if segment.small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": expandable,
        "frames": [],
        "blocks": blocks,
    }
