"""The training step of a job on fake tensors: forward, backward and optimizer step of the real libraries, no arithmetic done."""

import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch._subclasses import FakeTensorMode

from planner.dryrun.cuda import Behaviours, replaced
from planner.dryrun.depth import with_second_step
from planner.dryrun.distributed import booked, fake_mesh, fully_sharded
from planner.dryrun.ledger import Ledger
from planner.dryrun.log import EventLog
from planner.dryrun.losses import put_loss
from planner.dryrun.model import DTYPES, block_list, build_model, transformers_config
from planner.dryrun.placement import place
from planner.errors import InvalidJob
from planner.job import Job
from planner.sharding import Sharding

__all__ = ["trace_steps"]

_OPTIMIZER_MODULES = ("torch.optim.adam", "torch.optim.adamw", "torch.optim.optimizer", "torch.optim.sgd")


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
    with _torch_as_it_was(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        progress("building the model")
        config = transformers_config(job.architecture, kinds=kept_blocks)
        total = job.architecture.num_hidden_layers
        trained = [job.method != "freeze" or block >= total - job.trainable_layers for block in kept_blocks]
        with fake_mesh(sharding) as mesh, _libraries_unaware(job), behaviours.emulated():
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
        optimizer = _optimizer(job, trained)
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
    micro_batches = min(job.gradient_accumulation_steps, 2)  # the third is like the second: gradients are there
    for micro_batch in range(micro_batches):
        if defer is not None:  # accelerate/accelerator.py, no_sync
            defer(micro_batch == micro_batches - 1)
        kept.clear()
        ledger.log.mark(f"{step} forward")
        with ledger.during("forward"):
            with torch.autocast("cpu", dtype=dtype) if autocast else nullcontext():
                output = model(
                    **{name: ids for name, ids in batch.items() if name != "attention_mask" or job.attention_used != "flash"}
                )
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


def _optimizer(job: Job, trained: list[Any]) -> Any:
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
    return _on_fake_tensors(kinds[name](groups, lr=1e-4))


def _on_fake_tensors(optimizer: Any) -> Any:
    """bitsandbytes' optimizers ask the device where they should ask the tensor: their paged states are marked, none is moved."""
    plain = optimizer.get_state_buffer

    def get_state_buffer(parameter: Any, dtype: Any = torch.float32) -> Any:
        buffer = plain(parameter, dtype=dtype)
        buffer.is_paged = optimizer_is_paged and parameter.numel() >= 1e5
        return buffer

    optimizer_is_paged, optimizer.is_paged = optimizer.is_paged, False
    optimizer.get_state_buffer = get_state_buffer
    return optimizer


# ---- libraries that must not notice -------------------------------------------------------------------------------------


@contextmanager
def _torch_as_it_was() -> Iterator[None]:
    """The caller's default dtype, gradient and inference mode, autocast and random state, whatever happens inside."""
    dtype, grad, autocast = torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    random = torch.get_rng_state()
    regions = torch.autocast_increment_nesting()  # the caller's and this one; casts are cached until none is open
    for _ in range(regions):
        torch.autocast_decrement_nesting()
    torch.set_autocast_enabled("cpu", False)
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        for _ in range(regions - 1):
            torch.autocast_increment_nesting()
        torch.set_autocast_enabled("cpu", autocast)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch.set_rng_state(random)


@contextmanager
def _libraries_unaware(job: Job) -> Iterator[None]:
    """What asks a fake tensor for a value, or takes it for a sign of compilation, gets a plain answer for a while."""
    with ExitStack() as stack:

        def replace(module: Any, name: str, value: Any) -> None:
            if hasattr(module, name):
                stack.enter_context(replaced(module, name, value))

        for name in _OPTIMIZER_MODULES:  # bias corrections read the step count
            replace(importlib.import_module(name), "_get_value", lambda x: 1.0 if isinstance(x, torch.Tensor) else x)
        import transformers

        log = logging.getLogger("torch._subclasses.fake_tensor")  # it prints a traceback before it raises
        stack.enter_context(replaced(log, "disabled", True))
        verbosity = transformers.logging.get_verbosity()
        transformers.logging.set_verbosity_error()
        stack.callback(transformers.logging.set_verbosity, verbosity)
        for module in [module for name, module in list(sys.modules.items()) if name.startswith("transformers.")]:
            # A fake tensor counts as tracing there, and then masks are always made whole.
            for name in ("is_fake_tensor", "is_tracing"):
                if name in vars(module):
                    replace(module, name, lambda *_: False)
        from transformers import masking_utils

        replace(masking_utils, "fast_all", lambda *_args, **_kwargs: False)  # a padding mask does mask something
        replace(masking_utils, "find_packed_sequence_indices", lambda *_args, **_kwargs: None)
        replace(transformers.PreTrainedModel, "warn_if_padding_and_no_attention_mask", lambda *_args, **_kwargs: None)
        for name in (
            "nn.modules",
            "autograd._functions",
            "backends.cpu.ops",
        ):  # a line for each int8 layer, one for want of CPU kernels
            stack.enter_context(replaced(logging.getLogger(f"bitsandbytes.{name}"), "disabled", True))
        import bitsandbytes.functional

        replace(bitsandbytes.functional, "create_dynamic_map", lambda *_args, **_kwargs: torch.empty(256))  # made by value
        if job.attention_used == "flash":  # flash-attn itself needs a GPU
            from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

            ALL_ATTENTION_FUNCTIONS["sdpa"] = _flash_attention(job)
            stack.callback(ALL_ATTENTION_FUNCTIONS.__delitem__, "sdpa")
        if job.quantization != "none":
            _peft_on_quantized(replace, DTYPES[job.precision])
        yield


def _flash_attention(job: Job) -> Callable[..., Any]:
    """transformers' flash_attention_2 with sdpa's flash kernel: no mask, fp32 cast down, padded rows packed and padded again.

    Source: transformers/modeling_flash_attention_utils.py (fa_peft_integration_check, _upad_input, _pad_input).
    """

    def attention(
        module: Any, query: Any, key: Any, value: Any, mask: Any, dropout: float = 0.0, scaling: Any = None, **_: Any
    ) -> Any:
        q, k, v = (tensor.to(DTYPES[job.precision]) for tensor in (query, key, value))
        if not job.packing:
            q, k, v = q.clone(), k.clone(), v.clone()
        grouped = k.size(1) != q.size(1)
        output = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, is_causal=True, scale=scaling, enable_gqa=grouped
        ).transpose(1, 2)
        return output.contiguous() if job.packing else output.clone(memory_format=torch.contiguous_format), None

    return attention


