"""The dry run against an independent tracer, against itself at full depth, and against published measurements. Minutes."""

import statistics
import subprocess
import sys
from functools import cache
from typing import Any, NamedTuple

import pytest
from reference_runs import STEPS, measured, published_runs, traced_job

from planner.catalogues import find_model
from planner.dryrun import dry_run
from planner.families import architecture_from_config
from planner.job import Job
from planner.units import MiB

for package in ("torch", "transformers", "peft", "bitsandbytes"):
    pytest.importorskip(package)

pytestmark = pytest.mark.slow


# ---- another tracer of the same libraries -----------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS, ids=[step["name"] for step in STEPS])
def test_live_tensors_are_those_that_an_independent_tracer_counted(step: dict[str, Any]) -> None:
    groups = (
        {"n_group": 1, "topk_group": 1} if step["config"]["model_type"] == "deepseek_v3" else {}
    )  # 8 experts make no 8 groups
    result = dry_run(traced_job({**step, "config": {**step["config"], **groups}}), without=["cublas_workspace"])
    peak = max(result.tensor_bytes_at(instant) for instant in result.windows)
    assert peak == pytest.approx(step["peak_bytes"], rel=0.001)
    assert result.tensor_bytes_at("optimizer") == pytest.approx(step["optimizer_bytes"], rel=0.001)


# ---- a few blocks against all -----------------------------------------------------------------------------------------

SHORT: list[tuple[str, int, dict[str, Any]]] = [
    ("meta-llama/Llama-3.1-8B", 6, {"method": "qlora", "gradient_accumulation_steps": 3}),
    ("meta-llama/Llama-2-7b-hf", 5, {"method": "full", "optimizer": "adafactor", "precision": "bf16", "packing": False}),
    ("mistralai/Mistral-7B-v0.1", 5, {"method": "dora", "quantization": "nf4", "optimizer": "paged-adamw-8bit"}),
    ("Qwen/Qwen2.5-7B", 5, {"method": "lora", "quantization": "int8", "gradient_checkpointing": "off", "lora_dropout": 0.05}),
    ("google/gemma-2-9b", 6, {"method": "full", "attention": "eager", "optimizer": "adamw-fused"}),
    ("google/gemma-3-4b-pt", 14, {"method": "qlora", "kbit_preparation": False}),
    ("microsoft/Phi-3-mini-4k-instruct", 5, {"method": "lora", "gradient_checkpointing": "reentrant", "loss": "chunked"}),
    ("gpt2", 12, {"method": "lora", "precision": "fp16-mixed", "attention": "eager", "optimizer": "lion-8bit"}),
    ("EleutherAI/pythia-1.4b", 5, {"method": "ia3", "keep_outputs": True, "precision": "fp16"}),
    ("mistralai/Mixtral-8x7B-v0.1", 5, {"method": "lora", "loss": "liger"}),
    ("deepseek-ai/DeepSeek-V2-Lite", 6, {"method": "full", "precision": "bf16", "optimizer": "sgd-momentum"}),
    ("openai/gpt-oss-20b", 8, {"method": "lora", "precision": "bf16", "attention": "eager", "optimizer": "adamw-8bit"}),
    ("Qwen/Qwen3-8B", 7, {"method": "freeze", "trainable_layers": 2, "loss": "cut-ce"}),
]  # fmt: skip


def shortened(model: str, layers: int, fields: dict[str, Any]) -> Job:
    architecture = find_model(model)
    fewer = architecture.model_copy(
        update={"num_hidden_layers": layers, "first_k_dense_replace": min(1, architecture.first_k_dense_replace)}
    )
    return Job(architecture=fewer, sequence_length=512, micro_batch_size=2, **fields)


@pytest.mark.parametrize(("model", "layers", "fields"), SHORT, ids=[model for model, _, _ in SHORT])
def test_a_trace_of_few_blocks_gives_that_of_all(model: str, layers: int, fields: dict[str, Any]) -> None:
    job = shortened(model, layers, fields)
    few, every = dry_run(job), dry_run(job, full=True)
    assert len(few.traced_blocks) < len(every.traced_blocks) == layers
    assert few.peak.allocated == pytest.approx(every.peak.allocated, rel=0.001)
    assert few.peak.reserved == pytest.approx(every.peak.reserved, rel=0.001, abs=2 * MiB)
    for instant, size in every.allocated_at.items():
        assert few.allocated_at[instant] == pytest.approx(size, rel=0.001)


# ---- published measurements -------------------------------------------------------------------------------------------


class Error(NamedTuple):
    """Of one published run: predicted over measured, less one."""

    id: str
    attention: str
    quantized: bool
    allocated: float
    reserved: float


@cache
def errors_of(source: str) -> list[Error]:
    """Of the runs of one source. Rows of Mixtral ran on transformers 4, which had its experts as linears."""
    errors = []
    for run in published_runs(source):
        if run.job.experts_as_linears:
            continue
        assert run.gpu
        old_peft = "peft 0.19" in run.cells["framework"]  # k-bit preparation empties the cache from 0.20 on
        peak = dry_run(run.job, run.gpu, without=["kbit_empty_cache"] if old_peft else []).peak
        reserved = measured(run, "reserved")
        quantized = run.job.quantization != "none"
        errors.append(
            Error(run.id, run.job.attention, quantized, peak.allocated / run.measured_bytes - 1, peak.reserved / reserved - 1)
        )
    return errors


def _median_and_worst(errors: list[float]) -> tuple[float, float]:
    sizes = [abs(error) for error in errors]
    return statistics.median(sizes), max(sizes)


