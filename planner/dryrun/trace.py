"""The training step of a job on fake tensors: forward, backward and optimizer step of the real libraries, no arithmetic done."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch._subclasses import FakeTensorMode

from planner.dryrun.cuda import Behaviours
from planner.dryrun.depth import with_second_step
from planner.dryrun.distributed import booked, fake_mesh, fully_sharded
from planner.dryrun.ledger import Ledger
from planner.dryrun.libraries import libraries_unaware, torch_as_it_was
from planner.dryrun.log import EventLog
from planner.dryrun.losses import put_loss
from planner.dryrun.model import DTYPES, block_list, build_model, transformers_config
from planner.dryrun.placement import place
from planner.errors import InvalidJob
from planner.job import Job
from planner.sharding import Sharding

__all__ = ["make_optimizer", "trace_steps"]


def trace_steps(
    job: Job,
    kept_blocks: list[int],
    behaviours: Behaviours,
    *,
    both_steps: bool = False,
    sharding: Sharding | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> EventLog:
    """The event log of two optimizer steps of `job`, on a model that has only the blocks numbered `kept_blocks`.

    Forward and backward of the second step are those of the first, and are run only where `both_steps` asks for it. Raises
    InvalidJob where the libraries refuse the job, or the model's forward depends on the values of its data.
    """
    with torch_as_it_was(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        progress("building the model")
        config = transformers_config(job.architecture, kinds=kept_blocks)
        total = job.architecture.num_hidden_layers
        trained = [job.method != "freeze" or block >= total - job.trainable_layers for block in kept_blocks]
        with fake_mesh(sharding) as mesh, libraries_unaware(job), behaviours.emulated():
            try:
                model = build_model(job, config, trained)
                put_loss(model, job)
                return _run(model, job, len(kept_blocks), behaviours, both_steps, progress, sharding, mesh)
            except InvalidJob:
                raise
            except Exception as error:
                raise _as_a_sentence(error, job) from error


def _as_a_sentence(error: Exception, job: Job) -> InvalidJob:
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

    name = job.architecture.model_type
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException):
        return InvalidJob(
            "the forward of {name} depends on the values of its data ({problem}), which a dry run does not have; use the closed form",
            name=name, problem=str(getattr(error, "func", error)),
        )  # fmt: skip
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return InvalidJob(
        "the dry run of {name} failed in its libraries ({problem}); use the closed form", name=name, problem=lines[0][:200]
    )


def _run(
    model: Any, job: Job, count: int, behaviours: Behaviours, both_steps: bool, progress: Callable[[str], None],
    sharding: Any, mesh: Any,
) -> EventLog:  # fmt: skip
    prefix, _blocks = block_list(model, count)
    blocks: dict[str, int | None] = {f"{prefix}.{number}": number for number in range(count)}
    ancestors = {"", *(prefix[:position] for position, letter in enumerate(prefix) if letter == "."), prefix}
    ledger = Ledger(behaviours, blocks, ancestors)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with fake:
        shards = None if mesh is None else fully_sharded(model, job, count, sharding, mesh)
    with fake, ledger, nullcontext() if shards is None else booked(ledger):
        ledger.log.mark("load")
        for name, tensor, component in shards or place(model, job):
            ledger.book(tensor, component, "parameter")
            ledger.relabel(tensor, component, "parameter", name)
        ledger.log.at = [ledger.log.allocations[event].block for event in ledger.log.events]
        ledger.watch(model)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in trained:
            parameter.register_post_accumulate_grad_hook(
                lambda p: ledger.relabel(p.grad, "gradients") if p.grad is not None else None
            )
        optimizer = _on_fake_tensors(make_optimizer(job, trained))
        batch = _batch(job, ledger)
        for step in ("step 1", "step 2") if both_steps else ("step 1",):
            progress(f"{step}: forward and backward")
            outputs = _forward_and_backward(model, batch, job, ledger, step)
            progress(f"{step}: optimizer")
            ledger.log.mark(f"{step} optimizer")
            _optimizer_step(optimizer, trained, job, ledger)
            if not both_steps:
                ledger.log.mark("step 2 optimizer")
                _optimizer_step(optimizer, trained, job, ledger)
                ledger.log.mark("release")
            with ledger.during("optimizer"):
                outputs.clear()
                optimizer.zero_grad(set_to_none=True)
        ledger.log.mark("end")
        ledger.close()
    return ledger.log if both_steps else with_second_step(ledger.log)


def _batch(job: Job, ledger: Ledger) -> dict[str, torch.Tensor]:
    shape = (job.micro_batch_size, job.sequence_length)
    names = ("input_ids", "labels") if job.packing else ("input_ids", "labels", "attention_mask")
    batch = {}
    for name in names:
        batch[name] = torch.empty(shape, dtype=torch.int64, device="cpu")
        ledger.relabel(batch[name], "workspace", name)
    ledger.vocabulary_elements = job.micro_batch_size * job.length * job.architecture.vocab_size
    return batch


def _forward_and_backward(model: Any, batch: dict[str, Any], job: Job, ledger: Ledger, step: str) -> list[Any]:
    """The micro-batches of one step as Hugging Face's Trainer runs them; returns what a hand-written loop keeps of its outputs.

    Source: transformers/trainer.py (training_step, compute_loss), accelerate/utils/operations.py (ConvertOutputsToFp32).
    """
    defer = getattr(model, "set_requires_gradient_sync", None)  # FSDP2 casts by itself, without autocast
    dtype, autocast = DTYPES[job.precision], job.numbers.autocast and defer is None
    kept: list[Any] = []
    inputs = {name: ids for name, ids in batch.items() if name != "attention_mask" or job.attention_used != "flash"}
    micro_batches = min(job.gradient_accumulation_steps, 2)  # the third is like the second: gradients are there
    for micro_batch in range(micro_batches):
        if defer is not None:  # accelerate/accelerator.py, no_sync
            defer(micro_batch == micro_batches - 1)
        kept.clear()
        ledger.log.mark(f"{step} forward")
        with ledger.during("forward"):
            with torch.autocast("cpu", dtype=dtype) if autocast else nullcontext():
                output = model(**inputs)
            if autocast and job.loss == "plain" and not job.keep_outputs and output.logits.dtype == dtype:
                output["logits"] = output.logits.float()
            loss = output.loss
            if job.keep_outputs:
                kept += [output, loss]
            output = None
            if job.gradient_accumulation_steps > 1:
                loss = loss / job.gradient_accumulation_steps
        ledger.log.mark(f"{step} backward")
        with ledger.during("backward"):
            loss.backward()
            loss = None
    return kept


def _optimizer_step(optimizer: Any, trained: list[Any], job: Job, ledger: Ledger) -> None:
    """Clip, as the Trainer does by default, and step."""
    with ledger.during("optimizer"):
        if not job.keep_outputs:
            torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)
        optimizer.step()
        for parameter, state in optimizer.state.items():
            of = ledger.allocation_of(parameter)
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    if key == "step" or getattr(value, "is_paged", False):  # both lie in host memory
                        ledger.forget(value)
                    else:
                        ledger.relabel(value, "optimizer_states", key)
                        if of and (found := ledger.allocation_of(value)):
                            found.block = of.block  # so that the next step knows whose turn it is


def make_optimizer(job: Job, trained: list[Any]) -> Any:
    """The job's optimizer, its parameters in the Trainer's two groups. Source: transformers/trainer.py, create_optimizer."""
    groups = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": 0.0},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    name = job.optimizer
    if name in ("adamw", "adamw-fused"):
        return torch.optim.AdamW(groups, lr=1e-4, foreach=name == "adamw", fused=name == "adamw-fused")
    if name in ("sgd", "sgd-momentum"):
        return torch.optim.SGD(groups, lr=1e-4, momentum=0.9 if name == "sgd-momentum" else 0.0, foreach=True)
    if name == "adafactor":
        from transformers.optimization import Adafactor

        return Adafactor(groups, lr=1e-4, scale_parameter=False, relative_step=False)
    from bitsandbytes import optim

    kinds = {"adamw-8bit": optim.AdamW8bit, "paged-adamw": optim.PagedAdamW32bit, "paged-adamw-8bit": optim.PagedAdamW8bit}
    kinds |= {"lion": optim.Lion32bit, "lion-8bit": optim.Lion8bit}
    return kinds[name](groups, lr=1e-4)


def _on_fake_tensors(optimizer: Any) -> Any:
    """bitsandbytes' optimizers ask the device where they should ask the tensor: their paged states are marked, none is moved."""
    if not hasattr(optimizer, "get_state_buffer"):
        return optimizer
    plain = optimizer.get_state_buffer

    def get_state_buffer(parameter: Any, dtype: Any = torch.float32) -> Any:
        buffer = plain(parameter, dtype=dtype)
        buffer.is_paged = optimizer_is_paged and parameter.numel() >= 1e5
        return buffer

    optimizer_is_paged, optimizer.is_paged = optimizer.is_paged, False
    optimizer.get_state_buffer = get_state_buffer
    return optimizer
