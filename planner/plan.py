"""A job on a card: does it fit, with how much to spare, what is the most that still fits, and what would help."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from planner.errors import InvalidJob
from planner.hardware import Gpu
from planner.job import Job
from planner.memory import Assumptions, MemoryBreakdown, memory_breakdown

__all__ = ["Note", "Plan", "Remedy", "cards_that_fit", "compared_methods", "largest_that_fits", "make_plan", "remedies", "sweep"]


@dataclass(frozen=True)
class Note:
    """Something that the user should know about a plan: an English template (see planner.texts) and its values."""

    template: str
    values: dict[str, Any]


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
        found: list[Note] = []
        if job.precision.startswith("bf16") and gpu.supports_bf16 is False:
            found.append(
                Note(
                    "{gpu} has no bf16 tensor cores: bf16 runs there at a fraction of its speed, or not at all; choose fp16",
                    {"gpu": gpu.label},
                )
            )
        if job.quantization in ("nf4", "fp4") and gpu.supports_4bit is False:
            found.append(Note("{gpu} has no 4-bit kernels in bitsandbytes", {"gpu": gpu.label}))
        if job.quantization == "int8" and gpu.supports_int8 is False:
            found.append(Note("{gpu} has no int8 kernels in bitsandbytes", {"gpu": gpu.label}))
        if job.attention == "flash" and gpu.supports_flash_attention is False:
            found.append(Note("{gpu} has no FlashAttention-2 kernels: use sdpa", {"gpu": gpu.label}))
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


def sweep(job: Job, gpu: Gpu | None = None, **arrays: Any) -> MemoryBreakdown:
    """The breakdown of many jobs at once: numeric fields of `job` as lists or NumPy arrays of one shape, or that broadcast.

    The extremes of each array are checked as a job; every `bytes` of the result is an array.
    """
    import numpy as np

    values = {field: np.asarray(given) for field, given in arrays.items()}
    for pick in (np.min, np.max):
        job.changed(**{field: pick(array).item() for field, array in values.items()})
    return memory_breakdown(Job.model_construct(**(job.fields | values)), gpu)


def largest_that_fits(job: Job, gpu: Gpu, field: str) -> int:
    """The largest value of one numeric field (micro_batch_size, sequence_length, lora_rank) with which the job still fits.

    0 where not even 1 fits. Found by bisection, as the peak grows with each of them.
    """
    limits = {
        "micro_batch_size": 65536,
        "sequence_length": job.architecture.max_position_embeddings,
        "lora_rank": job.architecture.hidden_size,
    }

    def fits(value: int) -> bool:
        return make_plan(job.changed(**{field: value}), gpu).fits

    low, high = 0, 1
    while high <= limits[field] and fits(high):
        low, high = high, 2 * high
    high = min(high, limits[field] + 1)
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
        changes: dict[str, Any] = {"method": method, "save": "checkpoint"}
        if method == "full":
            changes["modules_to_save"] = ()
        if method == "qlora" and job.precision == "fp32":
            changes["precision"] = "bf16-mixed"
        same = job.method == method and (method != "lora" or job.quantization == "none")
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
    if job.micro_batch_size > 1:
        half = job.micro_batch_size // 2
        steps = job.gradient_accumulation_steps * job.micro_batch_size // half
        yield (
            "half the micro-batch, accumulated twice as often",
            {"micro_batch_size": half, "gradient_accumulation_steps": steps},
            "more, smaller steps: somewhat slower",
        )
    if job.method in ("full", "freeze") and job.precision.endswith("-mixed") and job.method == "full":
        yield "weights in pure bf16", {"precision": "bf16"}, "small updates can be lost to rounding"
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
