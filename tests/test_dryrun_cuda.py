"""Each row of the CUDA table and of the load table, switched off: the log lacks what the row says."""

from collections.abc import Callable
from typing import Any

import pytest
from dryrun_tiny import LORA, QLORA, S, count, found, run, tiny

from planner.dryrun import DryRun, dry_run
from planner.dryrun.load import LOAD_BEHAVIOURS
from planner.errors import InvalidJob

for package in ("torch", "transformers", "peft", "bitsandbytes"):
    pytest.importorskip(package)

from planner.dryrun.cuda import BEHAVIOURS  # noqa: E402


def cublas_workspace(on: DryRun, off: DryRun) -> None:
    assert on.tensor_bytes_at("optimizer") - off.tensor_bytes_at("optimizer") == 2 * 8_519_680  # two threads


def softmax_backward(on: DryRun, off: DryRun) -> None:
    assert on.tensor_bytes_at("backward_start") - off.tensor_bytes_at("backward_start") == 4 * 4 * 512 * 512


def half_to_float(on: DryRun, off: DryRun) -> None:
    casts = [count(r, "_to_copy", shape=(1, 4, 512, 512), dtype="float32", phase="recompute") for r in (on, off)]
    assert casts == [0, 2]
    assert count(on, "_softmax", dtype="float32", phase="recompute") == count(off, "_softmax", dtype="float32", phase="recompute")
    assert off.tensor_bytes_at("backward_start") > on.tensor_bytes_at("backward_start")


def native_dropout(on: DryRun, off: DryRun) -> None:
    masks = found(on, operator="native_dropout", dtype="bool", phase="forward")
    assert len(masks) == 2 and {a.bytes for a in masks} == {S * 128}
    assert not count(off, "native_dropout")


def autocast(on: DryRun, off: DryRun) -> None:
    assert count(on, "pow", dtype="float32", phase="forward") == 2 == count(off, "pow", dtype="bfloat16", phase="forward")


def autocast_4_bit(on: DryRun, off: DryRun) -> None:
    """PEFT's 4-bit layers cast their input to fp32 where no autocast is on."""
    casts = [
        [a for a in found(r, operator="_to_copy", dtype="float32", phase="forward") if a.module.endswith("q_proj")]
        for r in (on, off)
    ]
    assert not casts[0] and casts[1]


def sdpa(on: DryRun, off: DryRun) -> None:
    assert count(on, "_scaled_dot_product_flash_attention", phase="forward")
    assert not count(on, "_scaled_dot_product_flash_attention_for_cpu")
    assert count(off, "_scaled_dot_product_flash_attention_for_cpu", phase="forward")


def sdpa_on_turing(on: DryRun, off: DryRun) -> None:
    assert count(on, "_scaled_dot_product_efficient_attention", phase="forward")
    assert not count(off, "_scaled_dot_product_efficient_attention")


def flash_backward(on: DryRun, off: DryRun) -> None:
    inside = {a.operator: a.bytes for a in on.log.allocations if a.operator.startswith("flash backward")}
    assert inside == {
        "flash backward: dq in fp32": 4 * S * 4 * 32,
        "flash backward: softmax sums": 4 * S * 4,
        "flash backward: dk for every query head": 2 * S * 4 * 32,
        "flash backward: dv for every query head": 2 * S * 4 * 32,
    }
    assert not count(off, "flash backward")


def efficient_backward(on: DryRun, off: DryRun) -> None:
    inside = {a.operator: a.bytes for a in on.log.allocations if a.operator.startswith("efficient backward")}
    assert inside == {"efficient backward: delta": 4 * 4 * S, "efficient backward: dq in fp32": 4 * 4 * S * 32}
    assert not count(off, "efficient backward")


def dequantize_4bit(on: DryRun, off: DryRun) -> None:
    made = found(on, operator="4-bit weight made 16-bit")
    assert {a.bytes for a in made} == {2 * 128 * 128, 2 * 128 * 64, 2 * 128 * 256}
    assert {a.bytes for a in found(on, operator="scales of a 4-bit weight in fp32")} == {
        4 * n * 128 // 64 for n in (64, 128, 256)
    }
    assert not count(off, "4-bit weight made 16-bit")


