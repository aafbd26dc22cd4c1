"""The closed form against worked arithmetic, against the real step on fake tensors, and against published measurements."""

import re
import statistics
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_runs import STEPS, published_runs, traced_job, without_workspace

from planner.architecture import Architecture
from planner.catalogues import find_gpu, find_model, load_gpus
from planner.job import METHODS, Job
from planner.memory import COMPONENTS, INSTANTS, MemoryBreakdown, card_kind, memory_breakdown
from planner.optimizers import OPTIMIZERS
from planner.plan import sweep
from planner.units import GiB, MiB


def line(memory: MemoryBreakdown, name: str, instant: str | None = None) -> Any:
    """Bytes of the one line of that name."""
    (found,) = (x for x in memory.lines if x.name == name and instant in (None, x.instant))
    return found.bytes


# ---- worked arithmetic ---------------------------------------------------------------------------------------------


def test_pure_bf16_full_fine_tuning_with_foreach_adamw_peaks_at_10_bytes_per_parameter(llama_2_7b: Architecture) -> None:
    # weights 2, gradients 2, two states 2 + 2, foreach's copy 2. Published A100 runs: fms-acceleration, Mistral-7B, 69,079 MB.
    job = Job(architecture=llama_2_7b, method="full", precision="bf16", sequence_length=512)
    memory = memory_breakdown(job)
    assert memory.peak.instant == "optimizer"
    assert without_workspace(memory) == 10 * 6_738_415_616 + line(memory, "batch")


@pytest.mark.parametrize(
    ("precision", "optimizer", "bytes_per_parameter"),
    [
        ("bf16-mixed", "adamw", 4 + 4 + 8 + 4),
        ("bf16-mixed", "adamw-fused", 4 + 4 + 8),
        ("bf16-mixed", "sgd", 4 + 4),
        ("bf16-mixed", "sgd-momentum", 4 + 4 + 4),
        ("bf16", "lion", 2 + 2 + 4),
        ("fp32", "adamw-fused", 4 + 4 + 8),
        ("bf16", "adamw-8bit", 2 + 2 + 2 * (1 + 4 / 256)),
    ],
)
def test_optimizer_step_of_full_fine_tuning(
    llama_2_7b: Architecture, precision: Any, optimizer: Any, bytes_per_parameter: float
) -> None:
    memory = memory_breakdown(Job(architecture=llama_2_7b, method="full", precision=precision, optimizer=optimizer))
    assert memory.allocated_at["optimizer"] == pytest.approx(bytes_per_parameter * 6_738_415_616, rel=2e-3)


def test_qlora_weights_of_llama_2_7b(llama_2_7b: Architecture) -> None:
    linears = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11_008)
    memory = memory_breakdown(Job(architecture=llama_2_7b))
    assert line(memory, "quantised weights", "resident") == linears / 2
    assert line(memory, "quantisation scales", "resident") == linears / 64 * (1 + 4 / 256)
    assert line(memory, "embeddings and head", "resident") == 4 * (2 * 32_000 * 4096 + 4096)  # fp32 by k-bit preparation
    plain = memory_breakdown(Job(architecture=llama_2_7b, double_quant=False, kbit_preparation=False))
    assert line(plain, "quantisation scales", "resident") == linears / 64 * 4
    assert line(plain, "embeddings and head", "resident") == 2 * (2 * 32_000 * 4096 + 4096)


def test_lora_of_rank_16_keeps_fp32_adapters_and_states(llama_2_7b: Architecture) -> None:
    memory = memory_breakdown(Job(architecture=llama_2_7b, method="lora"))
    assert line(memory, "adapter parameters") == 4 * 39_976_960
    assert line(memory, "optimizer states") == 8 * 39_976_960
    assert line(memory, "gradients", "optimizer") == 4 * 39_976_960


@pytest.mark.parametrize("checkpointing", ["on", "off"])
def test_an_fp32_head_is_copied_to_16_bit_under_autocast(llama_3_8b: Architecture, checkpointing: Any) -> None:
    memory = memory_breakdown(Job(architecture=llama_3_8b, gradient_checkpointing=checkpointing))
    assert line(memory, "head in 16 bit", "loss") == 2 * 128_256 * 4096


def test_a_copied_head_keeps_the_dtype_of_the_base(llama_2_7b: Architecture) -> None:
    copy = 32_000 * 4096
    job = Job(architecture=llama_2_7b, method="lora", modules_to_save=("lm_head",))
    assert job.trained_params == 39_976_960 + copy
    assert line(memory_breakdown(job), "adapter parameters") == 4 * 39_976_960 + 2 * copy
    prepared = memory_breakdown(job.changed(method="qlora"))  # k-bit preparation made the base's head fp32
    assert line(prepared, "adapter parameters") == 4 * 39_976_960 + 4 * copy


