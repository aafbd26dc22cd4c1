"""A job on a card: does it fit, with how much to spare, what is the most that still fits, and what would help."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from planner.errors import InvalidJob
from planner.hardware import Gpu
from planner.job import Job
from planner.memory import Assumptions, MemoryBreakdown, memory_breakdown

__all__ = [
    "Note",
    "Plan",
    "Remedy",
    "cards_that_fit",
    "compared_methods",
    "largest_that_fits",
    "make_plan",
    "missing_on_card",
    "remedies",
    "sweep",
]


@dataclass(frozen=True)
class Note:
    """Something that the user should know about a plan: an English template (see planner.texts) and its values."""

    template: str
    values: dict[str, Any]


def missing_on_card(job: Job, gpu: Gpu) -> list[tuple[str, Note]]:
    """What `job` asks for that `gpu` lacks: in a word for a table, and as a note. What is not known is not said."""
    card = {"gpu": gpu.label}
    no_bf16 = Note("{gpu} has no bf16 tensor cores: bf16 runs there at a fraction of its speed, or not at all; choose fp16", card)
    lacking = (
        ("no bf16", no_bf16, job.precision.startswith("bf16") and gpu.supports_bf16 is False),
        (
            "no 4-bit kernels",
            Note("{gpu} has no 4-bit kernels in bitsandbytes", card),
            job.quantization in ("nf4", "fp4") and gpu.supports_4bit is False,
        ),
        (
            "no int8 kernels",
            Note("{gpu} has no int8 kernels in bitsandbytes", card),
            job.quantization == "int8" and gpu.supports_int8 is False,
        ),
        (
            "no FlashAttention-2",
            Note("{gpu} has no FlashAttention-2 kernels: use sdpa", card),
            job.attention == "flash" and gpu.supports_flash_attention is False,
        ),
    )
    return [(word, note) for word, note, is_missing in lacking if is_missing]


@dataclass(frozen=True)
class Plan:
    """What is predicted for a job on one card. Not fitting is a plan too."""

    job: Job
    gpu: Gpu
    memory: MemoryBreakdown

    @property
    def headroom_bytes(self) -> int:
        """Usable memory of the card less what the job needs of it; negative where it does not fit."""
        return int(self.gpu.usable_memory_bytes - self.memory.peak.device)

    @property
    def fits(self) -> bool:
        """Whether the central prediction is within the card's usable memory."""
        return self.headroom_bytes >= 0

    @property
    def verdict(self) -> str:
        """`fits`, `tight` (the upper end of the band is beyond the card) or `does not fit`."""
        if not self.fits:
            return "does not fit"
        return "fits" if self.memory.peak.high <= self.gpu.usable_memory_bytes else "tight"

    @property
    def notes(self) -> tuple[Note, ...]:
        """What of this job the card, or the libraries, do otherwise than asked."""
        job, gpu, a = self.job, self.gpu, self.job.architecture
        found = [note for _, note in missing_on_card(job, gpu)]
        if job.attention_used != job.attention:
            found.append(
                Note(
                    "{model_type} has no {asked} attention in transformers: eager is used",
                    {"model_type": a.model_type, "asked": job.attention},
                )
            )
        if a.num_experts and job.quantization != "none" and not job.experts_as_linears:
            found.append(
                Note(
                    "the experts stay in 16 bit: transformers 5 keeps them as fused parameters that bitsandbytes does not quantise",
                    {},
                )
            )
        if job.optimizer_row.paged:
            found.append(
                Note("the optimizer's large states are paged: they may move to host memory, and are not counted on the card", {})
            )
        if gpu.memory_basis.startswith("nominal"):
            found.append(Note("usable memory of {gpu} is estimated from the number on the box", {"gpu": gpu.label}))
        return tuple(found)


def make_plan(job: Job, gpu: Gpu, assumptions: Assumptions | None = None) -> Plan:
    """The plan of `job` on one `gpu`."""
    return Plan(job, gpu, memory_breakdown(job, gpu, assumptions))


# What may be many numbers at once, or be searched for its largest value; and no more than this of each.
_NUMBERS = ("sequence_length", "micro_batch_size", "lora_rank", "num_virtual_tokens", "bottleneck_size", "eval_micro_batch_size")


