"""A published run -> the job that it was, or why no job says it.

Columns are those of data/measurements.csv. Those that a file lacks are read from its prose (`notes`, `framework`), or are the
defaults of the stack that ran (planner.validation.conventions).
"""

from dataclasses import dataclass
from typing import Any

from planner.errors import InvalidJob, PlannerError
from planner.hardware import Gpu
from planner.job import Job
from planner.sharding import Kind, Sharding
from planner.units import MiB
from planner.validation.cells import Cells, Row
from planner.validation.conventions import (
    OPTIMIZERS,
    PRECISIONS,
    adapters_in_fp32,
    attention_of,
    chosen,
    lengths_of,
    loss_of,
    method_of,
    precision_of,
    quantization_of,
    stack_of,
    targets_of,
    transformers_of,
)  # fmt: skip
from planner.validation.models import published_gpu, published_model

__all__ = ["QUANTITIES", "Published", "Skipped", "published_run"]

QUANTITIES = ("allocated", "reserved", "device", "unspecified", "oom_above")


@dataclass(frozen=True)
class Published:
    """One measurement and the job that made it. `measured_bytes` is per GPU; of `oom_above` what the job did not fit in."""

    id: str
    quantity: str
    measured_bytes: float
    job: Job
    gpu: Gpu | None  # None: not named; what a card of Ampere or newer would hold
    sharding: Sharding | None
    tokens_per_second: float | None  # over all GPUs
    lengths: str  # exact | longest: the longest row that is met | maximum: rows vary, and none may be as long
    source: str
    cells: Cells


@dataclass(frozen=True)
class Skipped:
    """A row that no job says, and why."""

    id: str
    problem: PlannerError

    @property
    def reason(self) -> str:
        """The problem in English."""
        return str(self.problem)


def published_run(cells: Cells) -> Published | Skipped:
    """The run of one row; a row that cannot be read is skipped with one sentence, whatever is wrong with it."""
    row = {str(name): (value or "").strip() for name, value in cells.items() if name}
    name = row.get("id") or "(no id)"
    try:
        return _run(name, Row(row))
    except PlannerError as error:
        return Skipped(name, error)
    except (ValueError, OverflowError) as error:
        return Skipped(name, InvalidJob("a number cannot be read ({problem})", problem=str(error)))


