"""Disk and host memory of a job, as lines with formula and source: what is downloaded, written and kept, and what lies in RAM."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, NonNegativeInt, PositiveInt

from planner.architecture import Record
from planner.assumption import Assumption
from planner.job import Job
from planner.memory.resident import state_bytes, trained_bytes
from planner.memory.widths import widths
from planner.precision import BYTES
from planner.sharding import Sharding
from planner.units import GiB
from planner.workload import Workload

__all__ = [
    "DISK_BYTES_PER_S", "HostMemory", "Storage", "StorageLine", "StoragePolicy", "checkpoint_lines", "host_memory", "storage",
]  # fmt: skip

DiskClass = Literal["network volume", "SATA SSD", "NVMe", "object storage"]

# Bytes per second that one process writes. Source: assumed, from the classes' usual sequential rates; a pilot measures it.
DISK_BYTES_PER_S: dict[DiskClass, float] = {"network volume": 200e6, "SATA SSD": 450e6, "NVMe": 1.5e9, "object storage": 100e6}

ENVIRONMENT_BYTES = Assumption(
    value=10 * GiB, low=7 * GiB, high=25 * GiB, source="assumed: PyTorch with CUDA and its libraries, unpacked; more as an image"
)
PROCESS_BYTES = Assumption(
    value=3 * GiB, low=1.5 * GiB, high=6 * GiB,
    source="assumed: Python, PyTorch and CUDA's host side per rank; without CUDA 0.43 GiB was measured",
)  # fmt: skip
WORKER_BYTES = Assumption(
    value=0.5 * GiB, low=0.2 * GiB, high=2 * GiB, source="assumed: an interpreter with PyTorch per loader worker"
)
TEXT_BYTES_PER_TOKEN = 4  # of English; a byte-level BPE made on the spot gave 3.9 (2026-12)
TOKEN_BYTES = 5  # datasets/arrow_writer.py, OptimizedTypedSequence: input_ids int32, attention_mask int8
SHARD_BYTES = 5e9  # of a checkpoint's file on the Hub: huggingface_hub/serialization, max_shard_size
TOKENIZER_BYTES = 20e6  # tokenizer.json and the configs: 17 MB for Llama 3

_SAVE = "transformers/trainer.py, _save_checkpoint: save_model, optimizer.pt, scheduler, RNG and trainer state"
_ZERO_SAVE = "deepspeed: fp32 master weights and states of each rank, and 16-bit weights for loading"
_ROTATE = "transformers/trainer_utils.py, rotate_checkpoints: the oldest goes after the newest is written"


class StorageLine(NamedTuple):
    """One part of what lies on a disk or in RAM."""

    name: str
    bytes: Any
    formula: str
    source: str


class StoragePolicy(Record):
    """What is kept, and where it is written. Raises InvalidJob, one sentence that names the field."""

    checkpoint_steps: PositiveInt = 100  # save_steps
    checkpoints_kept: Annotated[PositiveInt, Field(le=10_000)] = 2  # save_total_limit
    kept_days: Annotated[float, Field(ge=0, le=3650, allow_inf_nan=False)] = 0.0  # that the disk is kept with no machine running
    disk: DiskClass = "network volume"
    loader_workers: Annotated[NonNegativeInt, Field(le=1024)] = 2  # per rank
    dataset_bytes: PositiveInt | None = None  # of the user's file; else estimated from its tokens


@dataclass(frozen=True)
class Storage:
    """Disk lines of one node's volume, all of which are there at its fullest."""

    lines: tuple[StorageLine, ...]
    checkpoint_bytes: float
    result_bytes: float
    model_bytes: float
    dataset_bytes: float
    write_s: float  # of one checkpoint, while training waits
    num_checkpoints: int

    @property
    def peak_bytes(self) -> float:
        """The fullest that the disk becomes."""
        return float(sum(line.bytes for line in self.lines))


def checkpoint_lines(job: Job, sharding: Sharding | None = None) -> tuple[StorageLine, ...]:
    """What one checkpoint holds: weights or adapter, the optimizer's states, and small files."""
    w = widths(job)
    small = StorageLine("tokenizer, scheduler and random states", TOKENIZER_BYTES, "about 20 MB", _SAVE)
    if sharding and sharding.kind.startswith("zero"):
        states, weights = 12 * job.trained_params, 2 * job.trained_params
        return (
            StorageLine("weights", weights, "(P_t + P_copied) x 2", _ZERO_SAVE),
            StorageLine("optimizer states and master weights", states, "(P_t + P_copied) x 12", _ZERO_SAVE),
            small,
        )
    if job.method == "freeze":
        weights, name, formula = w.weights * job.architecture.num_params, "weights", f"P x {w.weights}"
    else:
        weights, name = trained_bytes(job, w), "weights" if job.adapter is None else "adapter"
        formula = f"trained parameters x {w.weights if job.adapter is None else w.adapter}"
    states = state_bytes(job, w, on_card=False)
    return (
        StorageLine(name, weights, formula, _SAVE),
        StorageLine("optimizer states", states, "as in memory", job.optimizer_row.source),
        small,
    )