def accumulate_in_place(on: DryRun, off: DryRun) -> None:
    """Queries, keys and values send three gradients to the norm before them; gate and up send two."""
    sums = [count(r, "add.Tensor", phase="backward") for r in (on, off)]
    assert sums[1] - sums[0] >= 2 * (2 + 1)


def int8_matmul(on: DryRun, off: DryRun) -> None:
    assert count(on, "int8_vectorwise_quant", phase="forward") and not count(off, "int8_vectorwise_quant")


def load_warmup(on: DryRun, off: DryRun) -> None:
    (room,) = found(on, operator="room for the model")
    linears, others = 2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 256, 2 * 40_000 * 128 + 3 * 128
    inv_freq = sum(a.bytes for a in found(on, category="weights") if "inv_freq" in a.module) // 2
    assert room.bytes == linears // 2 + 2 * others + inv_freq
    assert on.log.events[:2] == [n := on.log.allocations.index(room), ~n]
    assert not count(off, "room for the model")


def kbit_empty_cache(on: DryRun, off: DryRun) -> None:
    (position,) = on.log.emptied_at
    (end, _) = next(mark for mark in on.log.marks if mark[1] == "step 1 forward")
    assert 0 < position < end
    assert not off.log.emptied_at
    assert on.replay.reserved[position - 1] > on.replay.reserved[position]


TURING: dict[str, Any] = {**LORA, "gpu": "t4", "precision": "fp16"}
SCORES: dict[str, Any] = {"layers": 1, "attention": "eager", "sequence_length": 512}
ROWS: list[tuple[str, dict[str, Any], Callable[[DryRun, DryRun], None]]] = [
    ("cublas_workspace", LORA, cublas_workspace),
    ("softmax_backward", {**SCORES, "precision": "fp32"}, softmax_backward),
    ("half_to_float", {**SCORES, "precision": "fp16"}, half_to_float),
    ("native_dropout", {**LORA, "lora_dropout": 0.1}, native_dropout),
    ("autocast", {"layers": 1, "model_type": "gpt2"}, autocast),
    ("autocast", QLORA, autocast_4_bit),
    ("sdpa", LORA, sdpa),
    ("sdpa", TURING, sdpa_on_turing),
    ("flash_backward", LORA, flash_backward),
    ("efficient_backward", TURING, efficient_backward),
    ("dequantize_4bit", QLORA, dequantize_4bit),
    ("accumulate_in_place", LORA, accumulate_in_place),
    ("int8_matmul", {**LORA, "quantization": "int8"}, int8_matmul),
    ("load_warmup", QLORA, load_warmup),
    ("kbit_empty_cache", QLORA, kbit_empty_cache),
]


@pytest.mark.parametrize(("row", "fields", "check"), ROWS, ids=[f"{name}-{check.__name__}" for name, _, check in ROWS])
def test_a_row_that_is_switched_off_is_missing(row: str, fields: Any, check: Callable[[DryRun, DryRun], None]) -> None:
    check(run(**fields), run(row, **fields))


def test_experts_in_fp32_are_multiplied_only_with_the_row_grouped_mm() -> None:
    job = tiny(1, "qwen3_moe", precision="fp32")
    assert count(dry_run(job), "_grouped_mm", dtype="float32")
    with pytest.raises(InvalidJob, match="Expected inputs of BF16 type"):
        dry_run(job, without=["grouped_mm"])


def test_every_row_has_such_a_test() -> None:
    assert {row for row, _, _ in ROWS} | {"grouped_mm"} == {*BEHAVIOURS, *LOAD_BEHAVIOURS}


def test_a_row_that_does_not_exist_is_one_sentence() -> None:
    with pytest.raises(InvalidJob, match=r"no CUDA behaviour 'warp'.*there are cublas_workspace, .*kbit_empty_cache"):
        dry_run(tiny(), without=["warp"])
