"""Host memory: worked arithmetic of each moment, and what loading takes by measurement."""

from pathlib import Path
from typing import Any

import pytest

from planner.architecture import Architecture
from planner.host_memory import host_memory
from planner.job import Job
from planner.sharding import Sharding
from planner.storage import StoragePolicy
from planner.units import GiB

PARAMS = 6_738_415_616
NO_WORKERS = StoragePolicy(loader_workers=0)


def lines(job: Job, policy: StoragePolicy = NO_WORKERS, sharding: Sharding | None = None) -> dict[str, float]:
    return {line.name: float(line.bytes) for line in host_memory(job, policy, sharding).lines}


def test_loading_under_fsdp_takes_the_whole_model_in_ram_once_as_it_is_trained(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b, method="full")
    for sharding, size in ((Sharding("fsdp", 16), 4), (Sharding("zero3", 16), 2)):
        found = host_memory(job.changed(optimizer="sgd"), NO_WORKERS, sharding)
        assert found.moment == "loading"
        assert found.peak_bytes == 8 * 3 * GiB + size * PARAMS


def test_each_rank_casts_the_whole_model_where_nothing_is_divided(llama_2_7b: Architecture) -> None:
    found = host_memory(Job(architecture=llama_2_7b, method="full"), NO_WORKERS, Sharding("ddp", 8))  # fp16 files, fp32 weights
    assert found.moment == "loading"
    assert found.peak_bytes == 8 * 3 * GiB + 8 * 4 * PARAMS


def test_what_is_loaded_as_it_lies_in_the_file_is_mapped(llama_2_7b: Architecture) -> None:
    """Mapped and sent to the card four tensors at a time."""
    assert llama_2_7b.torch_dtype == "float16"
    job = Job(architecture=llama_2_7b, method="lora", precision="fp16-mixed")
    assert lines(job, sharding=Sharding("ddp", 8))["tensors being loaded"] == 8 * 4 * 32_000 * 4_096 * 2


def test_qlora_needs_little_host_memory(llama_2_7b: Architecture) -> None:
    found = host_memory(Job(architecture=llama_2_7b), StoragePolicy())
    assert found.peak_bytes < 6 * GiB


def test_a_file_of_weights_is_copied_to_the_host_before_it_is_written(llama_2_7b: Architecture) -> None:
    full = Job(architecture=llama_2_7b, method="full")
    assert lines(full)["checkpoint being written"] == 4 * PARAMS
    lora = Job(architecture=llama_2_7b, method="lora")
    assert lines(lora, sharding=Sharding("zero2", 8))["checkpoint being written"] == 8 * 2 * (PARAMS + 39_976_960)


def test_fsdp_gathers_the_larger_of_weights_and_states(llama_2_7b: Architecture) -> None:
    full, two_nodes = Job(architecture=llama_2_7b, method="full"), Sharding("fsdp", 16)
    gathered = lines(full, StoragePolicy(loader_workers=0, full_checkpoints=True), two_nodes)
    assert gathered["checkpoint being written"] == 8 * PARAMS
    pure = full.changed(precision="fp16", optimizer="adamw")
    shards = host_memory(pure, StoragePolicy(loader_workers=40), two_nodes)
    assert {line.name: line.bytes for line in shards.lines}["checkpoint being written"] == 4 * PARAMS / 2


def test_offload_puts_16_bytes_per_parameter_into_ram(llama_2_7b: Architecture) -> None:
    """As DeepSpeed's estimate_zero2_model_states_mem_needs and estimate_zero3_... with their factor for buffers."""
    job = Job(architecture=llama_2_7b, method="full")
    for kind, offload, per_param in (("zero2", "optimizer", 16), ("zero3", "optimizer", 16), ("zero3", "parameters", 18)):
        for gpus in (8, 16):
            sharding: Any = Sharding(kind, gpus, offload=offload)  # type: ignore[arg-type]
            assert lines(job, sharding=sharding)["offloaded states"] == pytest.approx(1.5 * per_param * PARAMS * 8 / gpus)


def test_a_4_bit_base_that_fsdp_offloads_stays_4_bit(llama_2_7b: Architecture) -> None:
    job = Job(architecture=llama_2_7b, kbit_preparation=False)
    found = lines(job, sharding=Sharding("fsdp", 8, offload="parameters", divided_base=True))
    blocks = 32 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
    adapter = 39_976_960 * (4 + 4 + 8)
    assert found["offloaded states"] == blocks / 2 + 2 * (PARAMS - blocks) + adapter


def test_merging_holds_the_16_bit_base(llama_2_7b: Architecture) -> None:
    found = host_memory(Job(architecture=llama_2_7b, save="merged"), StoragePolicy())
    assert found.moment == "merging"
    assert found.peak_bytes == 3 * GiB + 2 * PARAMS + 4 * 39_976_960


def test_paged_states_move_to_the_host(llama_2_7b: Architecture) -> None:
    paged = lines(Job(architecture=llama_2_7b, method="full", optimizer="paged-adamw"))["paged optimizer states"]
    small = 65 * 4_096  # norms, which are never paged
    assert paged == 8 * (PARAMS - small)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "times"), [("bfloat16", 0), ("float32", 2)])
def test_loading_takes_ram_only_where_it_casts(dtype: str, times: int, tmp_path: Path) -> None:
    """Memory of its own (RssAnon) that a fresh process takes for a model of 118 MB, whose files are mapped."""
    import subprocess
    import sys

    torch = pytest.importorskip("torch")
    if not Path("/proc/self/status").exists():
        pytest.skip("no /proc on this system")
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=8, vocab_size=4000)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    size = sum(parameter.numel() * 2 for parameter in model.parameters())
    model.save_pretrained(tmp_path)
    code = (
        "import torch, sys; from transformers import LlamaForCausalLM as M\n"
        "own = lambda: 1024 * next(int(x.split()[1]) for x in open('/proc/self/status') if x.startswith('RssAnon'))\n"
        "before = own(); m = M.from_pretrained(sys.argv[1], dtype=getattr(torch, sys.argv[2])); print(own() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), dtype], capture_output=True, text=True, check=True)
    assert int(done.stdout) == pytest.approx(times * size, abs=0.15 * size)
