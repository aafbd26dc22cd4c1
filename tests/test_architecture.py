"""Parameter counts by three routes: by hand, published totals, and the real classes of transformers on the meta device."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from planner.architecture import Architecture
from planner.blocks import Linear
from planner.catalogues import CatalogueModel, find_model, load_catalogue, load_models
from planner.errors import InvalidJob
from planner.families import FAMILIES, architecture_from_config

CATALOGUE = load_catalogue()


# ---- by hand ------------------------------------------------------------------------------------------------------


def test_llama_2_7b_by_hand() -> None:
    attention = 4 * 4096 * 4096  # q, k, v, o
    mlp = 3 * 4096 * 11_008  # gate, up, down
    block = attention + mlp + 2 * 4096  # two norms
    total = 32 * block + 2 * 32_000 * 4096 + 4096  # embedding and head, last norm
    assert find_model("meta-llama/Llama-2-7b-hf").num_params == total == 6_738_415_616


def test_gpt2_by_hand() -> None:
    attention = 768 * 3 * 768 + 3 * 768 + 768 * 768 + 768
    mlp = 768 * 3072 + 3072 + 3072 * 768 + 768
    block = attention + mlp + 2 * 2 * 768  # norms with biases
    total = 12 * block + 50_257 * 768 + 1024 * 768 + 2 * 768  # tied head, positions, last norm
    assert find_model("gpt2").num_params == total == 124_439_808


def test_active_parameters_of_mixtral_by_hand() -> None:
    """2 of 8 experts of 3 x 4096 x 14,336 in each of 32 blocks."""
    mixtral = find_model("mistralai/Mixtral-8x7B-v0.1")
    assert mixtral.active_params == mixtral.num_params - 32 * 6 * 3 * 4096 * 14_336 == 12_879_925_248


def test_grouped_queries_shrink_keys_and_values_only() -> None:
    query, key, value, output = find_model("meta-llama/Meta-Llama-3-8B").blocks[0].attention
    assert [linear.out_features for linear in (query, key, value, output)] == [4096, 8 * 128, 8 * 128, 4096]


def test_the_bias_of_a_linear_counts_with_it() -> None:
    assert Linear("q_proj", 8, 4, bias=True).params == 8 * 4 + 4


@pytest.mark.parametrize("name", load_models())
def test_the_parts_add_up_to_the_total(name: str) -> None:
    architecture = load_models()[name]
    blocks = sum(block.num_blocks * block.params for block in architecture.blocks)
    outside = architecture.embedding_params + architecture.head_params + architecture.other_params
    assert architecture.num_params == blocks + outside
    assert sum(block.num_blocks for block in architecture.blocks) == architecture.num_hidden_layers
    assert sum(tensor.params for tensor in architecture.tensors()) == architecture.num_params
    assert architecture.active_params <= architecture.num_params


def test_an_architecture_survives_json() -> None:
    for architecture in load_models().values():
        assert Architecture.model_validate_json(architecture.model_dump_json()) == architecture


def test_a_mixture_without_the_width_of_its_experts_is_refused() -> None:
    with pytest.raises(InvalidJob) as caught:
        Architecture(**{**find_model("gpt2").model_dump(), "num_experts": 4, "num_experts_per_tok": 2})
    assert caught.value.field == "moe_intermediate_size"


# ---- against published totals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_count_of_a_shipped_model_is_its_independent_total(name: str) -> None:
    row = CATALOGUE[name]
    assert row.architecture.num_params == pytest.approx(row.published_params, rel=0.005)


def test_nearly_all_totals_are_equal_to_the_last_digit() -> None:
    unequal = [row for row in CATALOGUE.values() if row.architecture.num_params != row.published_params]
    assert len(unequal) <= 12, [(row.architecture.name, row.architecture.num_params, row.published_params) for row in unequal]


# ---- against the classes of transformers --------------------------------------------------------------------------

SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 128, "max_position_embeddings": 32}
DENSE = {**SMALL, "intermediate_size": 96}
GROUPED = {**DENSE, "num_key_value_heads": 2}
WIDE_HEADS = {**GROUPED, "head_dim": 24}  # 4 x 24 is not the hidden size
MIXTURE = {"num_experts_per_tok": 2, "moe_intermediate_size": 40}
LATENT = {
    **DENSE, **MIXTURE, "n_routed_experts": 4, "n_shared_experts": 2, "first_k_dense_replace": 1, "kv_lora_rank": 16,
    "q_lora_rank": 24, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 20,
}  # fmt: skip
FALCON = {**SMALL, "ffn_hidden_size": 96}
OPT = {**SMALL, "ffn_dim": 96, "word_embed_proj_dim": 64}

CASES: dict[str, list[dict[str, Any]]] = {
    "llama": [WIDE_HEADS, {**GROUPED, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}],
    "mistral": [WIDE_HEADS], "qwen2": [GROUPED], "qwen3": [WIDE_HEADS, {**WIDE_HEADS, "attention_bias": True}],
    "smollm3": [GROUPED], "granite": [GROUPED], "olmo2": [GROUPED], "phi3": [GROUPED], "phi": [GROUPED],
    "stablelm": [{**GROUPED, "use_qkv_bias": True}], "starcoder2": [GROUPED, {**GROUPED, "use_bias": False}],
    "gemma": [WIDE_HEADS], "gemma2": [WIDE_HEADS], "gemma3_text": [WIDE_HEADS],
    "gpt2": [{**SMALL, "n_inner": 96}], "gpt_neox": [DENSE, {**DENSE, "attention_bias": False, "use_parallel_residual": False}],
    "opt": [OPT, {**OPT, "word_embed_proj_dim": 32, "do_layer_norm_before": False}, {**OPT, "enable_bias": False}],
    "bloom": [SMALL],
    "falcon": [
        {**FALCON, "multi_query": True}, {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2},
        {**FALCON, "multi_query": False, "parallel_attn": False, "bias": True},
    ],
    "mpt": [{"d_model": 64, "n_layers": 3, "n_heads": 4, "vocab_size": 128, "max_seq_len": 32}],
    "mixtral": [{**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}],
    "qwen2_moe": [{**GROUPED, **MIXTURE, "num_experts": 4, "shared_expert_intermediate_size": 80}],
    "qwen3_moe": [{**WIDE_HEADS, **MIXTURE, "num_experts": 4}],
    "gpt_oss": [{**WIDE_HEADS, "num_local_experts": 4, "num_experts_per_tok": 2}],
    "deepseek_v2": [LATENT, {**LATENT, "q_lora_rank": None}],
    "deepseek_v3": [LATENT, {**LATENT, "attention_bias": True}],
}  # fmt: skip


def meta_model(model_type: str, fields: dict[str, Any]) -> Any:
    """The real class, its parameters on the meta device: shapes and no memory."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    config = transformers.AutoConfig.for_model(model_type, **fields)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


