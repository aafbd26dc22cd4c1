"""The job's real model on a device, with random weights: the same bytes as with trained ones.

Layer by layer, so that a quantised model never exists in 16 bit as a whole. Class, quantised layers, k-bit preparation and adapter
are put together by the same functions as the dry run's model, on a real device instead of `meta`.
"""

from typing import Any

import torch
from torch import nn

from planner.dryrun.model import DTYPES, base_model, made_trainable, put_quantized_layers, transformers_config
from planner.job import Job

__all__ = ["base_on", "trainable_on"]

_STD = 0.02  # initializer_range of most configurations


def base_on(job: Job, device: str) -> Any:
    """The base model on `device`. Raises InvalidJob where the installed libraries refuse it."""
    from accelerate import init_empty_weights

    attention = {"flash": "flash_attention_2"}.get(job.attention_used, job.attention_used)
    empty = init_empty_weights(include_buffers=False)  # buffers (rotary frequencies) are made for real
    model = base_model(job, transformers_config(job.architecture), attention, empty)
    if job.quantization != "none":
        put_quantized_layers(model, job, lambda layer: _fill_quantized(layer, job, device))
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None and parameter.is_meta:
                setattr(module, name, nn.Parameter(_random(parameter, name, device), requires_grad=parameter.requires_grad))
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = buffer.to(device)
    model.tie_weights()
    return model


def trainable_on(model: Any, job: Job, device: str) -> Any:
    """The base prepared for training, with its adapter. Raises InvalidJob where PEFT refuses it."""
    total = job.architecture.num_hidden_layers
    trained = [job.method != "freeze" or block >= total - job.trainable_layers for block in range(total)]
    return made_trainable(model, job, trained, device)


def _random(parameter: Any, name: str, device: str) -> Any:
    value = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
    if parameter.ndim > 1:
        return value.normal_(std=_STD)
    return value.fill_(1.0 if name == "weight" else 0.0)


def _fill_quantized(layer: Any, job: Job, device: str) -> None:
    """Random weights of one layer, in 16 bit for as long as it takes to quantise them."""
    import bitsandbytes as bnb

    shape = (layer.out_features, layer.in_features)
    values = torch.empty(shape, dtype=DTYPES[job.precision], device="cpu" if device == "cpu" else device).normal_(std=_STD)
    if job.quantization == "int8":
        layer.weight = bnb.nn.Int8Params(values, requires_grad=False, has_fp16_weights=False).to(device)
    else:
        kwargs = {"quant_type": job.quantization, "compress_statistics": job.double_quant, "blocksize": 64}
        layer.weight = bnb.nn.Params4bit(values, requires_grad=False, module=layer, **kwargs).to(device)
