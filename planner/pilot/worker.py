"""The process that runs a pilot: the job's real model and step, one JSON event per line in a log file, and nothing else.

`python -m planner.pilot.worker REQUEST.json`. A clean CUDA context of its own; it ends with an event that says how it ended, and
after SIGTERM at the next phase. What it has written stays readable whatever ends it.
"""

import json
import math
import os
import signal
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from planner.dryrun.model import DTYPES
from planner.dryrun.trace import make_optimizer
from planner.errors import InvalidJob, PlannerError
from planner.job import Job
from planner.pilot.measure import Nvml, components, environment, memory, new_peak
from planner.pilot.model import base_on, trainable_on

__all__ = ["main"]


class Cancelled(Exception):
    """Someone asked the pilot to end."""


class Log:
    """Events, one JSON object a line, each written at once."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, event: str, **values: Any) -> None:
        """Append one event. Raises OSError where the disk is full."""
        line = (json.dumps({"event": event, "at": time.time(), **values}, allow_nan=False) + "\n").encode()
        while line:
            line = line[os.write(self._file, line) :]


def main(path: str) -> int:
    """Run one request; 0 when it went through, 1 when it did not."""
    request = json.loads(Path(path).read_text(encoding="utf-8"))
    log = Log(request["log"])
    state, values = "done", dict[str, Any]()
    signal.signal(signal.SIGTERM, _ask_to_end)
    device = request["device"]
    log.write("start", pid=os.getpid(), device=device, steps=request["steps"], environment=environment(device))
    try:
        with Nvml() as nvml:
            try:
                _Pilot(Job(**request["job"]), device, request["steps"], log).run()
            finally:
                values["nvml"] = nvml.summary() if device != "cpu" else {}
    except Cancelled:
        state = "cancelled"
    except torch.OutOfMemoryError as error:
        state, values["problem"] = "out of memory", _first_line(error)
        values["allocator"] = {**memory(device), "num_ooms": torch.cuda.memory_stats().get("num_ooms", 0)}
    except PlannerError as error:
        state, values["problem"] = "failed", str(error)
    except Exception as error:  # noqa: BLE001 (of any library; the log says it in one line)
        state, values["problem"] = "failed", f"{type(error).__name__}: {_first_line(error)}"
    log.write("end", state=state, **values)
    return 0 if state == "done" else 1


_asked_to_end = threading.Event()


def _ask_to_end(*_: object) -> None:
    """Of SIGTERM: only a flag, as an exception raised here is lost where it falls into a destructor or a callback of C++."""
    _asked_to_end.set()


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:400]


class _Pilot:
    """Load, then steps: forward, backward, optimizer, with the peak of each phase."""

    def __init__(self, job: Job, device: str, steps: int, log: Log) -> None:
        if job.loss != "plain":
            raise InvalidJob("the pilot runs the plain loss only; leave loss out", field="loss")
        self.job, self.device, self.steps, self.log = job, device, steps, log
        self.seconds: list[float] = []

    def run(self) -> None:
        """The whole pilot."""
        torch.manual_seed(0)
        job, device = self.job, self.device
        new_peak(device)
        model = base_on(job, device)
        self._phase("load")
        model = trainable_on(model, job, device)
        self._phase("adapters", components=components(model))
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = make_optimizer(job, trained)
        batch = self._batch()
        scaler = torch.amp.GradScaler(device, enabled=job.precision == "fp16-mixed")
        for step in range(self.steps):
            self._step(step, model, optimizer, scaler, trained, batch)

    def _batch(self) -> dict[str, Any]:
        """Random tokens, the same in every step, so that the loss must fall."""
        job = self.job
        shape = (job.micro_batch_size, job.sequence_length)
        ids = torch.randint(0, job.architecture.vocab_size, shape, device=self.device)
        batch = {"input_ids": ids, "labels": ids.clone()}
        return batch if job.packing else {**batch, "attention_mask": torch.ones_like(ids)}

    def _step(self, step: int, model: Any, optimizer: Any, scaler: Any, trained: list[Any], batch: dict[str, Any]) -> None:
        if _asked_to_end.is_set():
            raise Cancelled
        job, begun = self.job, self._now()
        measured = step in (1, 2)  # the optimizer's states are there from the second step on
        kept: Any = None
        for _ in range(job.gradient_accumulation_steps):
            kept = None
            if measured:
                new_peak(self.device)
            with torch.autocast(self.device, DTYPES[job.precision]) if job.numbers.autocast else nullcontext():
                output = model(**batch)
            loss = output.loss / job.gradient_accumulation_steps
            kept = output if job.keep_outputs else None
            output = None
            if measured:
                self._phase("forward", step=step)
                new_peak(self.device)
            scaler.scale(loss).backward()
        if measured:
            self._phase("backward", step=step, components=components(model, optimizer))
            new_peak(self.device)
        skipped = self._optimizer_step(optimizer, scaler, trained)
        value = float(loss.detach()) * job.gradient_accumulation_steps
        if measured:
            self._phase("optimizer", step=step)
        optimizer.zero_grad(set_to_none=True)
        del kept  # of a loop that keeps the model's output until here
        seconds = self._now() - begun
        tokens = job.micro_batch_size * job.sequence_length * job.gradient_accumulation_steps
        self.log.write(
            "step", step=step + 1, of=self.steps, seconds=seconds, tokens=tokens, skipped=skipped,
            loss=value if math.isfinite(value) else None,
        )  # fmt: skip

    def _optimizer_step(self, optimizer: Any, scaler: Any, trained: list[Any]) -> bool:
        """Clip and step, as the Trainer does; whether the scaler left the step out."""
        before = scaler.get_scale()
        if not self.job.keep_outputs:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)
        scaler.step(optimizer)
        scaler.update()
        return bool(scaler.is_enabled() and scaler.get_scale() < before)

    def _now(self) -> float:
        if self.device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter()

    def _phase(self, name: str, **values: Any) -> None:
        if _asked_to_end.is_set():
            raise Cancelled
        self.log.write("phase", phase=name, **memory(self.device), **values)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except OSError as problem:  # the log cannot be written
        sys.exit(f"the pilot ended, as its log cannot be written ({problem})")