def test_the_logits_of_a_large_vocabulary_are_the_peak(llama_3_8b: Architecture) -> None:
    memory = memory_breakdown(Job(architecture=llama_3_8b))
    assert memory.peak.instant == "loss"
    assert line(memory, "logits and loss", "loss") == 12 * 2048 * 128_256
    kept = memory_breakdown(Job(architecture=llama_3_8b, keep_outputs=True))
    assert line(kept, "logits and loss", "loss") == 14 * 2048 * 128_256


def test_checkpoints_are_one_block_input_per_layer(llama_2_7b: Architecture) -> None:
    memory = memory_breakdown(Job(architecture=llama_2_7b, method="lora", micro_batch_size=4))
    assert line(memory, "block inputs (checkpoints)", "forward") == 32 * 4 * 2048 * 4096 * 2


def test_paged_states_leave_the_card(llama_2_7b: Architecture) -> None:
    paged = memory_breakdown(Job(architecture=llama_2_7b, method="full", optimizer="paged-adamw-8bit"))
    resident = memory_breakdown(Job(architecture=llama_2_7b, method="full", optimizer="adamw-8bit"))
    # two fp32 scales per 256 elements stay, and the norms, which are too small to be paged
    assert line(paged, "optimizer states") == pytest.approx(2 * 4 / 256 * 6_738_415_616, rel=0.01)
    assert line(resident, "optimizer states") > 2 * 6.7e9


def test_freezing_trains_only_the_last_blocks(llama_2_7b: Architecture) -> None:
    block = 4 * 4096 * 4096 + 3 * 4096 * 11_008 + 2 * 4096
    assert Job(architecture=llama_2_7b, method="freeze", trainable_layers=3).trained_params == 3 * block


def test_sdpa_needs_expanded_keys_on_a_turing_card(llama_3_8b: Architecture) -> None:
    job = Job(architecture=llama_3_8b, method="lora", precision="fp16-mixed", gradient_checkpointing="off")
    assert memory_breakdown(job, find_gpu("t4")).kernel == "efficient"
    assert memory_breakdown(job, find_gpu("a100-sxm4-80")).kernel == "flash"
    name = "queries, keys, values"
    heads = {"t4": 3 * 32, "a100-sxm4-80": 32 + 2 * 8}
    for gpu, count in heads.items():
        assert line(memory_breakdown(job, find_gpu(gpu)), name, "forward") == 32 * 2048 * 2 * count * 128


def test_cards_of_one_kind_have_one_breakdown(llama_3_8b: Architecture) -> None:
    job, kinds = Job(architecture=llama_3_8b, gradient_checkpointing="off"), defaultdict(set)
    for gpu in load_gpus().values():
        kinds[card_kind(gpu)].add(memory_breakdown(job, gpu).peak)
    assert len(kinds) == 4 and all(len(peaks) == 1 for peaks in kinds.values())


def test_prompt_embeddings_are_rows_and_a_prefix_is_keys_and_values(llama_3_8b: Architecture) -> None:
    short = memory_breakdown(Job(architecture=llama_3_8b, method="prompt", sequence_length=1024, num_virtual_tokens=1024))
    long = memory_breakdown(Job(architecture=llama_3_8b, method="lora", sequence_length=2048))
    assert line(short, "logits and loss", "loss") == line(long, "logits and loss", "loss")
    prefix = memory_breakdown(Job(architecture=llama_3_8b, method="prefix", micro_batch_size=3, num_virtual_tokens=10))
    assert line(prefix, "virtual keys and values", "forward") == 3 * 10 * 32 * 2 * 8 * 128 * 2


def test_the_lowest_trained_block_is_the_one_that_ends_backward() -> None:
    deepseek = find_model("deepseek-ai/DeepSeek-V3")  # three dense blocks, then mixtures
    job = Job(architecture=deepseek, method="freeze", trainable_layers=2, gradient_checkpointing="off")
    assert line(memory_breakdown(job), "16-bit copies of weights", "backward_end") == 2 * deepseek.blocks[-1].params
    # With checkpointing transformers makes the embeddings' output need a gradient, and backward goes all the way down.
    job = job.changed(gradient_checkpointing="on")
    assert line(memory_breakdown(job), "16-bit copies of weights", "backward_end") == 2 * deepseek.blocks[0].params


def test_evaluation_knows_the_attention(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b, attention="eager", sequence_length=4096, evaluation=True)
    scores = 8 * 32 * 4096 * 4096 * (2 * 2 + 4)
    assert line(memory_breakdown(job), "evaluation pass") == scores
    assert line(memory_breakdown(job.changed(attention="sdpa")), "evaluation pass") == 8 * 4096 * 32_000 * 10


