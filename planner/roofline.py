"""What a card achieves of its peak rates, and the assumptions about it: from the published speeds of fine-tuning runs."""

from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from planner.errors import PlannerError
from planner.hardware import Gpu
from planner.job import Job
from planner.memory.device import Assumption

__all__ = ["Rates", "SpeedAssumptions", "card_rates"]

_STUDY = "tests/speed_study.py over tests/reference/published_speed.csv"


def _assumed(value: float, low: float, high: float, source: str) -> Any:
    return Field(default_factory=lambda: Assumption(value=value, low=low, high=high, source=source))


class SpeedAssumptions(BaseModel):
    """What a step's time depends on and no formula gives. Shares of a peak, seconds, joules."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    matmul_share: Assumption = _assumed(0.75, 0.65, 0.85, _STUDY)
    joules_per_teraflop: Assumption = _assumed(1.7, 1.3, 2.2, _STUDY)
    memory_share: Assumption = _assumed(0.8, 0.6, 0.92, _STUDY)
    attention_share: Assumption = _assumed(0.6, 0.4, 0.75, _STUDY)
    operation_s: Assumption = _assumed(24e-6, 12e-6, 40e-6, _STUDY)
    step_overhead_s: Assumption = _assumed(0.02, 0.0, 0.1, _STUDY)
    experts_share: Assumption = _assumed(0.85, 0.6, 1.0, _STUDY)
    nvlink_share: Assumption = _assumed(0.75, 0.6, 0.85, _STUDY)
    pcie_share: Assumption = _assumed(0.5, 0.2, 0.8, _STUDY)
    fabric_share: Assumption = _assumed(0.8, 0.5, 0.95, _STUDY)
    overlap: Assumption = _assumed(0.7, 0.4, 0.9, _STUDY)
    cpu_adam_params_per_s: Assumption = _assumed(4.5e9, 1e9, 6e9, "arXiv:2101.06840")
    spread: Assumption = _assumed(1.0, 0.75, 1.35, _STUDY)


# Energy of one operation relative to TSMC's 7 nm (A100). Source: TSMC's own statements, power at equal speed: 7 nm -60 % against
# 16 nm (12FFN is its derivative), 5 nm -30 % against 7 nm; Samsung 8 nm between 16 and 7 nm.
_PROCESS = {"Volta": 2.5, "Turing": 2.5, "Pascal": 2.5, "Ampere": 1.5, "Ada Lovelace": 0.7, "Hopper": 0.7}


class Rates(NamedTuple):
    """What one card sustains."""

    peak: float  # catalogue, of the job's 16-bit format or of fp32
    matmul: float
    matmul_fp32: float
    memory: float


def card_rates(job: Job, gpu: Gpu, assumptions: SpeedAssumptions) -> Rates:
    """Peak and sustained rates of `gpu` for `job`. Raises PlannerError where the catalogue has none."""
    sixteen = gpu.peak_bf16_flops_per_s or gpu.peak_fp16_flops_per_s
    if sixteen is None or gpu.memory_bandwidth_bytes_per_s is None:
        what = "peak rate" if sixteen is None else "memory bandwidth"
        raise PlannerError(
            "the {what} of {gpu} is not known, so its time cannot be planned; choose another card",
            field="gpu", what=what, gpu=gpu.label,
        )  # fmt: skip
    fp32 = sixteen * _fp32_share(gpu)
    if job.numbers.compute_bytes == 4 or (job.precision.startswith("bf16") and gpu.peak_bf16_flops_per_s is None):
        peak = fp32
    else:
        peak = gpu.peak_bf16_flops_per_s if job.precision.startswith("bf16") else gpu.peak_fp16_flops_per_s
    peak = peak or sixteen

    def sustained(rate: float) -> float:
        a = assumptions
        share = a.matmul_share.value
        process = 1.0 if gpu.compute_capability == (8, 0) else _PROCESS.get(gpu.architecture, 0.7)
        if gpu.tdp_watts:
            needed = rate / sixteen * sixteen * 1e-12 * a.joules_per_teraflop.value * process
            share = min(share, (gpu.tdp_watts / needed))
        return rate * share

    s = sustained(sixteen) / sixteen
    return Rates(
        peak=peak,
        matmul=peak * s,
        matmul_fp32=fp32 * assumptions.matmul_share.value,
        memory=gpu.memory_bandwidth_bytes_per_s * assumptions.memory_share.value,
    )


def _fp32_share(gpu: Gpu) -> float:
    """Plain fp32 as a share of the dense 16-bit tensor rate.

    Source: NVIDIA's architecture whitepapers (T4 8.1 / 65, V100 15.7 / 125, A100 19.5 / 312, H100 67 / 989); the ratio k that the
    catalogue's derived rates use: 2 on GeForce from Ampere on, else 4.
    """
    if gpu.architecture in ("Volta", "Turing"):
        return 1 / 4 if gpu.segment == "consumer" else 1 / 8
    if gpu.compute_capability in ((8, 0), (9, 0)) or (gpu.compute_capability or (0, 0))[0] == 10:
        return 1 / 16
    return 1 / 2 if gpu.segment == "consumer" else 1 / 4
