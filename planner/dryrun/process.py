"""A dry run in a process of its own, which can be watched and stopped and leaves no torch behind.

The job comes as JSON on standard input, events go out as JSON, one a line: progress, then one result or one error. The process
ends when its input is closed, so that it does not outlive who started it.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from planner.catalogues import find_gpu
from planner.dryrun import dry_run
from planner.dryrun.summary import DryRunSummary, summarised
from planner.dryrun.turns import turn
from planner.errors import PlannerError
from planner.hardware import Gpu
from planner.job import Job
from planner.sharding import Sharding

__all__ = ["LOADING", "dry_run_in_process"]

LOADING = "loading PyTorch and its libraries"
_MOST_SECONDS = 900  # a job that takes longer is a mistake, or an attack on a server
_LONGEST_LINE = 2**20  # characters; a summary has about 100,000
_COMMAND = (sys.executable, "-m", "planner.dryrun.process")


class _Sentence(BaseModel):
    """A PlannerError on its way between processes."""

    template: str
    values: dict[str, Any] = {}


class _Event(BaseModel):
    """One line of the child's output; one field of it is set."""

    model_config = ConfigDict(extra="forbid")

    progress: str | None = None
    result: DryRunSummary | None = None
    error: _Sentence | None = None


# ---- who starts it -----------------------------------------------------------------------------------------------------


async def dry_run_in_process(
    job: Job,
    gpu: Gpu,
    progress: Callable[[str], None] = lambda text: None,
    *,
    sharding: Sharding | None = None,
    command: tuple[str, ...] = _COMMAND,
) -> DryRunSummary:
    """The summary of a dry run of `job` for `gpu`; cancelling the task stops the process. Raises PlannerError, one sentence.

    It waits for its turn where the machine has as many dry runs as it takes at once.
    """
    async with turn(progress):
        return await _dry_run(job, gpu, progress, sharding, command)


async def _dry_run(
    job: Job, gpu: Gpu, progress: Callable[[str], None], sharding: Sharding | None, command: tuple[str, ...]
) -> DryRunSummary:
    packages = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    offline = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "PYTHONPATH": packages}
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=_LONGEST_LINE, env={**os.environ, **offline},
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise PlannerError("the dry run's process cannot be started ({problem})", problem=str(error)) from error
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            request = {"job": job.model_dump(mode="json"), "gpu": gpu.id, "sharding": asdict(sharding) if sharding else None}
            return await _answer(process, request, progress)
    except TimeoutError:
        raise PlannerError("the dry run took more than {seconds} seconds and was stopped", seconds=_MOST_SECONDS) from None
    finally:
        await _ended(process)


async def _answer(process: Process, request: dict[str, Any], progress: Callable[[str], None]) -> DryRunSummary:
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps(request).encode() + b"\n")
    while event := await _next(process.stdout):
        if event.error:
            raise PlannerError(event.error.template, **event.error.values)
        if event.result:
            return event.result
        progress(event.progress or "")
    raise PlannerError("the dry run's process ended without an answer (exit status {status})", status=await process.wait())


async def _next(output: asyncio.StreamReader) -> _Event | None:
    try:
        line = await output.readline()
        return _Event.model_validate_json(line) if line else None
    except ValueError:  # not JSON, not an event, or a line without end
        raise PlannerError("the dry run's process gave an answer that cannot be read") from None


async def _ended(process: Process) -> None:
    """End the process with all that it may have started, and take it off the system's table."""
    if process.returncode is None:
        with suppress(ProcessLookupError):  # it has just ended
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
    await process.communicate()


# ---- the process itself ------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer one request."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not get between the events

    def send(**event: Any) -> None:
        output.write(_Event(**event).model_dump_json() + "\n")
        output.flush()

    request = sys.stdin.readline()
    threading.Thread(target=_end_with_input, daemon=True).start()
    begun = time.monotonic()
    try:
        asked = json.loads(request)
        job, gpu = Job(**asked["job"]), find_gpu(asked["gpu"])
        send(progress=LOADING)
        sharding = Sharding(**asked["sharding"]) if asked.get("sharding") else None
        found = dry_run(job, gpu, sharding=sharding, progress=lambda text: send(progress=text))
        send(result=summarised(found, gpu, seconds=time.monotonic() - begun))
    except PlannerError as error:
        send(error=_sentence(error.template, error.values))
    except Exception as error:
        send(error=_sentence("the dry run failed ({problem})", {"problem": f"{type(error).__name__}: {error}"}))
        raise


def _sentence(template: str, values: dict[str, Any]) -> _Sentence:
    plain = {name: value if isinstance(value, int | float | str) else str(value) for name, value in values.items()}
    return _Sentence(template=template, values=plain)


def _end_with_input() -> None:
    while os.read(0, 1024):  # not sys.stdin: its lock would be held when the interpreter ends
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
