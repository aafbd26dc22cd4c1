"""The record of an experiment: what was planned, predicted, measured and made, so that it can be compared and run again."""

import hashlib
import json
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, model_validator

from planner.architecture import Record
from planner.assumption import Assumption
from planner.catalogues import find_gpu
from planner.compute import SpeedAssumptions, step_time
from planner.credentials import refuse_secrets
from planner.errors import InvalidJob, PlannerError
from planner.files import read_small, versioned, write_whole
from planner.memory import Assumptions
from planner.pilot.record import Measurement
from planner.planfile import PlanFile, plan_values, write_plan

__all__ = ["Experiment", "FileHash", "Prediction", "experiment_of", "read_record", "record_from_json", "replay", "write_record"]

VERSION: Literal[1] = 1
_MOST_BYTES = 20_000_000
# What decides how a run behaves; the lock holds these and not every package of the machine.
_LOCKED = (
    "torch",
    "transformers",
    "peft",
    "trl",
    "bitsandbytes",
    "accelerate",
    "datasets",
    "tokenizers",
    "safetensors",
    "deepspeed",
)
_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class FileHash(Record):
    """A file that the run made or read: path within its folder, bytes, hash."""

    path: Annotated[str, Field(max_length=1000)]
    bytes: NonNegativeInt
    sha256: _Hash


class Prediction(Record):
    """What the closed form said when the record was made; bytes and seconds. No time where the catalogue lacks a rate of the card."""

    allocated_bytes: float
    reserved_bytes: float
    device_bytes: float
    low_bytes: float
    high_bytes: float
    step_s: float | None = None
    step_low_s: float | None = None
    step_high_s: float | None = None
    tokens_per_s: float | None = None


