"""The whole path to a delivered model as stages, one after another: what each takes, and whether a rented machine is paid meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from pydantic import model_validator

from planner.architecture import Record
from planner.assumption import Assumption, assumed
from planner.errors import InvalidJob

__all__ = ["STAGES", "Delivery", "DeliveryAssumptions", "Stage", "Work", "delivery"]

# In the order in which they pass. The first two need no GPU, and are done before one is rented unless asked otherwise.
STAGES = (
    "cleaning", "tokenising", "provisioning and boot", "environment", "model download", "data transfer", "training", "evaluation",
    "checkpoint writes", "merge and export", "hand-over", "deletion of data",
)  # fmt: skip
_DATA_STAGES = ("cleaning", "tokenising")
_MB, _MIN = 1e6, 60
_ASSUMED = "assumed"


class DeliveryAssumptions(Record):
    """Rates in bytes or tokens per second, times in seconds, none of which a formula gives. Each can be changed.

    Raises InvalidJob for one that is not more than 0, as nothing is moved at no rate.
    """

    boot: Assumption = assumed(4, 1, 15, f"{_ASSUMED}: virtual machines 1 to 5 minutes, bare metal up to 15", unit=_MIN)
    environment: Assumption = assumed(
        5, 1, 15, f"{_ASSUMED}: pip install of PyTorch and its libraries, or an image of 8 GB", unit=_MIN
    )
    download: Assumption = assumed(150, 30, 500, f"{_ASSUMED}: the Hub to a data centre, several files at once", unit=_MB)
    upload: Assumption = assumed(2.5, 1, 100, f"{_ASSUMED}: an office line of 20 Mbit/s upwards", unit=_MB)
    cleaning: Assumption = assumed(5, 0.5, 50, f"{_ASSUMED}: a Python filter over JSON lines, one core", unit=_MB)
    tokenising: Assumption = assumed(
        600_000, 200_000, 1_500_000, "tokens/s of a byte-level BPE in Hugging Face tokenizers, one core, measured 2026-12"
    )
    merge: Assumption = assumed(300, 100, 1000, f"{_ASSUMED}: weights read, added to and written on the machine's disk", unit=_MB)
    hand_over: Assumption = assumed(12.5, 2, 100, f"{_ASSUMED}: to an office line of 100 Mbit/s downwards", unit=_MB)
    deletion: Assumption = assumed(2, 1, 30, f"{_ASSUMED}: volumes and buckets deleted, and looked at again", unit=_MIN)

    @model_validator(mode="after")
    def _positive(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name).value
            if not value > 0:
                raise InvalidJob("{name} is {given}; it must be more than {limit}", field=name, name=name, given=value, limit=0)
        return self


@dataclass(frozen=True)
class Work:
    """What there is to move and to do; seconds, bytes and tokens of the whole job."""

    training_s: float
    evaluation_s: float = 0
    checkpoints_s: float = 0
    model_bytes: float = 0
    dataset_bytes: float = 0
    dataset_tokens: float = 0
    merged_bytes: float = 0  # written where the adapter is merged
    result_bytes: float = 0


class Stage(NamedTuple):
    """One stage; `billed` says whether a rented machine is paid for meanwhile, `changed` whether the user set its time."""

    name: str
    start_s: float
    seconds: float
    billed: bool
    changed: bool
    formula: str
    source: str

    @property
    def end_s(self) -> float:
        """When it is over."""
        return self.start_s + self.seconds


@dataclass(frozen=True)
class Delivery:
    """All stages, each after the one before."""

    stages: tuple[Stage, ...]

    @property
    def wall_s(self) -> float:
        """From the first stage to the end of the last."""
        return self.stages[-1].end_s

    @property
    def billed_s(self) -> float:
        """While a rented machine runs."""
        return sum(stage.seconds for stage in self.stages if stage.billed)


def delivery(
    work: Work,
    assumptions: DeliveryAssumptions | None = None,
    *,
    changed: Mapping[str, float] | None = None,
    prepare_on_gpu: bool = False,
) -> Delivery:
    """The stages of `work`. `changed` sets the seconds of stages by name; `prepare_on_gpu` cleans and tokenises on the machine.

    Raises InvalidJob for an unknown stage or a negative time.
    """
    a = assumptions or DeliveryAssumptions()
    changed = changed or {}
    for name, seconds in changed.items():
        if name not in STAGES:
            raise InvalidJob("there is no stage {name!r}; the stages are {known}", field=name, name=name, known=", ".join(STAGES))
        if not 0 <= seconds < 1e10:
            raise InvalidJob("stage {name!r} cannot take {given} seconds", field=name, name=name, given=seconds)

    def moved(size: float, rate: Assumption) -> tuple[float, str, str]:
        return size / rate.value, f"{size:.3g} bytes / {rate.value:.3g} per s", rate.source

    tokenised = work.dataset_tokens / a.tokenising.value
    found: dict[str, tuple[float, str, str]] = {
        "cleaning": moved(work.dataset_bytes, a.cleaning),
        "tokenising": (tokenised, f"{work.dataset_tokens:.3g} tokens / {a.tokenising.value:.3g} per s", a.tokenising.source),
        "provisioning and boot": (a.boot.value, "a fixed time", a.boot.source),
        "environment": (a.environment.value, "a fixed time", a.environment.source),
        "model download": moved(work.model_bytes, a.download),
        "data transfer": moved(work.dataset_bytes, a.upload),
        "training": (work.training_s, "steps x seconds of a step", "planner.compute"),
        "evaluation": (work.evaluation_s, "forward passes over the evaluation rows", "planner.compute"),
        "checkpoint writes": (work.checkpoints_s, "checkpoints x bytes / disk rate", "planner.storage"),
        "merge and export": moved(work.merged_bytes, a.merge),
        "hand-over": moved(work.result_bytes, a.hand_over),
        "deletion of data": (a.deletion.value, "a fixed time", a.deletion.source),
    }
    order = STAGES if not prepare_on_gpu else (*STAGES[2:6], *_DATA_STAGES, *STAGES[6:])
    stages: list[Stage] = []
    for name in order:
        seconds, formula, source = found[name]
        if name in changed:
            seconds, formula, source = changed[name], "as you set it", "you"
        billed = name not in _DATA_STAGES or prepare_on_gpu
        start = stages[-1].end_s if stages else 0.0
        stages.append(Stage(name, start, seconds, billed, name in changed, formula, source))
    return Delivery(tuple(stages))
