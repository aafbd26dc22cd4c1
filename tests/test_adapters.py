"""What each adapter trains, counted by hand."""

import pytest

from planner.adapters import IA3, BottleneckAdapter, LoRA, PrefixTuning, PromptTuning, PTuning
from planner.architecture import Architecture
from planner.catalogues import find_model

D, F, L = 4096, 11_008, 32  # Llama-2-7B


def test_rank_16_on_all_linears_of_llama_2_7b(llama_2_7b: Architecture) -> None:
    attention = 4 * 16 * (D + D)  # q, k, v, o
    mlp = 3 * 16 * (D + F)  # gate, up, down
    assert LoRA(rank=16).params(llama_2_7b) == L * (attention + mlp) == 39_976_960


def test_lora_on_two_names(llama_2_7b: Architecture) -> None:
    assert LoRA(rank=8, target_modules=("q_proj", "v_proj")).params(llama_2_7b) == L * 2 * 8 * (D + D) == 4_194_304


def test_dora_adds_one_magnitude_per_output(llama_2_7b: Architecture) -> None:
    outputs = 4 * D + 2 * F + D
    assert LoRA(rank=16, use_dora=True).params(llama_2_7b) == 39_976_960 + L * outputs


def test_ia3_has_vectors_on_keys_values_and_the_mlps_input(llama_2_7b: Architecture) -> None:
    assert IA3().params(llama_2_7b) == L * (D + D + F) == 614_400


def test_prompt_learning(llama_2_7b: Architecture) -> None:
    assert PrefixTuning(num_virtual_tokens=20).params(llama_2_7b) == 20 * L * 2 * D
    assert PromptTuning(num_virtual_tokens=20).params(llama_2_7b) == 20 * D
    assert PTuning(num_virtual_tokens=20).params(llama_2_7b) == 20 * D + 3 * (D * D + D)


def test_prefixes_have_the_heads_of_keys(llama_3_8b: Architecture) -> None:
    assert PrefixTuning(num_virtual_tokens=1).params(llama_3_8b) == 32 * 2 * 8 * 128


def test_bottleneck_adapters_are_two_per_block(llama_2_7b: Architecture) -> None:
    assert BottleneckAdapter(bottleneck_size=64).params(llama_2_7b) == L * 2 * (2 * D * 64 + 64 + D)


@pytest.mark.parametrize("as_linears", [True, False])
def test_experts_of_mixtral(as_linears: bool) -> None:
    mixtral = find_model("mistralai/Mixtral-8x7B-v0.1")
    D, F, E, r = 4096, 14_336, 8, 4
    attention = 2 * r * (D + D) + 2 * r * (D + 1024)
    separate = E * 3 * r * (D + F)
    # fused: gate and up share one A of rank 2 r and one B of 2 F rows; the router is adapted as well
    fused = E * 2 * r * (D + 2 * F) + E * r * (F + D) + r * (D + E)
    expected = 32 * (attention + (separate if as_linears else fused))
    assert LoRA(rank=r, experts_as_linears=as_linears).params(mixtral) == expected
