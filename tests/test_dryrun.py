"""The dry run: its log, its few blocks, the bytes of a tiny model, what it refuses, and what it must leave alone."""

import os
from importlib import import_module
from typing import Any

import pytest
from dryrun_tiny import LLAMA, QLORA, S, found, run, tiny, total
from hypothesis import given
from hypothesis import strategies as st

from planner import dryrun
from planner.dryrun import dry_run
from planner.dryrun.depth import _neighbourhoods, shallow_blocks
from planner.dryrun.log import Allocation, EventLog
from planner.errors import InvalidJob, PlannerError
from planner.families import architecture_from_config
from planner.job import Job
from planner.units import MiB

torch = pytest.importorskip("torch")
for package in ("transformers", "peft", "bitsandbytes"):
    pytest.importorskip(package)

# ---- the log ----------------------------------------------------------------------------------------------------------


def small_log() -> EventLog:
    log = EventLog([Allocation(size, "weights", "load", "", "parameter") for size in (512, 1, 1025)])
    log.events, log.at = [0, 1, ~1, 2, ~0], [None] * 5
    log.marks = [(0, "load"), (1, "step 1 forward"), (3, "empty cache"), (3, "step 1 backward")]
    return log


def test_a_curve_counts_blocks_of_512_bytes() -> None:
    assert small_log().curve() == [512, 1024, 512, 512 + 1536, 1536]


def test_windows_go_from_mark_to_mark() -> None:
    windows = [("load", 0, 1), ("step 1 forward", 1, 3), ("empty cache", 3, 3), ("step 1 backward", 3, 5)]
    assert list(small_log().windows()) == windows
    assert small_log().emptied_at == {3}


@pytest.mark.parametrize(("position", "alive"), [(0, [0]), (1, [0, 1]), (2, [0]), (3, [0, 2]), (4, [2])])
def test_what_is_alive_after_an_event(position: int, alive: list[int]) -> None:
    assert small_log().alive_after(position) == alive


# ---- few blocks for many ----------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=40))
def test_the_few_blocks_have_every_neighbourhood_and_no_other(kinds: list[str]) -> None:
    kept = shallow_blocks(kinds)
    assert set(_neighbourhoods([kinds[i] for i in kept])) == set(_neighbourhoods(kinds))
    assert kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (0, len(kinds) - 1)


@given(st.integers(3, 4096))
def test_three_of_many_equal_blocks_are_enough(blocks: int) -> None:
    assert len(shallow_blocks(["same"] * blocks)) == 3


