"""How many cards of a kind a job needs."""

import pytest

from planner.architecture import Architecture
from planner.catalogues import find_gpu, load_gpus
from planner.errors import InvalidJob
from planner.job import Job
from planner.nodes import COUNTS, cards_needed, ways_to_share
from planner.plan import make_plan
from planner.sentences import need_text


def test_full_fine_tuning_of_8b_takes_more_than_one_80_gb_card(llama_3_8b: Architecture) -> None:
    # 20 bytes per parameter (fp32 weights, gradients, two states, and foreach's copy): 160.6 GB before anything else.
    (need,) = cards_needed(Job(architecture=llama_3_8b, method="full"), [find_gpu("a100-sxm4-80")])
    assert need.num_gpus > 160.6e9 / need.gpu.usable_memory_bytes
    assert need.plan.fits and not need.alone.fits
    assert need_text(need, "en").startswith("one card lacks 87.")


@pytest.mark.parametrize("fields", [{"method": "full"}, {"method": "lora", "sequence_length": 8192}, {"method": "qlora"}])
def test_no_smaller_number_is_enough(llama_3_8b: Architecture, fields: dict) -> None:  # type: ignore[type-arg]
    job = Job(architecture=llama_3_8b, **fields)
    for need in cards_needed(job, list(load_gpus().values())[::7]):
        assert need.plan.fits == make_plan(job, need.gpu, sharding=need.plan.sharding).fits
        smaller = [count for count in COUNTS if count < need.num_gpus]
        plans = [make_plan(job, need.gpu, sharding=way) for count in smaller for way in ways_to_share(job, count)]
        assert not any(plan.fits for plan in [need.alone, *plans]) or need.num_gpus == 1


def test_a_job_that_cannot_be_shared_says_why(llama_3_8b: Architecture) -> None:
    (need,) = cards_needed(Job(architecture=llama_3_8b, method="full", optimizer="adamw-8bit"), [find_gpu("rtx-4090-24")])
    assert isinstance(need.refused, InvalidJob)
    assert "adamw-8bit cannot work on the parts of tensors" in need_text(need, "en")
