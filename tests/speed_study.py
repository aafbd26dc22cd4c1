"""The step's time against published speeds: `python tests/speed_study.py` prints errors with each family of sources left out."""

import csv
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from planner.architecture import Architecture
from planner.catalogues import find_gpu, find_model
from planner.compute import SpeedAssumptions, step_time
from planner.families import architecture_from_config
from planner.hardware import Gpu
from planner.job import Job
from planner.sharding import Sharding

TABLE = Path(__file__).parent / "reference" / "published_speed.csv"
GPUS = {"A100-80GB": "a100-sxm4-80", "A100-40GB": "a100-sxm4-40", "T4-16GB": "t4", "a100_80gb": "a100-sxm4-80", "a100_40gb": "a100-sxm4-40", "h100_80gb": "h100-sxm5-80"}  # fmt: skip
PRECISIONS = {"bf16_true": "bf16", "bf16_mixed": "bf16-mixed", "fp16_mixed": "fp16-mixed", "fp16_true": "fp16"}
# hidden, layers, heads, intermediate, vocabulary; positions beside
QWEN = {"1_8B": (2048, 24, 16, 5504, 151_936), "7B": (4096, 32, 32, 11_008, 151_936), "14B": (5120, 40, 40, 13_696, 152_064), "72B": (8192, 80, 64, 24_576, 152_064)}  # fmt: skip
MPT = {"125m": (768, 12, 12), "350m": (1024, 24, 16), "760m": (1536, 24, 12), "1b": (2048, 24, 16), "3b": (2560, 32, 20), "7b": (4096, 32, 32), "13b": (5120, 40, 40), "30b": (7168, 48, 56)}  # fmt: skip
SAME = {
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mistralai/Mixtral-8x7B-v0.1", "NousResearch/Llama-2-70b-hf": "meta-llama/Llama-2-70b-hf",
    "meta-llama/Meta-Llama-3-8B": "meta-llama/Llama-3.1-8B", "TinyLlama/TinyLlama-1.1B": "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T",
    "deepseek-ai/deepseek-coder-1.3b-instruct": "deepseek-ai/deepseek-coder-1.3b-base",
}  # fmt: skip


class Published(NamedTuple):
    """A published run as a job, and its tokens/s over all GPUs."""

    id: str
    family: str
    job: Job
    gpu: Gpu
    sharding: Sharding | None
    tokens_per_s: float


@cache
def architecture(name: str, positions: int) -> Architecture:
    """The model of a row; shapes that data/models.csv lacks are in this file."""
    size = name.removesuffix("-Chat").rpartition("-")[2]
    if name.startswith("MPT-"):
        D, L, H = MPT[size]
        return Architecture(
            name=name, model_type="gpt", hidden_size=D, num_hidden_layers=L, num_attention_heads=H, num_key_value_heads=H, head_dim=D // H,
            intermediate_size=4 * D, vocab_size=50_368, max_position_embeddings=positions, tie_word_embeddings=True, hidden_act="gelu",
            qkv_names=("Wqkv",), out_name="out_proj", mlp_names=("up_proj", "down_proj"), gated_mlp=False, norm="layernorm", rotary=False,
            learned_positions=positions,
        )  # fmt: skip
    if name.startswith("Qwen/Qwen-"):
        D, L, H, F, V = QWEN[size]
        config = {"model_type": "qwen2", "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": H, "intermediate_size": F, "vocab_size": V}
        return architecture_from_config(config | {"max_position_embeddings": 32_768, "tie_word_embeddings": False}, name=name)
    if "PowerLM" in name:
        config = {"model_type": "llama", "hidden_size": 2304, "num_hidden_layers": 40, "num_attention_heads": 36, "intermediate_size": 9216, "vocab_size": 49_152}
        return architecture_from_config(config | {"max_position_embeddings": 4096, "tie_word_embeddings": True}, name=name)
    if "santacoder" in name:
        return Architecture(
            name=name, model_type="gpt_bigcode", hidden_size=2048, num_hidden_layers=24, num_attention_heads=16, num_key_value_heads=1, head_dim=128,
            intermediate_size=8192, vocab_size=49_280, max_position_embeddings=2048, tie_word_embeddings=True, hidden_act="gelu", qkv_names=("c_attn",),
            out_name="c_proj", mlp_names=("c_fc", "c_proj"), gated_mlp=False, norm="layernorm", norm_bias=True, rotary=False, learned_positions=2048,
        )  # fmt: skip
    return find_model(SAME.get(name, name))


def published(row: dict[str, str]) -> Published:
    """The job of a row. Fused kernels of any kind stand as Liger's; the fitcheck loop uses no autocast."""
    fitcheck = row["family"] == "fitcheck"
    model = architecture(row["model"], int(row["sequence_length"]))
    fields: dict[str, Any] = {"method": "full"}
    if row["method"] == "lora":
        names: tuple[str, ...] = ("all-linear",)
        if "all-linear" not in row["lora_targets"]:
            names = ("c_attn",) if "c_attn" in model.qkv_names else ("q_proj", "k_proj", "v_proj", "o_proj")
        fields = {"method": "lora", "quantization": row["base_quantization"] or "none", "target_modules": names, "lora_rank": int(row["lora_rank"])}
        if row["family"] == "Qwen" and "Chat" not in row["model"]:
            fields["modules_to_save"] = ("embed_tokens", "lm_head")
    attention = {"flash2": "flash", "unknown": "sdpa"}.get(row["attention"], row["attention"])
    job = Job(
        architecture=model,
        **fields,
        precision="fp16" if fitcheck else "bf16-mixed" if row["family"] == "Qwen" else PRECISIONS[row["precision"]],
        sequence_length=int(row["sequence_length"]),
        micro_batch_size=int(row["micro_batch_size"]),
        gradient_accumulation_steps=int(row["gradient_accumulation_steps"]),
        gradient_checkpointing="on" if row["gradient_checkpointing"] == "yes" else "off",
        attention=attention if attention in model.attention_kernels else "eager",
        loss="liger" if row["fused_kernels"] == "yes" else "plain",
        kbit_preparation=row["kbit_preparation"] != "no",
        double_quant=not fitcheck,
        autocast_adapter_dtype=row["date"] >= "2024-08",  # PEFT 0.12
        experts_as_linears=bool(model.num_experts),
    )
    sharding = None
    if int(row["num_gpus"]) > 1:
        base = row["sharding"] == "fsdp" and row["base_quantization"] == "nf4"
        sharding = Sharding(row["sharding"], int(row["num_gpus"]), divided_base=base)  # type: ignore[arg-type]
    return Published(row["id"], row["family"], job, find_gpu(GPUS[row["gpu"]]), sharding, float(row["tokens_per_second"]))


def runs() -> list[Published]:
    with TABLE.open(encoding="utf-8") as file:
        return [published(row) for row in csv.DictReader(file)]


FABRIC = 25e9  # of llm-foundry's clusters: 1600 Gbit/s for a node of eight


def log_error(run: Published, assumptions: SpeedAssumptions | None = None) -> float:
    """Logarithm of predicted over published seconds."""
    found = step_time(run.job, run.gpu, run.sharding, fabric_bytes_per_s=FABRIC, assumptions=assumptions)
    return math.log(run.tokens_per_s / found.tokens_per_s)
