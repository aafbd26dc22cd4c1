"""How publications name what they ran: words for stacks, formats, targets, kernels and precisions, and what is meant where they say nothing.

What a stack does by default is in planner.stacks; nothing here knows a single row.
"""

import re
from collections.abc import Mapping

from planner.architecture import Architecture
from planner.errors import InvalidJob
from planner.validation.cells import Row

__all__ = [
    "OPTIMIZERS", "PRECISIONS", "adapters_in_fp32", "attention_of", "chosen", "lengths_of", "loss_of", "method_of", "precision_of", "quantization_of",
    "stack_of", "targets_of", "transformers_of",
]  # fmt: skip

# Which stack a framework's text names; the first that is found. The rest is Hugging Face's own Trainer or a loop on its models.
_STACK_WORDS = (("litgpt", ("litgpt", "lit-gpt")), ("torchtune", ("torchtune",)), ("unsloth", ("unsloth",)), ("trl", ("trl",)))


def stack_of(row: Row) -> str:
    """Name in planner.stacks."""
    if row.text("stack"):
        return row.text("stack")
    framework = row.text("framework").lower()
    for name, words in _STACK_WORDS:
        if any(word in framework for word in words):
            return name
    return "trainer"


# The first month of each kind of modelling code in planner.stacks.
_RELEASED = (("4.31", (0, 0), ""), ("4.41", (4, 41), "2024-06"), ("4.46", (4, 46), "2024-11"), ("5", (4, 50), "2025-04"))


def transformers_of(row: Row) -> str:
    """The kind of modelling code: by the version that the row names, else by its date, else today's."""
    if row.text("transformers"):
        return row.text("transformers")
    version, date = row.version("transformers"), row.text("date")
    if version:
        return [name for name, first, _ in _RELEASED if version >= first][-1]
    return [name for name, _, month in _RELEASED if date >= month][-1] if date else "5"


def _is_gptq(row: Row) -> bool:
    text = f"{row.text('base_quantization')} {row.text('model')} {row.text('notes')}".lower()
    return "gptq" in text or "-int4" in row.text("model").lower()


def quantization_of(row: Row) -> str:
    cell = row.text("base_quantization").lower()
    if cell in ("", "none"):
        if row.text("method") == "other" and _is_gptq(row):
            if "int8" in row.prose:
                raise InvalidJob("an 8-bit GPTQ base: no job says that")
            return "gptq"
        return "none"
    known = {"nf4": "nf4", "fp4": "fp4", "int8": "int8", "gptq4": "gptq", "gptq": "gptq"}
    if cell not in known:
        raise InvalidJob("{name} {given}: no job says that", name="base_quantization", given=cell)
    return known[cell]


def method_of(row: Row, quantization: str) -> str:
    cell = row.text("method").lower()
    if cell in ("full", "dora", "freeze"):
        return cell
    if cell in ("lora", "qlora") or (cell == "other" and quantization == "gptq"):
        return "lora"
    if not cell:
        raise InvalidJob("{name} is not stated", name="method")
    raise InvalidJob("{name} {given}: no job says that", name="method", given=cell)


_LETTERS = {"q": 0, "k": 1, "v": 2}


def targets_of(row: Row, a: Architecture) -> tuple[str, ...]:
    """PEFT's names of the linears that carry LoRA. A fused projection stands for each of its parts."""
    text = row.text("lora_targets").lower()
    if not text or "all-linear" in text or "all linear" in text or text == "all":
        if not text:
            return _projections(a, ("q", "v"))  # PEFT's default for most families
        return ("all-linear",)
    if "default" in text:
        return _projections(a, ("q", "k", "v") if "qkv" in text else ("q", "v"))
    known = {name.lower(): name for name in a.linear_names()}
    chosen: list[str] = []
    for word in re.split(r"[,\s;+()]+", text):
        name = word.removesuffix("_proj")
        if word in known:
            chosen.append(known[word])
        elif name in _LETTERS:
            chosen += _projections(a, (name,))
        elif name in ("qkv", "c_attn", "w_pack", "query_key_value"):
            chosen += _projections(a, ("q", "k", "v")) if len(a.qkv_names) == 1 else ()
        elif name in ("o", "out", "output", "dense"):
            chosen.append(a.out_name)
        elif name == "mlp":
            chosen += a.mlp_names
        elif name in ("gate", "up", "down", "w1", "w2", "w3", "fc1", "fc2"):
            place = {"gate": 0, "up": -2, "down": -1, "w1": 0, "w2": -1, "w3": -2, "fc1": 0, "fc2": -1}[name]
            chosen.append(a.mlp_names[place])
    if not chosen:
        raise InvalidJob("lora_targets {given!r} name no linear layer of {model}", given=text, model=a.name)
    return tuple(dict.fromkeys(chosen))


