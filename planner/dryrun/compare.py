"""The closed form against a dry run of the same job, part by part."""

from typing import NamedTuple

from planner.dryrun.summary import DryRunSummary
from planner.memory import INSTANTS, MemoryBreakdown
from planner.memory.lines import COMPONENTS

__all__ = ["Compared", "by_component", "by_instant", "by_level"]


class Compared(NamedTuple):
    """One figure from both sides, in bytes; None where a side has no such part."""

    name: str
    closed_form: float | None
    dry_run: float | None

    @property
    def difference(self) -> float | None:
        """The closed form's excess as a share of the dry run's figure."""
        if self.closed_form is None or not self.dry_run:
            return None
        return self.closed_form / self.dry_run - 1


def by_component(memory: MemoryBreakdown, found: DryRunSummary) -> list[Compared]:
    """What is alive at the dry run's peak, by component."""
    closed, dry = memory.components_at(found.peak.instant), found.components_at[found.peak.instant]
    return [Compared(name, closed.get(name), dry.get(name)) for name in COMPONENTS if closed.get(name) or dry.get(name)]


def by_instant(memory: MemoryBreakdown, found: DryRunSummary) -> list[Compared]:
    """Allocated bytes at each instant that a side has."""
    pairs = ((name, memory.allocated_at.get(name), found.allocated_at.get(name)) for name in INSTANTS)
    return [Compared(*pair) for pair in pairs if pair[1:] != (None, None)]


def by_level(memory: MemoryBreakdown, found: DryRunSummary) -> list[Compared]:
    """Allocated, reserved and device bytes at each side's own peak."""
    levels = ("allocated", "reserved", "device")
    return [Compared(level, getattr(memory.peak, level), getattr(found.peak, level)) for level in levels]
