"""From live tensors to what the card must hold: allocated <= reserved <= device, with a low-high band."""

from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from planner.assumption import Assumption, assumed
from planner.job import Job
from planner.memory.lines import RESIDENT, Line, largest, maximum
from planner.memory.widths import Kernel
from planner.units import MiB

__all__ = [
    "Assumption", "Assumptions", "Peak", "cached_logits", "context_key", "device_peak", "slack_key", "workspace_line",
]  # fmt: skip


Verdict = Literal["fits", "tight", "does not fit"]

_CUBLAS = "aten/src/ATen/cuda/CublasHandlePool.cpp: 8,519,680 B, 32 MiB on 9.0; twice, as the autograd thread has its own handle"
_BANDS = "published runs (data/measurements.csv)"
_FITCHECK = "published T4 runs (fitcheck archive, 2025-09), reserved / allocated"


class Assumptions(BaseModel):
    """What formulas cannot know. Bytes, or ratios of bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    # reserved / allocated
    allocator_slack: Assumption = assumed(
        1.11, 1.04, 1.32, f"{_FITCHECK}: median and 5th percentile of 24 sdpa runs, 95th of all 45"
    )
    allocator_slack_with_scores: Assumption = assumed(
        1.23, 1.09, 1.42, f"{_FITCHECK}: median, 5th and 95th percentile of 21 eager runs"
    )
    allocator_slack_sharded: Assumption = assumed(
        1.2, 1.05, 1.5,
        "fms-acceleration, 87 FSDP runs on 2 and 4 A100 (2024): (nvidia-smi - context - cached logits) / allocated, least mean error; "
        "NCCL's buffers are in it",
    )  # fmt: skip
    # copies of the fp32 logits that lie in the allocator's cache at the peak
    cached_logits_shifted: Assumption = assumed(
        0.9, 0.5, 2.3, "dry runs of transformers 4's loss through the allocator's replay: 0.6 to 0.9 on four published jobs; "
        "59 published runs on one A100 (fms-acceleration, 2024 and 2025) lie closest to 1.5"
    )  # fmt: skip
    cached_logits_varying: Assumption = assumed(
        3.5, 0, 6, "31 runs of ms-swift's benchmark (2023-12), whose rows vary in length: least mean error of max_memory_reserved"
    )
    # measured / predicted: 90 % bands of data/measurements.csv, each source left out in turn (planner.validation.intervals)
    allocated_one_gpu: Assumption = assumed(
        1, 0.908, 1.126, f"{_BANDS}, allocated, one GPU: 129 of 145 rows of left-out sources inside"
    )
    allocated_several_gpus: Assumption = assumed(1, 0.908, 1.186, f"{_BANDS}, allocated, several GPUs: 100 of 109 rows inside")
    need_one_gpu: Assumption = assumed(1, 0.862, 1.235, f"{_BANDS}, reserved and on the card, one GPU: 181 of 198 rows inside")
    need_several_gpus: Assumption = assumed(1, 0.725, 1.239, f"{_BANDS}, on the card, several GPUs: 86 of 98 rows inside")
    # bytes
    context_turing: Assumption = assumed(141, 130, 250, "fitcheck archive: 140.9 MiB on a T4", unit=MiB)
    context_ampere: Assumption = assumed(
        430, 250, 520, "between the T4's and the H100's figure; no reading of our own yet", unit=MiB
    )
    context_hopper: Assumption = assumed(600, 450, 700, "about 0.6 GiB on H100 and H200 with many modules loaded", unit=MiB)
    workspace_before_hopper: Assumption = assumed(16.25, 8.125, 16.25, _CUBLAS, unit=MiB)
    workspace_hopper: Assumption = assumed(64, 32, 64, _CUBLAS, unit=MiB)

    # measured by pilots: by compute capability (`8.9`), and by method and attention kernel (`qlora flash`)
    measured_context: dict[str, Assumption] = {}
    measured_slack: dict[str, Assumption] = {}

    def context(self, compute_capability: tuple[int, int] | None) -> Assumption:
        """Bytes of the CUDA context with PyTorch's modules loaded: as measured on a card of that very architecture, else assumed."""
        if compute_capability and (measured := self.measured_context.get(context_key(compute_capability))):
            return measured
        major = (compute_capability or (8, 0))[0]
        return self.context_hopper if major >= 9 else self.context_ampere if major == 8 else self.context_turing

    def slack(self, method: str, kernel: Kernel, *, several_gpus: bool = False) -> Assumption:
        """Reserved over allocated bytes: as measured with this method and attention kernel on one GPU, else assumed."""
        if several_gpus:
            return self.allocator_slack_sharded
        assumed_slack = self.allocator_slack_with_scores if kernel.scores else self.allocator_slack
        return self.measured_slack.get(slack_key(method, kernel), assumed_slack)

    def band(self, *, several_gpus: bool) -> Assumption:
        """Measured need over predicted need."""
        return self.need_several_gpus if several_gpus else self.need_one_gpu

    def workspace(self, compute_capability: tuple[int, int] | None) -> Assumption:
        """Bytes of cuBLAS's workspace, one handle and one stream."""
        return self.workspace_hopper if (compute_capability or (8, 0))[0] == 9 else self.workspace_before_hopper