def test_allocated_of_published_t4_runs() -> None:
    """45 runs with fixed shapes, without autocast: median 0.01 %, worst 0.34 %."""
    errors = [error.allocated for error in errors_of("fitcheck")]
    median, worst = _median_and_worst(errors)
    assert len(errors) == 45
    assert median <= 0.003
    assert worst <= 0.015


@pytest.mark.parametrize(
    ("attention", "quantized", "median", "worst"),
    [("sdpa", False, 0.002, 0.005), ("eager", False, 0.06, 0.07), ("sdpa", True, 0.02, 0.13), ("eager", True, 0.025, 0.16)],
)
def test_reserved_of_published_t4_runs(attention: str, quantized: bool, median: float, worst: float) -> None:
    """LoRA with sdpa (8 runs): median 0.08 %, worst 0.17 %; with eager (4): 5.1 and 6.6 %, one more 16-bit matrix of scores is cached.

    NF4 with sdpa (16): 1.4 and 12.6 %, with eager (17): 1.7 and 15.3 %. Published repeats of one such job differ by up to 2.6 %
    with the same versions, by 7 % with others (the test of the repeats).
    """
    errors = [error.reserved for error in errors_of("fitcheck") if (error.attention, error.quantized) == (attention, quantized)]
    assert len(errors) >= 4
    found = _median_and_worst(errors)
    assert found[0] <= median
    assert found[1] <= worst


def test_half_of_the_published_t4_runs_reserve_within_one_percent() -> None:
    """45 runs: median 0.91 %."""
    assert _median_and_worst([error.reserved for error in errors_of("fitcheck")])[0] <= 0.01


def test_published_repeats_of_4_bit_runs_differ_in_what_they_reserve() -> None:
    """Why the bounds of the quantised rows are no narrower: the largest of equal jobs against the smallest."""
    runs = [run for run in published_runs("fitcheck") if run.job.quantization != "none"]
    fields = ("model", "attention", "sequence_length", "micro_batch_size", "lora_rank")

    def spread(figure: str, *, same_versions: bool) -> float:
        repeats: dict[tuple[str, ...], list[float]] = {}
        for run in runs:
            versions = run.cells["framework"].removesuffix(" + bitsandbytes 0.50.2") if same_versions else ""
            repeats.setdefault((versions, *(run.cells[field] for field in fields)), []).append(measured(run, figure))
        return max(max(figures) / min(figures) - 1 for figures in repeats.values())

    assert spread("allocated", same_versions=False) < 0.002
    assert 0.02 < spread("reserved", same_versions=True) < 0.03
    assert 0.07 < spread("reserved", same_versions=False) < 0.08


def test_allocated_of_published_a100_runs() -> None:
    """17 runs of fms-acceleration; full fine-tuning and LoRA are 7 of them. Rows of 2024 carry the worst: libraries that are gone."""
    errors = errors_of("fms-acceleration")
    median, worst = _median_and_worst([error.allocated for error in errors])
    assert len(errors) == 17
    assert median <= 0.03
    assert worst <= 0.13
    unquantized = [error.allocated for error in errors if not error.quantized]
    median, worst = _median_and_worst(unquantized)
    assert len(unquantized) == 7
    assert median <= 0.01
    assert worst <= 0.03


@pytest.mark.parametrize("batch", [4, 8])
def test_shifted_logits_of_transformers_4_explain_the_rows_without_upcast(batch: int) -> None:
    """Rows 078 and 080: the loss in forward holds 16-bit logits, two fp32 copies, log-softmax, and the 16-bit hidden states."""
    (run,) = (
        run for run in published_runs("fms-acceleration") if run.id == {4: "fms-base-078-alloc", 8: "fms-base-080-alloc"}[batch]
    )
    T, V, D = batch * 4096, 32_000, 4096
    missing = run.measured_bytes - dry_run(run.job.changed(transformers="5")).allocated_at["loss"]
    assert missing == pytest.approx(2 * T * V + 2 * T * D, abs=12 * MiB)


# ---- size of the tool itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B"])
def test_a_dry_run_takes_less_than_1_5_gb_of_host_memory(model: str) -> None:
    """Imports of torch and its libraries among them."""
    code = (
        "import resource; from planner import Job, find_model; from planner.dryrun import dry_run\n"
        f"dry_run(Job(architecture=find_model({model!r}))).peak\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1.5e9


def test_a_trillion_parameters_are_no_trouble() -> None:
    config = {
        "model_type": "llama", "hidden_size": 28_672, "intermediate_size": 98_304, "num_attention_heads": 224, "num_key_value_heads": 8,
        "vocab_size": 256_000, "max_position_embeddings": 4096, "tie_word_embeddings": False, "num_hidden_layers": 100,
    }  # fmt: skip
    job = Job(
        architecture=architecture_from_config(config, name="large"), method="full", precision="bf16", optimizer="adamw-fused"
    )
    assert job.architecture.num_params > 1e12
    assert dry_run(job).peak.allocated > 8 * job.architecture.num_params


def test_hundreds_of_equal_blocks_are_repeated() -> None:
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 1, "vocab_size": 64,
        "max_position_embeddings": 64, "num_hidden_layers": 500,
    }  # fmt: skip
    job = Job(architecture=architecture_from_config(config, name="deep"), sequence_length=16)
    result = dry_run(job)
    assert len(result.traced_blocks) == 3
    assert len({a.block for a in result.log.allocations if a.category == "adapters"}) == 500
