"""A step's time: worked arithmetic, published runs with whole sources left out, and properties."""

import csv
import math
import statistics
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speed_study import TABLE, figures, left_out, log_error, mpt, runs

from planner.architecture import Architecture
from planner.catalogues import find_gpu, find_model, load_gpus
from planner.compute import SpeedAssumptions, StepTime, step_time
from planner.errors import InvalidJob, PlannerError
from planner.hardware import Gpu
from planner.job import METHODS, Job
from planner.optimizers import OPTIMIZERS
from planner.roofline import card_rates
from planner.sharding import Sharding
from planner.validation.models import published_model
from planner.work import attention_flops

A100 = find_gpu("a100-sxm4-80")
LINEARS = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11_008)  # of Llama 2 7B
HEAD = 32_000 * 4096
DATA = runs()


def seconds(time: StepTime, name: str) -> Any:
    (found,) = (line.seconds for line in time.lines if line.name == name)
    return found


# ---- worked arithmetic ---------------------------------------------------------------------------------------------


def test_model_flops_of_full_fine_tuning_are_6_n_and_attention(llama_2_7b: Architecture) -> None:
    # Chowdhery et al. 2022, arXiv:2204.02311, app. B: 6 N + 12 L H Q T per token, N the weights that are multiplied.
    time = step_time(Job(architecture=llama_2_7b, method="full", sequence_length=2048, attention="flash"), A100)
    assert time.model_flops == 2048 * (6 * (LINEARS + HEAD) + 12 * 32 * 4096 * 2048)
    # What runs: forward of the blocks twice, attention's causal half twice in forward and 2.5 times in backward.
    assert time.hardware_flops == 2048 * (8 * LINEARS + 6 * HEAD + (2 + 2.5) * 2 * 32 * 4096 * 2048)
    assert time.mfu == time.model_flops / time.seconds / 312e12
    assert time.mfu < time.hfu < 0.75


def test_frozen_weights_need_no_gradient_of_their_own(llama_2_7b: Architecture) -> None:
    time = step_time(Job(architecture=llama_2_7b, method="lora", sequence_length=2048, gradient_accumulation_steps=4), A100)
    attention = 12 * 32 * 4096 * 2048
    assert time.model_flops == 4 * 2048 * (4 * (LINEARS + HEAD) + 6 * 39_976_960 + attention)


def test_layer_freezing_goes_back_through_the_last_blocks_only(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b, method="freeze", trainable_layers=4, gradient_checkpointing="off", sequence_length=2048)
    attention = 4 * 32 * 4096 * 2048
    assert step_time(job, A100).model_flops == 2048 * (LINEARS * (2 + 4 * 4 / 32) + 4 * HEAD + attention * (1 + 2 * 4 / 32))
    with_checkpoints = step_time(job.changed(gradient_checkpointing="on"), A100)
    assert with_checkpoints.model_flops == 2048 * (LINEARS * (4 + 2 * 4 / 32) + 4 * HEAD + 3 * attention)


def test_matrix_multiplications_of_llama_2_7b_on_an_a100(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b, method="full", precision="bf16", sequence_length=4096, micro_batch_size=4)
    share = min(0.75, 400 / (312 * 1.65))
    by_hand = 6 * LINEARS * 4 * 4096 / (312e12 * share) + 3 * 2 * LINEARS / (2039e9 * 0.8)
    time = step_time(job, A100)
    assert seconds(time, "matrix multiplications") == pytest.approx(by_hand)
    assert seconds(time, "optimizer") == pytest.approx(24 * 2 * 6_738_415_616 / (2039e9 * 0.8))


def test_a_4_bit_base_is_dequantised_in_forward_in_recomputation_and_in_backward(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b)
    moved = LINEARS * (0.5 + 1 / 64 * (1 + 4 / 256) + 2) / (2039e9 * 0.8)
    time = step_time(job, A100)
    assert seconds(time, "dequantisation") == pytest.approx(2 * moved)
    lora = step_time(job.changed(method="lora"), A100)
    assert seconds(time, "recomputation") - seconds(lora, "recomputation") > moved
    assert seconds(lora, "dequantisation") == 0