def context_key(compute_capability: tuple[int, int]) -> str:
    """What a measured context holds for: cards of one architecture."""
    return "{}.{}".format(*compute_capability)


def slack_key(method: str, kernel: Kernel) -> str:
    """What a measured slack holds for: jobs that allocate alike."""
    return f"{method} {kernel.name}"


def cached_logits(job: Job, assumptions: Assumptions) -> Any:
    """Freed fp32 logits that no later tensor fits: none where each is made once and of one size, as transformers 5 has them."""
    whole = job.loss in ("plain", "fused-ce") and not job.stack_row.own_models
    row = assumptions.cached_logits_varying if job.varying_lengths else assumptions.cached_logits_shifted
    if not whole or not (job.varying_lengths or job.transformers != "5"):
        return 0
    return row.value * 4 * job.micro_batch_size * job.length * job.architecture.vocab_size


class Peak(NamedTuple):
    """What the fullest instant needs, in bytes; `low` and `high` are the band of `device`."""

    instant: str
    allocated: Any
    reserved: Any
    device: Any
    low: Any
    high: Any

    def verdict(self, usable_bytes: float) -> Verdict:
        """`fits` (with the whole band), `does not fit` (not even the band's lower end) or `tight`: the card lies inside the band."""
        return "does not fit" if self.low > usable_bytes else "fits" if self.high <= usable_bytes else "tight"


def workspace_line(assumptions: Assumptions, compute_capability: tuple[int, int] | None) -> Line:
    """cuBLAS's workspace: allocated through PyTorch's allocator at the first matrix multiplication."""
    row = assumptions.workspace(compute_capability)
    return Line("cuBLAS workspace", "workspace", RESIDENT, row.value, "2 x 8.125 MiB, 2 x 32 MiB on Hopper", row.source)


def device_peak(
    allocated_at: dict[str, Any], slack: Assumption, context: Assumption, band: Assumption, cached_bytes: Any = 0
) -> Peak:
    """The peak over instants, and what the allocator, the context and NCCL add to it; `cached_bytes` of it are freed logits."""
    allocated = largest(*allocated_at.values())
    fullest = max(allocated_at, key=lambda instant: maximum(allocated_at[instant]))
    reserved = allocated * slack.value + cached_bytes
    device = reserved + context.value
    low, high = device * band.low, device * band.high
    if slack.calibrated:  # by a pilot on the user's own card: what it saw there, not what publications did elsewhere
        low = allocated * slack.low + context.low
        high = allocated * slack.high + cached_bytes + context.high
    return Peak(
        instant=fullest,
        allocated=allocated,
        reserved=reserved,
        device=device,
        low=low,
        high=high,
    )
