"""How wrong the closed form is, with each publisher left out of what is fitted.

Fitted are the allocator's slack per regime, how many freed logits lie in its cache where lengths vary, and the band. All else is
formula, or read off the dry run (how many freed logits lie in the cache elsewhere).
"""

import csv
import statistics
from collections import defaultdict
from typing import NamedTuple

from planner.catalogues import data_folder
from planner.memory import Assumptions, memory_breakdown
from planner.validation.intervals import Ratio, band, publisher
from planner.validation.published import Published, published_run

__all__ = ["left_out"]


class Row(NamedTuple):
    """A measured row: what its prediction is made of."""

    run: Published
    publisher: str
    regime: str
    allocated: float
    logits: float  # bytes of fp32 logits that may lie in the cache
    context: float

    def predicted(self, slack: float, copies: float) -> float:
        if self.run.quantity == "allocated":
            return self.allocated
        return self.allocated * slack + copies * self.logits + (0 if self.run.quantity == "reserved" else self.context)


def measured_rows() -> list[Row]:
    """Every row of data/measurements.csv that is a job and was measured."""
    assumptions, found = Assumptions(), []
    with (data_folder() / "measurements.csv").open(encoding="utf-8", newline="") as file:
        runs = [published_run(cells) for cells in csv.DictReader(file)]
    for run in runs:
        if not isinstance(run, Published) or run.quantity == "oom_above":
            continue
        job = run.job
        memory = memory_breakdown(job, run.gpu, sharding=run.sharding)
        scores = memory.kernel == "eager"
        regime = "several GPUs" if run.sharding else "scores" if scores else "varying" if job.varying_lengths else "one GPU"
        whole = (
            job.loss in ("plain", "fused-ce")
            and not job.stack_row.own_models
            and (job.varying_lengths or job.transformers != "5")
        )
        logits = 4.0 * job.micro_batch_size * job.length * job.architecture.vocab_size if whole else 0.0
        capability = run.gpu.compute_capability if run.gpu else None
        context = assumptions.context(capability).value
        found.append(Row(run, publisher(run.source), regime, float(memory.peak.allocated), logits, context))
    return found


def fitted(rows: list[Row]) -> tuple[float, float]:
    """Slack and copies with the least mean error, publishers weighing the same."""
    by_publisher = defaultdict(list)
    for row in rows:
        by_publisher[row.publisher].append(row)

    def loss(slack: float, copies: float) -> float:
        return sum(
            statistics.fmean(abs(row.predicted(slack, copies) / row.run.measured_bytes - 1) for row in group)
            for group in by_publisher.values()
        )

    varying = any(row.regime == "varying" for row in rows)
    copies = [0.3 * j for j in range(14)] if varying else [Assumptions().cached_logits_shifted.value]
    steps = [(1 + 0.01 * i, copy) for i in range(1, 31) for copy in copies]
    return min(steps, key=lambda step: loss(*step))


def left_out() -> list[tuple[Row, float, bool]]:
    """Each row, its prediction with constants of the other publishers, and whether the others' 90 % band holds it."""
    rows, found = measured_rows(), []
    for name in sorted({row.publisher for row in rows}):
        others = [row for row in rows if row.publisher != name]
        card = [row for row in others if row.run.quantity != "allocated"]
        constants = {
            regime: fitted([row for row in card if row.regime == regime] or card) for regime in {row.regime for row in rows}
        }
        ratios: dict[bool, list[Ratio]] = {True: [], False: []}
        for row in others:
            several = "several" if row.run.sharding else "one"
            of = row.run.quantity == "allocated"
            ratios[of].append(Ratio(several, row.publisher, row.run.measured_bytes / row.predicted(*constants[row.regime])))
        for row in rows:
            if row.publisher == name:
                predicted = row.predicted(*constants[row.regime])
                low, high = band(ratios[row.run.quantity == "allocated"], "several" if row.run.sharding else "one")
                found.append((row, predicted, low <= row.run.measured_bytes / predicted <= high))
    return found
