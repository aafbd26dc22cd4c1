"""Models and cards by the names that publications use: variants of catalogue rows, and shapes that the catalogue lacks."""

import re
from functools import cache
from typing import Any

from planner.architecture import Architecture
from planner.catalogues import find_gpu, find_model, known_models
from planner.errors import AmbiguousName, UnknownName
from planner.families import architecture_from_config
from planner.hardware import Gpu

__all__ = ["published_gpu", "published_model"]

# Words of a model's name that change no shape: who tuned or packed it, and in which format.
_WORDS = (
    "hf", "chat", "instruct", "it", "base", "pt", "ms", "gptq", "awq", "int4", "int8", "bnb", "4bit", "8bit", "unsloth", "meta", "sft", "dpo",
    "fp16", "bf16", "gpt",
)  # fmt: skip
# Other names of the same shapes. Source: the config.json of each.
_SAME = {
    "tinyllama-1.1b": "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T", "openbuddy-zephyr-7b-v14.1": "mistralai/Mistral-7B-v0.1",
    "zephyr-7b-beta": "mistralai/Mistral-7B-v0.1", "zephyr-7b-alpha": "mistralai/Mistral-7B-v0.1", "alpaca-7b": "huggyllama/llama-7b",
    "open_llama_7b": "huggyllama/llama-7b", "open_llama_13b": "huggyllama/llama-13b", "guanaco-7b": "huggyllama/llama-7b",
    "guanaco-13b": "huggyllama/llama-13b", "deepseek-coder-1.3b-instruct": "deepseek-ai/deepseek-coder-1.3b-base",
    "mistral-7b": "mistralai/Mistral-7B-v0.1", "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1", "llama-3-8b": "meta-llama/Meta-Llama-3-8B",
    "llama-3-70b": "meta-llama/Meta-Llama-3-70B", "llama3-8b": "meta-llama/Meta-Llama-3-8B", "llama2-7b": "meta-llama/Llama-2-7b-hf",
    "llama2-13b": "meta-llama/Llama-2-13b-hf", "llama2-70b": "meta-llama/Llama-2-70b-hf", "llama3-70b": "meta-llama/Meta-Llama-3-70B",
    "llama3.1-8b": "meta-llama/Llama-3.1-8B", "falcon-rw-7b": "tiiuae/falcon-7b", "vicuna-7b": "huggyllama/llama-7b",
    "vicuna-13b": "huggyllama/llama-13b", "bloomz-7b1": "bigscience/bloom-7b1", "bloomz-560m": "bigscience/bloom-560m",
    "bloomz-3b": "bigscience/bloom-3b", "phi-3-mini": "microsoft/Phi-3-mini-4k-instruct", "phi-3.5-mini": "microsoft/Phi-3.5-mini-instruct",
    "gpt2": "openai-community/gpt2",
}  # fmt: skip
# Shapes of models whose configuration no catalogue row holds: model_type, hidden size, layers, heads, key heads, intermediate
# size, vocabulary, longest sequence, tied. Source: config.json of each; litgpt/config.py (stablelm-base-alpha); llama paper, table 2.
_SHAPES: dict[str, tuple[str, int, int, int, int, int, int, int, bool]] = {
    "qwen-1_8b": ("qwen2", 2048, 24, 16, 16, 5504, 151_936, 8192, False),
    "qwen-7b": ("qwen2", 4096, 32, 32, 32, 11_008, 151_936, 32_768, False),
    "qwen-14b": ("qwen2", 5120, 40, 40, 40, 13_696, 152_064, 8192, False),
    "qwen-72b": ("qwen2", 8192, 80, 64, 64, 24_576, 152_064, 32_768, False),
    "powerlm-3b": ("llama", 2304, 40, 36, 36, 9216, 49_152, 4096, True),
    "chatglm3-6b": ("llama", 4096, 28, 32, 2, 13_696, 65_024, 8192, False),
    "chatglm2-6b": ("llama", 4096, 28, 32, 2, 13_696, 65_024, 32_768, False),
    "chatglm3-6b-32k": ("llama", 4096, 28, 32, 2, 13_696, 65_024, 32_768, False),
    "baichuan2-7b": ("llama", 4096, 32, 32, 32, 11_008, 125_696, 4096, False),
    "baichuan2-13b": ("llama", 5120, 40, 40, 40, 13_696, 125_696, 8192, False),
    "internlm-7b": ("llama", 4096, 32, 32, 32, 11_008, 103_168, 8192, False),
    "internlm2-7b": ("llama", 4096, 32, 32, 8, 14_336, 92_544, 32_768, False),
    "internlm2-20b": ("llama", 6144, 48, 48, 8, 16_384, 92_544, 32_768, False),
    "llama-30b": ("llama", 6656, 60, 52, 52, 17_920, 32_000, 2048, False),
    "llama-33b": ("llama", 6656, 60, 52, 52, 17_920, 32_000, 2048, False),
    "guanaco-33b": ("llama", 6656, 60, 52, 52, 17_920, 32_000, 2048, False),
    "llama-65b": ("llama", 8192, 80, 64, 64, 22_016, 32_000, 2048, False),
    "guanaco-65b": ("llama", 8192, 80, 64, 64, 22_016, 32_000, 2048, False),
    "open_llama_3b": ("llama", 3200, 26, 32, 32, 8640, 32_000, 2048, False),
    "deepseek-coder-6.7b": ("llama", 4096, 32, 32, 32, 11_008, 32_256, 16_384, False),
    "deepseek-coder-33b": ("llama", 7168, 62, 56, 8, 19_200, 32_256, 16_384, False),
    "stablelm-alpha-3b": ("gpt_neox", 4096, 16, 32, 32, 16_384, 50_688, 4096, False),
    "stablelm-alpha-7b": ("gpt_neox", 6144, 16, 48, 48, 24_576, 50_432, 4096, False),
}  # fmt: skip
# The first Qwen, ChatGLM and Baichuan fuse queries, keys and values (and gate with up in ChatGLM), under these names.
_FUSED: dict[str, dict[str, Any]] = {
    "qwen-": {"qkv_names": ("c_attn",), "out_name": "c_proj", "mlp_names": ("w1", "w2", "mlp_c_proj")},
    "chatglm": {"qkv_names": ("query_key_value",), "out_name": "dense", "mlp_names": ("dense_h_to_4h", "dense_4h_to_h"), "qkv_bias": True},
    "baichuan": {"qkv_names": ("W_pack",)},
}  # fmt: skip
_BIGCODE = {
    "santacoder": (2048, 24, 16, 49_280, 2048),
    "starcoder": (6144, 40, 48, 49_152, 8192),
    "starcoderbase-1b": (2048, 24, 16, 49_152, 8192),
}


