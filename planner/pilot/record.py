"""A pilot's log read back: what happened, what was measured, and a file that keeps it."""

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict

from planner.errors import PlannerError
from planner.files import write_whole
from planner.job import Job

__all__ = ["Measurement", "measurement_of", "read_events", "read_measurement", "write_measurement"]

_WARM_UP = 3  # steps that are left out of the speed


class Measurement(BaseModel):
    """What a pilot measured; bytes and seconds. `state` is done, cancelled, out of memory, failed, or died (no last word)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: dict[str, Any]
    state: str
    problem: str = ""
    environment: dict[str, Any] = {}
    random_weights: bool = True  # of the same shapes and formats as trained ones: the same bytes
    components: dict[str, int] = {}  # bytes of what stays, at the end of a backward
    phases: dict[str, dict[str, int]] = {}  # of the second step, or of loading
    step_seconds: float | None = None  # median, without the first steps
    step_seconds_p95: float | None = None
    tokens_per_s: float | None = None
    losses: tuple[float | None, ...] = ()
    steps: int = 0
    steps_asked: int = 0
    error_rate: float = 0.0  # steps with a loss that is no number, or that the scaler skipped, of all
    nvml: dict[str, float] = {}
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
    start = next((event for event in events if event["event"] == "start"), {})
    end: dict[str, Any] = next((event for event in reversed(events) if event["event"] == "end"), {"state": "died"})
    steps = [event for event in events if event["event"] == "step"]
    phases, components = {}, dict[str, int]()
    for event in events:
        if event["event"] == "phase":
            phases[event["phase"]] = {name: value for name, value in event.items() if name.endswith("_bytes")}
            components = event.get("components", components)
    timed = [step["seconds"] for step in steps[_WARM_UP:]] or [step["seconds"] for step in steps[1:]]
    bad = sum(step["loss"] is None or step["skipped"] for step in steps)
    return Measurement(
        job=job.model_dump(mode="json"), state=end["state"], problem=end.get("problem", ""), environment=start.get("environment", {}),
        components=components, phases=phases, step_seconds=median(timed) if timed else None,
        step_seconds_p95=sorted(timed)[int(0.95 * (len(timed) - 1))] if timed else None,
        tokens_per_s=steps[-1]["tokens"] / median(timed) if timed else None, losses=tuple(step["loss"] for step in steps),
        steps=len(steps), steps_asked=start.get("steps", 0), error_rate=bad / len(steps) if steps else 0.0, nvml=end.get("nvml", {}),
        allocator=end.get("allocator", {}),
    )  # fmt: skip


def write_measurement(path: Path, measurement: Measurement) -> None:
    """The record as a file, whole or not at all. Raises PlannerError where it cannot be written."""
    write_whole(path, (measurement.model_dump_json(indent=1) + "\n").encode())


def read_measurement(path: Path) -> Measurement:
    """A record that was written. Raises PlannerError where it is none."""
    try:
        return Measurement.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise PlannerError(
            "{path!r} is no record of a pilot ({problem})", path=str(path), problem=str(error).splitlines()[0]
        ) from error
