"""Bytes that a rank sends, the links that carry them, and that a faster link never lengthens a step."""

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.architecture import Architecture
from planner.catalogues import find_gpu, find_model
from planner.compute import SpeedAssumptions, step_time
from planner.errors import PlannerError
from planner.interconnect import collectives, link_bytes_per_s, offload_seconds
from planner.job import Job
from planner.sharding import Kind, Sharding

PARAMS = 6_738_415_616  # Llama 2 7B
A100 = find_gpu("a100-sxm4-80")


def sent(job: Job, sharding: Sharding) -> dict[str, float]:
    """Bytes per optimizer step, by collective."""
    steps = job.gradient_accumulation_steps
    return {found.name: found.bytes * (steps if found.each_micro_batch else 1) for found in collectives(job, sharding)}


def test_the_stages_send_what_their_papers_say(llama_2_7b: Architecture) -> None:
    # arXiv:1910.02054, sec. 7: stages 1 and 2 send as much as data parallelism, stage 3 half as much again.
    job = Job(architecture=llama_2_7b, method="full", gradient_checkpointing="off")
    psi = 2 * PARAMS * 7 / 8
    totals = {kind: sum(sent(job, Sharding(kind, 8)).values()) for kind in ("ddp", "zero1", "zero2", "zero3", "fsdp")}
    assert totals == {"ddp": 2 * psi, "zero1": 2 * psi, "zero2": 2 * psi, "zero3": 3 * psi, "fsdp": 3 * psi}


def test_accumulation_reduces_once_or_each_time(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b, method="full")
    many = job.changed(gradient_accumulation_steps=4)
    for kind, times in (("ddp", 1), ("zero1", 1), ("fsdp", 4), ("zero3", 4)):
        assert sum(sent(many, Sharding(kind, 8)).values()) == times * sum(sent(job, Sharding(kind, 8)).values())  # type: ignore[arg-type]


def test_lora_reduces_its_adapters_and_gathers_the_base(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b, method="lora")
    assert sent(job, Sharding("ddp", 4)) == {"gradients reduced": 2 * 0.75 * 2 * 39_976_960}
    assert sent(job, Sharding("fsdp", 4)) == {
        "weights gathered": 2 * 0.75 * 2 * (PARAMS + 39_976_960),
        "gradients scattered": 0.75 * 2 * 39_976_960,
    }


def test_a_4_bit_base_is_gathered_only_where_it_is_divided(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b)
    linears, rest = 6_476_005_376, PARAMS - 6_476_005_376 + 39_976_960
    whole = sent(job, Sharding("fsdp", 2))["weights gathered"]
    divided = sent(job, Sharding("fsdp", 2, divided_base=True))["weights gathered"]
    assert whole == 2 * 0.5 * 2 * rest
    assert divided == whole + 2 * 0.5 * linears / 2


def test_hybrid_reduces_a_nodes_part_across_nodes(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b, method="full")
    found = sent(job, Sharding("hybrid", 16))
    assert found["gradients scattered"] == 7 / 8 * 2 * PARAMS
    assert found["gradients reduced"] == 2 * 1 / 2 * 2 * PARAMS / 8


def test_tensor_parallelism_sums_hidden_states_twice_a_pass(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b, method="full", sequence_length=1024, micro_batch_size=2)
    hidden = 2 * 1024 * 4096 * 2
    assert sent(job, Sharding("tensor", 4)) == {"hidden states summed": 2 * 0.75 * hidden * 6 * 32}
    alone, divided = step_time(job, A100), step_time(job, A100, Sharding("tensor", 4))
    assert divided.seconds < alone.seconds < 4 * divided.seconds
    assert divided.tokens == alone.tokens  # all work on the same rows


def test_links() -> None:
    A = SpeedAssumptions()
    assert link_bytes_per_s(A100, A) == 0.75 * 300e9
    assert link_bytes_per_s(find_gpu("rtx-4090-24"), A) == 0.5 * 31.5e9
    assert link_bytes_per_s(find_gpu("a100-pcie-80"), A) == 0.5 * 31.5e9  # a bridge joins two cards only


def test_an_unknown_link_or_network_is_not_guessed(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b, method="lora")
    with pytest.raises(PlannerError, match="network between nodes is not known"):
        step_time(job, A100, Sharding("fsdp", 16))
    unlinked = A100.model_copy(update={"nvlink_bytes_per_s": None, "pcie_generation": None})
    with pytest.raises(PlannerError, match="PCIe generation of A100 SXM4 80 GB is known"):
        step_time(job, unlinked, Sharding("ddp", 2))
    assert step_time(job, unlinked).seconds > 0


def test_offloading_adds_the_hosts_adam_and_the_way_there_and_back(llama_2_7b: Architecture) -> None:
    job, A = Job(architecture=llama_2_7b, method="full"), SpeedAssumptions()
    share = PARAMS / 8
    by_hand = 2 * 2 * share / (0.5 * 31.5e9) + 8 * share / 4.5e9
    assert offload_seconds(job, A100, Sharding("zero2", 8, offload="optimizer"), A) == pytest.approx(by_hand)
    for kind, offload in (("zero2", "optimizer"), ("zero3", "parameters"), ("fsdp", "parameters")):
        plain, moved = (step_time(job, A100, Sharding(kind, 8, offload=where)).seconds for where in ("none", offload))  # type: ignore[arg-type]
        assert moved > plain


@given(
    st.sampled_from(get_args(Kind)),
    st.sampled_from(["full", "lora"]),
    st.sampled_from([2, 4, 8, 16]),
    st.integers(1, 8),
    st.integers(1, 4096),
    st.integers(1, 8),
    st.floats(1e6, 1e12),
    st.floats(1, 100),
)
@settings(max_examples=150, deadline=None)
def test_a_faster_link_never_lengthens_a_step(
    kind: Any, method: Any, num_gpus: int, batch: int, length: int, steps: int, speed: float, factor: float
) -> None:
    if (kind == "tensor" and num_gpus > 8) or (kind == "hybrid" and num_gpus < 16):
        return
    job = Job(
        architecture=find_model("meta-llama/Llama-3.1-8B"),
        method=method,
        micro_batch_size=batch,
        sequence_length=length,
        gradient_accumulation_steps=steps,
    )
    sharding = Sharding(kind, num_gpus)

    def step(nvlink: float, fabric: float) -> float:
        gpu = A100.model_copy(update={"nvlink_bytes_per_s": nvlink})
        return float(step_time(job, gpu, sharding, fabric_bytes_per_s=fabric).seconds)

    slow = step(speed, speed)
    for faster in (step(speed * factor, speed), step(speed, speed * factor)):
        assert faster <= slow * (1 + 1e-12)
    alone = step_time(job, A100).seconds
    if kind == "ddp":
        assert slow >= alone
