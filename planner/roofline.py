"""What a card sustains of its catalogue rates, and the assumptions behind a step's time."""

from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from planner.assumption import Assumption, assumed
from planner.errors import PlannerError
from planner.hardware import Gpu
from planner.job import Job

__all__ = ["Rates", "SpeedAssumptions", "card_rates"]


_FIT = "fitted to 300 published runs on T4, A100 and H100 (data/measurements.csv, llm-foundry) by tests/speed_study.py"


class SpeedAssumptions(BaseModel):
    """What a step's time depends on and no formula gives: shares of catalogue rates, seconds, joules.

    The band of a fitted number is at least as wide as the fits that leave one family of sources out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    # of a peak rate, or of the bandwidth
    matmul_share: Assumption = assumed(0.75, 0.65, 0.85, f"{_FIT}; of the peak")
    memory_share: Assumption = assumed(0.8, 0.7, 0.9, f"{_FIT}; of the bandwidth")
    attention_share: Assumption = assumed(0.5, 0.4, 0.6, f"{_FIT}; of what matrix multiplications sustain")
    experts_share: Assumption = assumed(0.85, 0.6, 1.0, f"{_FIT}; of what matrix multiplications sustain")
    measured_matmul_share: dict[str, Assumption] = {}  # measured by a pilot, by the card's id; it holds on that card only
    # energy and time
    joules_per_teraflop: Assumption = assumed(1.65, 1.4, 1.9, f"{_FIT}; what a whole A100 draws in matrix multiplications")
    operation_s: Assumption = assumed(20e-6, 12e-6, 36e-6, f"{_FIT}; Python, autograd and launch of one operator on the host")
    step_overhead_s: Assumption = assumed(
        0.02, 0.0, 0.1, "one synchronisation, logging and the batch's copy per step; an estimate"
    )
    # links, of their bandwidth
    nvlink_share: Assumption = assumed(0.75, 0.6, 0.85, "general knowledge of NCCL's bus bandwidth: 230 of 300, 360 of 450 GB/s")
    pcie_share: Assumption = assumed(
        0.5, 0.2, 0.8, "cards of a node share the host bridge, and consumer cards copy through host memory; an estimate"
    )
    fabric_share: Assumption = assumed(0.8, 0.3, 0.95, "RDMA networks; plain TCP is at the low end; an estimate")
    overlap: Assumption = assumed(0.7, 0.3, 0.9, "an estimate that the published runs on NVLink do not contradict")
    cpu_adam_params_per_s: Assumption = assumed(
        4.5e9, 0.7e9, 6e9,
        "Ren et al. 2021, arXiv:2101.06840, table 4: 1e9 parameters in 0.22 s by DeepSpeed's CPU-Adam, in 1.39 s by PyTorch's",
    )  # fmt: skip
    # published / predicted seconds: the 90 % interval of a step
    spread: Assumption = assumed(1.0, 0.87, 1.17, "112 published runs on one card, each family of sources left out of the fit")
    spread_several_gpus: Assumption = assumed(1.0, 0.88, 1.25, "188 published runs on several cards, likewise")


# Joules per operation relative to the A100's, by what the chip is made in. Source: TSMC, 7 nm: -65 % power against 16 nm at equal
# speed, 12 nm -25 % against 16 nm, 5 nm -30 % against 7 nm; Samsung, 8 nm: -46 % against 14 nm. Blackwell: twice the H100's training
# speed per card (MLPerf Training 4.1, GPT-3). Cards not named are taken for 5 nm ones.
_ENERGY = {"Pascal": 2.86, "Volta": 2.14, "Turing": 2.14, "Ampere": 1.54, "Blackwell": 0.5, "Blackwell Ultra": 0.5}
_ENERGY_OF_5_NM = 0.7


class Rates(NamedTuple):
    """What one card does: `peak` as the catalogue has it for the job's precision, the rest as sustained."""

    peak: float  # FLOP/s
    matmul: float  # FLOP/s, in the job's 16-bit format, or in fp32 where the job is fp32 or the card lacks bf16
    matmul_fp32: float  # FLOP/s
    memory: float  # bytes/s


def card_rates(job: Job, gpu: Gpu, assumptions: SpeedAssumptions) -> Rates:
    """The card's rates for `job`. Raises PlannerError where the catalogue has no peak or no bandwidth.

    Matrix multiplications sustain a share of the peak, or what the card's power pays for, whichever is less: power is what holds
    a T4, an L4 or an H100 below its peak. A share that a pilot measured has that in
    it. bf16 on a card without bf16 tensor cores runs at the fp32 rate.
    """
    sixteen_bit = gpu.peak_fp16_flops_per_s or gpu.peak_bf16_flops_per_s
    bandwidth = gpu.memory_bandwidth_bytes_per_s
    if sixteen_bit is None or bandwidth is None:
        raise PlannerError(
            "the {what} of {gpu} is not known, so its speed cannot be predicted; choose another card",
            field="gpu", what="peak rate" if sixteen_bit is None else "memory bandwidth", gpu=gpu.label,
        )  # fmt: skip
    measured = assumptions.measured_matmul_share.get(gpu.id)
    share = (measured or assumptions.matmul_share).value
    fp32 = sixteen_bit * _fp32_share(gpu)
    bf16 = job.precision.startswith("bf16")
    if job.numbers.compute_bytes == 4 or (bf16 and gpu.supports_bf16 is False):
        return Rates(fp32, fp32 * share, fp32 * share, bandwidth * assumptions.memory_share.value)
    peak = (gpu.peak_bf16_flops_per_s if bf16 else gpu.peak_fp16_flops_per_s) or sixteen_bit
    sustained = share
    if gpu.tdp_watts and not measured:
        energy = 1.0 if gpu.compute_capability == (8, 0) else _ENERGY.get(gpu.architecture, _ENERGY_OF_5_NM)
        watts_at_peak = peak * 1e-12 * assumptions.joules_per_teraflop.value * energy
        sustained = min(share, gpu.tdp_watts / watts_at_peak)
    return Rates(peak, peak * sustained, fp32 * share, bandwidth * assumptions.memory_share.value)


def _fp32_share(gpu: Gpu) -> float:
    """Plain fp32 (PyTorch's default, without TF32) as a share of the dense 16-bit tensor rate.

    Source: NVIDIA's architecture whitepapers: T4 8.1 of 65, V100 15.7 of 125, A100 19.5 of 312, H100 67 of 989 TFLOP/s; else the
    ratio by which data/gpus.csv derives tensor rates: 2 on GeForce from Ampere on, 4 elsewhere.
    """
    if gpu.architecture in ("Volta", "Turing"):
        return 1 / 4 if gpu.segment == "consumer" else 1 / 8
    if gpu.compute_capability == (8, 0) or (gpu.compute_capability or (0, 0))[0] in (9, 10):
        return 1 / 16
    return 1 / 2 if gpu.segment == "consumer" else 1 / 4