def test_allocated_reserved_and_device_are_three_figures_in_order(llama_3_8b: Architecture) -> None:
    peak = memory_breakdown(Job(architecture=llama_3_8b), find_gpu("t4")).peak
    assert peak.allocated < peak.reserved < peak.device
    assert peak.low < peak.device < peak.high
    assert peak.device - peak.reserved == 141 * MiB  # the context measured on a T4


# ---- the real step on fake tensors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS, ids=[step["name"] for step in STEPS])
def test_peak_is_that_of_the_real_step_on_fake_tensors(step: dict[str, Any]) -> None:
    job = traced_job(step)
    memory = memory_breakdown(job)
    assert job.trained_params == step["trained_params"]
    assert without_workspace(memory) == pytest.approx(step["peak_bytes"], rel=0.05)
    workspace = line(memory, "cuBLAS workspace")
    assert memory.allocated_at["optimizer"] - workspace == pytest.approx(step["optimizer_bytes"], rel=0.01, abs=0.2 * MiB)


def test_half_of_the_traced_steps_are_within_two_percent() -> None:
    errors = [abs(without_workspace(memory_breakdown(traced_job(step))) / step["peak_bytes"] - 1) for step in STEPS]
    assert statistics.median(errors) < 0.02


# ---- published measurements ------------------------------------------------------------------------------------------


def published_errors() -> dict[tuple[str, str], list[float]]:
    """Signed relative errors of peak allocated bytes by source and method."""
    errors = defaultdict(list)
    for source in ("fms-acceleration", "fitcheck"):
        for run in published_runs(source):
            method = run.job.method if run.job.quantization == "none" else run.job.quantization
            errors[source, method].append(float(memory_breakdown(run.job, run.gpu).peak.allocated) / run.measured_bytes - 1)
    return errors


@pytest.mark.parametrize(
    ("source", "method", "median", "worst"),
    [
        ("fms-acceleration", "full", 0.001, 0.03),
        ("fms-acceleration", "lora", 0.01, 0.02),
        ("fms-acceleration", "nf4", 0.02, 0.09),  # worst: transformers 4.39, 8 rows of 4,096 of Mixtral
        ("fitcheck", "lora", 0.005, 0.01),
        ("fitcheck", "nf4", 0.005, 0.03),
    ],
)
def test_peak_allocated_against_published_runs(source: str, method: str, median: float, worst: float) -> None:
    sizes = [abs(error) for error in published_errors()[source, method]]
    assert len(sizes) >= 3
    assert statistics.median(sizes) <= median
    assert max(sizes) <= worst


# ---- properties ------------------------------------------------------------------------------------------------------

jobs = st.fixed_dictionaries(
    {
        "method": st.sampled_from(METHODS),
        "precision": st.sampled_from(["bf16-mixed", "bf16", "fp16", "fp32"]),
        "optimizer": st.sampled_from(sorted(OPTIMIZERS)),
        "sequence_length": st.integers(1, 4096),
        "micro_batch_size": st.integers(1, 32),
        "gradient_accumulation_steps": st.integers(1, 4),
        "gradient_checkpointing": st.sampled_from(["on", "off", "reentrant"]),
        "attention": st.sampled_from(["eager", "sdpa"]),
        "loss": st.sampled_from(["plain", "chunked", "liger", "cut-ce"]),
        "packing": st.booleans(),
        "lora_rank": st.integers(1, 256),
        "evaluation": st.booleans(),
    }
)
models = st.sampled_from(
    ["meta-llama/Llama-3.1-8B", "google/gemma-2-2b", "openai-community/gpt2", "mistralai/Mixtral-8x7B-v0.1", "openai/gpt-oss-20b"]
)


def _possible(model: str, fields: dict[str, Any]) -> Job:
    a = find_model(model)
    fields = {**fields, "sequence_length": min(fields["sequence_length"], a.max_position_embeddings)}
    if fields["method"] == "dora" and a.num_experts:
        fields["experts_as_linears"] = True
    if fields["method"] == "prefix":
        fields["gradient_checkpointing"] = "off"
    if fields["method"] in ("prefix", "prompt", "p-tuning"):
        fields["sequence_length"] = min(fields["sequence_length"], a.max_position_embeddings - 20)
    if fields["method"] == "qlora" and fields["precision"] == "fp32":
        fields["precision"] = "bf16"
    return Job(architecture=a, **fields)


@given(models, jobs)
@settings(max_examples=80, deadline=None)
def test_lines_add_up_and_explain_themselves(model: str, fields: dict[str, Any]) -> None:
    memory = memory_breakdown(_possible(model, fields))
    for instant, total in memory.allocated_at.items():
        assert instant in INSTANTS
        assert sum(x.bytes for x in memory.lines_at(instant)) == pytest.approx(total)
        assert sum(memory.components_at(instant).values()) == pytest.approx(total)
    assert memory.peak.allocated == max(memory.allocated_at.values()) > 0
    for x in memory.lines:
        assert x.bytes >= 0
        assert x.name
        assert x.formula
        assert x.source
        assert x.component in COMPONENTS


