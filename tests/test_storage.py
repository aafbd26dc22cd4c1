"""Disk: worked arithmetic, published source code's counts, and real checkpoints of a tiny model."""

from pathlib import Path
from typing import Any

import pytest

from planner.architecture import Architecture
from planner.job import Job
from planner.sharding import Sharding
from planner.storage import TOKENIZER_BYTES, StoragePolicy, checkpoint_lines, storage
from planner.workload import Workload


def sizes(job: Job, sharding: Sharding | None = None) -> dict[str, float]:
    return {line.name: float(line.bytes) for line in checkpoint_lines(job, sharding)}


def test_a_checkpoint_of_full_fine_tuning_holds_weights_and_states(llama_2_7b: Architecture) -> None:
    params = 6_738_415_616
    mixed = sizes(Job(architecture=llama_2_7b, method="full"))
    assert (mixed["weights"], mixed["optimizer states"]) == (4 * params, 8 * params)
    pure = sizes(Job(architecture=llama_2_7b, method="full", precision="bf16"))
    assert (pure["weights"], pure["optimizer states"]) == (2 * params, 4 * params)


def test_deepspeed_writes_the_weights_twice_below_stage_3_and_frozen_ones_once_more(llama_2_7b: Architecture) -> None:
    params, full = 6_738_415_616, Job(architecture=llama_2_7b, method="full")
    for kind, per_param in (("zero1", 2 + 2 + 12), ("zero2", 2 + 2 + 12), ("zero3", 2 + 12)):
        assert sum(sizes(full, Sharding(kind, 8)).values()) == per_param * params + TOKENIZER_BYTES  # type: ignore[arg-type]
    momentum = full.changed(optimizer="sgd-momentum")
    assert sizes(momentum, Sharding("zero3", 8))["optimizer states and master weights"] == 8 * params
    adapter = sizes(Job(architecture=llama_2_7b, method="lora"), Sharding("zero2", 8))
    assert sum(adapter.values()) == (2 + 2 + 12) * 39_976_960 + TOKENIZER_BYTES
    freeze = Job(architecture=llama_2_7b, method="freeze")
    assert sizes(freeze, Sharding("zero3", 8))["frozen weights, for resuming"] == 2 * (params - freeze.trained_params)


def test_fsdp_gathers_weights_twice_on_the_first_rank_or_writes_a_shard_on_each(llama_2_7b: Architecture) -> None:
    job, workload, params = Job(architecture=llama_2_7b, method="full"), Workload(), 6_738_415_616
    two_nodes = Sharding("fsdp", 16)
    shards, gathered = (storage(job, workload, StoragePolicy(full_checkpoints=full), two_nodes) for full in (False, True))
    assert shards.checkpoint_bytes == (4 + 8) * params + TOKENIZER_BYTES
    assert gathered.checkpoint_bytes == (4 + 4 + 8) * params + TOKENIZER_BYTES
    assert shards.write_s == pytest.approx((6 * params + TOKENIZER_BYTES) / 200e6)
    assert gathered.write_s == pytest.approx(gathered.checkpoint_bytes / 200e6)


def test_a_checkpoint_of_an_adapter_is_small_and_pages_no_state_away(llama_2_7b: Architecture) -> None:
    found = sizes(Job(architecture=llama_2_7b))
    assert (found["adapter"], found["optimizer states"]) == (4 * 39_976_960, 8 * 39_976_960)
    paged = sizes(Job(architecture=llama_2_7b, optimizer="paged-adamw"))
    assert paged["optimizer states"] == 8 * 39_976_960


def test_the_new_checkpoint_stands_beside_those_that_are_kept(llama_2_7b: Architecture) -> None:
    job, workload = Job(architecture=llama_2_7b), Workload(examples=10_000, tokens_per_example=512, epochs=3)
    found = storage(job, workload, StoragePolicy(checkpoint_steps=50, checkpoints_kept=2))
    lines = {line.name: line.bytes for line in found.lines}
    assert found.num_checkpoints == 10  # 15,360,000 tokens in rows of 2,048, 16 a step: 469 steps, the last one saved
    assert lines["checkpoints"] == 3 * found.checkpoint_bytes
    assert lines["model download"] == 2 * 6_738_415_616
    assert lines["dataset"] == 10_000 * 512 * 4
    assert found.peak_bytes == pytest.approx(sum(lines.values()))
    assert found.write_s == pytest.approx(found.checkpoint_bytes / 200e6)


def test_shards_are_written_by_all_nodes_at_once(llama_2_7b: Architecture) -> None:
    job, workload, policy = Job(architecture=llama_2_7b, method="full"), Workload(), StoragePolicy()
    one, two = (storage(job, workload, policy, Sharding("fsdp", count)) for count in (8, 16))
    shared = TOKENIZER_BYTES / 200e6
    assert two.write_s - shared == pytest.approx((one.write_s - shared) / 2)


