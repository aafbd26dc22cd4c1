"""A published run -> the job that it was, or why no job says it.

Columns are those of data/measurements.csv. Those that a file lacks are read from its prose (`notes`, `framework`), or are the
defaults of the stack that ran. What a stack does by default is in planner.stacks and `_DEFAULTS`; nothing here knows a single row.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.architecture import Architecture
from planner.errors import InvalidJob, PlannerError
from planner.hardware import Gpu
from planner.job import Job
from planner.sharding import Kind, Sharding
from planner.units import MiB
from planner.validation.models import published_gpu, published_model

__all__ = ["MEASUREMENT_COLUMNS", "QUANTITIES", "Published", "Skipped", "cleaned", "published_run"]

QUANTITIES = ("allocated", "reserved", "device", "unspecified", "oom_above")
Cells = Mapping[str, str]


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
        return _run(name, _Row(row))
    except PlannerError as error:
        return Skipped(name, error)
    except (ValueError, OverflowError) as error:
        return Skipped(name, InvalidJob("a number cannot be read ({problem})", problem=str(error)))


class _Row:
    """Cells with the answers of the prose where a column is missing."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self.prose = " ".join((cells.get("framework", ""), cells.get("notes", ""))).lower()

    def text(self, column: str) -> str:
        return self.cells.get(column, "").strip()

    def whole(self, column: str, default: int | None = None) -> int:
        cell = self.text(column)
        if not cell and default is not None:
            return default
        if not cell:
            raise InvalidJob("{name} is not stated", name=column)
        value = float(cell)
        if value != int(value) or value < 1:
            raise InvalidJob("{name} is {given}; it must be a whole number of 1 or more", name=column, given=cell)
        return int(value)

    def flag(self, column: str, *, no: tuple[str, ...], yes: tuple[str, ...], default: bool) -> bool:
        """What a yes/no column says, or phrases of the prose; a "no" phrase wins."""
        cell = self.text(column)
        if cell in ("yes", "no"):
            return cell == "yes"
        if any(phrase in self.prose for phrase in no):
            return False
        return default or any(phrase in self.prose for phrase in yes)

    def version(self, package: str) -> tuple[int, int] | None:
        """Major and minor version of a package in the framework's text."""
        found = re.search(rf"\b{package}[ =]*v?(\d+)\.(\d+)", self.prose)
        return (int(found[1]), int(found[2])) if found else None


# Which stack a framework's text names; the first that is found. The rest is Hugging Face's own Trainer or a loop on its models.
_STACK_WORDS = (("litgpt", ("litgpt", "lit-gpt")), ("torchtune", ("torchtune",)), ("unsloth", ("unsloth",)), ("trl", ("trl",)))


def _stack(row: _Row) -> str:
    """Name in planner.stacks."""
    if row.text("stack"):
        return row.text("stack")
    framework = row.text("framework").lower()
    for name, words in _STACK_WORDS:
        if any(word in framework for word in words):
            return name
    return "trainer"


# The first month of each kind of modelling code in planner.stacks.
_RELEASED = (("4.31", (0, 0), ""), ("4.41", (4, 41), "2024-06"), ("4.46", (4, 46), "2024-11"), ("5", (4, 50), "2025-04"))


def _transformers(row: _Row) -> str:
    """The kind of modelling code: by the version that the row names, else by its date, else today's."""
    if row.text("transformers"):
        return row.text("transformers")
    version, date = row.version("transformers"), row.text("date")
    if version:
        return [name for name, first, _ in _RELEASED if version >= first][-1]
    return [name for name, _, month in _RELEASED if date >= month][-1] if date else "5"


def _is_gptq(row: _Row) -> bool:
    text = f"{row.text('base_quantization')} {row.text('model')} {row.text('notes')}".lower()
    return "gptq" in text or "-int4" in row.text("model").lower()