def _projections(a: Architecture, letters: tuple[str, ...]) -> tuple[str, ...]:
    if len(a.qkv_names) == 1:
        return a.qkv_names
    if a.kv_lora_rank:
        return tuple(linear.name for linear in a.blocks[-1].attention[:-1])
    return tuple(a.qkv_names[_LETTERS[letter]] for letter in letters)


OPTIMIZERS = {
    "adamw": "adamw", "adam": "adamw", "adamw_torch": "adamw", "adamw_hf": "adamw", "unknown": "adamw", "": "adamw", "adamw_fused": "adamw-fused",
    "adamw_torch_fused": "adamw-fused", "adamw_8bit": "adamw-8bit", "adamw_bnb_8bit": "adamw-8bit", "paged_adamw": "paged-adamw",
    "paged_adamw_32bit": "paged-adamw", "paged_adamw_8bit": "paged-adamw-8bit", "adafactor": "adafactor", "lion": "lion", "lion_32bit": "lion",
    "lion_8bit": "lion-8bit", "sgd": "sgd", "sgd_momentum": "sgd-momentum",
}  # fmt: skip
PRECISIONS = {
    "bf16_true": "bf16", "bf16_mixed": "bf16-mixed", "fp16_mixed": "fp16-mixed", "fp16_true": "fp16", "fp32": "fp32", "bf16": "bf16-mixed",
    "fp16": "fp16-mixed", "bf16-mixed": "bf16-mixed", "fp16-mixed": "fp16-mixed", "unknown": "bf16-mixed", "": "bf16-mixed",
}  # fmt: skip
_LOSSES = {
    "plain": "plain",
    "chunked": "chunked",
    "liger": "liger",
    "cut_ce": "cut-ce",
    "cut-ce": "cut-ce",
    "fused_ce": "fused-ce",
    "fused-ce": "fused-ce",
}


def chosen(table: Mapping[str, str], row: Row, column: str) -> str:
    cell = row.text(column).lower()
    if cell not in table:
        raise InvalidJob("{name} {given}: no job says that", name=column, given=cell)
    return table[cell]


def loss_of(row: Row) -> str:
    """An unknown kernel is a Triton cross-entropy where the prose says so, else PyTorch's."""
    cell = row.text("loss_kernel").lower()
    if cell in ("", "unknown"):
        return "fused-ce" if "cross-entropy" in row.prose and ("fused" in row.prose or "triton" in row.prose) else "plain"
    return chosen(_LOSSES, row, "loss_kernel")


def attention_of(row: Row, a: Architecture) -> str:
    """An unknown attention is transformers' default of its day: eager until 4.36 (2023-12), sdpa since."""
    cell = {"flash2": "flash", "flash": "flash", "flash3": "flash", "sdpa": "sdpa", "eager": "eager", "xformers": "sdpa"}.get(
        row.text("attention").lower(), ""
    )
    if not cell:
        cell = "eager" if row.text("date") and row.text("date") < "2023-12" and "fsdp" not in row.text("sharding") else "sdpa"
    return cell if cell in a.attention_kernels else "sdpa" if cell == "flash" and "sdpa" in a.attention_kernels else "eager"


def precision_of(row: Row, precision: str, method: str) -> str:
    """Under an adapter, 16-bit weights with the Trainer's --bf16 autocast are said as bf16_true by some sources. A full job of
    16-bit weights has all that it trains in 16 bit, whether autocast is on or not.
    """
    phrases = ("hf --bf16 autocast", "autocast on top of bf16")
    if precision == "bf16" and method != "full" and any(phrase in row.prose for phrase in phrases):
        return "bf16-mixed"
    return precision


def adapters_in_fp32(row: Row, stack: str) -> bool:
    """PEFT keeps adapters of a 16-bit base in fp32 from 0.12 (2024-08) on; before, in the base's own dtype."""
    if row.text("adapter_dtype"):
        return row.text("adapter_dtype") == "fp32"
    if stack in ("litgpt", "torchtune"):
        return False
    version = row.version("peft")
    return version >= (0, 12) if version else not row.text("date") or row.text("date") >= "2024-08"


def lengths_of(row: Row) -> str:
    if row.text("lengths"):
        return row.text("lengths")
    if any(phrase in row.prose for phrase in ("seq_len is the maximum", "variable length")):
        return "maximum"
    return "longest" if "longest" in row.prose else "exact"
