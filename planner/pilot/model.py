"""The job's real model on a device, with random weights: the same bytes as with trained ones.

Layer by layer, so that a quantised model never exists in 16 bit as a whole. Class, quantised layers, k-bit preparation and adapter
are put together by the same functions as the dry run's model, on a real device instead of `meta`.
"""

from typing import Any

import torch
from torch import nn

from planner.dryrun.model import DTYPES, base_model, made_trainable, put_quantized_layers, transformers_config
from planner.errors import PlannerError
from planner.job import Job

__all__ = ["base_on", "trainable_on", "trained_base"]

_STD = 0.02  # initializer_range of most configurations


def base_on(job: Job, device: str, kept: list[int] | None = None) -> Any:
    """The base model on `device`, of the blocks numbered `kept` only. Raises InvalidJob where the installed libraries refuse it."""
    from accelerate import init_empty_weights

    empty = init_empty_weights(include_buffers=False)  # buffers (rotary frequencies) are made for real
    model = base_model(job, transformers_config(job.architecture, kinds=kept), _attention(job), empty)
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


def trained_base(job: Job, device: str, weights: str) -> Any:
    """The base model with the trained weights of a local folder or of the Hub, as a trainer loads it; safetensors only.

    Raises PlannerError where they cannot be had, or are those of another architecture.
    """
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(weights, trust_remote_code=False)
        found = config.get_text_config().to_dict()
        asked = transformers_config(job.architecture).to_dict()
        for name in ("model_type", "hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size"):
            if found.get(name) != asked.get(name):
                raise PlannerError(
                    "the weights in {weights!r} have {name} {found}, the job's model has {asked}; name the same model in both",
                    weights=weights, name=name, found=found.get(name), asked=asked.get(name),
                )  # fmt: skip
        base = (
            torch.float32 if job.precision == "fp32" or (job.adapter is None and job.numbers.autocast) else DTYPES[job.precision]
        )
        model = transformers.AutoModelForCausalLM.from_pretrained(
            weights, dtype=base, quantization_config=_quantization(job), device_map={"": device},
            attn_implementation=_attention(job), trust_remote_code=False, use_safetensors=True,
        )  # fmt: skip
    except (OSError, ValueError, ImportError) as error:
        problem = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise PlannerError(
            "the weights {weights!r} cannot be loaded ({problem}); give a folder with safetensors, or leave weights out",
            weights=weights, problem=problem,
        ) from error  # fmt: skip
    model.config.use_cache = False
    return model


def _attention(job: Job) -> str:
    return {"flash": "flash_attention_2"}.get(job.attention_used, job.attention_used)


def _quantization(job: Job) -> Any:
    from transformers import BitsAndBytesConfig

    if job.quantization == "none":
        return None
    if job.quantization == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=job.quantization, bnb_4bit_use_double_quant=job.double_quant,
        bnb_4bit_compute_dtype=DTYPES[job.precision],
    )  # fmt: skip


def trainable_on(model: Any, job: Job, device: str, kept: list[int] | None = None) -> Any:
    """The base prepared for training, with its adapter. Raises InvalidJob where PEFT refuses it."""
    total = job.architecture.num_hidden_layers
    blocks = range(total) if kept is None else kept
    return made_trainable(
        model, job, [job.method != "freeze" or block >= total - job.trainable_layers for block in blocks], device
    )


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