def _quantization(row: _Row) -> str:
    cell = row.text("base_quantization").lower()
    if cell in ("", "none"):
        if row.text("method") == "other" and _is_gptq(row):
            if "int8" in row.prose:
                raise InvalidJob("an 8-bit GPTQ base: no job says that")
            return "gptq"
        return "none"
    known = {"nf4": "nf4", "fp4": "fp4", "int8": "int8", "gptq4": "gptq", "gptq": "gptq"}
    if cell not in known:
        raise InvalidJob("{name} {given}: no job says that", name="base_quantization", given=cell)
    return known[cell]


def _method(row: _Row, quantization: str) -> str:
    cell = row.text("method").lower()
    if cell in ("full", "dora", "freeze"):
        return cell
    if cell in ("lora", "qlora") or (cell == "other" and quantization == "gptq"):
        return "lora"
    if not cell:
        raise InvalidJob("{name} is not stated", name="method")
    raise InvalidJob("{name} {given}: no job says that", name="method", given=cell)


_LETTERS = {"q": 0, "k": 1, "v": 2}


def _targets(row: _Row, a: Architecture) -> tuple[str, ...]:
    """PEFT's names of the linears that carry LoRA. A fused projection stands for each of its parts."""
    text = row.text("lora_targets").lower()
    if not text or "all-linear" in text or "all linear" in text or text == "all":
        if not text:
            return _projections(a, ("q", "v"))  # PEFT's default for most families
        return ("all-linear",)
    if "default" in text:
        return _projections(a, ("q", "k", "v") if "qkv" in text else ("q", "v"))
    known = {name.lower(): name for name in a.linear_names()}
    chosen: list[str] = []
    for word in re.split(r"[,\s;+()]+", text):
        name = word.removesuffix("_proj")
        if word in known:
            chosen.append(known[word])
        elif name in _LETTERS:
            chosen += _projections(a, (name,))
        elif name in ("qkv", "c_attn", "w_pack", "query_key_value"):
            chosen += _projections(a, ("q", "k", "v")) if len(a.qkv_names) == 1 else ()
        elif name in ("o", "out", "output", "dense"):
            chosen.append(a.out_name)
        elif name == "mlp":
            chosen += a.mlp_names
        elif name in ("gate", "up", "down", "w1", "w2", "w3", "fc1", "fc2"):
            place = {"gate": 0, "up": -2, "down": -1, "w1": 0, "w2": -1, "w3": -2, "fc1": 0, "fc2": -1}[name]
            chosen.append(a.mlp_names[place])
    if not chosen:
        raise InvalidJob("lora_targets {given!r} name no linear layer of {model}", given=text, model=a.name)
    return tuple(dict.fromkeys(chosen))


def _projections(a: Architecture, letters: tuple[str, ...]) -> tuple[str, ...]:
    if len(a.qkv_names) == 1:
        return a.qkv_names
    if a.kv_lora_rank:
        return tuple(linear.name for linear in a.blocks[-1].attention[:-1])
    return tuple(a.qkv_names[_LETTERS[letter]] for letter in letters)


_OPTIMIZERS = {
    "adamw": "adamw", "adam": "adamw", "adamw_torch": "adamw", "adamw_hf": "adamw", "unknown": "adamw", "": "adamw", "adamw_fused": "adamw-fused",
    "adamw_torch_fused": "adamw-fused", "adamw_8bit": "adamw-8bit", "adamw_bnb_8bit": "adamw-8bit", "paged_adamw": "paged-adamw",
    "paged_adamw_32bit": "paged-adamw", "paged_adamw_8bit": "paged-adamw-8bit", "adafactor": "adafactor", "lion": "lion", "lion_32bit": "lion",
    "lion_8bit": "lion-8bit", "sgd": "sgd", "sgd_momentum": "sgd-momentum",
}  # fmt: skip
_PRECISIONS = {
    "bf16_true": "bf16", "bf16_mixed": "bf16-mixed", "fp16_mixed": "fp16-mixed", "fp16_true": "fp16", "fp32": "fp32", "bf16": "bf16-mixed",
    "fp16": "fp16-mixed", "bf16-mixed": "bf16-mixed", "fp16-mixed": "fp16-mixed", "unknown": "bf16-mixed", "": "bf16-mixed",
}  # fmt: skip
_LOSSES = {
    "plain": "plain",
    "chunked": "chunked",
    "liger": "liger",
    "cut_ce": "cut-ce",
    "cut-ce": "cut-ce",
    "fused_ce": "fused-ce",
    "fused-ce": "fused-ce",
}


