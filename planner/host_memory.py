"""Host memory of a job's node, as lines with formula and source, at its fullest moment.

Pages of mapped files, which the system takes back when RAM is short, are not counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.assumption import Assumption
from planner.job import Job
from planner.memory.resident import resident_lines, state_bytes, trained_bytes, weight_lines
from planner.memory.widths import in_16_bit, widths
from planner.sharding import Sharding
from planner.storage import StorageLine, StoragePolicy, checkpoint_lines
from planner.units import GiB

__all__ = ["HostMemory", "host_memory"]

PROCESS_BYTES = Assumption(
    value=3 * GiB, low=1.5 * GiB, high=6 * GiB,
    source="assumed: Python, PyTorch and CUDA's host side per rank; without CUDA 0.4 GiB was measured",
)  # fmt: skip
WORKER_BYTES = Assumption(
    value=0.5 * GiB, low=0.2 * GiB, high=2 * GiB, source="assumed: an interpreter with PyTorch per loader worker"
)
PINNED_SHARE = Assumption(
    value=1.5, low=1.0, high=2.0,
    source="deepspeed/runtime/zero/stage_1_and_2.py, estimate_zero2_model_states_mem_needs: factor 1.5 for buffers",
)  # fmt: skip
SHARD_BYTES = 50e9  # of a file that is saved: transformers/modeling_utils.py, save_pretrained (max_shard_size)
TENSORS_AT_ONCE = 4  # transformers/core_model_loading.py, GLOBAL_WORKERS; one where it quantises

_MAPPED = (
    "transformers/core_model_loading.py: safetensors are mapped, and a few tensors at once copied to the card; measured: "
    "1.1 GB loaded in its own dtype took 2 MB"
)
_ON_CPU = "trl/trainer/sft_trainer.py: no device_map with several ranks, so each casts the model in RAM; measured: 2.2 GB for 1.1 GB to fp32"
_FIRST_RANK = (
    "transformers/modeling_utils.py, accelerate/utils/fsdp_utils.py: the node's first rank alone reads the model, and casts it"
)
_SAFETENSORS = "safetensors/torch.py, _flatten_as_ptr: all tensors of a file are copied to the CPU before it is written"
_CLONES = "accelerate/accelerator.py, get_state_dict: below stage 3 every rank clones the whole model to the CPU"
_GATHERED = "accelerate/utils/fsdp_utils.py: state dicts are moved to the CPU, the weights' before the optimizer's"


@dataclass(frozen=True)
class HostMemory:
    """RAM lines of one node at its fullest moment, and which that is."""

    moment: str
    lines: tuple[StorageLine, ...]

    @property
    def peak_bytes(self) -> float:
        """What the node's RAM must hold."""
        return float(sum(line.bytes for line in self.lines))


def host_memory(job: Job, policy: StoragePolicy, sharding: Sharding | None = None) -> HostMemory:
    """RAM of the first node while it loads, trains (and saves), and merges; the fullest of the three."""
    ranks = min(sharding.num_gpus, sharding.gpus_per_node) if sharding else 1
    process = StorageLine("processes", ranks * PROCESS_BYTES.value, f"{ranks} x 3 GiB", PROCESS_BYTES.source)
    moments: dict[str, Sequence[StorageLine]] = {
        "loading": [process, _loading(job, ranks, sharding)],
        "training": [process, *_training(job, policy, ranks, sharding)],
    }
    if job.save == "merged":
        size = 2.0 * job.architecture.num_params + float(trained_bytes(job, widths(job)))
        line = StorageLine(
            "base and adapter being merged", size, "P x 2 + adapter", "peft merge_and_unload on a 16-bit base in RAM"
        )
        moments["merging"] = [StorageLine("processes", PROCESS_BYTES.value, "3 GiB", PROCESS_BYTES.source), line]
    fullest = max(moments, key=lambda name: sum(line.bytes for line in moments[name]))
    return HostMemory(fullest, tuple(moments[fullest]))