def count(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def linears(layer: Any) -> Iterator[tuple[str, int, int, bool]]:
    for name, module in layer.named_modules():
        if type(module).__name__ in ("Linear", "FalconLinear"):
            yield name.rsplit(".", 1)[-1], module.in_features, module.out_features, module.bias is not None
        elif type(module).__name__ == "Conv1D":  # GPT-2's linear, stored the other way round
            yield name.rsplit(".", 1)[-1], *module.weight.shape, True


def test_every_family_has_a_small_model() -> None:
    assert CASES.keys() == FAMILIES.keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_type", "fields"),
    [pytest.param(family, case, id=f"{family}-{n}") for family, cases in CASES.items() for n, case in enumerate(cases)],
)
def test_a_small_model_has_the_parameters_and_linears_of_its_real_class(model_type: str, fields: dict[str, Any]) -> None:
    model = meta_model(model_type, {**fields, "pad_token_id": 0})
    architecture = architecture_from_config(json.loads(model.config.to_json_string(use_diff=False)))
    assert architecture.num_params == count(model)
    layers = next(m for m in model.modules() if type(m).__name__ == "ModuleList" and len(m) == architecture.num_hidden_layers)
    first = 0
    for block in architecture.blocks:
        layer = layers[first]
        assert sorted(map(tuple, block.linears)) == sorted(linears(layer))
        assert block.params == count(layer)
        first += block.num_blocks


def as_transformers(row: CatalogueModel) -> dict[str, Any]:
    """The fields of a row under the names of its configuration class."""
    a = row.architecture
    values = {
        "hidden_size": a.hidden_size, "num_hidden_layers": a.num_hidden_layers, "num_attention_heads": a.num_attention_heads,
        "vocab_size": a.vocab_size, "tie_word_embeddings": a.tie_word_embeddings,
    }  # fmt: skip
    width, grouped = {"intermediate_size": a.intermediate_size}, {"num_key_value_heads": a.num_key_value_heads}
    experts = {"num_experts_per_tok": a.num_experts_per_tok}
    match a.model_type:
        case "gpt2":
            return {**values, "n_inner": a.intermediate_size, "n_positions": a.learned_positions}
        case "opt":
            pre_norm = {"do_layer_norm_before": a.final_norm, "word_embed_proj_dim": a.embedding_size or a.hidden_size}
            return {**values, **pre_norm, "ffn_dim": a.intermediate_size, "max_position_embeddings": a.learned_positions - 2}
        case "bloom" | "mpt":
            return values
        case "falcon":
            new = {"new_decoder_architecture": a.norms_per_block == 2, "num_kv_heads": a.num_key_value_heads}
            return {**values, **new, "ffn_hidden_size": a.intermediate_size}
        case "mixtral" | "gpt_oss":
            return {**values, **width, **grouped, **experts, "head_dim": a.head_dim, "num_local_experts": a.num_experts}
        case "qwen2_moe" | "qwen3_moe":
            shared = {"shared_expert_intermediate_size": a.shared_expert_intermediate_size, "head_dim": a.head_dim}
            more = {"num_experts": a.num_experts, "moe_intermediate_size": a.moe_intermediate_size}
            return {**values, **width, **grouped, **experts, **shared, **more}
        case "deepseek_v2" | "deepseek_v3":
            latent = {f: getattr(a, f) for f in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")}
            more = {f: getattr(a, f) for f in ("moe_intermediate_size", "first_k_dense_replace")}
            shared = {"n_shared_experts": a.shared_expert_intermediate_size // a.moe_intermediate_size}
            return {
                **values, **width, **experts, **latent, **more, **shared, "n_routed_experts": a.num_experts,
                "q_lora_rank": a.q_lora_rank or None,
            }  # fmt: skip
        case "stablelm":
            return {**values, **width, **grouped, "use_qkv_bias": a.qkv_bias}
        case "phi" | "gpt_neox":
            return {**values, **width}
        case _:
            return {**values, **width, **grouped, "head_dim": a.head_dim}


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_the_count_of_a_shipped_model_is_that_of_its_real_class(name: str) -> None:
    """About 0.2 s each: also the largest takes no memory on the meta device."""
    row = CATALOGUE[name]
    assert row.architecture.num_params == count(meta_model(row.architecture.model_type, as_transformers(row)))
