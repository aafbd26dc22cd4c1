"""The event log of a dry run: every storage from its birth to its death, in order. No torch in here."""

from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Allocation", "EventLog"]

BLOCK_BYTES = 512  # every block of the CUDA caching allocator is a multiple of this


@dataclass(slots=True)
class Allocation:
    """One storage. `category` is a component of the closed form, `block` the transformer block that asked for it."""

    bytes: int
    category: str
    phase: str  # load, forward, backward, recompute, optimizer
    module: str
    operator: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    block: int | None = None

    @property
    def rounded_bytes(self) -> int:
        """What torch.cuda.memory_allocated counts for it, where the block that it gets is not larger."""
        return -(-self.bytes // BLOCK_BYTES) * BLOCK_BYTES


@dataclass(slots=True)
class EventLog:
    """`events[k]` is i where allocation i appears, and ~i (that is -1 - i) where it dies. `marks` name positions in `events`.

    A mark is (position, name); the names are `load`, then `step 1 forward`, `step 1 backward`, `step 1 optimizer`, `step 2 ...`.
    `at` is, for each event, the transformer block in which it happens.
    """

    allocations: list[Allocation] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    at: list[int | None] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)

    def mark(self, name: str) -> None:
        """Name this position."""
        self.marks.append((len(self.events), name))

    @property
    def sizes(self) -> list[int]:
        """Bytes asked for, by allocation."""
        return [allocation.bytes for allocation in self.allocations]

    @property
    def emptied_at(self) -> frozenset[int]:
        """Positions in `events` before which the run empties the allocator's cache."""
        return frozenset(position for position, name in self.marks if name == "empty cache")

    def curve(self) -> list[int]:
        """Live bytes after each event, each storage rounded as the allocator rounds it."""
        rounded = [allocation.rounded_bytes for allocation in self.allocations]
        live, total = [], 0
        for event in self.events:
            total += rounded[event] if event >= 0 else -rounded[~event]
            live.append(total)
        return live

    def alive_after(self, position: int) -> list[int]:
        """Numbers of the allocations that are alive once event `position` has happened."""
        alive: dict[int, None] = {}
        for event in self.events[: position + 1]:
            if event >= 0:
                alive[event] = None
            else:
                del alive[~event]
        return list(alive)

    def windows(self) -> Iterator[tuple[str, int, int]]:
        """Each mark's name with the half-open range of events until the next one."""
        ends = [position for position, _ in self.marks[1:]] + [len(self.events)]
        for (start, name), end in zip(self.marks, ends, strict=True):
            yield name, start, end
