"""A pilot's log read back: what happened, what was measured, and a file that keeps it."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict

from planner.errors import PlannerError
from planner.files import write_whole
from planner.job import Job

__all__ = ["Measurement", "measurement_from_json", "measurement_of", "read_events", "read_measurement", "write_measurement"]

_WARM_UP = 3  # steps that are left out of the speed


class Measurement(BaseModel):
    """What a pilot measured; bytes and seconds. `state` is done, cancelled, out of memory, failed, or died (no last word).

    Of a shallow pilot all figures are those of the whole model, extrapolated from models of `blocks_run` blocks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: dict[str, Any]
    sharding: dict[str, Any] | None = None
    state: str
    problem: str = ""
    during: str = ""  # the phase in which memory ran out
    environment: dict[str, Any] = {}
    weights: str | None = None  # None: random, of the same shapes and formats as trained ones, so the same bytes
    blocks_run: tuple[int, ...] = ()
    components: dict[str, int] = {}  # bytes of what stays, at the end of a backward
    phases: dict[str, dict[str, int]] = {}  # of the third step, or of loading
    host_peak_bytes: int = 0
    step_seconds: float | None = None  # median, without the first steps
    step_seconds_p95: float | None = None
    tokens_per_s: float | None = None
    wait_share: float | None = None  # of the steps' time, what went by until a batch was there
    losses: tuple[float | None, ...] = ()
    steps: int = 0
    steps_asked: int = 0
    error_rate: float = 0.0  # steps with a loss that is no number, or that the scaler skipped, of all
    data: str | None = None
    tokenizer: str | None = None
    rows: int = 0
    rows_failed: int = 0
    evaluation_losses: tuple[float | None, ...] = ()
    checkpoint_bytes: int | None = None
    checkpoint_seconds: float | None = None
    largest_micro_batch: int | None = None
    tries: tuple[dict[str, Any], ...] = ()
    nvml: dict[str, float] = {}
    nvml_problem: str = ""
    allocator: dict[str, int] = {}


