"""Plans: the verdict, the largest that fits, what would help, and the cards."""

import numpy as np
import pytest

from planner.architecture import Architecture
from planner.catalogues import find_gpu, find_model, load_gpus
from planner.errors import InvalidJob
from planner.families import architecture_from_config
from planner.hardware import Gpu
from planner.job import METHODS, Job
from planner.plan import cards_that_fit, compared_methods, largest_that_fits, make_plan, sweep
from planner.remedies import remedies


def test_headroom_is_usable_memory_less_what_the_job_needs(llama_3_8b: Architecture, rtx_4090: Gpu) -> None:
    plan = make_plan(Job(architecture=llama_3_8b), rtx_4090)
    assert plan.headroom_bytes == int(rtx_4090.usable_memory_bytes - plan.memory.peak.device)
    assert plan.fits
    assert plan.verdict == "fits"


def test_verdicts_follow_the_band(llama_3_8b: Architecture, rtx_4090: Gpu) -> None:
    verdicts = {
        method: make_plan(Job(architecture=llama_3_8b, method=method), rtx_4090).verdict for method in ("qlora", "lora", "full")
    }
    assert verdicts == {"qlora": "fits", "lora": "tight", "full": "does not fit"}


@pytest.mark.parametrize("field", ["micro_batch_size", "sequence_length", "lora_rank"])
def test_the_largest_that_fits_fits_and_one_more_does_not(llama_3_8b: Architecture, rtx_4090: Gpu, field: str) -> None:
    job = Job(architecture=llama_3_8b)
    best = largest_that_fits(job, rtx_4090, field)
    assert best >= 1
    assert make_plan(job.changed(**{field: best}), rtx_4090).fits
    if best < {"lora_rank": 4096, "sequence_length": 131_072}.get(field, 65_536):
        assert not make_plan(job.changed(**{field: best + 1}), rtx_4090).fits


def test_nothing_fits_where_one_row_does_not(llama_3_8b: Architecture, t4: Gpu) -> None:
    assert largest_that_fits(Job(architecture=llama_3_8b, method="full"), t4, "micro_batch_size") == 0


@pytest.mark.parametrize("method", METHODS)
def test_each_remedy_saves_what_it_says_and_exists(llama_3_8b: Architecture, t4: Gpu, method: str) -> None:
    job = Job(architecture=llama_3_8b, method=method, micro_batch_size=4, gradient_checkpointing="off", attention="eager")  # type: ignore[arg-type]
    needed = make_plan(job, t4).memory.peak.device
    found = remedies(job, t4)
    assert found
    for remedy in found:
        again = make_plan(job.changed(**remedy.changes), t4)
        assert remedy.saved_bytes == int(needed - again.memory.peak.device) > 0
        assert remedy.plan.fits == again.fits
    assert [remedy.plan.fits for remedy in found] == sorted((remedy.plan.fits for remedy in found), reverse=True)


def test_a_smaller_micro_batch_keeps_the_global_batch(llama_3_8b: Architecture, t4: Gpu) -> None:
    job = Job(architecture=llama_3_8b, micro_batch_size=6, gradient_accumulation_steps=2)
    (half,) = (remedy for remedy in remedies(job, t4) if "micro_batch_size" in remedy.changes)
    assert half.changes == {"micro_batch_size": 3, "gradient_accumulation_steps": 4}


def test_cards_that_fit_are_sorted_and_all_fit(llama_3_8b: Architecture) -> None:
    job = Job(architecture=llama_3_8b)
    plans = cards_that_fit(job, load_gpus().values())
    sizes = [plan.gpu.usable_memory_bytes for plan in plans]
    assert sizes == sorted(sizes)
    assert {plan.gpu.id for plan in plans} == {gpu.id for gpu in load_gpus().values() if make_plan(job, gpu).fits}


def test_notes_say_what_the_card_lacks(llama_3_8b: Architecture, t4: Gpu) -> None:
    notes = [note.template for note in make_plan(Job(architecture=llama_3_8b, attention="flash"), t4).notes]
    assert any("bf16" in note for note in notes)
    assert any("FlashAttention-2" in note for note in notes)
    assert not make_plan(Job(architecture=llama_3_8b), find_gpu("a100-sxm4-80")).notes


def test_notes_say_what_the_libraries_do_otherwise(rtx_4090: Gpu) -> None:
    gemma = make_plan(Job(architecture=find_model("google/gemma-2-2b")), rtx_4090)
    assert any("eager is used" in note.template for note in gemma.notes)
    mixtral = make_plan(Job(architecture=find_model("mistralai/Mixtral-8x7B-v0.1")), rtx_4090)
    assert any("not quantised" in note.template for note in mixtral.notes)


@pytest.mark.parametrize("method", METHODS)
def test_methods_side_by_side_hold_the_job_itself(llama_3_8b: Architecture, method: str) -> None:
    job = Job(architecture=llama_3_8b, method=method, sequence_length=512)  # type: ignore[arg-type]
    jobs = compared_methods(job)
    assert job in jobs
    assert [other.method for other in jobs[:3]] == ["full", "lora", "qlora"]
    assert {other.sequence_length for other in jobs} == {512}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"method": ["lora"]}, "cannot be swept"),
        ({"sequence_length": []}, "at least one"),
        ({"micro_batch_size": [1, 2.5]}, "whole numbers"),
        ({"sequence_length": [1, 2, 3], "micro_batch_size": [1, 2]}, "fit together"),
    ],
)
def test_what_cannot_be_swept_is_said(llama_3_8b: Architecture, fields: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidJob, match=said):
        sweep(Job(architecture=llama_3_8b), **fields)


def test_only_numbers_have_a_largest_that_fits(llama_3_8b: Architecture, t4: Gpu) -> None:
    with pytest.raises(InvalidJob, match="cannot be swept"):
        largest_that_fits(Job(architecture=llama_3_8b), t4, "optimizer")


def test_a_rank_that_pages_its_states_out_may_fit_where_a_smaller_one_does_not(llama_3_8b: Architecture, rtx_4090: Gpu) -> None:
    job = Job(architecture=llama_3_8b, optimizer="paged-adamw", loss="liger")
    best = largest_that_fits(job, rtx_4090, "lora_rank")
    assert make_plan(job.changed(lora_rank=best), rtx_4090).fits
    assert best == 4096 or not make_plan(job.changed(lora_rank=best + 1), rtx_4090).fits


def test_a_model_too_small_for_lora_is_still_compared() -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "vocab_size": 9,
        "intermediate_size": 8,
    }
    jobs = compared_methods(Job(architecture=architecture_from_config(config), method="full", sequence_length=8))
    assert [job.method for job in jobs] == ["full"]


def test_a_sweep_checks_its_extremes(llama_3_8b: Architecture) -> None:
    job = Job(architecture=llama_3_8b)
    with pytest.raises(InvalidJob, match="at most 131072"):
        sweep(job, sequence_length=np.array([512, 10**6]))
    with pytest.raises(InvalidJob, match="more than 0"):
        sweep(job, micro_batch_size=[0, 1])
