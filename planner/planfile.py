"""The plan as one file: what is trained on what, how, where, what counts as success, and how data are cared for.

Version 1. Version 0 is the document that `planner estimate --json` prints; it is read as a plan of which nothing else is known.
"""

import json
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from planner.architecture import Architecture, Record
from planner.catalogues import find_gpu, find_model, load_gpus, load_providers
from planner.credentials import refuse_secrets
from planner.dataset import Profile
from planner.errors import InvalidJob, PlannerError, UnknownName
from planner.files import read_small, versioned, write_whole
from planner.job import Job
from planner.pilot.record import Measurement
from planner.placement import Demand
from planner.plan import Plan, make_plan
from planner.ranking import Ranked, Wishes
from planner.sharding import Sharding, check_sharding
from planner.spot import SpotTerms
from planner.storage import StoragePolicy
from planner.workload import Workload

__all__ = [
    "VERSION",
    "Acceptance",
    "Care",
    "DataVersion",
    "Deleted",
    "HandOver",
    "PlanFile",
    "data_version",
    "plan_from_json",
    "plan_of_offer",
    "plan_text",
    "plan_values",
    "read_plan",
    "write_plan",
]

VERSION: Literal[1] = 1
_MOST_BYTES = 4_000_000  # a plan has some kB, with a long pilot a few hundred
_Text = Annotated[str, Field(max_length=4000)]
_Name = Annotated[str, Field(max_length=300)]
_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class DataVersion(Record):
    """Which data: the file's name and hash, as `planner dataset` measured it; never its content."""

    name: _Name = ""
    sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    file_bytes: NonNegativeInt = 0
    rows: NonNegativeInt = 0
    tokens: NonNegativeInt = 0
    format: _Name = ""
    tokenizer: _Name = ""


def data_version(profile: Profile) -> DataVersion:
    """What a plan keeps of data that were measured."""
    return DataVersion(
        name=profile.name, sha256=profile.sha256, file_bytes=profile.file_bytes, rows=profile.rows, tokens=profile.tokens,
        format=", ".join(profile.formats), tokenizer="" if profile.estimated else profile.model,
    )  # fmt: skip


class Acceptance(Record):
    """What a pilot must show; None asks for nothing."""

    peak_share: Annotated[float, Field(gt=0, le=1)] | None = 0.95  # of the card's usable memory
    step_s: PositiveFloat | None = None
    error_rate: _Share | None = 0.0
    loss_falls: bool = True


class Deleted(Record):
    """That a copy of the data is gone: what, when, by whom, and how it was looked at."""

    what: _Name
    on: date
    by: _Name = ""
    checked: _Text = ""


class Care(Record):
    """How data are cared for. `personal` and `special` data (GDPR, KVKK) stay off machines of strangers."""

    classification: Literal["public", "internal", "personal", "special"] = "internal"
    region: _Name = ""  # where data may be
    providers: tuple[_Name, ...] = ()  # that may hold them; none named: any
    encrypted_transfer: bool = True
    encrypted_disk: bool = False
    access: tuple[_Name, ...] = ()  # who may
    deletion: _Text = ""  # who deletes, and when
    deleted: tuple[Deleted, ...] = ()

    @property
    def own_machines(self) -> bool:
        """Whether only machines of the provider itself may hold the data, none of a marketplace's members."""
        return self.classification in ("personal", "special")

    def narrowed(self, wishes: Wishes) -> Wishes:
        """What an offer must have so that it may hold the data as well."""
        allowed = tuple(name for name in wishes.providers if name in self.providers) or self.providers or wishes.providers
        changes = {
            "providers": allowed,
            "region": self.region or wishes.region,
            "own_machines": self.own_machines or wishes.own_machines,
        }
        return wishes.model_copy(update=changes)


class HandOver(Record):
    """Where checkpoints live, and how the result is delivered and checked."""

    checkpoints: _Name = ""  # folder or bucket that survives the machine
    result: _Name = ""  # where the finished model goes
    check: _Text = ""  # what is run on it, and what it must reach