def test_the_finished_model_lies_beside_the_checkpoints_that_are_kept(llama_2_7b: Architecture) -> None:
    merged = Job(architecture=llama_2_7b, save="merged")
    found = storage(merged, Workload(), StoragePolicy(checkpoint_steps=50, checkpoints_kept=2))
    lines = {line.name: line.bytes for line in found.lines}
    assert lines["merged model"] == found.result_bytes == 2 * 6_738_415_616
    assert lines["checkpoints"] == 2 * found.checkpoint_bytes
    once = storage(Job(architecture=llama_2_7b, method="full"), Workload(), StoragePolicy(checkpoint_steps=10**6))
    lines = {line.name: line.bytes for line in once.lines}
    assert (lines["checkpoints"], lines["finished model"]) == (once.checkpoint_bytes, 4 * 6_738_415_616)


@pytest.mark.parametrize(("packing", "measured"), [(True, 44.75), (False, 48.92)])
def test_the_token_cache_is_as_trl_left_it(llama_2_7b: Architecture, packing: bool, measured: float) -> None:
    """Cached bytes per token that SFTTrainer of TRL 1.16 left of 764,058 tokens, whose text took 4.14 bytes each (2026-12).

    The file that the text itself is read into is one of them.
    """
    tokens = 764_058
    job, workload = Job(architecture=llama_2_7b, packing=packing), Workload(examples=2000, tokens_per_example=tokens / 2000)
    found = storage(job, workload, StoragePolicy(dataset_bytes=round(4.14 * tokens)))
    (cache,) = (line.bytes for line in found.lines if line.name == "token cache")
    assert cache / tokens == pytest.approx(measured, rel=0.01)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of PEFT's and Trainer's own calls
@pytest.mark.parametrize(
    "fields",
    [
        {"method": "full"},
        {"method": "full", "optimizer": "adafactor"},
        {"method": "full", "optimizer": "sgd-momentum"},
        {"method": "freeze", "trainable_layers": 1},
        {"method": "lora"},
        {"method": "lora", "modules_to_save": ("embed_tokens", "lm_head")},
        {"method": "dora"},
        {"method": "ia3"},
        {"method": "prefix"},
        {"method": "prompt"},
        {"method": "p-tuning"},
    ],
    ids=lambda fields: " ".join(str(value) for value in fields.values()),
)
def test_real_checkpoints_are_as_large_and_as_many(fields: dict[str, Any], tmp_path: Path) -> None:
    """A small Llama whose checkpoints Trainer writes; headers take 600 bytes a tensor at most, pickled step counts 1,500."""
    torch = pytest.importorskip("torch")
    import peft
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    from planner.families import architecture_from_config

    config = LlamaConfig(
        hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=2000,
        max_position_embeddings=256,
    )  # fmt: skip
    tiny = architecture_from_config(config.to_dict(), name="tiny")
    job = Job(architecture=tiny, precision="fp32", sequence_length=16, **fields)
    model: Any = LlamaForCausalLM(config)
    if job.method == "freeze":
        model.requires_grad_(False)
        model.model.layers[-1].requires_grad_(True)
    elif job.adapter is not None:
        virtual = {"num_virtual_tokens": job.num_virtual_tokens}
        lora = {"r": 16, "target_modules": "all-linear", "modules_to_save": list(job.modules_to_save) or None}
        adapters: dict[str, Any] = {
            "lora": lambda: peft.LoraConfig(**lora, task_type="CAUSAL_LM"),
            "dora": lambda: peft.LoraConfig(**lora, use_dora=True, task_type="CAUSAL_LM"),
            "ia3": lambda: peft.IA3Config(task_type="CAUSAL_LM"),
            "prefix": lambda: peft.PrefixTuningConfig(**virtual, task_type="CAUSAL_LM"),
            "prompt": lambda: peft.PromptTuningConfig(**virtual, task_type="CAUSAL_LM"),
            "p-tuning": lambda: peft.PromptEncoderConfig(**virtual, task_type="CAUSAL_LM"),
        }
        model = peft.get_peft_model(model, adapters[job.method]())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    momentum = torch.optim.SGD(trained, lr=0.1, momentum=0.9) if job.optimizer == "sgd-momentum" else None
    tensors = len(trained)
    row = torch.randint(0, 2000, (16,))
    arguments = TrainingArguments(
        str(tmp_path), max_steps=5, save_steps=2, save_total_limit=2, per_device_train_batch_size=1, use_cpu=True, report_to=[],
        optim="adafactor" if job.optimizer == "adafactor" else "adamw_torch", disable_tqdm=True,
    )  # fmt: skip
    Trainer(model, arguments, train_dataset=[{"input_ids": row, "labels": row}] * 8, optimizers=(momentum, None)).train()

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-4",
        "checkpoint-5",
    ]  # 2 went, the last is always saved
    written = tmp_path / "checkpoint-5"
    weights, states, _ = sizes(job).values()
    files = sum(file.stat().st_size for file in written.glob("*.safetensors"))
    assert files == pytest.approx(weights, abs=max(200 * tensors, 3000))
    assert (written / "optimizer.pt").stat().st_size == pytest.approx(states, abs=1500 * tensors + 3000)