def _chosen(table: Mapping[str, str], row: _Row, column: str) -> str:
    cell = row.text(column).lower()
    if cell not in table:
        raise InvalidJob("{name} {given}: no job says that", name=column, given=cell)
    return table[cell]


def _loss(row: _Row) -> str:
    """An unknown kernel is a Triton cross-entropy where the prose says so, else PyTorch's."""
    cell = row.text("loss_kernel").lower()
    if cell in ("", "unknown"):
        return "fused-ce" if "cross-entropy" in row.prose and ("fused" in row.prose or "triton" in row.prose) else "plain"
    return _chosen(_LOSSES, row, "loss_kernel")


def _attention(row: _Row, a: Architecture) -> str:
    """An unknown attention is transformers' default of its day: eager until 4.36 (2023-12), sdpa since."""
    cell = {"flash2": "flash", "flash": "flash", "flash3": "flash", "sdpa": "sdpa", "eager": "eager", "xformers": "sdpa"}.get(
        row.text("attention").lower(), ""
    )
    if not cell:
        cell = "eager" if row.text("date") and row.text("date") < "2023-12" and "fsdp" not in row.text("sharding") else "sdpa"
    return cell if cell in a.attention_kernels else "sdpa" if cell == "flash" and "sdpa" in a.attention_kernels else "eager"


def _autocasts(row: _Row, precision: str, method: str) -> str:
    """Under an adapter, 16-bit weights with the Trainer's --bf16 autocast are said as bf16_true by some sources. A full job of
    16-bit weights has all that it trains in 16 bit, whether autocast is on or not.
    """
    phrases = ("hf --bf16 autocast", "autocast on top of bf16")
    if precision == "bf16" and method != "full" and any(phrase in row.prose for phrase in phrases):
        return "bf16-mixed"
    return precision


def _run(name: str, row: _Row) -> Published:
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
    quantization = _quantization(row)
    method = _method(row, quantization)
    stack, version = _stack(row), _transformers(row)
    precision = _autocasts(row, _chosen(_PRECISIONS, row, "precision"), method)
    if "fitcheck" in row.text("source").lower() and precision == "fp16-mixed":
        precision = "fp16"  # a loop of its own, without autocast, that holds the model's output
    fields: dict[str, Any] = {"method": method, "quantization": quantization}
    if method in ("lora", "dora"):
        fields |= {"target_modules": _targets(row, a), "lora_rank": min(row.whole("lora_rank", 8), a.hidden_size)}
        if row.text("modules_to_save"):
            fields["modules_to_save"] = tuple(row.text("modules_to_save").split(";"))
        elif "wte" in row.prose and ("trained copies" in row.prose or "also trains" in row.prose):
            fields["modules_to_save"] = ("embed_tokens", "lm_head")
        if stack == "litgpt":
            fields["lora_dropout"] = 0.05  # of its scripts and configurations
        fields["autocast_adapter_dtype"] = _adapters_in_fp32(row, stack)
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
    chosen: dict[str, Any] = {
        "precision": precision,
        "optimizer": _chosen(_OPTIMIZERS, row, "optimizer"),
        "sequence_length": length,
        "micro_batch_size": row.whole("micro_batch_size", 1),
        "gradient_accumulation_steps": row.whole("gradient_accumulation_steps", 1),
        "gradient_checkpointing": checkpointing,
        "attention": _attention(row, a),
        "loss": _loss(row),
        "stack": stack,
        "varying_lengths": _lengths(row) == "maximum",
        "optimizer_in_backward": row.text("optimizer_in_backward") == "yes"
        or (stack == "torchtune" and method == "full" and "paged" in row.text("optimizer"))  # its low-memory recipe
        or any(word in row.prose for word in ("optimizer_in_bwd", "optimizer in backward", "fused backward")),
        "transformers": version,
        "keep_outputs": "fitcheck" in row.text("source").lower(),
        "experts_as_linears": bool(a.num_experts),
    }
    job = Job(architecture=a, **fields, **chosen)
    speed = row.text("tokens_per_second")
    return Published(
        id=name,
        quantity=quantity,
        measured_bytes=peak * MiB,
        job=job,
        gpu=published_gpu(row.text("gpu")),
        sharding=_sharding(row, kind, gpus, job),
        tokens_per_second=float(speed) * gpus if speed else None,
        lengths=_lengths(row),
        source=row.text("source") or "(no source)",
        cells=row.cells,
    )


