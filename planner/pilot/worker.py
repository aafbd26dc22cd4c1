"""The process that runs a pilot: the job's real model and step, one JSON event per line in a log file, and nothing else.

`python -m planner.pilot.worker REQUEST.json`, one process for each GPU. A clean CUDA context of its own; it ends with an event that
says how it ended, and after SIGTERM at the next phase. What it has written stays readable whatever ends it.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

from planner.credentials import without_secrets
from planner.errors import PlannerError
from planner.job import Job
from planner.pilot.measure import Nvml, environment, memory
from planner.pilot.modes import run
from planner.pilot.request import Request, check_request
from planner.pilot.steps import Cancelled, ask_to_end

__all__ = ["main"]


class Log:
    """Events, one JSON object a line, each written at once; of several processes only the first one writes."""

    during = "load"  # the phase that is going on

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, event: str, **values: Any) -> None:
        """Append one event. Raises OSError where the disk is full."""
        line = (json.dumps({"event": event, "at": time.time(), **values}, allow_nan=False) + "\n").encode()
        while line:
            line = line[os.write(self._file, line) :]


def main(path: str) -> int:
    """Run one request; 0 when it went through, 1 when it did not."""
    request = Request.model_validate_json(Path(path).read_bytes())
    rank = int(os.environ.get("RANK", "0"))
    log = Log(request.log if rank == 0 else os.devnull)
    state, values = "done", dict[str, Any]()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask_to_end)
    device = request.device
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    with Nvml(device == "cuda") as nvml:
        log.write(
            "start", device=device, steps=request.steps, request=request.model_dump(exclude={"job"}),
            environment=environment(device),
        )  # fmt: skip
        try:
            job = Job(**request.job)
            check_request(job, request)
            run(job, request, log)
        except Cancelled:
            state = "cancelled"
        except torch.OutOfMemoryError as error:
            state, values["problem"], values["during"] = "out of memory", _first_line(error), log.during
            values["allocator"] = {**memory(device), "num_ooms": torch.cuda.memory_stats().get("num_ooms", 0)}
        except PlannerError as error:
            state, values["problem"] = "failed", without_secrets(str(error))
        except OSError:  # of the log: nothing more can be said there
            raise
        except Exception as error:  # noqa: BLE001 (of any library; the log says it in one line)
            state, values["problem"] = "failed", f"{type(error).__name__}: {_first_line(error)}"
    log.write("end", state=state, nvml=nvml.summary(), nvml_problem=nvml.problem, **values)
    return 0 if state == "done" else 1


def _first_line(error: BaseException) -> str:
    return without_secrets((str(error).strip() or type(error).__name__).splitlines()[0])[:400]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except OSError as problem:  # the log cannot be written
        sys.exit(f"the pilot ended, as its log cannot be written ({problem})")
