"""Disk of a job, as lines with formula and source: what is downloaded, written and kept. Its RAM is in planner.host_memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, NonNegativeInt, PositiveInt

from planner.adapters import PromptTuning, PTuning
from planner.architecture import Record
from planner.assumption import Assumption
from planner.job import Job
from planner.memory.resident import state_bytes, trained_bytes, trained_formula
from planner.memory.widths import Widths, in_16_bit, widths
from planner.precision import BYTES
from planner.sharding import Sharding
from planner.units import GiB
from planner.workload import Workload

__all__ = ["DISK_BYTES_PER_S", "Storage", "StorageLine", "StoragePolicy", "checkpoint_lines", "storage"]

DiskClass = Literal["network volume", "SATA SSD", "NVMe", "object storage"]

# Bytes per second that one machine writes. Source: assumed, from the classes' usual sequential rates; a pilot measures it.
DISK_BYTES_PER_S: dict[DiskClass, float] = {"network volume": 200e6, "SATA SSD": 450e6, "NVMe": 1.5e9, "object storage": 100e6}

ENVIRONMENT_BYTES = Assumption(
    value=10 * GiB, low=7 * GiB, high=25 * GiB, source="assumed: PyTorch with CUDA and its libraries, unpacked; more as an image"
)
TEXT_BYTES_PER_TOKEN = 4  # of English; byte-level BPEs made on the spot gave 3.9 and 4.1 (2026-12)
TOKEN_BYTES = 4 + 12 + 12  # ids in int32; ids with int64 labels; those packed or cut to length
TOKENIZER_BYTES = 20e6  # tokenizer.json and the configs: 17 MB for Llama 3

_SAVE = "transformers/trainer.py, _save_checkpoint: save_model, optimizer.pt, scheduler, RNG and trainer state"
_ZERO_SAVE = "deepspeed/runtime/engine.py, _save_checkpoint and _save_zero_checkpoint, beside save_model's 16-bit weights"
_FSDP_SAVE = "accelerate/utils/fsdp_utils.py, save_fsdp_model and save_fsdp_optimizer; with FULL_STATE_DICT beside save_model's"
_ROTATE = "transformers/trainer_utils.py, rotate_checkpoints: the oldest goes after the newest is written"
_CACHE = (
    "trl/trainer/sft_trainer.py, _prepare_dataset: datasets keeps the file of every map, each with the text until packing; "
    "44.8 bytes a token measured packed, 48.9 not (TRL 1.16, 2026-12)"
)


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
    full_checkpoints: bool = False  # FSDP gathers them on its first rank (FULL_STATE_DICT, the default of FSDP1)
    kept_days: Annotated[float, Field(ge=0, le=3650, allow_inf_nan=False)] = 0.0  # that the disk is kept with no machine running
    disk: DiskClass = "network volume"
    loader_workers: Annotated[NonNegativeInt, Field(le=1024)] = 2  # per rank
    dataset_bytes: PositiveInt | None = None  # of the user's file; else estimated from its tokens


@dataclass(frozen=True)
class Storage:
    """Disk lines of the first node's volume, all of which are there at its fullest."""

    lines: tuple[StorageLine, ...]
    checkpoint_bytes: float  # on all nodes
    result_bytes: float
    model_bytes: float
    dataset_bytes: float
    write_s: float  # of one checkpoint, while training waits
    num_checkpoints: int

    @property
    def peak_bytes(self) -> float:
        """The fullest that the disk becomes."""
        return float(sum(line.bytes for line in self.lines))


def checkpoint_lines(job: Job, sharding: Sharding | None = None, *, full: bool = False) -> tuple[StorageLine, ...]:
    """What one checkpoint holds: weights or adapter, the optimizer's states, and small files. Held to files that Trainer wrote.

    `full` gathers FSDP's on its first rank, which then writes the weights twice.
    """
    return tuple(line for line, _ in _checkpoint(job, sharding, full=full))


def _checkpoint(job: Job, sharding: Sharding | None, *, full: bool) -> Iterator[tuple[StorageLine, bool]]:
    """Lines, and whether each rank writes its part of them; the first rank writes the others."""
    w, kind = widths(job), sharding.kind if sharding else "none"
    small = StorageLine("tokenizer, scheduler and random states", TOKENIZER_BYTES, "about 20 MB", _SAVE)
    if kind.startswith("zero"):
        yield from _deepspeed_checkpoint(job, kind)
        yield small, False
        return
    fsdp = kind in ("fsdp", "hybrid")
    weights, source = _weights(job, w), _FSDP_SAVE if fsdp else _SAVE
    parts = fsdp and not full
    yield weights._replace(source=source), parts
    if fsdp and full:
        yield StorageLine("the same weights, for resuming", weights.bytes, weights.formula, source), False
    states = state_bytes(job, w, on_card=False)
    yield StorageLine("optimizer states", states, "as in memory", job.optimizer_row.source), parts
    yield small, False


