"""Libraries that must not notice that nothing is computed: questions to fake tensors get plain answers for a while."""

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from planner.dryrun.cuda import replaced
from planner.dryrun.model import DTYPES
from planner.job import Job

__all__ = ["libraries_unaware", "torch_as_it_was"]

_OPTIMIZER_MODULES = ("torch.optim.adam", "torch.optim.adamw", "torch.optim.optimizer", "torch.optim.sgd")


@contextmanager
def torch_as_it_was() -> Iterator[None]:
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
def libraries_unaware(job: Job) -> Iterator[None]:
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
