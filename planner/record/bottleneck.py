"""What holds each stage of a pilot back: memory, compute, data loading, disk or CPU, named from what was measured."""

from typing import NamedTuple

from planner.pilot.record import Measurement
from planner.storage import DISK_BYTES_PER_S

__all__ = ["Bottleneck", "bottlenecks"]

_FULL = 0.95  # of the card's memory: no larger micro-batch will fit
_WAITING = 0.1  # of the steps' time
_BUSY = 0.9  # NVML's utilisation: share of the time in which a kernel ran


class Bottleneck(NamedTuple):
    """A stage, what holds it back (None where the measures do not tell), and the share or rate that says so."""

    stage: str
    what: str | None
    measure: str
    value: float


def bottlenecks(found: Measurement, usable_memory_bytes: float) -> tuple[Bottleneck, ...]:
    """Of training, and of checkpoints where any were written; none for what was not measured."""
    rows = []
    if found.state == "out of memory":
        rows.append(Bottleneck("training", "memory", "memory in use", 1.0))
    elif found.wait_share is not None and found.wait_share > _WAITING:
        rows.append(Bottleneck("training", "data loading", "time waiting for data", found.wait_share))
    elif (busy := found.nvml.get("mean_utilisation")) is not None:
        rows.append(Bottleneck("training", "compute" if busy > _BUSY else "CPU", "time with a kernel running", busy))
    elif found.wait_share is not None:
        rows.append(Bottleneck("training", None, "time waiting for data", found.wait_share))
    used = found.nvml.get("peak_used_bytes", 0) / usable_memory_bytes
    if used > _FULL and found.state != "out of memory":
        rows.append(Bottleneck("micro-batch", "memory", "memory in use", used))
    if found.checkpoint_bytes and found.checkpoint_seconds:
        rate = found.checkpoint_bytes / found.checkpoint_seconds
        slow = rate < DISK_BYTES_PER_S["network volume"]
        rows.append(Bottleneck("checkpoints", "disk" if slow else None, "bytes per second", rate))
    return tuple(rows)