def _known_number(field: str) -> None:
    if field not in _NUMBERS:
        raise InvalidJob(
            "{name} cannot be swept; the fields that can are {known}", field=field, name=field, known=", ".join(_NUMBERS)
        )


def sweep(job: Job, gpu: Gpu | None = None, **arrays: Any) -> MemoryBreakdown:
    """The breakdown of many jobs at once: numeric fields of `job` as lists or NumPy arrays of one shape, or that broadcast.

    The extremes of each array are checked as a job; every `bytes` of the result is an array. Raises InvalidJob.
    """
    import numpy as np

    values = {}
    for field, given in arrays.items():
        _known_number(field)
        array = np.asarray(given)
        if not array.size or not np.issubdtype(array.dtype, np.integer):
            raise InvalidJob("{name} must be whole numbers, at least one", field=field, name=field)
        for extreme in (array.min(), array.max()):
            job.changed(**{field: int(extreme)})
        values[field] = array.astype(float)  # products of three sizes leave int64
    try:
        np.broadcast_shapes(*(array.shape for array in values.values()))
    except ValueError as error:
        raise InvalidJob("the values do not fit together as arrays ({problem})", problem=str(error)) from error
    return memory_breakdown(Job.model_construct(**(job.fields | values)), gpu)


def largest_that_fits(job: Job, gpu: Gpu, field: str) -> int:
    """The largest value of one numeric field (micro_batch_size, sequence_length, lora_rank ...) with which the job still fits.

    0 where not even 1 fits. The peak grows with tokens, so those are bisected; with paged states it may fall as the rank grows
    (a larger tensor leaves the card), so all ranks are tried at once. Raises InvalidJob for a field that is no such number.
    """
    _known_number(field)
    if field not in ("sequence_length", "micro_batch_size", "eval_micro_batch_size"):
        import numpy as np

        ranks = np.arange(1, min(job.architecture.hidden_size, 65536) + 1)
        needed = np.broadcast_to(sweep(job, gpu, **{field: ranks}).peak.device, ranks.shape)
        fitting = ranks[needed <= gpu.usable_memory_bytes]
        return int(fitting[-1]) if len(fitting) else 0
    limit = job.architecture.max_position_embeddings - job.virtual_tokens if field == "sequence_length" else 65536

    def fits(value: int) -> bool:
        return make_plan(job.changed(**{field: value}), gpu).fits

    low, high = 0, 1
    while high <= limit and fits(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def cards_that_fit(job: Job, gpus: Iterable[Gpu]) -> list[Plan]:
    """Plans on the cards that the job fits, the smallest card first."""
    memories: dict[Any, MemoryBreakdown] = {}  # of a card, a breakdown asks only its compute capability
    plans = []
    for gpu in gpus:
        if gpu.compute_capability not in memories:
            memories[gpu.compute_capability] = memory_breakdown(job, gpu)
        plans.append(Plan(job, gpu, memories[gpu.compute_capability]))
    return sorted((plan for plan in plans if plan.fits), key=lambda plan: (plan.gpu.usable_memory_bytes, plan.gpu.name))


def compared_methods(job: Job) -> list[Job]:
    """Full fine-tuning, LoRA and QLoRA at the job's settings, and the job's own method where it is none of them.

    Settings that a method does not have (quantisation, modules_to_save) are left out for it.
    """
    jobs = []
    for method in ("full", "lora", "qlora"):
        changes: dict[str, Any] = {"method": method, "save": "checkpoint", "quantization": "nf4" if method == "qlora" else "none"}
        if method == "full":
            changes["modules_to_save"] = ()
        if method == "qlora":
            changes["quantization"] = job.quantization if job.method == "qlora" else "nf4"
            changes["precision"] = "bf16-mixed" if job.precision == "fp32" else job.precision
        same = job.method == method and job.quantization == changes["quantization"]
        with suppress(InvalidJob):  # a model so small, or settings so special, that the other method does not exist
            jobs.append(job if same else job.changed(**changes))
    return jobs if job in jobs else [*jobs, job]


@dataclass(frozen=True)
class Remedy:
    """A change that would need less memory: what to change, what it saves, and what it costs (English texts, see planner.texts)."""

    action: str
    changes: dict[str, Any]
    cost: str
    plan: Plan
    saved_bytes: int


def _candidates(job: Job) -> Iterable[tuple[str, dict[str, Any], str]]:
    """Changes that may help, the cheapest for the user first."""
    a = job.architecture
    if job.keep_outputs:
        yield "let go of the model's output before backward", {"keep_outputs": False}, "nothing"
    if job.attention_used == "eager" and "sdpa" in a.attention_kernels:
        yield "sdpa attention", {"attention": "sdpa"}, "nothing: the same result, faster"
    if job.loss == "plain":
        yield "fused loss (Liger)", {"loss": "liger"}, "one more package; the same loss"
    if job.gradient_checkpointing == "off":
        yield (
            "gradient checkpointing",
            {"gradient_checkpointing": "on"},
            "about a third more time per step: each block runs forward twice",
        )
    if job.optimizer == "adamw":
        yield "fused AdamW", {"optimizer": "adamw-fused"}, "nothing: the same update in one kernel"
    if job.optimizer in ("adamw", "adamw-fused"):
        yield "8-bit AdamW", {"optimizer": "adamw-8bit"}, "states rounded to 8 bits; results are close"
        yield "paged 8-bit AdamW", {"optimizer": "paged-adamw-8bit"}, "steps slow down while states travel from host memory"
    if job.quantization != "none" and job.kbit_preparation:
        yield "no fp32 copy of embeddings, head and norms", {"kbit_preparation": False}, "less stable at high learning rates"
    if job.quantization == "int8" and job.gradient_checkpointing == "on":
        yield (
            "reentrant checkpointing",
            {"gradient_checkpointing": "reentrant"},
            "the older variant, without hooks on saved tensors",
        )
    if job.evaluation and job.eval_micro_batch_size > 1:
        yield (
            "half the evaluation batch",
            {"eval_micro_batch_size": job.eval_micro_batch_size // 2},
            "evaluation takes more passes",
        )
    if job.micro_batch_size > 1:  # by its smallest factor, so that the global batch stays the same
        factor = next(n for n in range(2, job.micro_batch_size + 1) if job.micro_batch_size % n == 0)
        changes = {
            "micro_batch_size": job.micro_batch_size // factor,
            "gradient_accumulation_steps": job.gradient_accumulation_steps * factor,
        }
        yield "a smaller micro-batch, accumulated more often", changes, "more, smaller steps: somewhat slower"
    if job.method in ("full", "freeze") and job.precision.endswith("-mixed"):
        pure = job.precision.removesuffix("-mixed")
        yield "weights in pure 16 bit", {"precision": pure}, "small updates can be lost to rounding"
    if job.method in ("full", "freeze"):
        yield "LoRA", {"method": "lora"}, "trains a small share of the weights"
    if job.method in ("full", "freeze", "lora") and job.quantization == "none":
        yield "QLoRA", {"method": "qlora"}, "base rounded to 4 bits; each step also unpacks weights"
    if job.sequence_length > 256:
        yield "half the sequence length", {"sequence_length": job.sequence_length // 2}, "longer examples are cut or split"
    if job.method in ("lora", "qlora", "dora") and job.lora_rank > 8:
        yield "half the LoRA rank", {"lora_rank": job.lora_rank // 2}, "a smaller adapter can learn less"


def remedies(job: Job, gpu: Gpu) -> list[Remedy]:
    """Changes that need less memory on `gpu`: those that fit alone, then the rest, each by what it saves.

    A change that does not exist for this job is left out.
    """
    needed = make_plan(job, gpu).memory.peak.device
    found = []
    for action, changes, cost in _candidates(job):
        try:
            plan = make_plan(job.changed(**changes), gpu)
        except InvalidJob:
            continue
        saved = int(needed - plan.memory.peak.device)
        if saved > 0:
            found.append(Remedy(action, changes, cost, plan, saved))
    return sorted(found, key=lambda remedy: (not remedy.plan.fits, -remedy.saved_bytes))
