"""Closed form of the peak memory of a fine-tuning step: `memory_breakdown(job)`.

The peak is a maximum over instants, never one sum: resident lines plus the lines of the instant that holds most. Three
figures come of it and are never mixed: `allocated` (live tensors, torch.cuda.max_memory_allocated), `reserved` (what the
caching allocator took), `device` (reserved and the CUDA context: what the card must have).
"""

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import Any

from planner.hardware import Gpu
from planner.job import Job
from planner.memory.device import Assumptions, Peak, cached_logits, device_peak, workspace_line
from planner.memory.lines import COMPONENTS, INSTANTS, RESIDENT, Line
from planner.memory.resident import resident_lines
from planner.memory.sharding import lines_of_rank
from planner.memory.step import instant_lines
from planner.memory.widths import attention_kernel, widths
from planner.sharding import Sharding, check_sharding

__all__ = ["COMPONENTS", "INSTANTS", "Assumptions", "Line", "MemoryBreakdown", "Peak", "card_kind", "memory_breakdown"]


@cache
def _default_assumptions() -> Assumptions:
    return Assumptions()


@dataclass(frozen=True)
class MemoryBreakdown:
    """Named lines by instant, which instant is the peak, and what the card must hold for it."""

    job: Job
    lines: tuple[Line, ...]
    kernel: str
    allocated_at: dict[str, Any]  # instant -> bytes, resident lines included
    peak: Peak
    measured: tuple[tuple[str, str], ...] = ()  # what of the peak a pilot has measured, and which

    @cached_property
    def letters(self) -> dict[str, Any]:
        """The numbers behind the letters of the formulas."""
        job = self.job
        a = job.architecture
        B, S = job.micro_batch_size, job.length
        quantized = a.linear_params(experts=job.experts_as_linears)[0] if job.quantization != "none" else 0
        letters = {
            "B": B, "S": S, "T": B * S, "D": a.hidden_size, "F": a.intermediate_size, "H": a.num_attention_heads, "K": a.num_key_value_heads,
            "A": a.head_dim, "V": a.vocab_size, "L": a.num_hidden_layers, "P": a.num_params, "P_q": quantized,
            "P_e": a.embedding_params + a.head_params + a.other_params, "P_t": job.trained_params - job.copied_params,
            "P_copied": job.copied_params,
            "P_experts": a.expert_params,
            "P_head": a.embedding_params,
            "v": job.num_virtual_tokens, "B_eval": job.eval_micro_batch_size,
            "r": job.lora_rank, "m": job.bottleneck_size, "T_eval": job.eval_micro_batch_size * S,
        }  # fmt: skip
        if a.num_experts:
            letters |= {"E": a.num_experts, "k": a.num_experts_per_tok, "M": a.moe_intermediate_size}
        return letters

    @cached_property
    def peak_lines(self) -> tuple[Line, ...]:
        """The lines alive at the peak: their bytes add up to the peak's allocated bytes."""
        return self.lines_at(self.peak.instant)

    def lines_at(self, instant: str) -> tuple[Line, ...]:
        """The lines alive at one instant."""
        resident = () if instant == "load" else (RESIDENT,)
        return tuple(line for line in self.lines if line.instant == instant or line.instant in resident)

    def components_at(self, instant: str) -> dict[str, Any]:
        """Bytes at one instant by component, in the order in which a bar stacks them; components with no line left out."""
        lines = self.lines_at(instant)
        sums = {name: sum(line.bytes for line in lines if line.component == name) for name in COMPONENTS}
        return {name: total for name, total in sums.items() if any(line.component == name for line in lines)}

    def numbers_of(self, line: Line) -> dict[str, Any]:
        """The numbers behind the letters of a line's formula."""
        words = line.formula.replace("(", " ").replace(")", " ").replace(",", " ").split()
        return {letter: value for letter, value in self.letters.items() if letter in words}


def card_kind(gpu: Gpu, assumptions: Assumptions | None = None) -> tuple[int, ...]:
    """All that a breakdown asks of a card: cards of one kind (7 and older, 8, 9, 10 and newer) have the same breakdown.

    A context that was measured holds for one architecture, so with one of them kinds are architectures.
    """
    capability = gpu.compute_capability or (8, 0)
    return capability if assumptions and assumptions.measured_context else (min(max(capability[0], 7), 10),)


def memory_breakdown(
    job: Job, gpu: Gpu | None = None, assumptions: Assumptions | None = None, sharding: Sharding | None = None
) -> MemoryBreakdown:
    """Peak memory per GPU of one step of `job`, from the second step on, on `gpu` (None: a card of Ampere or newer).

    With `sharding` it is the memory of one of several GPUs; its sizes (micro-batch, accumulation) are per GPU. Raises InvalidJob
    where the libraries refuse the job on several GPUs in that way.

    `job` may carry NumPy arrays in its numeric fields (see `planner.plan.sweep`); then every `bytes` is an array and
    `peak.instant` names the instant of the largest peak.
    """
    assumptions = assumptions or _default_assumptions()
    capability = gpu.compute_capability if gpu else None
    if sharding:
        check_sharding(job, sharding)
    w = widths(job)
    kernel = attention_kernel(job, w, capability)
    alone = chain(resident_lines(job, w), instant_lines(job, w, kernel))
    lines = [workspace_line(assumptions, capability), *(lines_of_rank(job, w, kernel, sharding) if sharding else alone)]
    totals: dict[str, Any] = {}
    for _, _, instant, size, _, _ in lines:
        totals[instant] = totals.get(instant, 0) + size
    resident = totals.pop(RESIDENT)
    allocated_at = {i: totals[i] + (0 if i == "load" else resident) for i in INSTANTS if i in totals}
    slack = assumptions.slack(job.method, kernel, several_gpus=sharding is not None)
    context = assumptions.context(capability)
    peak = device_peak(
        allocated_at, slack, context, assumptions.band(several_gpus=sharding is not None), cached_logits(job, assumptions)
    )
    named = (("CUDA context", context), ("allocator slack", slack))
    measured = tuple((name, row.source) for name, row in named if row.calibrated)
    return MemoryBreakdown(job, tuple(lines), kernel.name, allocated_at, peak, measured)