def _run(name: str, row: Row) -> Published:
    quantity = row.text("quantity").lower()
    if quantity not in QUANTITIES:
        raise InvalidJob(
            "{name} is {given}; it must be {expected}", name="quantity", given=quantity or "–", expected=", ".join(QUANTITIES)
        )
    for column in ("peak_mib", "model"):
        if not row.text(column):
            raise InvalidJob("{name} is not stated", name=column)
    peak = float(row.text("peak_mib"))
    if not 0 < peak < 1e9:
        raise InvalidJob("peak_mib is {given}; it must be a positive number of MiB", given=row.text("peak_mib"))
    if row.text("cpu_offload") not in ("", "no", "none"):
        raise InvalidJob("offload to host memory in a way that the row does not tell")
    if quantity == "oom_above" and "at save" in row.prose:
        raise InvalidJob("memory ran out while saving, after a training that fitted")
    if row.text("not_said"):
        raise InvalidJob(row.text("not_said"))
    if "only max_length" in row.prose:
        raise InvalidJob("only a limit of the length is stated, and nothing tells how long the batches were")
    if "lomo" in row.prose:
        raise InvalidJob("LOMO updates weights inside backward: no job says that")
    a = published_model(row.text("model"))
    quantization = quantization_of(row)
    method = method_of(row, quantization)
    stack, version = stack_of(row), transformers_of(row)
    precision = precision_of(row, chosen(PRECISIONS, row, "precision"), method)
    if "fitcheck" in row.text("source").lower() and precision == "fp16-mixed":
        precision = "fp16"  # a loop of its own, without autocast, that holds the model's output
    fields: dict[str, Any] = {"method": method, "quantization": quantization}
    if method in ("lora", "dora"):
        fields |= {"target_modules": targets_of(row, a), "lora_rank": min(row.whole("lora_rank", 8), a.hidden_size)}
        if row.text("modules_to_save"):
            fields["modules_to_save"] = tuple(row.text("modules_to_save").split(";"))
        elif "wte" in row.prose and ("trained copies" in row.prose or "also trains" in row.prose):
            fields["modules_to_save"] = ("embed_tokens", "lm_head")
        if stack == "litgpt":
            fields["lora_dropout"] = 0.05  # of its scripts and configurations
        fields["autocast_adapter_dtype"] = adapters_in_fp32(row, stack)
    fields["kbit_preparation"] = row.flag(
        "kbit_preparation", no=("no fp32 upcast", "without the fp32 cast"), yes=(), default=quantization in ("nf4", "fp4", "int8")
    ) and stack not in ("litgpt", "torchtune", "unsloth")
    fields["double_quant"] = row.flag("double_quant", no=("no double quant", "without double quant"), yes=(), default=True)
    length = row.whole("sequence_length")
    if length > a.max_position_embeddings:
        a = a.model_copy(update={"max_position_embeddings": length})
    kind = row.text("sharding").lower() or "none"
    gpus = row.whole("num_gpus", 1)
    checkpointing = {"yes": "on", "no": "off", "unknown": "on", "": "on"}.get(row.text("gradient_checkpointing").lower())
    if checkpointing is None:
        raise InvalidJob(
            "{name} {given}: no job says that", name="gradient_checkpointing", given=row.text("gradient_checkpointing")
        )
    if checkpointing == "on" and version != "5" and (kind == "fsdp" or quantization == "int8"):
        checkpointing = "reentrant"  # the default of transformers 4
    fields |= {
        "precision": precision,
        "optimizer": chosen(OPTIMIZERS, row, "optimizer"),
        "sequence_length": length,
        "micro_batch_size": row.whole("micro_batch_size", 1),
        "gradient_accumulation_steps": row.whole("gradient_accumulation_steps", 1),
        "gradient_checkpointing": checkpointing,
        "attention": attention_of(row, a),
        "loss": loss_of(row),
        "stack": stack,
        "varying_lengths": lengths_of(row) == "maximum",
        "optimizer_in_backward": row.text("optimizer_in_backward") == "yes"
        or (stack == "torchtune" and method == "full" and "paged" in row.text("optimizer"))  # its low-memory recipe
        or any(word in row.prose for word in ("optimizer_in_bwd", "optimizer in backward", "fused backward")),
        "transformers": version,
        "keep_outputs": "fitcheck" in row.text("source").lower(),
        "experts_as_linears": bool(a.num_experts),
    }
    job = Job(architecture=a, **fields)
    speed = row.text("tokens_per_second")
    return Published(
        id=name,
        quantity=quantity,
        measured_bytes=peak * MiB,
        job=job,
        gpu=published_gpu(row.text("gpu")),
        sharding=_sharding(row, kind, gpus, job),
        tokens_per_second=float(speed) * gpus if speed else None,
        lengths=lengths_of(row),
        source=row.text("source") or "(no source)",
        cells=row.cells,
    )


def _sharding(row: Row, kind: str, gpus: int, job: Job) -> Sharding | None:
    if gpus == 1:
        return None
    if kind in ("none", ""):
        raise InvalidJob(
            "{count} GPUs without a way of sharing: layers placed on them one after another, which no job says", count=gpus
        )
    if kind not in ("ddp", "zero1", "zero2", "zero3", "fsdp", "hybrid"):
        raise InvalidJob("{name} {given}: no job says that", name="sharding", given=kind)
    # A 4-bit base is divided where it was stored in a float dtype; fms-acceleration gives GPTQ's integers one as well.
    viewed = job.quantization == "gptq" and ("accelerated-peft-autogptq" in row.prose or row.text("divided_base") == "yes")
    base = kind == "fsdp" and (job.quantization in ("nf4", "fp4") or viewed)
    named: Kind = kind  # type: ignore[assignment]
    return Sharding(named, gpus, divided_base=base, fsdp_version=1 if kind == "fsdp" else 2)