def _deepspeed_checkpoint(job: Job, kind: str) -> Iterator[tuple[StorageLine, bool]]:
    """save_model's 16-bit file, gathered; the engine's own, where stage 3 has placeholders; each rank's fp32 partition and states."""
    _, w = in_16_bit(job, widths(job))
    weights = _weights(job, w)._replace(source=_ZERO_SAVE)
    yield weights, False
    if kind != "zero3":
        yield StorageLine("the same weights, for resuming", weights.bytes, weights.formula, _ZERO_SAVE), False
    if job.method == "freeze" and kind != "zero1":  # save_frozen_param
        frozen = w.weights * (job.architecture.num_params - job.trained_params)
        yield StorageLine("frozen weights, for resuming", frozen, f"(P - P_t) x {w.weights}", _ZERO_SAVE), kind == "zero3"
    per_param = 4 + 4 * job.optimizer_row.states
    formula = f"(P_t + P_copied) x {per_param}"
    yield StorageLine("optimizer states and master weights", per_param * job.trained_params, formula, _ZERO_SAVE), True


def _weights(job: Job, w: Widths) -> StorageLine:
    """The file that `save_pretrained` writes: the whole model, or the adapter with copied modules."""
    if job.adapter is None:
        return StorageLine("weights", w.weights * job.architecture.num_params, f"P x {w.weights}", _SAVE)
    if isinstance(job.adapter, PTuning):  # what its perceptron gives out is saved, not the perceptron
        table = PromptTuning(num_virtual_tokens=job.num_virtual_tokens).params(job.architecture)
        return StorageLine("adapter", w.adapter * table, f"virtual tokens x D x {w.adapter}", _SAVE)
    return StorageLine("adapter", trained_bytes(job, w), trained_formula(job, w), _SAVE)


def storage(job: Job, workload: Workload, policy: StoragePolicy, sharding: Sharding | None = None) -> Storage:
    """The disk of the first node at its fullest: while a checkpoint is written, or when the finished model lies beside those kept.

    FSDP and ZeRO write a shard on each rank, so that several nodes hold a part each.
    """
    a, tokens = job.architecture, workload.examples * workload.tokens_per_example
    parts = list(_checkpoint(job, sharding, full=policy.full_checkpoints))
    whole = float(sum(line.bytes for line, _ in parts))
    nodes = sharding.nodes if sharding else 1
    here = float(sum(line.bytes / (nodes if divided else 1) for line, divided in parts))
    model, data = float(a.num_params * BYTES[a.torch_dtype]), policy.dataset_bytes or tokens * TEXT_BYTES_PER_TOKEN
    saves = -(-workload.steps(job) // policy.checkpoint_steps)  # the last step too: trainer_callback.py, DefaultFlowCallback
    copies = 4 if job.packing else 5
    lines = [
        StorageLine("environment", ENVIRONMENT_BYTES.value, "about 10 GiB", ENVIRONMENT_BYTES.source),
        StorageLine("model download", model, f"P x {BYTES[a.torch_dtype]}", "files on the Hub, also for a 4-bit base"),
        StorageLine("dataset", data, f"tokens x {TEXT_BYTES_PER_TOKEN}, or the file's size", "text of the user's file"),
        StorageLine(
            "token cache", TOKEN_BYTES * tokens + copies * data, f"tokens x {TOKEN_BYTES} + {copies} x dataset", _CACHE
        ),
    ]  # fmt: skip
    if job.save == "merged":
        final = StorageLine("merged model", 2.0 * a.num_params, "P x 2", "peft merge_and_unload, save_pretrained")
    else:
        weights, _ = parts[0]
        source = "transformers/trainer.py, save_model after training"
        final = StorageLine("finished model", weights.bytes, weights.formula, source)
    held, kept = min(policy.checkpoints_kept + 1, saves), min(policy.checkpoints_kept, saves)
    if (held - kept) * here > final.bytes:
        lines.append(StorageLine("checkpoints", held * here, f"{held} x one checkpoint, the new one beside those kept", _ROTATE))
    else:
        lines += [StorageLine("checkpoints", kept * here, f"{kept} x one checkpoint", _ROTATE), final]
    result = float(final.bytes) + (TOKENIZER_BYTES if job.save != "merged" else 0)
    return Storage(tuple(lines), whole, result, model, data, here / DISK_BYTES_PER_S[policy.disk], saves)