def _adapters_in_fp32(row: _Row, stack: str) -> bool:
    """PEFT keeps adapters of a 16-bit base in fp32 from 0.12 (2024-08) on; before, in the base's own dtype."""
    if row.text("adapter_dtype"):
        return row.text("adapter_dtype") == "fp32"
    if stack in ("litgpt", "torchtune"):
        return False
    version = row.version("peft")
    return version >= (0, 12) if version else not row.text("date") or row.text("date") >= "2024-08"


def _sharding(row: _Row, kind: str, gpus: int, job: Job) -> Sharding | None:
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


def _lengths(row: _Row) -> str:
    if row.text("lengths"):
        return row.text("lengths")
    if any(phrase in row.prose for phrase in ("seq_len is the maximum", "variable length")):
        return "maximum"
    return "longest" if "longest" in row.prose else "exact"


# ---- the shipped table ---------------------------------------------------------------------------------------------------

# What of a published row is kept as it stands, and what the mapping has read off its prose.
FACTS = (
    "id", "quantity", "peak_mib", "model", "params_b", "method", "base_quantization", "lora_rank", "lora_targets", "optimizer", "precision",
    "sequence_length", "micro_batch_size", "gradient_accumulation_steps", "gradient_checkpointing", "attention", "loss_kernel", "sharding",
    "num_gpus", "gpu", "tokens_per_second",
)  # fmt: skip
READ = (
    "stack", "transformers", "double_quant", "kbit_preparation", "adapter_dtype", "lengths", "modules_to_save", "optimizer_in_backward",
    "divided_base", "not_said",
)  # fmt: skip
ORIGIN = ("framework", "grade", "source", "ref", "date")
MEASUREMENT_COLUMNS = (*FACTS, *READ, *ORIGIN)


def cleaned(cells: Cells) -> dict[str, str]:
    """A row of the shipped table from one with prose: the same job, said in columns."""
    found = published_run(cells)
    row = {name: (cells.get(name) or "").strip() for name in MEASUREMENT_COLUMNS}
    if isinstance(found, Skipped):
        return row | {"not_said": found.reason}
    job, yes = found.job, {True: "yes", False: "no"}
    read = {
        "precision": {"bf16": "bf16_true", "fp16": "fp16_true", "bf16-mixed": "bf16_mixed", "fp16-mixed": "fp16_mixed"}.get(
            job.precision, job.precision),
        "loss_kernel": job.loss, "stack": job.stack, "transformers": job.transformers, "double_quant": yes[job.double_quant],
        "kbit_preparation": yes[job.kbit_preparation], "adapter_dtype": "fp32" if job.autocast_adapter_dtype else "base",
        "lengths": found.lengths, "modules_to_save": ";".join(job.modules_to_save), "optimizer_in_backward": yes[job.optimizer_in_backward],
        "divided_base": yes[bool(found.sharding and found.sharding.divided_base)],
        "base_quantization": {"none": "", "gptq": "gptq4"}.get(job.quantization, job.quantization),
        "method": "full" if job.method == "full" else "lora",
    }  # fmt: skip
    return row | read