def test_fused_attention_skips_the_half_above_the_diagonal(llama_2_7b: Architecture) -> None:
    from planner.memory.widths import attention_kernel, widths

    job = Job(architecture=llama_2_7b, sequence_length=1024)
    w = widths(job)
    flash, eager = (attention_flops(found, attention_kernel(found, w, (8, 0))) for found in (job, job.changed(attention="eager")))
    assert eager == (4 * 1024**2 * 4096 * 32, 8 * 1024**2 * 4096 * 32, 4 * 1024**2 * 4096 * 32)
    assert flash == (eager[0] / 2, 2.5 * eager[0] / 2, eager[0])


def test_power_holds_small_cards_below_their_peak(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b, precision="fp16-mixed")
    rates = {name: card_rates(job, find_gpu(name), SpeedAssumptions()) for name in ("t4", "l4", "h100-sxm5-80", "rtx-4090-24")}
    assert rates["t4"].matmul == pytest.approx(70 / (65 * 1.65 * 2.14) * 65e12)  # 20 TFLOP/s of 65
    assert rates["l4"].matmul == pytest.approx(72 / (121 * 1.65 * 0.7) * 121e12)  # 62 of 121
    assert rates["h100-sxm5-80"].matmul == pytest.approx(606e12, rel=0.01)
    assert rates["rtx-4090-24"].matmul == 0.75 * 165.2e12  # power suffices


def test_bf16_without_its_tensor_cores_runs_at_the_rate_of_fp32(llama_2_7b: Architecture, t4: Gpu) -> None:
    rates = card_rates(Job(architecture=llama_2_7b), t4, SpeedAssumptions())
    assert rates.peak == 65e12 / 8  # 8.1 TFLOP/s
    assert (
        step_time(Job(architecture=llama_2_7b), t4).seconds
        > 2 * step_time(Job(architecture=llama_2_7b, precision="fp16-mixed"), t4).seconds
    )


@pytest.mark.parametrize("name", ["a10g", "mi325x"])
def test_a_card_without_a_rate_has_no_time(llama_2_7b: Architecture, name: str) -> None:
    with pytest.raises(PlannerError, match="is not known, so its speed cannot be predicted; choose another card"):
        step_time(Job(architecture=llama_2_7b), find_gpu(name))


def test_every_other_card_of_the_catalogue_has_a_time(llama_2_7b: Architecture) -> None:
    unknown = set()
    for gpu in load_gpus().values():
        try:
            assert 0 < step_time(Job(architecture=llama_2_7b), gpu).seconds < 1000
        except PlannerError:
            unknown.add(gpu.id)
    assert unknown == {
        gpu.id
        for gpu in load_gpus().values()
        if not gpu.memory_bandwidth_bytes_per_s or not (gpu.peak_bf16_flops_per_s or gpu.peak_fp16_flops_per_s)
    }


def test_fsdp_1_stalls_the_host_at_each_unit(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b, method="lora", sequence_length=4096, micro_batch_size=4)
    one, two = (step_time(job, A100, Sharding("fsdp", 2, fsdp_version=version)) for version in (1, 2))  # type: ignore[arg-type]
    units = 32 * (1 + 2 * 7)  # a block, and two matrices on each of its seven linears
    assert one.seconds - two.seconds == pytest.approx(units * 3 * 25 * 20e-6)


# ---- published runs --------------------------------------------------------------------------------------------------


def test_mfu_is_that_of_llm_foundry() -> None:
    # A second route: their 6 N + 12 L D S per token, from their own tokens per second, printed beside them.
    with TABLE.open(encoding="utf-8") as file:
        rows = {row["id"]: row["as_published"] for row in csv.DictReader(file)}
    for run in DATA:
        if run.family == "llm-foundry":
            time = step_time(run.job, run.gpu, run.sharding, fabric_bytes_per_s=1e9)
            published = float(rows[run.id].split()[1]) / 100
            found = time.model_flops / time.tokens * run.tokens_per_s / time.peak_flops_per_s
            assert found == pytest.approx(published, rel=0.04), run.id