def _key(name: str) -> str:
    """The part after the organisation, in lower case, without words that change no shape."""
    parts = re.split(r"[-\s]+", name.strip().lower().rsplit("/", 1)[-1])
    return "-".join(part for part in parts if part and part not in _WORDS)


@cache
def _catalogue_by_key() -> dict[str, str]:
    index: dict[str, str] = {}
    for name in known_models():
        index.setdefault(_key(name), name)
    return index


@cache
def published_model(name: str) -> Architecture:
    """The architecture of a model as a publication names it. Raises UnknownName."""
    try:
        return find_model(name)
    except UnknownName:
        key = _key(name)
        dated = re.sub(r"-v\d+(\.\d+)*$|-\d{4}$|-step.*$|-intermediate.*$", "", key)  # releases of one architecture
        for tried in (key, dated):
            if tried in _SAME:
                return find_model(_SAME[tried]).model_copy(update={"name": name})
            if tried in _SHAPES:
                return _of_shapes(tried, name)
            for known, shape in _BIGCODE.items():
                if tried.endswith(known):
                    return _gpt_bigcode(name, shape)
            if tried in _catalogue_by_key():
                return find_model(_catalogue_by_key()[tried]).model_copy(update={"name": name})
        raise


def _of_shapes(key: str, name: str) -> Architecture:
    model_type, D, L, H, K, F, V, longest, tied = _SHAPES[key]
    config = {
        "model_type": model_type, "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": H, "num_key_value_heads": K,
        "intermediate_size": F, "vocab_size": V, "max_position_embeddings": longest, "tie_word_embeddings": tied,
    }  # fmt: skip
    found = architecture_from_config(config, name=name, source="config.json, as published")
    fused = next((values for prefix, values in _FUSED.items() if key.startswith(prefix)), {})
    alibi = {"rotary": False} if key == "baichuan2-13b" else {}
    return Architecture(**{name: getattr(found, name) for name in Architecture.model_fields} | fused | alibi)


def _gpt_bigcode(name: str, shape: tuple[int, int, int, int, int]) -> Architecture:
    """Multi-query attention with a fused projection. Source: transformers modeling_gpt_bigcode.py."""
    D, L, H, V, longest = shape
    return Architecture(
        name=name, model_type="gpt_bigcode", hidden_size=D, num_hidden_layers=L, num_attention_heads=H, num_key_value_heads=1,
        head_dim=D // H, intermediate_size=4 * D, vocab_size=V, max_position_embeddings=longest, tie_word_embeddings=True,
        hidden_act="gelu", qkv_names=("c_attn",), out_name="c_proj", mlp_names=("c_fc", "mlp_c_proj"), gated_mlp=False, qkv_bias=True,
        out_bias=True, mlp_bias=True, norm="layernorm", norm_bias=True, rotary=False, learned_positions=longest, source="config.json, as published",
    )  # fmt: skip


def published_gpu(name: str) -> Gpu | None:
    """The card of a publication's cell; None where it names none, or only a size. Of several sizes of one card, the largest."""
    for part in re.split(r",|;| or ", name):
        bare = re.sub(r"[-\s]?\d+\s?(gb|gib|g)\b", "", part.strip(), flags=re.IGNORECASE)
        if bare.strip().lower() in ("", "gpu", "unknown", "nvidia"):
            continue
        for tried in (part.strip(), bare.strip(" -"), bare.strip(" -").removesuffix("S")):
            try:
                return find_gpu(tried) if tried else None
            except AmbiguousName as error:
                return max((find_gpu(found) for found in error.suggestions), key=lambda gpu: gpu.memory_bytes)
            except UnknownName:
                continue
    return None
