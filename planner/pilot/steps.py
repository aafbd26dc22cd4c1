"""One model on its device, and its steps: forward, backward, optimizer, with the memory of each phase."""

import math
import os
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

import torch

from planner.dryrun.model import DTYPES
from planner.dryrun.trace import make_optimizer
from planner.job import Job
from planner.pilot.batches import Batches
from planner.pilot.measure import components, memory, new_peak
from planner.pilot.model import base_on, trainable_on, trained_base
from planner.pilot.ranks import Ranks
from planner.pilot.request import Request

__all__ = ["Cancelled", "Events", "Steps", "ask_to_end"]

_MEASURED = (1, 2)  # the optimizer's states are there from the second step on
_HISTORY_ENTRIES = 200_000  # of PyTorch's memory history: several steps of a large model
_asked_to_end = threading.Event()


class Cancelled(Exception):
    """Someone asked the pilot to end."""


class Events(Protocol):
    """Where events go; `during` is the phase that is going on, should memory run out."""

    during: str

    def write(self, event: str, **values: Any) -> None:
        """Append one."""


def ask_to_end(*_: object) -> None:
    """Of SIGTERM: only a flag, as an exception raised here is lost where it falls into a destructor or a callback of C++."""
    _asked_to_end.set()


class Steps:
    """The model of `job` (of the blocks numbered `kept` only), its optimizer, and one step after the other."""

    def __init__(self, job: Job, request: Request, log: Events, kept: list[int] | None = None) -> None:
        self.job, self.request, self.log, self.device = job, request, log, request.device
        torch.manual_seed(0)
        self.ranks = Ranks(request.of_sharding, request.device)
        new_peak(self.device)
        log.during = "load"
        model = trained_base(job, self.device, request.weights) if request.weights else base_on(job, self.device, kept)
        self.phase("load")
        log.during = "adapters"
        model = trainable_on(model, job, self.device, kept)
        self.phase("adapters", components=components(model))
        self.plain, self.model = model, self.ranks.shared(job, model)  # without and with what shares it
        self.trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.optimizer = make_optimizer(job, self.trained)
        self.scaler = torch.amp.GradScaler(self.device, enabled=job.precision == "fp16-mixed")
        self.batches = Batches(job, self.device, request.data, request.weights, self.ranks.rank, self.ranks.count)
        self.done = 0

    def step(self, of: int | None) -> float:
        """One optimizer step; its loss, of which NaN and infinity are logged as none."""
        self._listen()
        job, begun, waited = self.job, self._now(), 0.0
        measured, total = self.done in _MEASURED, 0.0
        kept: Any = None
        for number in range(job.gradient_accumulation_steps):
            asked = time.perf_counter()
            batch = self.batches.batch()
            waited += time.perf_counter() - asked
            kept = None
            if measured:
                self._begin_measuring(first=number == 0)
            hook = self._head_hook() if measured else None
            self.log.during = "forward"
            with self._autocast(), self.ranks.accumulating(self.model, last=number == job.gradient_accumulation_steps - 1):
                output = self.model(**batch)
                loss = output.loss / job.gradient_accumulation_steps
                kept = output if job.keep_outputs else None
                output = None
                if measured:
                    self.phase("forward", step=self.done)
                    if hook:
                        hook.remove()
                    new_peak(self.device)
                self.log.during = "backward"
                self.scaler.scale(loss).backward()
            total += float(loss.detach())
        if measured:
            self.phase("backward", step=self.done, components=components(self.plain, self.optimizer))
            new_peak(self.device)
        self.log.during = "optimizer"
        skipped = self._optimizer_step()
        if measured:
            self.phase("optimizer", step=self.done)
        self.optimizer.zero_grad(set_to_none=True)
        del kept  # of a loop that keeps the model's output until here
        seconds = self._now() - begun
        self.done += 1
        tokens = job.micro_batch_size * job.sequence_length * job.gradient_accumulation_steps * self.ranks.count
        self.log.write(
            "step", step=self.done, of=of, seconds=seconds, waited_s=waited, tokens=tokens, skipped=skipped,
            loss=total if math.isfinite(total) else None,
        )  # fmt: skip
        if self.done == 3:
            self._end_history()
        return total

    def evaluate(self, batches: int = 8) -> None:
        """Some batches without gradients, as an evaluation pass has them."""
        self._listen()
        self.model.eval()
        new_peak(self.device)
        self.log.during = "evaluation"
        begun, rows = self._now(), self.job.eval_micro_batch_size
        with torch.no_grad(), self._autocast():
            loss = fmean(float(self.model(**self.batches.batch(rows)).loss) for _ in range(batches))
        self.model.train()
        self.phase("evaluation", seconds=self._now() - begun, loss=loss if math.isfinite(loss) else None)

    def save(self) -> None:
        """Write what a checkpoint holds beside the log, in the place of the last one; where the disk is full, the event says so."""
        self._listen()
        folder = Path(self.request.log).parent / "checkpoint"
        new_peak(self.device)
        self.log.during = "save"
        begun, problem = self._now(), None
        try:
            self.ranks.save(self.model, self.optimizer, folder)
        except (OSError, RuntimeError) as error:  # torch.save says RuntimeError where the disk is full
            problem = str(error).splitlines()[0][:200]
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) if folder.is_dir() else 0
        self.phase("save", seconds=self._now() - begun, bytes=size, problem=problem)

    def phase(self, name: str, **values: Any) -> None:
        """Log the memory of what has just run, the most of any rank."""
        self._listen()
        self.log.write("phase", phase=name, **self.ranks.most(memory(self.device)), **values)

    def _listen(self) -> None:
        if _asked_to_end.is_set():
            raise Cancelled

    def _autocast(self) -> Any:
        cast = self.job.numbers.autocast and not self.ranks.casts
        return torch.autocast(self.device, DTYPES[self.job.precision]) if cast else nullcontext()

    def _begin_measuring(self, *, first: bool) -> None:
        new_peak(self.device)
        if first:
            self.phase("resident", step=self.done)
            if self.request.snapshot and self.device == "cuda":
                torch.cuda.memory._record_memory_history(max_entries=_HISTORY_ENTRIES)

    def _end_history(self) -> None:
        if self.request.snapshot and self.device == "cuda":
            path = Path(self.request.log).with_name("snapshot.pickle")
            torch.cuda.memory._dump_snapshot(os.fspath(path))  # type: ignore[no-untyped-call]
            torch.cuda.memory._record_memory_history(enabled=None)

    def _head_hook(self) -> Any:
        """Logs what is held when the output head is reached: what stays, and what the blocks have saved for backward."""
        head = self.plain.get_output_embeddings()
        return head.register_forward_pre_hook(lambda *_: self.phase("blocks", step=self.done)) if head is not None else None

    def _optimizer_step(self) -> bool:
        """Clip and step, as the Trainer does; whether the scaler left the step out."""
        before = self.scaler.get_scale()
        if not self.job.keep_outputs:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.trained, 1.0, foreach=True)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return bool(self.scaler.is_enabled() and self.scaler.get_scale() < before)

    def _now(self) -> float:
        if self.device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter()