def read_events(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log; a last line that was cut off is left out."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    events = []
    for line in lines:
        try:
            events.append(json.loads(line))
        except ValueError:  # the line that was being written when the process or the disk ended
            continue
    return [event for event in events if isinstance(event, dict) and "event" in event]


def measurement_of(job: Job, events: Iterable[dict[str, Any]]) -> Measurement:
    """What the events of a pilot say, however it ended."""
    events = list(events)
    start, end = _last(events, "start"), _last(events, "end") or {"state": "died"}
    data, request = _last(events, "data"), _last(events, "start").get("request", {})
    steps = [event for event in events if event["event"] == "step"]
    bad = sum(step["loss"] is None or step["skipped"] for step in steps)
    phases = [event for event in events if event["event"] == "phase"]
    saved = [event for event in phases if event["phase"] == "save" and not event["problem"]]
    figures = _figures(events)
    return Measurement(
        job=job.model_dump(mode="json"), sharding=request.get("sharding"), state=end["state"], problem=end.get("problem", ""),
        during=end.get("during", ""),
        environment=start.get("environment", {}),
        weights=request.get("weights"), blocks_run=tuple(sum(e["blocks"].values()) for e in events if e["event"] == "depth"),
        host_peak_bytes=max((event.get("host_peak_bytes", 0) for event in phases), default=0),
        losses=tuple(step["loss"] for step in steps), steps=len(steps), steps_asked=start.get("steps", 0),
        error_rate=bad / len(steps) if steps else 0.0, data=request.get("data"), tokenizer=data.get("tokenizer"), rows=data.get("rows", 0),
        rows_failed=data.get("rows_failed", 0), evaluation_losses=tuple(e["loss"] for e in phases if e["phase"] == "evaluation"),
        checkpoint_bytes=saved[-1]["bytes"] if saved else None, checkpoint_seconds=median(e["seconds"] for e in saved) if saved else None,
        largest_micro_batch=_last(events, "largest").get("micro_batch_size"),
        tries=tuple({k: v for k, v in event.items() if k not in ("event", "at")} for event in events if event["event"] == "try"),
        nvml=end.get("nvml", {}), nvml_problem=end.get("nvml_problem", ""), allocator=end.get("allocator", {}), **figures,
    )  # fmt: skip


def _last(events: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    return next((event for event in reversed(events) if event["event"] == name), {})


def _figures(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Sizes and speed: of the one model that ran, or extrapolated from those of a shallow pilot where all of them ran."""
    starts = [number for number, event in enumerate(events) if event["event"] == "depth"]
    if not starts:
        return _of_one_model(events)
    runs = [_of_one_model(events[a:b]) for a, b in zip(starts, [*starts[1:], len(events)], strict=True)]
    if len(runs) <= sum(size > 2 for size in events[starts[0]]["whole"].values()) or not runs[-1]["step_seconds"]:
        return {}
    counts = [events[number]["blocks"] for number in starts]
    whole = events[starts[0]]["whole"]

    def deep(values: list[float]) -> float:
        """The first run's value, and for each kind of block what one more of it adds."""
        total = values[0]
        for value, count in zip(values[1:], counts[1:], strict=True):
            kind = next(kind for kind, size in count.items() if size != counts[0][kind])
            total += (whole[kind] - counts[0][kind]) * (value - values[0]) / (count[kind] - counts[0][kind])
        return total

    def deep_sizes(sizes: list[dict[str, int]]) -> dict[str, int]:
        return {name: round(deep([size[name] for size in sizes])) for name in sizes[0]}

    seconds = deep([run["step_seconds"] for run in runs])
    tokens = runs[0]["tokens_per_s"] * runs[0]["step_seconds"]
    return {
        "components": deep_sizes([run["components"] for run in runs]),
        "phases": {name: deep_sizes([run["phases"][name] for run in runs]) for name in runs[0]["phases"]},
        "step_seconds": seconds, "tokens_per_s": tokens / seconds if seconds > 0 else None,
    }  # fmt: skip


def _of_one_model(events: list[dict[str, Any]]) -> dict[str, Any]:
    steps = [event for event in events if event["event"] == "step"]
    phases, components = {}, dict[str, int]()
    for event in events:
        if event["event"] == "phase":
            phases[event["phase"]] = {name: value for name, value in event.items() if name.endswith("_bytes")}
            components = event.get("components", components)
    timed = steps[_WARM_UP:] or steps[1:]
    seconds = sorted(step["seconds"] for step in timed)
    middle = median(seconds) if seconds else None
    return {
        "components": components, "phases": phases, "step_seconds": middle,
        "step_seconds_p95": seconds[int(0.95 * (len(seconds) - 1))] if seconds else None,
        "tokens_per_s": steps[-1]["tokens"] / middle if middle else None,
        "wait_share": sum(step.get("waited_s", 0.0) for step in timed) / sum(seconds) if seconds else None,
    }  # fmt: skip


def write_measurement(path: Path, measurement: Measurement) -> None:
    """The record as a file, whole or not at all. Raises PlannerError where it cannot be written."""
    write_whole(path, (measurement.model_dump_json(indent=1) + "\n").encode())


def read_measurement(path: Path) -> Measurement:
    """A record that was written. Raises PlannerError where it is none."""
    try:
        return measurement_from_json(path.read_bytes(), str(path))
    except OSError as error:
        problem = str(error).splitlines()[0]
        raise PlannerError("{path!r} is no record of a pilot ({problem})", path=str(path), problem=problem) from error


def measurement_from_json(text: str | bytes, name: str) -> Measurement:
    """The record in a text. Raises PlannerError where it is none."""
    try:
        return Measurement.model_validate_json(text)
    except ValueError as error:
        raise PlannerError(
            "{path!r} is no record of a pilot ({problem})", path=name, problem=str(error).splitlines()[0]
        ) from error