class PlanFile(Record):
    """One plan. Raises InvalidJob, one sentence that names the field; also for a text that seems to hold a secret."""

    version: Literal[1] = VERSION
    title: _Name = ""
    purpose: _Text = ""
    example: _Text = ""  # one example as it is trained on, made up
    data: DataVersion = Field(default_factory=DataVersion)
    job: Job
    gpu: _Name = "rtx-4090-24"
    sharding: Sharding | None = None
    workload: Workload = Field(default_factory=Workload)
    policy: StoragePolicy = Field(default_factory=StoragePolicy)
    terms: SpotTerms = Field(default_factory=SpotTerms)
    wishes: Wishes = Field(default_factory=Wishes)
    changed_stages: tuple[tuple[_Name, float], ...] = ()
    prepare_on_gpu: bool = False
    offer: tuple[_Name, _Name, _Name, _Name, PositiveInt] | None = None  # the chosen one's Offer.key
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 2e-4
    warmup_share: _Share = 0.03
    seed: Annotated[NonNegativeInt, Field(lt=2**32)] = 42
    acceptance: Acceptance = Field(default_factory=Acceptance)
    care: Care = Field(default_factory=Care)
    hand_over: HandOver = Field(default_factory=HandOver)
    confirmed: tuple[
        tuple[_Name, Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]], ...
    ] = ()  # step -> what it said: see planner.five_steps
    pilot: Measurement | None = None

    @model_validator(mode="before")
    @classmethod
    def _read(cls, values: Any) -> Any:
        """No secrets; a model of the catalogue may be given by its name alone."""
        if not isinstance(values, dict):
            return values
        refuse_secrets(values)
        job = values.get("job")
        if isinstance(job, dict) and isinstance(job.get("architecture"), str):
            values = values | {"job": job | {"architecture": find_model(job["architecture"])}}
        return values

    @model_validator(mode="after")
    def _exists(self) -> Self:
        refuse_secrets(self.model_dump())  # as constructed from records, which `_read` saw as objects
        if self.gpu not in load_gpus():
            raise InvalidJob("there is no card {given!r} in the catalogue; give its id", field="gpu", given=self.gpu)
        for name in (*self.wishes.providers, *self.care.providers):
            if name not in load_providers():
                raise InvalidJob("there is no provider {given!r} in the catalogue; give its id", field="providers", given=name)
        if self.sharding:
            check_sharding(self.job, self.sharding)
        return self

    def changed(self, **values: Any) -> "PlanFile":
        """This plan with other values, checked again."""
        return PlanFile(**({name: getattr(self, name) for name in PlanFile.model_fields} | values))

    @property
    def plan(self) -> Plan:
        """What is predicted on the chosen card."""
        return make_plan(self.job, find_gpu(self.gpu), None, self.sharding)

    @property
    def demand(self) -> Demand:
        """What offers are ranked for."""
        return Demand(self.job, self.workload, self.policy, self.terms, self.changed_stages, self.prepare_on_gpu)

    @property
    def cared_wishes(self) -> Wishes:
        """The wishes, narrowed by what the care for the data allows."""
        return self.care.narrowed(self.wishes)


def plan_of_offer(demand: Demand, wishes: Wishes, row: Ranked | None) -> PlanFile:
    """The plan of a demand as it runs on a ranked offer: with its card, its micro-batch and how its cards share the job."""
    asked = PlanFile(job=demand.job, workload=demand.workload, policy=demand.policy, terms=demand.terms, wishes=wishes)
    if row is None or row.placement is None:
        return asked
    place = row.placement
    return asked.changed(job=place.job, gpu=place.gpu.id, sharding=place.sharding, offer=row.offer.key)


def plan_values(plan: PlanFile) -> dict[str, Any]:
    """The plan as JSON values without what is a default; a model of the catalogue by its name."""
    values = plan.model_dump(mode="json", exclude_defaults=True)
    values = {"version": VERSION} | values
    if _in_catalogue(plan.job.architecture):
        values["job"]["architecture"] = plan.job.architecture.name
    return values


def _in_catalogue(architecture: Architecture) -> bool:
    try:
        return find_model(architecture.name) == architecture
    except UnknownName:
        return False


def plan_from_json(text: str | bytes, *, name: str = "plan") -> PlanFile:
    """A plan of any version up to this one. Raises PlannerError, one sentence."""
    values = versioned(text, name, VERSION)
    try:
        return PlanFile(**(_from_version_0(values, name) if not values.get("version") else values))
    except PlannerError as error:
        raise PlannerError("{name!r} cannot be read as a plan: {problem}", name=name, problem=str(error)) from error


def _from_version_0(values: dict[str, Any], name: str) -> dict[str, Any]:
    """What `planner estimate --json` says of the job, its card and how it is shared."""
    job, gpu = values.get("job"), values.get("gpu")
    if not isinstance(job, dict) or not isinstance(values.get("model"), str) or not isinstance(gpu, dict):
        raise PlannerError("{name!r} is no plan: it has neither a version nor the job of an estimate", name=name)
    return {"job": job | {"architecture": values["model"]}, "gpu": gpu.get("id"), "sharding": values.get("sharding")}


def read_plan(path: str | Path) -> PlanFile:
    """The plan in a file. Raises PlannerError, one sentence."""
    return plan_from_json(read_small(Path(path), _MOST_BYTES), name=str(path))


def write_plan(path: str | Path, plan: PlanFile) -> None:
    """The plan as a file, whole or not at all; what is no plan is not overwritten. Raises PlannerError."""
    if Path(path).exists():
        read_plan(path)
    write_whole(path, plan_text(plan).encode())


def plan_text(plan: PlanFile) -> str:
    """What stands in a plan's file."""
    return json.dumps(plan_values(plan), indent=1, ensure_ascii=False) + "\n"
