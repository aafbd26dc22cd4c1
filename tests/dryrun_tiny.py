"""Tiny models for the tests of the dry run, and what to ask of their logs."""

from functools import cache
from typing import Any

from planner.catalogues import find_gpu
from planner.dryrun import DryRun, dry_run
from planner.dryrun.log import Allocation
from planner.families import architecture_from_config
from planner.job import Job

LLAMA = {
    "model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 1000, "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip
GPT2 = {
    "model_type": "gpt2", "n_embd": 128, "n_head": 4, "n_inner": 256, "vocab_size": 1000, "n_positions": 1024, "bos_token_id": 0,
    "eos_token_id": 0,
}  # fmt: skip
QWEN_MOE = LLAMA | {
    "model_type": "qwen3_moe", "head_dim": 32, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
}  # fmt: skip
GEMMA = LLAMA | {
    "model_type": "gemma3_text", "head_dim": 32, "sliding_window": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "layer_types": ["sliding_attention"] * 4 + ["full_attention"],
}  # fmt: skip
CONFIGS = {config["model_type"]: config for config in (LLAMA, GPT2, QWEN_MOE, GEMMA)}
S = 128
LORA: dict[str, Any] = {"layers": 1, "method": "lora", "target_modules": ("q_proj",)}
QLORA: dict[str, Any] = {**LORA, "method": "qlora", "vocab_size": 40_000}


def tiny(layers: int = 2, model_type: str = "llama", vocab_size: int = 1000, **fields: Any) -> Job:
    sizes = {"num_hidden_layers": layers, "vocab_size": vocab_size}
    architecture = architecture_from_config(CONFIGS[model_type] | sizes, name="tiny")
    return Job(architecture=architecture, **{"method": "full", "sequence_length": S, **fields})


@cache
def run(*without: str, gpu: str | None = None, full: bool = False, **fields: Any) -> DryRun:
    return dry_run(tiny(**fields), find_gpu(gpu) if gpu else None, full=full, without=without)


def found(result: DryRun, **wanted: Any) -> list[Allocation]:
    """Allocations that have these values."""
    return [a for a in result.log.allocations if all(getattr(a, name) == value for name, value in wanted.items())]


def total(result: DryRun, **wanted: Any) -> int:
    return sum(a.bytes for a in found(result, **wanted))


def count(result: DryRun, operator: str, **wanted: Any) -> int:
    return sum(a.operator.startswith(operator) for a in found(result, **wanted))