def _peft_on_quantized(replace: Callable[[Any, str, Any], None], compute: torch.dtype) -> None:
    """DoRA asks for the weight itself; the fake parameter is no Params4bit, but has its QuantState."""
    import bitsandbytes.functional
    import peft.tuners.lora.dora
    import peft.utils.integrations

    plain = peft.utils.integrations.dequantize_module_weight

    def dequantize(weight: Any, state: Any = None) -> Any:
        if (quant_state := getattr(weight, "quant_state", None)) is not None:
            return bitsandbytes.functional.dequantize_4bit(weight.data, quant_state)
        if weight.device.type == "meta":  # when the adapter is made
            return torch.empty_like(weight.data, dtype=compute)
        return bitsandbytes.functional.int8_vectorwise_dequant(weight.data, weight.SCB)

    def dequantize_module(module: Any) -> Any:
        weight = module.weight
        quantized = hasattr(weight, "CB") or getattr(weight, "quant_state", None) is not None
        return dequantize(weight) if quantized or type(weight).__name__ in ("Params4bit", "Int8Params") else plain(module)

    for module in [module for name, module in list(sys.modules.items()) if name.startswith("peft.")]:
        for name, value in (("dequantize_bnb_weight", dequantize), ("dequantize_module_weight", dequantize_module)):
            if name in vars(module):
                replace(module, name, value)
