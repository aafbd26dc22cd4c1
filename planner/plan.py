"""A job on a card, or on each of several: does it fit, with how much to spare, and what is the most that still fits."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from planner.errors import InvalidJob
from planner.hardware import Gpu
from planner.job import Job
from planner.memory import Assumptions, MemoryBreakdown, card_kind, memory_breakdown
from planner.sharding import Sharding

__all__ = [
    "Note",
    "NumBytes",
    "Plan",
    "cards_that_fit",
    "compared_methods",
    "compared_plans",
    "largest_that_fits",
    "make_plan",
    "missing_on_card",
    "sweep",
]


class NumBytes(int):
    """A size in a note, which is shown in GiB in the reader's language."""


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
    """What is predicted for a job on one card, or on each of several (`sharding`). Not fitting is a plan too."""

    job: Job
    gpu: Gpu
    memory: MemoryBreakdown
    sharding: Sharding | None = None
    assumptions: Assumptions | None = None  # that `memory` was made with, where they are not the published ones

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
        """`fits`, `tight` or `does not fit`, by the band of the prediction."""
        return self.memory.peak.verdict(self.gpu.usable_memory_bytes)

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
                    "the experts are not quantised: transformers 5 keeps them as fused parameters, which bitsandbytes leaves alone",
                    {},
                )
            )
        if job.optimizer_row.paged:
            found.append(
                Note("the optimizer's large states are paged: they may move to host memory, and are not counted on the card", {})
            )
        if gpu.memory_basis.startswith("nominal"):
            found.append(Note("usable memory of {gpu} is estimated from the number on the box", {"gpu": gpu.label}))
        found += [Note("{name} as measured: {source}", {"name": name, "source": source}) for name, source in self.memory.measured]
        return tuple(found)


def make_plan(job: Job, gpu: Gpu, assumptions: Assumptions | None = None, sharding: Sharding | None = None) -> Plan:
    """The plan of `job` on one `gpu`, or on each of several that share it. Fit is judged per card."""
    return Plan(job, gpu, memory_breakdown(job, gpu, assumptions, sharding), sharding, assumptions)


# What may be many numbers at once, or be searched for its largest value; and no more than this of each.
_NUMBERS = ("sequence_length", "micro_batch_size", "lora_rank", "num_virtual_tokens", "bottleneck_size", "eval_micro_batch_size")


def _known_number(field: str) -> None:
    if field not in _NUMBERS:
        raise InvalidJob(
            "{name} cannot be swept; the fields that can are {known}", field=field, name=field, known=", ".join(_NUMBERS)
        )


def sweep(
    job: Job, gpu: Gpu | None = None, sharding: Sharding | None = None, assumptions: Assumptions | None = None, **arrays: Any
) -> MemoryBreakdown:
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
    return memory_breakdown(Job.model_construct(**(job.fields | values)), gpu, assumptions, sharding)


def largest_that_fits(
    job: Job, gpu: Gpu, field: str, sharding: Sharding | None = None, assumptions: Assumptions | None = None
) -> int:
    """The largest value of one numeric field (micro_batch_size, sequence_length, lora_rank ...) with which the job still fits.

    0 where not even 1 fits. The peak grows with tokens, so those are bisected; with paged states it may fall as the rank grows
    (a larger tensor leaves the card), so all ranks are tried at once. Raises InvalidJob for a field that is no such number.
    """
    _known_number(field)
    if field not in ("sequence_length", "micro_batch_size", "eval_micro_batch_size"):
        import numpy as np

        ranks = np.arange(1, min(job.architecture.hidden_size, 65536) + 1)
        needed = np.broadcast_to(sweep(job, gpu, sharding, assumptions, **{field: ranks}).peak.device, ranks.shape)
        fitting = ranks[needed <= gpu.usable_memory_bytes]
        return int(fitting[-1]) if len(fitting) else 0
    limit = job.architecture.max_position_embeddings - job.virtual_tokens if field == "sequence_length" else 65536

    def fits(value: int) -> bool:
        return make_plan(job.changed(**{field: value}), gpu, assumptions, sharding).fits

    low, high = 0, 1
    while high <= limit and fits(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def cards_that_fit(job: Job, gpus: Iterable[Gpu], assumptions: Assumptions | None = None) -> list[Plan]:
    """Plans on the cards that the job fits, the smallest card first."""
    memories: dict[tuple[int, ...], MemoryBreakdown] = {}
    plans = []
    for gpu in gpus:
        kind = card_kind(gpu, assumptions)
        if kind not in memories:
            memories[kind] = memory_breakdown(job, gpu, assumptions)
        plans.append(Plan(job, gpu, memories[kind], assumptions=assumptions))
    return sorted((plan for plan in plans if plan.fits), key=lambda plan: (plan.gpu.usable_memory_bytes, plan.gpu.name))


def compared_plans(plan: Plan) -> list[Plan]:
    """Plans of the compared methods on the same cards; what cannot be shared among them is left out."""
    plans = []
    for job in compared_methods(plan.job):
        base = plan.sharding and plan.sharding.kind in ("fsdp", "hybrid") and job.quantization in ("nf4", "fp4")
        sharding = plan.sharding and replace(plan.sharding, divided_base=bool(base))
        with suppress(InvalidJob):
            plans.append(plan if job == plan.job else make_plan(job, plan.gpu, plan.assumptions, sharding))
    return plans


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