def _model_bytes(job: Job) -> float:
    return float(job.architecture.num_params * BYTES[job.architecture.torch_dtype])


def storage(job: Job, workload: Workload, policy: StoragePolicy, sharding: Sharding | None = None) -> Storage:
    """The disk of one node. FSDP and ZeRO write a shard on each rank, so that several nodes hold a part each."""
    a, tokens = job.architecture, workload.examples * workload.tokens_per_example
    checkpoint = float(sum(line.bytes for line in checkpoint_lines(job, sharding)))
    nodes = sharding.nodes if sharding and sharding.kind != "ddp" else 1
    model, data = _model_bytes(job), policy.dataset_bytes or tokens * TEXT_BYTES_PER_TOKEN
    merged = 2.0 * a.num_params if job.save == "merged" else 0.0
    saves = -(
        -workload.steps(job) // policy.checkpoint_steps
    )  # the last step is saved too (trainer_callback.py, DefaultFlowCallback)
    held = min(policy.checkpoints_kept + 1, saves)
    lines = [
        StorageLine("environment", ENVIRONMENT_BYTES.value, "about 10 GiB", ENVIRONMENT_BYTES.source),
        StorageLine("model download", model, f"P x {BYTES[a.torch_dtype]}", "files on the Hub, also for a 4-bit base"),
        StorageLine("dataset", data, f"tokens x {TEXT_BYTES_PER_TOKEN}, or the file's size", "text of the user's file"),
        StorageLine(
            "token cache",
            2 * TOKEN_BYTES * tokens,
            f"2 x tokens x {TOKEN_BYTES}",
            "datasets: one file per map, tokenised and packed",
        ),
        StorageLine("checkpoints", held * checkpoint / nodes, f"{held} x one checkpoint, the new one beside those kept", _ROTATE),
    ]
    if merged:
        lines.append(StorageLine("merged model", merged, "P x 2", "peft merge_and_unload, save_pretrained"))
    (weights, *_) = checkpoint_lines(job, sharding)
    result = merged or float(weights.bytes) + TOKENIZER_BYTES
    rate = DISK_BYTES_PER_S[policy.disk]
    return Storage(tuple(lines), checkpoint, result, model, data, checkpoint / nodes / rate, saves)


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
    """RAM of one node while it loads, trains and merges; the fullest of the three."""
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
    model = _model_bytes(job)
    if sharding and sharding.kind in ("fsdp", "hybrid"):
        return StorageLine(
            "model on its first rank",
            model,
            "P x bytes of its dtype",
            "accelerate cpu_ram_efficient_loading: rank 0 alone reads it",
        )
    size = ranks * min(model, SHARD_BYTES)
    source = "transformers/core_model_loading.py: safetensors are mapped, a file at a time is copied to the card"
    return StorageLine("files being loaded", size, f"{ranks} x min of model, 5 GB", source)


def _training(job: Job, policy: StoragePolicy, ranks: int, sharding: Sharding | None) -> list[StorageLine]:
    w = widths(job)
    workers = policy.loader_workers * ranks
    lines = [StorageLine("data loader", workers * WORKER_BYTES.value, f"{workers} workers x 0.5 GiB", WORKER_BYTES.source)]
    if job.optimizer_row.paged:
        size = float(state_bytes(job, w, on_card=False) - state_bytes(job, w))
        lines.append(StorageLine("paged optimizer states", size, "those that leave the card", job.optimizer_row.source))
    if sharding and sharding.offload != "none":
        share = ranks / sharding.num_gpus if sharding.kind != "hybrid" else 1
        if sharding.kind in ("fsdp", "hybrid"):
            whole = float(2 * trained_bytes(job, w) + state_bytes(job, w)) + w.vectors * job.architecture.num_params * (
                job.adapter is not None
            )
            formula, source = "weights, gradients and states of the ranks here", "torch FSDP2, CPUOffloadPolicy, pinned"
        else:
            whole = 16.0 * job.trained_params + (2.0 * job.architecture.num_params if sharding.offload == "parameters" else 0)
            formula, source = (
                "(P_t + P_copied) x (4 + 8 + 4), and P x 2",
                "Ren et al. 2021, arXiv:2101.06840 (ZeRO-Offload), sec. 4",
            )
        lines.append(StorageLine("offloaded states", share * whole, formula, source))
    return lines
