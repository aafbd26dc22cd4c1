"""Bytes per element, and what quantised weights and their scales take."""

from typing import Literal, NamedTuple

__all__ = ["BYTES", "PRECISIONS", "Precision", "Quantization", "quantization_state_bytes", "quantized_weight_bytes"]

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "uint8": 1, "int8": 1}

Quantization = Literal["none", "nf4", "fp4", "int8", "gptq"]

NF4_BLOCK = 64  # weights that share one scale
GPTQ_GROUP = 128  # weights of one column that share a 16-bit scale and a 4-bit zero
NF4_SCALE_BLOCK = 256  # scales that share one second scale, with double quantisation


class Precision(NamedTuple):
    """Where a run keeps 16 and 32 bits."""

    compute_bytes: int  # activations inside matrix multiplications
    trained_bytes: int  # parameters that full fine-tuning updates
    frozen_bytes: int  # base weights under an adapter
    autocast: bool


# Names as in the job; mixed = fp32 trained parameters under torch.autocast, frozen weights loaded in 16 bit.
# Source: transformers TrainingArguments(bf16=True / fp16=True); torch.amp documentation, "CUDA ops that autocast".
PRECISIONS: dict[str, Precision] = {
    "bf16-mixed": Precision(2, 4, 2, autocast=True),
    "fp16-mixed": Precision(2, 4, 2, autocast=True),
    "bf16": Precision(2, 2, 2, autocast=False),
    "fp16": Precision(2, 2, 2, autocast=False),
    "fp32": Precision(4, 4, 4, autocast=False),
}


def quantized_weight_bytes(params: int, quantization: Quantization) -> float:
    """Packed weights: two per byte in 4 bit, one in int8.

    Source: Dettmers et al. 2023, arXiv:2305.14314, sec. 3 (nf4, fp4); Dettmers et al. 2022, arXiv:2208.07339 (int8).
    """
    return params * (1 if quantization == "int8" else 0.5)


def quantization_state_bytes(params: int, rows: int, quantization: Quantization, *, double_quant: bool) -> float:
    """Scales of quantised weights.

    4 bit: one fp32 per 64 weights; with double quantisation one byte per 64 and one fp32 per 256 of those.
    int8: one fp32 per output row (`rows`). gptq: a 16-bit scale and a 4-bit zero per group of 128.
    Source: arXiv:2305.14314, sec. 3; bitsandbytes/functional.py, quantize_4bit and int8_vectorwise_quant.
    """
    if quantization == "int8":
        return 4 * rows
    if quantization == "gptq":
        return params / GPTQ_GROUP * 2.5
    scales = params / NF4_BLOCK
    return scales * (1 + 4 / NF4_SCALE_BLOCK) if double_quant else scales * 4
