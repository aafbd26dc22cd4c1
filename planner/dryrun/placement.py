"""A fake tensor in place of each parameter and buffer of a model that was made on `meta`; 4-bit and 8-bit ones with their scales."""

import re
from collections.abc import Generator, Iterator
from typing import Any

import torch
from torch import nn

from planner.dryrun.model import DTYPES
from planner.job import Job

__all__ = ["place"]

_ADAPTER = re.compile(r"lora_|ia3_|prompt_encoder|bottleneck|modules_to_save\.")


def place(model: Any, job: Job) -> Iterator[tuple[str, torch.Tensor, str]]:
    """Give every parameter and buffer a fake tensor, one by one: yields (name, tensor, component) for each that is new.

    To be run under FakeTensorMode. 4-bit parameters cannot be made there, so theirs is a plain one with a QuantState of fake tensors.
    """
    known: dict[int, Any] = {}
    kept: list[Any] = []  # the old ones live until all are placed, else a number in `known` could come twice
    for prefix, module in model.named_modules():
        for name, old in list(module._parameters.items()):
            if old is None:
                continue
            kept.append(old)
            if id(old) in known:
                module._parameters[name] = known[id(old)]
                continue
            full, kind = f"{prefix}.{name}", type(old).__name__
            if kind == "Params4bit":
                new = yield from _four_bit(module, job, full)
            elif kind == "Int8Params":
                new = yield from _eight_bit(module, full)
            else:
                new = nn.Parameter(torch.empty(old.shape, dtype=old.dtype, device="cpu"), requires_grad=old.requires_grad)
                yield full, new, "adapters" if job.adapter is not None and _ADAPTER.search(full) else "weights"
            known[id(old)] = module._parameters[name] = new
        for holder in (module._buffers, vars(module)):  # some classes keep plain tensors (original_inv_freq)
            for name, old in list(holder.items()):
                if not isinstance(old, torch.Tensor) or isinstance(old, nn.Parameter) or old.device.type != "meta":
                    continue
                kept.append(old)
                if id(old) not in known:
                    known[id(old)] = torch.empty(old.shape, dtype=old.dtype, device="cpu")
                    yield f"{prefix}.{name}", known[id(old)], "weights"
                holder[name] = known[id(old)]


def _four_bit(module: Any, job: Job, name: str) -> Generator[tuple[str, torch.Tensor, str], None, Any]:
    from bitsandbytes.functional import QuantState

    rows, columns = module.out_features, module.in_features
    scales = -(-rows * columns // 64)
    packed = torch.empty(((rows * columns + 1) // 2, 1), dtype=torch.uint8, device="cpu")
    yield name, packed, "weights"

    def state(size: Any, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, device="cpu")

    second = offset = None
    if job.double_quant:
        absmax, offset = state(scales, torch.uint8), state((), torch.float32)
        second = QuantState(
            absmax=state(-(-scales // 256), torch.float32), code=state(256, torch.float32), blocksize=256, dtype=torch.float32
        )
    else:
        absmax = state(scales, torch.float32)
    parameter: Any = nn.Parameter(packed, requires_grad=False)
    parameter.quant_state = QuantState(
        absmax=absmax, shape=torch.Size((rows, columns)), code=state(16, torch.float32), blocksize=64, quant_type=job.quantization,
        dtype=DTYPES[job.precision], offset=offset, state2=second,
    )  # fmt: skip
    parameter.bnb_quantized, parameter.blocksize = True, 64
    parameter.quant_type, parameter.compress_statistics = job.quantization, job.double_quant
    parts = [absmax, parameter.quant_state.code, offset, *((second.absmax, second.code) if second else ())]
    for part in parts:
        if part is not None:
            yield name, part, "quantization_state"
    return parameter


def _eight_bit(module: Any, name: str) -> Generator[tuple[str, torch.Tensor, str], None, Any]:
    rows, columns = module.out_features, module.in_features
    packed = torch.empty((rows, columns), dtype=torch.int8, device="cpu")
    scales = torch.empty((rows,), dtype=torch.float32, device="cpu")
    yield name, packed, "weights"
    yield name, scales, "quantization_state"
    parameter: Any = nn.Parameter(packed, requires_grad=False)
    parameter.CB, parameter.SCB, parameter.has_fp16_weights = packed, scales, False
    module.state.CB, module.state.SCB, module.state.has_fp16_weights = packed, scales, False
    module.init_8bit_state = lambda: None
    return parameter
