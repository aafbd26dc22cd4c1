"""How fast: read the figures, nothing is asserted about time. `pytest -n0 tests/benchmarks`"""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from planner.architecture import Architecture
from planner.catalogues import find_gpu, find_model, load_catalogue, load_gpus, load_offers, load_providers
from planner.compute import step_time
from planner.hardware import Gpu
from planner.job import Job
from planner.memory import memory_breakdown
from planner.placement import Demand
from planner.plan import cards_that_fit, make_plan, sweep
from planner.ranking import rank_offers
from planner.sharding import Sharding
from planner.workload import Workload


def test_one_estimate(benchmark: Any, llama_3_8b: Architecture, rtx_4090: Gpu) -> None:
    job = Job(architecture=llama_3_8b)
    assert benchmark(make_plan, job, rtx_4090).fits


def test_one_estimate_of_a_new_job(benchmark: Any, llama_3_8b: Architecture) -> None:
    job = Job(architecture=llama_3_8b)
    assert benchmark(lambda: memory_breakdown(job.changed(sequence_length=1024))).peak.allocated > 0


def test_sweep_of_100_000_jobs(benchmark: Any, llama_3_8b: Architecture) -> None:
    job, numbers = Job(architecture=llama_3_8b), np.random.default_rng(0)
    fields = {
        "sequence_length": numbers.integers(128, 8192, 100_000),
        "micro_batch_size": numbers.integers(1, 32, 100_000),
        "lora_rank": numbers.integers(1, 256, 100_000),
    }
    assert benchmark(sweep, job, **fields).peak.device.shape == (100_000,)


def test_all_cards(benchmark: Any, llama_3_8b: Architecture) -> None:
    assert benchmark(cards_that_fit, Job(architecture=llama_3_8b), load_gpus().values())


def test_one_slider_move_in_the_kernel(benchmark: Any) -> None:
    from planner.workbook import Workbook

    benchmark(Workbook().refresh)


@pytest.mark.parametrize("fields", [{}, {"method": "full"}], ids=str)
def test_ranking_all_offers(benchmark: Any, llama_3_8b: Architecture, fields: dict[str, Any]) -> None:
    """Every offer, each number of machines, ways to share and micro-batches: the target is 150 ms."""
    demand = Demand(Job(architecture=llama_3_8b, **fields), Workload(global_batch_size=64))
    market = load_offers(), load_providers(), load_gpus()
    assert benchmark(rank_offers, demand, *market)[0].feasible


def test_one_step_time(benchmark: Any, llama_3_8b: Architecture) -> None:
    benchmark(step_time, Job(architecture=llama_3_8b), find_gpu("a100-sxm4-80"), Sharding("fsdp", 8))


def test_import_planner(benchmark: Any) -> None:
    def once() -> None:
        subprocess.run([sys.executable, "-c", "import planner"], check=True)

    benchmark.pedantic(once, rounds=5, warmup_rounds=1)


def test_reading_the_models(benchmark: Any) -> None:
    assert benchmark(load_catalogue.__wrapped__)


@pytest.fixture
def needs_torch() -> None:
    for package in ("torch", "transformers", "peft", "bitsandbytes"):
        pytest.importorskip(package)


@pytest.mark.slow
@pytest.mark.usefixtures("needs_torch")
@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B"])
def test_one_dry_run_after_imports(benchmark: Any, model: str) -> None:
    from planner.dryrun import dry_run

    job = Job(architecture=find_model(model))
    result = benchmark.pedantic(dry_run, (job,), rounds=3, warmup_rounds=1)
    assert len(result.traced_blocks) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("needs_torch")
def test_the_allocator_on_the_log_of_8b(benchmark: Any, llama_3_8b: Architecture) -> None:
    from planner.dryrun import dry_run
    from planner.dryrun.allocator import replay

    log = dry_run(Job(architecture=llama_3_8b)).log
    benchmark.extra_info["events"] = len(log.events)
    assert benchmark(replay, log.events, log.sizes).peak_reserved_bytes > 0