def test_lora_of_mistral_7b_as_published() -> None:
    # fms-acceleration, refs/a100_80gb_liger.csv row 111: LoRA, Liger kernels, 8 rows of 4,096 on an A100: 3,943 tokens/s.
    mistral = find_model("mistralai/Mistral-7B-v0.1")
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    job = Job(
        architecture=mistral, method="lora", target_modules=names, sequence_length=4096, micro_batch_size=8, attention="flash", loss="liger"
    )  # fmt: skip
    time = step_time(job, A100)
    assert time.tokens_per_s == pytest.approx(3943, rel=0.1)
    assert time.low_s < 8 * 4096 / 3943 < time.high_s


def test_shapes_of_models_outside_the_catalogue_have_the_published_sizes() -> None:
    for name, billions in (
        ("Qwen/Qwen-1_8B", 1.837), ("Qwen/Qwen-7B", 7.721), ("Qwen/Qwen-14B", 14.167), ("Qwen/Qwen-72B", 72.288), ("ibm/PowerLM-3b", 3.51),
        ("bigcode/gpt_bigcode-santacoder", 1.12),
    ):  # fmt: skip
        assert published_model(name).num_params == pytest.approx(billions * 1e9, rel=0.005)
    for name, billions in (("MPT-7b", 6.655), ("MPT-30b", 29.975), ("MPT-350m", 0.356)):
        assert mpt(name, 2048).num_params == pytest.approx(billions * 1e9, rel=0.005)


def sizes(family: str, *, several: bool) -> list[float]:
    """Errors of tokens/s with the default assumptions, smallest first."""
    return sorted(abs(math.exp(-log_error(run)) - 1) for run in DATA if run.family == family and bool(run.sharding) == several)


@pytest.mark.parametrize(
    ("family", "several", "median", "p90"),
    [
        ("fms-acceleration", False, 0.05, 0.12),
        ("qwen", False, 0.06, 0.14),
        ("fitcheck", False, 0.065, 0.2),
        ("fms-acceleration", True, 0.06, 0.115),
        ("llm-foundry", True, 0.045, 0.14),
        ("qwen", True, 0.16, 1.3),  # DeepSpeed's stage 2 on four cards took 1.8 times one card's time, whatever the length
    ],
)
def test_tokens_per_second_against_published_runs(family: str, several: bool, median: float, p90: float) -> None:
    errors = sizes(family, several=several)
    assert len(errors) >= 8
    assert statistics.median(errors) <= median
    assert errors[int(0.9 * len(errors))] <= p90


@pytest.mark.slow
def test_tokens_per_second_of_sources_left_out_of_the_fit() -> None:
    found = defaultdict(list)
    for _, pairs in left_out(DATA, lambda run: run.family).values():
        for run, error in pairs:
            found[run.sharding is not None].append(error)
    for several, median, p90 in ((False, 0.065, 0.14), (True, 0.065, 0.175)):
        errors = sorted(abs(math.exp(-error) - 1) for error in found[several])
        assert statistics.median(errors) <= median, figures(found[several])
        assert errors[int(0.9 * len(errors))] <= p90, figures(found[several])
        spread = SpeedAssumptions().spread_several_gpus if several else SpeedAssumptions().spread
        inside = [spread.low <= math.exp(-error) <= spread.high for error in found[several]]
        assert 0.88 <= statistics.fmean(inside) <= 0.96  # of a 90 % interval


# ---- properties ------------------------------------------------------------------------------------------------------