class Experiment(Record):
    """One experiment. Raises InvalidJob, one sentence that names the field; also for a text that seems to hold a secret."""

    version: Literal[1] = VERSION
    made: datetime
    planner: str = ""  # its version
    plan: PlanFile  # with job, data version, hyperparameters, seed, care and deletions, and the pilot's measurement
    prediction: Prediction
    assumptions: dict[str, Assumption] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)  # package -> version, and python
    tokenizer: FileHash | None = None
    losses: tuple[float, ...] = ()  # of the run, as its trainer logged them
    evaluation: dict[str, float] = Field(default_factory=dict)  # last value of each figure
    train_s: Annotated[float, Field(ge=0)] | None = None
    peak_reserved_bytes: NonNegativeInt | None = None  # of the run, as its script measured it
    checkpoints: tuple[FileHash, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _no_secrets(cls, values: Any) -> Any:
        refuse_secrets(values)
        return values


def predicted(plan: PlanFile) -> Prediction:
    """What the closed form says of a plan today."""
    peak, times = plan.plan.memory.peak, {}
    with suppress(PlannerError):  # the catalogue lacks a rate of this card
        step = step_time(plan.job, find_gpu(plan.gpu), plan.sharding)
        times = {"step_s": step.seconds, "step_low_s": step.low_s, "step_high_s": step.high_s, "tokens_per_s": step.tokens_per_s}
    return Prediction(
        allocated_bytes=peak.allocated, reserved_bytes=peak.reserved, device_bytes=peak.device, low_bytes=peak.low, high_bytes=peak.high,
        **{name: float(value) for name, value in times.items()},
    )  # fmt: skip


def experiment_of(plan: PlanFile, folder: Path | None = None, pilot: Measurement | None = None) -> Experiment:
    """The record of `plan` as it stands, with what a run left in `folder` (checkpoint-*, trainer_state.json, tokenizer.json).

    The environment is the pilot's or the run's own (environment.json beside its checkpoints), else this machine's. Raises PlannerError.
    """
    plan = plan if pilot is None else plan.changed(pilot=pilot)
    made = {
        name: getattr(assumed, name) for assumed in (Assumptions(), SpeedAssumptions()) for name in type(assumed).model_fields
    }
    found: dict[str, Any] = {"environment": _environment(plan.pilot)}
    if folder is not None:
        if not folder.is_dir():
            raise PlannerError("there is no folder {path!r}; give the output folder of a run", path=str(folder))
        found |= _left_by_run(folder)
    return Experiment(
        made=datetime.now(UTC).replace(microsecond=0), planner=_version("finetune-planner"), plan=plan, prediction=predicted(plan),
        assumptions={name: value for name, value in made.items() if isinstance(value, Assumption)}, **found,
    )  # fmt: skip


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _environment(pilot: Measurement | None) -> dict[str, str]:
    if pilot and (versions := pilot.environment.get("versions")):
        return {"python": str(pilot.environment.get("python", "")), **versions}
    here = {name: version for name in _LOCKED if (version := _version(name))}
    return {"python": platform.python_version(), **here}


def _left_by_run(folder: Path) -> dict[str, Any]:
    """Losses and figures of the newest trainer state, hashes of all checkpoints, the tokenizer's, and the run's own versions."""
    found: dict[str, Any] = {"checkpoints": tuple(_hashes(folder))}
    states = sorted(folder.rglob("trainer_state.json"), key=lambda path: path.stat().st_mtime)
    if states:
        log = versioned(read_small(states[-1], _MOST_BYTES), str(states[-1]), 0).get("log_history", [])
        entries = [entry for entry in log if isinstance(entry, dict)]
        found["losses"] = tuple(float(entry["loss"]) for entry in entries if isinstance(entry.get("loss"), int | float))
        found["evaluation"] = {
            name: float(value)
            for entry in entries
            for name, value in entry.items()
            if name.startswith("eval_") and isinstance(value, int | float)
        }
        found["train_s"] = next((float(entry["train_runtime"]) for entry in reversed(entries) if "train_runtime" in entry), None)
    if (results := folder / "train_results.json").is_file():
        found["peak_reserved_bytes"] = versioned(read_small(results, _MOST_BYTES), str(results), 0).get("peak_reserved_bytes")
    if (versions := folder / "environment.json").is_file():
        found["environment"] = {
            str(name): str(value) for name, value in versioned(read_small(versions, _MOST_BYTES), str(versions), 0).items()
        }
    tokenizers = [file for file in found["checkpoints"] if Path(file.path).name == "tokenizer.json"]
    found["tokenizer"] = tokenizers[-1] if tokenizers else None
    return found


def _hashes(folder: Path) -> Iterator[FileHash]:
    """Every file of a checkpoint, adapter or model in the folder; links are not followed out of it."""
    for at, folders, names in os.walk(folder, followlinks=False):
        folders.sort()
        for path in (Path(at) / name for name in sorted(names)):
            if path.suffix in (".safetensors", ".bin", ".pt", ".json", ".distcp") and path.is_file() and not path.is_symlink():
                try:
                    with path.open("rb") as file:
                        digest = hashlib.file_digest(file, "sha256").hexdigest()
                    yield FileHash(path=path.relative_to(folder).as_posix(), bytes=path.stat().st_size, sha256=digest)
                except OSError as error:
                    raise PlannerError(
                        "{path!r} cannot be read ({problem})", path=str(path), problem=error.strerror or str(error)
                    ) from error


# ---- as a file -----------------------------------------------------------------------------------------------------------


def write_record(path: str | Path, record: Experiment) -> None:
    """The record as a file, whole or not at all; a file that is there already is not overwritten. Raises PlannerError."""
    if Path(path).exists():
        raise PlannerError("{path!r} is there already; a record is not overwritten, give another name", path=str(path))
    values = record.model_dump(mode="json", exclude_defaults=True) | {"version": VERSION, "plan": plan_values(record.plan)}
    write_whole(path, (json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode())


def read_record(path: str | Path) -> Experiment:
    """The record in a file. Raises PlannerError, one sentence."""
    return record_from_json(read_small(Path(path), _MOST_BYTES), str(path))


def record_from_json(text: str | bytes, name: str) -> Experiment:
    """The record in a text. Raises PlannerError, one sentence."""
    values = versioned(text, name, VERSION)
    try:
        return Experiment(**values)
    except PlannerError as error:
        raise PlannerError("{path!r} cannot be read as a record: {problem}", path=name, problem=str(error)) from error


def replay(record: Experiment, folder: Path) -> tuple[Path, Path]:
    """What it takes to run it again, in a new or empty folder: plan.json, and requirements.txt with the versions of then."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InvalidJob("{path!r} is not an empty folder; give a new one", field="out", path=str(folder))
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlannerError(
            "{path!r} cannot be written ({problem})", path=str(folder), problem=error.strerror or str(error)
        ) from error
    plan, lock = folder / "plan.json", folder / "requirements.txt"
    write_plan(plan, record.plan)
    # a build tag such as +cu128 names no version of a package index
    pinned = [f"{name}=={version.split('+')[0]}" for name, version in record.environment.items() if name != "python"]
    head = f"# Python {record.environment.get('python', '3')}; seed {record.plan.seed}; data {record.plan.data.sha256[:16] or 'unknown'}"
    write_whole(lock, ("\n".join([head, *pinned]) + "\n").encode())
    return plan, lock
