"""Changes to a job that need less memory, what each saves and what it costs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from planner.errors import InvalidJob
from planner.hardware import Gpu
from planner.job import Job
from planner.memory import Assumptions
from planner.plan import Plan, make_plan
from planner.sharding import Sharding

__all__ = ["Remedy", "remedies"]


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


def remedies(job: Job, gpu: Gpu, sharding: Sharding | None = None, assumptions: Assumptions | None = None) -> list[Remedy]:
    """Changes that need less memory on `gpu`: those that fit alone, then the rest, each by what it saves.

    A change that does not exist for this job is left out.
    """
    needed = make_plan(job, gpu, assumptions, sharding).memory.peak.device
    found = []
    for action, changes, cost in _candidates(job):
        try:
            plan = make_plan(job.changed(**changes), gpu, assumptions, sharding)
        except InvalidJob:
            continue
        saved = int(needed - plan.memory.peak.device)
        if saved > 0:
            found.append(Remedy(action, changes, cost, plan, saved))
    return sorted(found, key=lambda remedy: (not remedy.plan.fits, -remedy.saved_bytes))
