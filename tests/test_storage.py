"""Disk and host memory: worked arithmetic, and real checkpoints of a tiny model."""

from pathlib import Path
from typing import Any

import pytest

from planner.architecture import Architecture
from planner.job import Job
from planner.sharding import Sharding
from planner.storage import TOKENIZER_BYTES, StoragePolicy, checkpoint_lines, host_memory, storage
from planner.units import GiB
from planner.workload import Workload


def sizes(job: Job, sharding: Sharding | None = None) -> dict[str, float]:
    return {line.name: float(line.bytes) for line in checkpoint_lines(job, sharding)}


def test_a_checkpoint_of_full_fine_tuning_holds_weights_and_states(llama_2_7b: Architecture) -> None:
    params = 6_738_415_616
    mixed = sizes(Job(architecture=llama_2_7b, method="full"))
    assert (mixed["weights"], mixed["optimizer states"]) == (4 * params, 8 * params)
    pure = sizes(Job(architecture=llama_2_7b, method="full", precision="bf16"))
    assert (pure["weights"], pure["optimizer states"]) == (2 * params, 4 * params)
    zero = sizes(Job(architecture=llama_2_7b, method="full"), Sharding("zero3", 8))
    assert sum(zero.values()) == 14 * params + TOKENIZER_BYTES


def test_a_checkpoint_of_an_adapter_is_small_and_pages_no_state_away(llama_2_7b: Architecture) -> None:
    found = sizes(Job(architecture=llama_2_7b))
    assert (found["adapter"], found["optimizer states"]) == (4 * 39_976_960, 8 * 39_976_960)
    paged = sizes(Job(architecture=llama_2_7b, optimizer="paged-adamw"))
    assert paged["optimizer states"] == 8 * 39_976_960


def test_the_new_checkpoint_stands_beside_those_that_are_kept(llama_2_7b: Architecture) -> None:
    job, workload = Job(architecture=llama_2_7b), Workload(examples=10_000, tokens_per_example=512, epochs=3)
    found = storage(job, workload, StoragePolicy(checkpoint_steps=50, checkpoints_kept=2))
    lines = {line.name: line.bytes for line in found.lines}
    assert found.num_checkpoints == 10  # 469 steps: 15,360,000 tokens in rows of 2,048, 16 of them a step; the last is saved too
    assert lines["checkpoints"] == 3 * found.checkpoint_bytes
    assert lines["model download"] == 2 * 6_738_415_616
    assert lines["dataset"] == 10_000 * 512 * 4
    assert found.peak_bytes == pytest.approx(sum(lines.values()))
    assert found.write_s == pytest.approx(found.checkpoint_bytes / 200e6)


def test_shards_are_written_by_all_nodes_at_once(llama_2_7b: Architecture) -> None:
    job, workload, policy = Job(architecture=llama_2_7b, method="full"), Workload(), StoragePolicy()
    one, two = (storage(job, workload, policy, Sharding("fsdp", count)) for count in (8, 16))
    assert two.write_s == pytest.approx(one.write_s / 2)


def test_loading_under_fsdp_takes_the_whole_model_in_ram_once(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b, method="full")
    found = host_memory(job, StoragePolicy(), Sharding("fsdp", 8))
    assert found.moment == "loading"
    assert found.peak_bytes == 8 * 3 * GiB + 2 * 6_738_415_616


def test_offload_puts_16_bytes_per_parameter_into_ram(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b, method="full")
    found = host_memory(job, StoragePolicy(loader_workers=0), Sharding("zero2", 8, offload="optimizer"))
    assert found.moment == "training"
    assert found.peak_bytes == pytest.approx(8 * 3 * GiB + 16 * 6_738_415_616)
    two_nodes = host_memory(job, StoragePolicy(loader_workers=0), Sharding("zero2", 16, offload="optimizer"))
    assert two_nodes.peak_bytes == pytest.approx(8 * 3 * GiB + 8 * 6_738_415_616)


def test_merging_holds_the_16_bit_base(llama_2_7b: Architecture) -> None:
    found = host_memory(Job(architecture=llama_2_7b, save="merged"), StoragePolicy())
    assert found.moment == "merging"
    assert found.peak_bytes == 3 * GiB + 2 * 6_738_415_616 + 4 * 39_976_960


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of PEFT's own calls
@pytest.mark.parametrize(
    "fields", [{"method": "full"}, {"method": "lora"}, {"method": "full", "optimizer": "sgd-momentum"}], ids=str
)
def test_real_checkpoints_are_as_large(fields: dict[str, Any], tmp_path: Path) -> None:
    """A small Llama saved by transformers, PEFT and torch; their headers take a few KiB, the step counts 500 bytes a tensor."""
    torch = pytest.importorskip("torch")
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    from planner.families import architecture_from_config

    config = LlamaConfig(
        hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=2000,
        max_position_embeddings=256,
    )  # fmt: skip
    job = Job(
        architecture=architecture_from_config(config.to_dict(), name="tiny"), precision="fp32", sequence_length=16, **fields
    )
    model: Any = LlamaForCausalLM(config)
    if job.adapter is not None:
        model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    momentum = {"momentum": 0.9, "lr": 0.1}
    optimizer = torch.optim.SGD(trained, **momentum) if job.optimizer == "sgd-momentum" else torch.optim.AdamW(trained)
    ids = torch.randint(0, 2000, (1, 16))
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    model.save_pretrained(tmp_path / "model")
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.pt")
    found = sizes(job)
    weights = sum(file.stat().st_size for file in (tmp_path / "model").glob("*.safetensors"))
    assert weights == pytest.approx(found["weights" if job.adapter is None else "adapter"], abs=12_000)
    states = (tmp_path / "optimizer.pt").stat().st_size
    assert states == pytest.approx(found["optimizer states"], abs=1500 * len(trained) + 10_000)