jobs = st.fixed_dictionaries(
    {
        "method": st.sampled_from(METHODS),
        "precision": st.sampled_from(["bf16-mixed", "bf16", "fp16"]),
        "optimizer": st.sampled_from(sorted(OPTIMIZERS)),
        "sequence_length": st.integers(1, 4000),
        "micro_batch_size": st.integers(1, 32),
        "gradient_accumulation_steps": st.integers(1, 8),
        "gradient_checkpointing": st.sampled_from(["on", "off"]),
        "attention": st.sampled_from(["eager", "sdpa"]),
        "loss": st.sampled_from(["plain", "chunked", "liger", "cut-ce"]),
        "packing": st.booleans(),
    }
)
models = st.sampled_from(["meta-llama/Llama-3.1-8B", "google/gemma-2-2b", "openai-community/gpt2", "mistralai/Mixtral-8x7B-v0.1"])
cards = st.sampled_from(["t4", "a100-sxm4-80", "h100-sxm5-80", "rtx-4090-24"])


def _possible(model: str, fields: dict[str, Any]) -> Job:
    a = find_model(model)
    length = min(fields["sequence_length"], a.max_position_embeddings - 20)
    fields = {**fields, "sequence_length": length, "experts_as_linears": True}
    if fields["method"] == "prefix":
        fields["gradient_checkpointing"] = "off"
    return Job(architecture=a, **fields)


@given(models, jobs, cards)
@settings(max_examples=80, deadline=None)
def test_lines_add_up_and_explain_themselves(model: str, fields: dict[str, Any], card: str) -> None:
    time = step_time(_possible(model, fields), find_gpu(card))
    assert time.seconds == sum(line.seconds for line in time.lines) > 0
    assert time.low_s < time.seconds < time.high_s
    assert 0 < time.mfu < 1
    assert 0 < time.hfu < 1
    for line in time.lines:
        assert line.seconds >= 0
        assert line.name and line.formula and line.source


@given(models, jobs, cards, st.sampled_from(["sequence_length", "micro_batch_size", "gradient_accumulation_steps"]))
@settings(max_examples=80, deadline=None)
def test_more_tokens_never_take_less_time(model: str, fields: dict[str, Any], card: str, field: str) -> None:
    job = _possible(model, fields)
    more = min(2 * getattr(job, field), job.architecture.max_position_embeddings - 20)
    assert step_time(job.changed(**{field: more}), find_gpu(card)).seconds >= step_time(job, find_gpu(card)).seconds * (1 - 1e-9)


@given(models, jobs, cards, st.sampled_from(["peak_bf16_flops_per_s", "peak_fp16_flops_per_s", "memory_bandwidth_bytes_per_s"]))
@settings(max_examples=60, deadline=None)
def test_a_faster_card_never_takes_longer(model: str, fields: dict[str, Any], card: str, rate: str) -> None:
    job, gpu = _possible(model, fields), find_gpu(card)
    faster = gpu.model_copy(update={rate: 2 * (getattr(gpu, rate) or 0) or None})
    assert step_time(job, faster).seconds <= step_time(job, gpu).seconds * (1 + 1e-9)


@given(models, jobs, st.sampled_from([None, "ddp", "zero2", "fsdp", "hybrid"]))
@settings(max_examples=60, deadline=None)
def test_an_array_gives_what_each_number_gives(model: str, fields: dict[str, Any], kind: Any) -> None:
    job = _possible(model, {**fields, "optimizer": "adamw"})
    sharding = Sharding(kind, 16) if kind else None
    batches, steps = np.array([1.0, 2.0, 7.0]), np.array([8.0, 4.0, 1.0])
    swept = Job.model_construct(**(job.fields | {"micro_batch_size": batches, "gradient_accumulation_steps": steps}))
    found = step_time(swept, A100, sharding, fabric_bytes_per_s=25e9)
    for i in range(3):
        one = job.changed(micro_batch_size=int(batches[i]), gradient_accumulation_steps=int(steps[i]))
        single = step_time(one, A100, sharding, fabric_bytes_per_s=25e9)
        for name in ("seconds", "low_s", "high_s", "tokens_per_s", "mfu", "hfu"):
            assert np.broadcast_to(getattr(found, name), 3)[i] == pytest.approx(getattr(single, name))


def test_what_the_libraries_refuse_is_refused(llama_2_7b: Architecture) -> None:
    with pytest.raises(InvalidJob, match="tensor"):
        step_time(Job(architecture=llama_2_7b), A100, Sharding("tensor", 2))
