"""config.json -> Architecture: what is understood, and one sentence for everything else."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.architecture import Architecture
from planner.errors import InvalidJob, PlannerError
from planner.families import FAMILIES, architecture_from_config, parse_config

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 128, "max_position_embeddings": 32,
}  # fmt: skip
REQUIRED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
NUMBERS = (*REQUIRED, "num_key_value_heads", "intermediate_size", "max_position_embeddings")
NOT_SIZES = [-1, 0, 10**12, 10**30, 1.5, float("nan"), float("inf"), float("-inf"), True, "many", [64], {"a": [1, {"b": None}]}]


@pytest.mark.parametrize("field", REQUIRED)
@pytest.mark.parametrize("absent", ["left out", "null"])
def test_a_missing_field_is_named(field: str, absent: str) -> None:
    config: dict[str, Any] = {**LLAMA, field: None}
    if absent == "left out":
        del config[field]
    with pytest.raises(InvalidJob, match=rf"^{field} is missing") as caught:
        architecture_from_config(config)
    assert caught.value.field == field


@pytest.mark.parametrize("field", NUMBERS)
@pytest.mark.parametrize("value", NOT_SIZES, ids=repr)
def test_a_field_that_is_no_size_is_named_in_one_short_sentence(field: str, value: Any) -> None:
    with pytest.raises(InvalidJob) as caught:
        architecture_from_config({**LLAMA, field: value})
    assert caught.value.field == field
    assert field in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("model_type", "field"),
    [("deepseek_v3", "n_shared_experts"), ("mpt", "expansion_ratio"), ("falcon", "num_kv_heads"), ("opt", "word_embed_proj_dim")],
)
def test_a_field_of_one_family_is_named_too(model_type: str, field: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        architecture_from_config({**LLAMA, "model_type": model_type, field: "junk"})
    assert caught.value.field == field


def test_a_long_value_is_not_shown_whole() -> None:
    with pytest.raises(InvalidJob) as caught:
        architecture_from_config({**LLAMA, "hidden_size": [1] * 100_000})
    assert len(str(caught.value)) < 200


def test_an_unknown_model_type_is_told_what_is_known_and_that_the_dry_run_may_serve() -> None:
    with pytest.raises(InvalidJob, match="closed form") as caught:
        architecture_from_config({**LLAMA, "model_type": "mamba"})
    assert caught.value.field == "model_type"
    assert "'mamba'" in str(caught.value)
    assert "dry run" in str(caught.value)
    assert all(family in caught.value.text("en") for family in ("llama", "bloom"))


def test_heads_that_do_not_share_the_key_value_heads_evenly_are_refused() -> None:
    with pytest.raises(InvalidJob, match="does not divide") as caught:
        architecture_from_config({**LLAMA, "num_key_value_heads": 3})
    assert caught.value.field == "num_key_value_heads"


def test_older_names_of_the_fields_are_read() -> None:
    gpt2 = architecture_from_config(
        {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
    )
    assert (gpt2.hidden_size, gpt2.intermediate_size, gpt2.learned_positions) == (768, 4 * 768, 1024)
    assert gpt2.num_params == 124_439_808


def test_the_text_part_of_a_multimodal_config_is_used() -> None:
    outer = {"model_type": "gemma3", "dtype": "bfloat16", "text_config": {**LLAMA, "model_type": "gemma3_text", "head_dim": 16}}
    architecture = architecture_from_config(outer, source="config.json")
    assert architecture.model_type == "gemma3_text"
    assert architecture.source == "config.json (text part only)"


def test_what_gemma_3_leaves_to_its_class_is_filled_in() -> None:
    """google/gemma-3-4b-pt publishes no vocabulary and no heads: total 4,300,079,472 less tower and projector 419,816,304."""
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    architecture = architecture_from_config({"model_type": "gemma3", "text_config": text})
    assert architecture.num_params == 4_300_079_472 - 419_816_304


def test_texts_that_are_no_json_object_are_told_so() -> None:
    for text in ("", "{", "[1, 2]", "null", '"llama"', "{'single': 1}", "[" * 100_000, '{"a": ' + "1" * 5000 + "}"):
        with pytest.raises(InvalidJob) as caught:
            parse_config(text)
        assert "\n" not in str(caught.value)


def test_a_config_inside_a_config_inside_a_config_is_no_endless_descent() -> None:
    config: dict[str, Any] = LLAMA
    for _ in range(400):
        config = {"text_config": config, **LLAMA}
    assert architecture_from_config(config).hidden_size == 64


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["true", "64", "silu"])
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=6
)
KEYS = sorted({
    *LLAMA, "text_config", "head_dim", "sliding_window", "use_sliding_window", "num_experts", "num_local_experts",
    "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size",
    "n_shared_experts", "first_k_dense_replace", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
    "v_head_dim", "tie_word_embeddings", "torch_dtype", "dtype", "attention_bias", "mlp_bias", "use_bias", "bias",
    "no_bias", "expansion_ratio", "num_kv_heads", "multi_query", "parallel_attn", "new_decoder_architecture",
    "num_ln_in_parallel_attn", "word_embed_proj_dim", "do_layer_norm_before", "enable_bias", "dropout", "resid_pdrop",
    "hidden_dropout", "residual_dropout", "activation_function", "hidden_act", "n_embd", "n_positions", "n_inner",
    "use_parallel_residual", "use_qkv_bias", "final_logit_softcapping", "attn_logit_softcapping", "_name_or_path",
})  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(
    model_type=st.sampled_from(sorted(FAMILIES)) | JSON,
    changes=st.dictionaries(st.sampled_from(KEYS), JSON | st.integers(1, 4096), max_size=6),
)
def test_any_config_becomes_an_architecture_or_one_sentence(model_type: Any, changes: dict[str, Any]) -> None:
    try:
        architecture = architecture_from_config({**LLAMA, "model_type": model_type, **changes})
    except PlannerError as error:
        assert "\n" not in str(error) or "\n" in repr(changes).replace("\\n", "\n")
    else:
        assert isinstance(architecture, Architecture)
        assert architecture.num_params > 0


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(max_size=40) | JSON.map(json.dumps) | st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4).map(json.dumps)
)
def test_any_text_is_a_config_or_one_sentence(text: str) -> None:
    try:
        config = parse_config(text)
    except InvalidJob:
        return
    assert isinstance(config, dict)
    with contextlib.suppress(PlannerError):
        architecture_from_config(config)


def test_a_norm_that_is_not_counted_is_refused_rather_than_left_out() -> None:
    config = {
        "model_type": "stablelm",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 100,
        "intermediate_size": 64,
    }
    architecture_from_config(config)
    with pytest.raises(InvalidJob, match="qk_layernorm"):
        architecture_from_config({**config, "qk_layernorm": True})