@given(models, jobs)
@settings(max_examples=60, deadline=None)
def test_more_tokens_never_need_less_and_checkpointing_never_costs_memory(model: str, fields: dict[str, Any]) -> None:
    job = _possible(model, fields)
    peak = memory_breakdown(job).peak.allocated
    assert memory_breakdown(job.changed(micro_batch_size=2 * job.micro_batch_size)).peak.allocated >= peak
    # Where the last blocks alone are trained, checkpointing sends gradients through all of them.
    if job.gradient_checkpointing == "on" and job.architecture.num_hidden_layers > 2 and job.method != "freeze":
        assert memory_breakdown(job.changed(gradient_checkpointing="off")).peak.allocated >= 0.999 * peak


@pytest.mark.parametrize("method", METHODS)
def test_doubling_the_batch_doubles_activations_and_logits_and_nothing_else(llama_3_8b: Architecture, method: Any) -> None:
    job = Job(architecture=llama_3_8b, method=method)
    one, two = (memory_breakdown(job.changed(micro_batch_size=size)) for size in (2, 4))
    for instant in ("forward", "loss"):
        before, after = one.components_at(instant), two.components_at(instant)
        assert after["logits"] == 2 * before["logits"]
        assert after["weights"] == before["weights"]
        assert after["optimizer_states"] == before["optimizer_states"]


@given(jobs)
@settings(max_examples=40, deadline=None)
def test_an_array_gives_what_each_number_gives(fields: dict[str, Any]) -> None:
    job = _possible("meta-llama/Llama-3.1-8B", fields)
    lengths = np.array([1, 300, 4096])
    ranks = np.array([1, 7, 64])
    swept = sweep(job, sequence_length=lengths, lora_rank=ranks)
    for i in range(3):
        single = memory_breakdown(job.changed(sequence_length=int(lengths[i]), lora_rank=int(ranks[i])))
        assert np.broadcast_to(swept.peak.allocated, 3)[i] == pytest.approx(single.peak.allocated)
        assert np.broadcast_to(swept.peak.device, 3)[i] == pytest.approx(single.peak.device)


def test_a_line_names_the_numbers_of_its_formula(llama_3_8b: Architecture) -> None:
    memory = memory_breakdown(Job(architecture=llama_3_8b))
    (logits,) = (x for x in memory.peak_lines if x.component == "logits")
    assert memory.numbers_of(logits)["V"] == 128_256
    assert memory.numbers_of(logits)["T"] == 2048


def test_a_qlora_of_a_mixture_says_which_library_it_assumes() -> None:
    mixtral = find_model("mistralai/Mixtral-8x7B-v0.1")
    fused = memory_breakdown(Job(architecture=mixtral))
    linears = memory_breakdown(Job(architecture=mixtral, experts_as_linears=True))
    assert fused.peak.allocated > 80 * GiB  # 45 B expert weights in 16 bit
    assert linears.peak.allocated < 50 * GiB


# A formula that is all letters and numbers gives the bytes when its numbers are put in.
_WORDS = re.compile(r"[a-z]{2,}")


def _value(formula: str, letters: dict[str, Any]) -> float:
    blocks = re.match(r"(\d+) blocks x ", formula)
    text = (formula[blocks.end() :] if blocks else formula).replace(" x ", " * ")
    names = re.sub(
        r"[A-Za-z_]+", lambda found: f"letters['{found.group()}']" if found.group() in letters else found.group(), text
    )
    product = re.sub(r"(?<=[\w\])]) (?=[\w(\[])", " * ", names)
    return (int(blocks.group(1)) if blocks else 1) * float(eval(product, {"letters": letters}))


@given(models, jobs)
@settings(max_examples=60, deadline=None)
def test_formulas_of_letters_give_the_bytes(model: str, fields: dict[str, Any]) -> None:
    memory = memory_breakdown(_possible(model, fields))
    checked = 0
    for x in memory.lines:
        plain = re.sub(r"^\d+ blocks x ", "", x.formula)
        if _WORDS.search(
            plain.replace("P_head", "")
            .replace("P_copied", "")
            .replace("P_experts", "")
            .replace("T_eval", "")
            .replace("B_eval", "")
        ):
            continue  # says in words what it sums
        if re.search(r"\bb\b", plain):
            continue  # the width differs from place to place
        checked += 1
        assert _value(x.formula, memory.letters) == pytest.approx(x.bytes, rel=1e-6), x
    assert checked >= 10