def _loading(job: Job, ranks: int, sharding: Sharding | None) -> StorageLine:
    """Quantised layers, one GPU and tensor parallelism load straight to the card."""
    a, kind = job.architecture, sharding.kind if sharding else "none"
    w = in_16_bit(job, widths(job))[1] if kind.startswith("zero") else widths(job)
    whole = w.weights * a.num_params
    if job.quantization == "none" and kind in ("fsdp", "hybrid", "zero3"):
        return StorageLine("model on its first rank", whole, f"P x {w.weights}", _FIRST_RANK)
    dtype = "float32" if w.weights == 4 else "float16" if job.precision.startswith("fp16") else "bfloat16"
    if job.quantization == "none" and kind in ("ddp", "zero1", "zero2") and dtype != a.torch_dtype:
        return StorageLine("model on each rank, cast", ranks * whole, f"{ranks} x P x {w.weights}", _ON_CPU)
    largest = max(a.embedding_params, a.head_params, *(block.expert_params for block in a.blocks))
    count = ranks * (TENSORS_AT_ONCE if job.quantization == "none" else 1)
    size, formula = count * largest * w.weights, f"{count} x largest tensor x {w.weights}"
    return StorageLine("tensors being loaded", size, formula, _MAPPED)


def _training(job: Job, policy: StoragePolicy, ranks: int, sharding: Sharding | None) -> Iterator[StorageLine]:
    w = widths(job)
    workers = policy.loader_workers * ranks
    yield StorageLine("data loader", workers * WORKER_BYTES.value, f"{workers} workers x 0.5 GiB", WORKER_BYTES.source)
    if job.optimizer_row.paged:
        size = float(state_bytes(job, w, on_card=False) - state_bytes(job, w))
        yield StorageLine("paged optimizer states", size, "those that leave the card", job.optimizer_row.source)
    if sharding and sharding.offload != "none":
        yield _offloaded(job, ranks, sharding)
    saving = _saving(job, policy, ranks, sharding)
    if saving:
        yield saving


def _offloaded(job: Job, ranks: int, sharding: Sharding) -> StorageLine:
    """What this node's ranks keep in pinned memory instead of on their cards."""
    w, share = widths(job), 1 if sharding.kind == "hybrid" else ranks / sharding.num_gpus
    if sharding.kind in ("fsdp", "hybrid"):
        moved = [line for line in resident_lines(job, w) if line.component in ("weights", "adapters", "optimizer_states")]
        if not sharding.divided_base:
            moved = [line for line in moved if line.name != "quantised weights"]
        whole = float(sum(line.bytes for line in moved) + trained_bytes(job, w))
        formula, source = "weights, gradients and states of the ranks here", "torch FSDP2, CPUOffloadPolicy, pinned"
    else:
        a, b = job.architecture, in_16_bit(job, w)[1].compute
        per_param = 4 * (2 + job.optimizer_row.states)
        whole, formula = float(per_param * job.trained_params), f"(P_t + P_copied) x {per_param}"
        if sharding.offload == "parameters":
            quantized = a.linear_params(experts=job.experts_as_linears)[0] if job.quantization != "none" else 0
            whole, formula = whole + b * (a.num_params - quantized), f"{formula} + (P - P_q) x {b}"
        whole, formula, source = PINNED_SHARE.value * whole, f"({formula}) x 1.5", PINNED_SHARE.source
    return StorageLine("offloaded states", share * whole, formula, source)


def _saving(job: Job, policy: StoragePolicy, ranks: int, sharding: Sharding | None) -> StorageLine | None:
    """Copies from the cards while a checkpoint is written; FSDP's parameters on the host need none."""
    kind = sharding.kind if sharding else "none"
    name = "checkpoint being written"
    weights, *others = checkpoint_lines(job, sharding)
    if kind in ("zero1", "zero2"):
        run, w = in_16_bit(job, widths(job))
        size = float(sum(line.bytes for line in weight_lines(run, w.vectors, "save")) + weights.bytes * (job.adapter is not None))
        return StorageLine(name, ranks * size, f"{ranks} x the model", _CLONES)
    if sharding and kind in ("fsdp", "hybrid"):
        if sharding.offload != "none":
            return None
        states = float(others[0].bytes)
        if policy.full_checkpoints:
            base = float(sum(line.bytes for line in weight_lines(job, widths(job).vectors, "save")))
            size = max(base + float(weights.bytes) * (job.adapter is not None), states)
            return StorageLine(name, size, "the larger of model and states", _GATHERED)
        share = 1 if kind == "hybrid" else ranks / sharding.num_gpus
        size = share * max(float(weights.bytes), states)
        return StorageLine(name, size, "the larger of weights and states of the ranks here", _GATHERED)
    size = min(float(weights.bytes), SHARD_BYTES)
    return StorageLine(name, size, "min of weights, 50 GB", _SAFETENSORS)
