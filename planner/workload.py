"""How much training there is: examples, their length, epochs, rows per optimizer step. What a Job does once, a Workload counts."""

from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt

from planner.architecture import Record
from planner.job import Job

__all__ = ["Workload"]


class Workload(Record):
    """The data and how often it is seen. Raises InvalidJob, one sentence that names the field."""

    examples: Annotated[PositiveInt, Field(le=10**12)] = 10_000
    tokens_per_example: Annotated[float, Field(gt=0, le=2**27, allow_inf_nan=False)] = 500  # mean
    epochs: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)] = 3
    evaluation_examples: Annotated[NonNegativeInt, Field(le=10**12)] = 0  # seen once per epoch, forward only
    global_batch_size: Annotated[PositiveInt, Field(le=2**24)] = 16  # rows per optimizer step, over all GPUs and accumulation

    def rows(self, job: Job) -> Any:
        """Rows of `job.sequence_length` that pass through the model over all epochs.

        Packed rows are full; else each example is a row of its own, padded, and cut where it is longer.
        """
        if not job.packing:
            return self.examples * self.epochs
        return self.examples * self.epochs * self.tokens_per_example / job.sequence_length

    def trained_tokens(self, job: Job) -> Any:
        """Tokens of the data, without padding and without what is cut."""
        length = self.tokens_per_example if job.packing else min(self.tokens_per_example, job.sequence_length)
        return self.examples * self.epochs * length

    def padding_share(self, job: Job) -> Any:
        """Share of the computed tokens that is padding: 0 where rows are packed."""
        return 1 - self.trained_tokens(job) / (self.rows(job) * job.sequence_length)

    def steps(self, job: Job) -> Any:
        """Optimizer steps over all epochs, the last of them perhaps not full."""
        import math

        return math.ceil(self.rows(job) / self.global_batch_size)

    def evaluation_share(self, job: Job) -> float:
        """Time of all evaluations over the time of training: rows over rows, one pass over those of a training step.

        A step passes the model forward, backward for its inputs, for its weights where they are trained, and forward again where
        blocks are checkpointed.
        """
        passes = 2 + (job.adapter is None) + (job.gradient_checkpointing != "off")
        return self.evaluation_examples / self.examples / passes
