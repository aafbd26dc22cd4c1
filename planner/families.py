"""config.json of a Hugging Face model -> Architecture: one row per `model_type` that the closed form understands.

Source of the conventions: transformers, src/transformers/models/<model_type>/{configuration,modeling}_*.py (5.x).
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from planner.architecture import Architecture
from planner.errors import InvalidJob

__all__ = ["FAMILIES", "architecture_from_config", "parse_config"]

# Older names of the same fields.
_ALIASES = {
    "hidden_size": ("n_embd", "d_model", "n_embed"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "intermediate_size": ("n_inner", "ffn_dim", "ffn_hidden_size"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "seq_length", "n_ctx"),
    "hidden_act": ("activation_function", "hidden_activation", "activation"),
    "num_experts": ("num_local_experts", "n_routed_experts"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv"),
    "torch_dtype": ("dtype",),
}
_REQUIRED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_POSITIVE = (*_REQUIRED, "num_key_value_heads", "head_dim", "intermediate_size", "max_position_embeddings")
_OPTIONAL = (
    "head_dim", "num_key_value_heads", "intermediate_size", "max_position_embeddings", "sliding_window", "num_experts",
    "num_experts_per_tok", "moe_intermediate_size", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
    "v_head_dim", "first_k_dense_replace",
)  # fmt: skip
# Read by single families, under the name that they have there.
_OTHER_NUMBERS = (
    "n_shared_experts", "expansion_ratio", "num_kv_heads", "n_positions", "word_embed_proj_dim", "num_ln_in_parallel_attn",
)  # fmt: skip
# What a published config.json leaves to its class. Source: Gemma3TextConfig in transformers 5.24, google/gemma-3-4b-pt.
_CLASS_DEFAULTS: dict[str, dict[str, int]] = {
    "gemma3_text": {
        "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
    },
}  # fmt: skip

# Settings that change what is counted, with the value that leaves it as it is; others are refused.
_UNCOUNTED = {"qk_layernorm": False, "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_layer_freq": 1}
_FLAGS = ("tie_word_embeddings", "attention_bias", "mlp_bias", "bias", "use_bias", "use_qkv_bias", "no_bias", "enable_bias")

Config = Mapping[str, Any]
_LAYER_NORM = {"norm": "layernorm", "norm_bias": True}
_FUSED_GPT = {
    **_LAYER_NORM,
    "qkv_names": ("query_key_value",),
    "out_name": "dense",
    "mlp_names": ("dense_h_to_4h", "dense_4h_to_h"),
    "gated_mlp": False,
    "hidden_act": "gelu",
}


def _llama(c: Config) -> dict[str, Any]:
    bias = bool(c.get("attention_bias", False))
    return {"qkv_bias": bias, "out_bias": bias, "mlp_bias": bool(c.get("mlp_bias", False))}


def _mistral(c: Config) -> dict[str, Any]:
    return {"num_key_value_heads": c.get("num_key_value_heads") or 8}


def _granite(c: Config) -> dict[str, Any]:
    return {**_llama(c), "logit_scale": True}


def _qwen2(c: Config) -> dict[str, Any]:
    return {"qkv_bias": True, "sliding_window": c.get("sliding_window") if c.get("use_sliding_window") else None}


def _qwen3(c: Config) -> dict[str, Any]:
    window = c.get("sliding_window") if c.get("use_sliding_window") else None
    return {**_llama(c), "qk_norm": "head", "sliding_window": window}


def _qwen2_moe(c: Config) -> dict[str, Any]:
    shared = {"shared_expert_intermediate_size": c.get("shared_expert_intermediate_size", 0), "shared_expert_gate": True}
    return {**_qwen2(c), **shared, "num_experts": c.get("num_experts", 60)}


def _qwen3_moe(c: Config) -> dict[str, Any]:
    return {**_qwen3(c), "num_experts": c.get("num_experts", 128), "experts_adapted": True}


def _mixtral(c: Config) -> dict[str, Any]:
    mixture = {"num_experts": c.get("num_experts") or 8, "num_experts_per_tok": c.get("num_experts_per_tok") or 2}
    return {**_mistral(c), **mixture, "moe_intermediate_size": c.get("intermediate_size", 0), "experts_adapted": True}


def _gpt_oss(c: Config) -> dict[str, Any]:
    return {
        "qkv_bias": True, "out_bias": True, "attention_sinks": True, "router_bias": True, "expert_bias": True, "experts_clamped": True,
        "moe_intermediate_size": c.get("intermediate_size", 0), "mlp_names": ("gate_up_proj", "down_proj"),
    }  # fmt: skip


def _deepseek(c: Config) -> dict[str, Any]:
    rope, nope = c.get("qk_rope_head_dim") or 64, c.get("qk_nope_head_dim") or 128
    shared = (c.get("n_shared_experts") or 0) * (c.get("moe_intermediate_size") or 0)
    return {
        "kv_lora_rank": c.get("kv_lora_rank") or 512, "qk_rope_head_dim": rope, "qk_nope_head_dim": nope,
        "v_head_dim": c.get("v_head_dim") or 128, "head_dim": rope + nope, "num_key_value_heads": c["num_attention_heads"],
        "shared_expert_intermediate_size": shared, "experts_adapted": True,
        "qkv_bias": bool(c.get("attention_bias", False)), "out_bias": bool(c.get("attention_bias", False)),
    }  # fmt: skip


def _gemma(c: Config) -> dict[str, Any]:
    return {**_llama(c), "tie_word_embeddings": True, "hidden_act": "gelu_pytorch_tanh", "norm_product_fp32": True}


def _gemma2(c: Config) -> dict[str, Any]:
    return {
        **_gemma(c), "norms_per_block": 4,
        "final_logit_softcapping": c.get("final_logit_softcapping", 30.0) is not None,
        "attn_logit_softcapping": c.get("attn_logit_softcapping", 50.0) is not None,
    }  # fmt: skip


def _gemma3(c: Config) -> dict[str, Any]:
    return {**_gemma(c), "norms_per_block": 4, "qk_norm": "head"}


def _phi3(c: Config) -> dict[str, Any]:
    return {"qkv_names": ("qkv_proj",), "mlp_names": ("gate_up_proj", "down_proj")}


def _phi(c: Config) -> dict[str, Any]:
    return {
        **_LAYER_NORM, "out_name": "dense", "mlp_names": ("fc1", "fc2"), "gated_mlp": False, "qkv_bias": True,
        "out_bias": True, "mlp_bias": True, "lm_head_bias": True, "norms_per_block": 1, "parallel_block": True,
    }  # fmt: skip


def _olmo2(c: Config) -> dict[str, Any]:
    return {**_llama(c), "qk_norm": "full", "norm_product_fp32": True}


def _starcoder2(c: Config) -> dict[str, Any]:
    bias = bool(c.get("use_bias", True))
    return {
        **_LAYER_NORM, "mlp_names": ("c_fc", "c_proj"), "gated_mlp": False, "qkv_bias": bias, "out_bias": bias, "mlp_bias": bias,
        "residual_dropout": c.get("residual_dropout", 0.0), "tie_word_embeddings": c.get("tie_word_embeddings", True),
    }  # fmt: skip


def _stablelm(c: Config) -> dict[str, Any]:
    parallel = bool(c.get("use_parallel_residual", False))  # then attention and MLP share one norm
    return {
        **_LAYER_NORM, "qkv_bias": bool(c.get("use_qkv_bias", False)), "residual_dropout": c.get("hidden_dropout", 0.0),
        "parallel_block": parallel, "norms_per_block": 1 if parallel else 2,
    }  # fmt: skip


def _gpt2(c: Config) -> dict[str, Any]:
    return {
        **_LAYER_NORM, "qkv_names": ("c_attn",), "out_name": "c_proj", "mlp_names": ("c_fc", "c_proj"), "gated_mlp": False,
        "qkv_bias": True, "out_bias": True, "mlp_bias": True, "tie_word_embeddings": c.get("tie_word_embeddings", True),
        "rotary": False, "learned_positions": c.get("n_positions") or c.get("max_position_embeddings") or 1024,
        "residual_dropout": c.get("resid_pdrop", 0.1), "hidden_act": c.get("activation_function") or c.get("hidden_act") or "gelu_new",
    }  # fmt: skip


def _gpt_neox(c: Config) -> dict[str, Any]:
    return {
        **_FUSED_GPT, "qkv_bias": c.get("attention_bias", True), "out_bias": c.get("attention_bias", True), "mlp_bias": True,
        "parallel_block": c.get("use_parallel_residual", True), "residual_dropout": c.get("hidden_dropout", 0.0),
        "hidden_act": c.get("hidden_act", "gelu"),
    }  # fmt: skip


def _opt(c: Config) -> dict[str, Any]:
    bias, width = c.get("enable_bias", True), c.get("word_embed_proj_dim") or 0
    pre_norm = c.get("do_layer_norm_before", True)
    return {
        **_LAYER_NORM, "out_name": "out_proj", "mlp_names": ("fc1", "fc2"), "gated_mlp": False, "qkv_bias": bias, "out_bias": bias,
        "mlp_bias": bias, "tie_word_embeddings": c.get("tie_word_embeddings", True), "final_norm": pre_norm,
        "rotary": False, "learned_positions": (c.get("max_position_embeddings") or 2048) + 2, "residual_dropout": c.get("dropout", 0.1),
        "embedding_size": 0 if width == c["hidden_size"] else width,
        "hidden_act": c.get("activation_function") or c.get("hidden_act") or "relu",
    }  # fmt: skip


def _bloom(c: Config) -> dict[str, Any]:
    return {
        **_FUSED_GPT, "qkv_bias": True, "out_bias": True, "mlp_bias": True, "embedding_norm": True, "rotary": False,
        "tie_word_embeddings": c.get("tie_word_embeddings", True), "residual_dropout": c.get("hidden_dropout", 0.0),
    }  # fmt: skip


def _falcon(c: Config) -> dict[str, Any]:
    bias, new = bool(c.get("bias", False)), bool(c.get("new_decoder_architecture", False))
    heads, parallel = c["num_attention_heads"], bool(c.get("parallel_attn", True))
    grouped = (
        (c.get("num_kv_heads") or c.get("num_key_value_heads") or heads) if new else 1 if c.get("multi_query", True) else heads
    )
    norms = c.get("num_ln_in_parallel_attn") or 2
    return {
        **_FUSED_GPT, "qkv_bias": bias, "out_bias": bias, "mlp_bias": bias, "num_key_value_heads": grouped,
        "norms_per_block": norms if new else 1 if parallel else 2, "parallel_block": parallel or new,
        "tie_word_embeddings": c.get("tie_word_embeddings", True), "residual_dropout": c.get("hidden_dropout", 0.0),
    }  # fmt: skip


def _mpt(c: Config) -> dict[str, Any]:
    bias = not c.get("no_bias", True)
    expansion = c.get("expansion_ratio", 4)
    return {
        "norm": "layernorm", "rotary": False,
        "qkv_names": ("Wqkv",), "out_name": "out_proj", "mlp_names": ("up_proj", "down_proj"), "gated_mlp": False,
        "qkv_bias": bias, "out_bias": bias, "mlp_bias": bias, "tie_word_embeddings": True, "hidden_act": "gelu",
        "intermediate_size": c.get("intermediate_size") or expansion * c["hidden_size"],
    }  # fmt: skip


FAMILIES: dict[str, Callable[[Config], dict[str, Any]]] = {
    "llama": _llama, "mistral": _mistral, "qwen2": _qwen2, "qwen3": _qwen3, "smollm3": _llama, "granite": _granite,
    "olmo2": _olmo2, "phi3": _phi3, "phi": _phi, "stablelm": _stablelm, "starcoder2": _starcoder2,
    "gemma": _gemma, "gemma2": _gemma2, "gemma3_text": _gemma3,
    "gpt2": _gpt2, "gpt_neox": _gpt_neox, "opt": _opt, "bloom": _bloom, "falcon": _falcon, "mpt": _mpt,
    "mixtral": _mixtral, "qwen2_moe": _qwen2_moe, "qwen3_moe": _qwen3_moe, "gpt_oss": _gpt_oss,
    "deepseek_v2": _deepseek, "deepseek_v3": _deepseek,
}  # fmt: skip


def parse_config(text: str) -> dict[str, Any]:
    """The JSON object that `text` holds, as a user pastes it. Raises InvalidJob where it is something else."""
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidJob(
            "this is not JSON (line {line}: {problem}); paste the whole config.json of the model",
            line=error.lineno,
            problem=error.msg,
        ) from error
    except RecursionError as error:
        raise InvalidJob("config.json must be one JSON object; this is nested too deeply") from error
    except ValueError as error:  # a number of more than 4,300 digits
        raise InvalidJob("config.json holds a number that is too long to be one of a model") from error
    if not isinstance(config, dict):
        raise InvalidJob("config.json must be one JSON object, this is a {kind}", kind=type(config).__name__)
    return config


def _whole(config: Config, field: str) -> int:
    value = config[field]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e18 or int(value) != value:
        given = repr(value)[:60]
        raise InvalidJob("{name} is {given}; config.json must give a whole number there", field=field, name=field, given=given)
    return int(value)


def architecture_from_config(config: Config, *, name: str = "", source: str = "", revision: str = "") -> Architecture:
    """The architecture that a config.json describes.

    A multimodal config's `text_config` is used where there is one (the vision tower is left out, and `source` says so).
    Raises InvalidJob, naming the field, where one is missing, not a number, not positive or absurd, or where the
    `model_type` has no closed form.
    """
    nested = config.get("text_config")
    if isinstance(nested, Mapping) and str(nested.get("model_type")) in FAMILIES:
        part = {"torch_dtype": config.get("torch_dtype") or config.get("dtype"), **nested, "text_config": None}
        return architecture_from_config(part, name=name, source=f"{source} (text part only)".strip(), revision=revision)
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise InvalidJob(
            "model_type {given!r} has no closed form (known: {known}); the dry run may still serve, as it runs the model's own code",
            field="model_type", given=str(model_type)[:64], known=", ".join(sorted(FAMILIES)),
        )  # fmt: skip
    c = {**_CLASS_DEFAULTS.get(model_type, {}), **config}
    for field, aliases in _ALIASES.items():
        for alias in aliases:
            if c.get(field) is None and c.get(alias) is not None:
                c[field] = c[alias]
    for field in _REQUIRED:
        if c.get(field) is None:
            raise InvalidJob("{name} is missing, and nothing can be planned without it", field=field, name=field)
    for field in dict.fromkeys((*_POSITIVE, *_OPTIONAL, *_OTHER_NUMBERS)):
        if c.get(field) is not None:
            c[field] = _whole(c, field)
            if c[field] <= 0 and field in _POSITIVE:
                raise InvalidJob(
                    "{name} is {given}; it must be at least {limit}", field=field, name=field, given=c[field], limit=1
                )
    for field, plain in _UNCOUNTED.items():
        if c.get(field) not in (None, False, plain):
            template = "{name} is set, which the closed form does not count; the dry run may still serve, as it runs the model's own code"
            raise InvalidJob(template, field=field, name=field)
    for field in _FLAGS:
        if c.get(field) is not None and not isinstance(c[field], bool):
            raise InvalidJob("{name} is {given}; it must be true or false", field=field, name=field, given=repr(c[field])[:60])
    if model_type in ("gpt_oss", "deepseek_v2", "deepseek_v3") and c.get("num_experts") is None:
        raise InvalidJob("{name} is missing, and nothing can be planned without it", field="num_experts", name="num_experts")
    values: dict[str, Any] = {
        "name": name or str(c.get("_name_or_path") or model_type)[:200],
        "model_type": model_type,
        "tie_word_embeddings": bool(c.get("tie_word_embeddings", False)),
        "hidden_act": str(c.get("hidden_act") or "silu"),
        "torch_dtype": c["torch_dtype"] if c.get("torch_dtype") in ("bfloat16", "float16", "float32") else "bfloat16",
        "config_json": json.dumps(dict(config), default=str),
        "source": source or "config.json",
        "revision": revision,
    }
    values |= {field: c[field] for field in (*_REQUIRED, *_OPTIONAL) if c.get(field) is not None}
    try:
        values |= FAMILIES[model_type](c)
    except TypeError as error:
        raise InvalidJob(
            "a field of this {model_type} config.json is not a number ({problem})", model_type=model_type, problem=str(error)
        ) from error
    values.setdefault("num_key_value_heads", values["num_attention_heads"])
    values.setdefault("head_dim", max(1, values["hidden_size"] // values["num_attention_heads"]))
    if values.get("gated_mlp", True) and "intermediate_size" not in values:
        missing = "intermediate_size"
        raise InvalidJob("{name} is missing, and nothing can be planned without it", field=missing, name=missing)
    values.setdefault("intermediate_size", 4 * values["hidden_size"])
    values.setdefault("max_position_embeddings", 2048)
    if not values.get("num_experts"):
        values = {
            k: v for k, v in values.items() if k not in ("num_experts_per_tok", "moe_intermediate_size", "first_k_dense_replace")
        }
    return Architecture(**values)