ALIKE: dict[str, dict[str, Any]] = {
    "llama qlora": {"layers": 6, "method": "qlora", "target_modules": ("q_proj",)},
    "gemma 3, sliding and full": {"layers": 5, "model_type": "gemma3_text", "gradient_checkpointing": "off"},
    "mixture of experts": {"layers": 4, "model_type": "qwen3_moe", "precision": "bf16"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [next(iter(ALIKE)), *(pytest.param(name, marks=pytest.mark.slow) for name in list(ALIKE)[1:])])
def test_few_blocks_give_the_bytes_of_all(name: str) -> None:
    few, every = run(**ALIKE[name]), run(full=True, **ALIKE[name])
    assert len(few.traced_blocks) < len(every.traced_blocks) == ALIKE[name]["layers"]
    assert few.allocated_at == every.allocated_at
    assert few.peak.reserved == pytest.approx(every.peak.reserved, abs=2 * MiB)


# ---- worked arithmetic ------------------------------------------------------------------------------------------------

P = 2 * 1000 * 128 + 128 + 2 * (2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 256 + 2 * 128)  # of tiny()


def test_full_fine_tuning_holds_weights_gradients_and_two_states() -> None:
    result = run()
    assert result.job.architecture.num_params == P
    assert sum(a.bytes for a in found(result, category="weights") if "inv_freq" not in a.module) == 4 * P
    assert total(result, category="optimizer_states") == 8 * P
    assert total(result, category="gradients") == 2 * 4 * P  # those of two steps
    states, gradients = (result.components_at("optimizer")[name] for name in ("optimizer_states", "gradients"))
    assert (states, gradients) == (8 * P, 4 * P)


def test_adamw_states_are_twice_the_trained_bytes_of_an_adapter() -> None:
    result = run(method="lora", lora_rank=8)
    trained = 2 * 8 * (2 * 256 + 2 * 192 + 3 * 384)
    assert result.job.trained_params == trained
    assert total(result, category="adapters") == 4 * trained
    assert total(result, category="optimizer_states") == 2 * 4 * trained


def test_4_bit_weights_are_half_a_byte_and_their_scales_a_64th() -> None:
    result = run(method="qlora", double_quant=False)
    linears = 2 * (2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 256)
    assert total(result, category="weights", dtype="uint8") == linears / 2
    scales = [a for a in found(result, category="quantization_state") if a.shape != (16,)]
    assert sum(a.bytes for a in scales) == 4 * linears / 64


def test_logits_are_tokens_by_vocabulary() -> None:
    result = run(method="lora", micro_batch_size=2)
    T, V = 2 * S, 1000
    assert {a.bytes for a in found(result, module="base_model.model.lm_head", operator="mm", phase="forward")} == {2 * T * V}
    log_softmax = [a for a in found(result, category="logits") if a.operator.startswith("_log_softmax")]
    assert log_softmax and {a.bytes for a in log_softmax} == {4 * T * V}


def test_a_loop_that_keeps_its_outputs_keeps_the_logits() -> None:
    fields = {"method": "lora", "precision": "bf16"}
    kept, dropped = run(**fields, keep_outputs=True), run(**fields)
    assert kept.tensor_bytes_at("loss") - dropped.tensor_bytes_at("loss") == 2 * S * 1000


def test_accumulated_gradients_are_alive_in_the_next_forward() -> None:
    once, twice = run(), run(gradient_accumulation_steps=2)
    assert "gradients" not in once.components_at("forward")
    assert twice.components_at("forward")["gradients"] == 4 * P
    assert [name for _, name in twice.log.marks].count("step 1 forward") == 2


def test_memory_runs_out_at_the_event_that_finds_no_room() -> None:
    job = tiny()
    whole = run()
    assert dry_run(job, capacity_bytes=whole.peak.reserved).replay.out_of_memory is None
    found = dry_run(job, capacity_bytes=whole.peak.reserved - 1).replay.out_of_memory
    assert found is not None
    event = whole.log.events[found.position]
    assert event >= 0 and found.requested_bytes == whole.log.allocations[event].bytes
    assert whole.replay.reserved[found.position] == whole.peak.reserved
    assert found.free_bytes < 20 * MiB


# ---- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        (None, "a dry run needs the package 'peft': pip install"),
        ("0.16.9", r"does not know peft 0\.16\.9 \(it knows 0\.17 to below 0\.23\), and will not guess"),
        ("0.23.0.dev0", "does not know peft 0.23.0.dev0"),
        ("1.0", "does not know peft 1.0 "),
    ],
)
def test_a_package_that_is_missing_or_unknown_is_one_sentence(
    version: str | None, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = dryrun._version
    monkeypatch.setattr(dryrun, "_version", lambda package: version if package == "peft" else plain(package))
    with pytest.raises(PlannerError, match=sentence):
        dry_run(tiny())
    assert dryrun.missing_packages() == (["peft"] if version is None else [])


def test_a_class_that_only_remote_code_has_is_one_sentence() -> None:
    config = LLAMA | {"num_hidden_layers": 2, "auto_map": {"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}}
    architecture = architecture_from_config(config, name="own").model_copy(update={"model_type": "own_llama"})
    with pytest.raises(InvalidJob, match=r"transformers .* has no model_type 'own_llama', so it cannot be run dry") as told:
        dry_run(Job(architecture=architecture))
    assert told.value.field == "model_type"


def test_a_million_layers_are_one_sentence() -> None:
    with pytest.raises(InvalidJob, match="num_hidden_layers"):
        tiny(10**6)


def test_many_blocks_that_cannot_be_repeated_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.dryrun.trace.trace_steps", lambda *_, **__: pytest.fail("traced"))
    with pytest.raises(
        InvalidJob, match="tiny has 4,096 blocks that cannot be repeated from a few; a dry run traces at most 1,000"
    ):
        dry_run(tiny(4096, method="prefix"))


def test_a_forward_that_asks_for_values_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama.modeling_llama import LlamaMLP

    plain = LlamaMLP.forward
    monkeypatch.setattr(LlamaMLP, "forward", lambda self, x: plain(self, x) if x.sum() > 0 else x)
    with pytest.raises(InvalidJob, match=r"forward of llama depends on the values of its data \(aten\._local_scalar_dense"):
        dry_run(tiny())


def test_experts_as_linears_are_refused_where_the_library_has_them_fused() -> None:
    with pytest.raises(InvalidJob, match="has the experts of tiny fused, not as linears") as told:
        dry_run(tiny(1, "qwen3_moe", experts_as_linears=True))
    assert told.value.field == "experts_as_linears"


# ---- what is left alone -----------------------------------------------------------------------------------------------


def torch_state() -> dict[str, Any]:
    import bitsandbytes
    import peft
    import transformers
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    overridden = [
        ("softmax.int", "AutogradCPU"),
        ("dropout", "AutogradCPU"),
        ("layer_norm", "AutocastCPU"),
        ("exp", "AutocastCPU"),
    ]
    return {
        "default dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "random numbers": torch.get_rng_state().tolist(),
        "autocast": [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")],
        "autocast regions": (torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()),
        "inference mode": torch.is_inference_mode_enabled(),
        "modes": list(_get_current_dispatch_mode_stack()),
        "kernels": [torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", key) for name, key in overridden],
        "functions": [
            torch.nn.functional.scaled_dot_product_attention, torch.is_autocast_enabled, bitsandbytes.matmul,
            bitsandbytes.functional.create_dynamic_map, torch._meta_registrations._meta_grouped_mm_common,
            import_module("torch.optim.adam")._get_value, transformers.masking_utils.is_tracing,
            transformers.PreTrainedModel.warn_if_padding_and_no_attention_mask, peft.tuners.lora.dora.dequantize_module_weight,
        ],
        "verbosity": transformers.logging.get_verbosity(),
        "environment": {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
    }  # fmt: skip


@pytest.fixture
def unusual_torch() -> Any:
    """A caller with settings of its own."""
    run(**QLORA)  # imports have set their environment
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.float16):
        yield torch_state()
    torch.set_default_dtype(dtype)


def test_torch_is_as_it_was(unusual_torch: dict[str, Any]) -> None:
    usual = run(**QLORA)
    result = dry_run(usual.job)
    assert torch_state() == unusual_torch
    assert result.peak == usual.peak


@pytest.mark.parametrize("failing", ["model_type", "optimizer", "forward", "quantised layer"])
def test_torch_is_as_it_was_after_a_failure(failing: str, unusual_torch: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import bitsandbytes
    from transformers.models.llama.modeling_llama import LlamaMLP

    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise RuntimeError("broken on purpose\nsecond line")

    job = tiny(**QLORA)
    sentence = r"failed in its libraries \(broken on purpose\); use the closed form"
    if failing == "model_type":
        job = job.changed(architecture=job.architecture.model_copy(update={"model_type": "unheard_of"}))
        sentence = "no model_type 'unheard_of'"
    elif failing == "optimizer":
        monkeypatch.setattr(torch.optim.AdamW, "step", fail)
    elif failing == "forward":
        monkeypatch.setattr(LlamaMLP, "forward", fail)
    else:
        monkeypatch.setattr(bitsandbytes.nn.Linear4bit, "__init__", fail)
    with pytest.raises(InvalidJob, match=sentence):
        dry_run(job)
    assert torch_state() == unusual_torch


def test_fake_tensors_of_the_caller_are_refused_as_before() -> None:
    """What fake tensors remember of an operator is shared by a whole process."""
    from torch._subclasses import FakeTensorMode

    dry_run(tiny(1, "qwen3_moe", precision="fp32"))
    with FakeTensorMode():
        rows, experts, ends = torch.empty(2 * S, 64), torch.empty(4, 64, 128), torch.empty(4, dtype=torch.int32)
        with pytest.raises(RuntimeError, match="Expected inputs of BF16 type"):
            torch._grouped_mm(rows, experts, offs=ends)
