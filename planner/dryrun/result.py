"""What a dry run has found, in the shape of the closed form's answer: lines by instant, and the peak. No torch in here."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from planner.dryrun.allocator import Replay
from planner.dryrun.log import EventLog
from planner.job import Job
from planner.memory.device import Assumption, Peak
from planner.memory.lines import COMPONENTS, Line

__all__ = ["DryRun", "module_kind"]


@dataclass(frozen=True)
class DryRun:
    """The event log of a job's step, replayed through the caching allocator. Bytes.

    `peak` is that of the second step, from which on the optimizer's states exist; `reserved` is what the process has taken by
    then, the load phase included.
    """

    job: Job
    log: EventLog
    replay: Replay
    context: Assumption  # bytes of the CUDA context
    band: Assumption  # measured need over predicted need
    traced_blocks: tuple[int, ...]
    versions: dict[str, str] = field(default_factory=dict)

    @cached_property
    def windows(self) -> dict[str, tuple[int, int]]:
        """Half-open ranges of events: the instants of the closed form, in the second step."""
        log = self.log
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for name, start, end in log.windows():
            found[name].append((start, end))
        start, end = found["step 2 backward"][-1]
        last = self.job.architecture.num_hidden_layers - 1
        first_block = next((i for i in range(start, end) if log.at[i] is not None), end)
        others = next((i for i in range(first_block, end) if log.at[i] not in (None, last)), end)
        windows = {
            "load": (0, found["step 1 forward"][0][0]),
            "forward": found["step 2 forward"][-1],
            "loss": (start, first_block),
            "backward_start": (first_block, others),
            "backward_end": (others, end),
            "optimizer": found["step 2 optimizer"][0],
        }
        return {name: window for name, window in windows.items() if window[1] > window[0]}

    @cached_property
    def fullest(self) -> dict[str, int]:
        """The event after which each instant holds most."""
        live = self.replay.allocated
        reached = ((name, range(start, min(end, len(live)))) for name, (start, end) in self.windows.items())
        return {name: max(window, key=live.__getitem__) for name, window in reached if window}

    @cached_property
    def allocated_at(self) -> dict[str, int]:
        """The most that each instant holds, as torch.cuda.max_memory_allocated counts it."""
        return {name: self.replay.allocated[position] for name, position in self.fullest.items()}

    @cached_property
    def peak(self) -> Peak:
        """The fullest instant, and what the card must hold, with the closed form's band: of 88 published runs 84 lie in it.

        Measured: `planner validate data/measurements.csv --engine dry-run`, reserved and on the card; a band of their own would be
        0.87 to 1.22 times the dry run's figure.
        """
        instant = max(self.allocated_at, key=self.allocated_at.__getitem__)
        reserved = self.replay.peak_reserved_bytes
        device = reserved + self.context.value
        return Peak(instant, self.allocated_at[instant], reserved, device, device * self.band.low, device * self.band.high)

    def tensor_bytes_at(self, instant: str) -> int:
        """Bytes of the tensors alone at the fullest moment of an instant, each rounded to 512, without what blocks are larger."""
        start, end = self.windows[instant]
        return max(self._curve[start:end])

    @cached_property
    def _curve(self) -> list[int]:
        return self.log.curve()

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines of all instants."""
        return tuple(line for instant in self.windows for line in self.lines_at(instant))

    @property
    def peak_lines(self) -> tuple[Line, ...]:
        """The lines alive at the peak."""
        return self.lines_at(self.peak.instant)

    def lines_at(self, instant: str) -> tuple[Line, ...]:
        """What is alive when an instant is fullest: equal tensors of all blocks as one line, the largest first."""
        groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for number in self.log.alive_after(self.fullest[instant]):
            a = self.log.allocations[number]
            shape = " x ".join(map(str, a.shape))
            groups[a.category, module_kind(a.module), a.operator, f"{shape} {a.dtype}".strip(), a.phase].append(a.rounded_bytes)
        lines = [
            Line(
                name=f"{module}: {operator}" if module else operator,
                component=category,
                instant=instant,
                bytes=sum(sizes),
                formula=f"{len(sizes)} x [{shape}]",
                source=f"traced in {phase}",
            )
            for (category, module, operator, shape, phase), sizes in groups.items()
        ]
        return tuple(sorted(lines, key=lambda line: -line.bytes))

    def components_at(self, instant: str) -> dict[str, int]:
        """Bytes by component when an instant is fullest; what its blocks are larger than its tensors counts as workspace."""
        sums = dict.fromkeys(COMPONENTS, 0)
        for number in self.log.alive_after(self.fullest[instant]):
            allocation = self.log.allocations[number]
            sums[allocation.category] += allocation.rounded_bytes
        sums["workspace"] += self.allocated_at[instant] - sum(sums.values())
        return {name: total for name, total in sums.items() if total}

    def numbers_of(self, line: Line) -> dict[str, Any]:
        """A traced line has its numbers in its formula."""
        return {}


def module_kind(module: str) -> str:
    """`base_model.model.model.layers.7.mlp.up_proj` as `layers.*.mlp.up_proj`: the same for every block."""
    short = re.sub(r"^(base_model\.)?(model\.)*(transformer\.|gpt_neox\.|backbone\.)?", "", module)
    return re.sub(r"\.\d+(?=\.|$)", ".*", short)
