"""What a pilot is asked to do: the worker's one argument, as a file."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from planner.errors import InvalidJob, PlannerError
from planner.job import Job
from planner.sharding import Sharding

__all__ = ["Request", "check_request"]


class Request(BaseModel):
    """One pilot: a few `steps`, or the whole loop for `minutes`, or two depths (`shallow`), or ever larger micro-batches."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: dict[str, Any]
    device: Literal["cuda", "cpu"]
    log: str
    steps: int = Field(default=20, ge=2, le=1_000_000)
    minutes: float | None = Field(default=None, gt=0, le=1440)  # with evaluation and checkpoints on the way
    shallow: bool = False  # models of a few blocks, extrapolated to all
    largest_micro_batch: bool = False  # the largest that really fits is looked for
    data: str | None = None  # what planner.dataset reads; None: random tokens
    weights: str | None = None  # a local folder, or an id on the Hub; None: random weights of the same shapes
    snapshot: bool = False  # PyTorch's memory history of one step, as a file for its own viewer
    sharding: dict[str, Any] | None = None  # several GPUs of this machine

    @property
    def of_sharding(self) -> Sharding | None:
        """How several GPUs share the model."""
        return Sharding(**self.sharding) if self.sharding else None


def check_request(job: Job, request: Request) -> None:
    """Raise PlannerError, one sentence, for what cannot be run together, before a process is started."""
    if job.loss != "plain":
        raise InvalidJob("the pilot runs the plain loss only; leave loss out", field="loss")
    modes = [request.minutes is not None, request.shallow, request.largest_micro_batch]
    if sum(modes) > 1:
        raise PlannerError("a pilot is one of these: so many minutes, shallow, or a search for the largest micro-batch")
    if request.shallow and request.weights:
        raise PlannerError("a shallow pilot has random weights; leave out either shallow or weights")
    if request.data and not Path(request.data).exists():
        raise PlannerError("{path!r} is no file or folder; give JSONL, CSV, Parquet, Arrow or text", path=request.data)
    if (sharding := request.of_sharding) is not None:
        shared = sharding.kind == "ddp" or (sharding.kind == "fsdp" and sharding.fsdp_version == 2)
        if not shared or sharding.offload != "none" or sharding.nodes > 1:
            raise PlannerError("on several GPUs the pilot runs ddp, or FSDP2 without offload, on one machine")
        if job.precision == "fp16-mixed":
            raise InvalidJob("on several GPUs the pilot has no loss scaler; give precision bf16-mixed", field="precision")
        if any(modes[1:]):
            raise PlannerError("shallow pilots and searches for the largest micro-batch run on one GPU; leave num_gpus out")
