"""How long one optimizer step takes: a roofline over its operations, and what of it the card's peak would allow."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

from planner.hardware import Gpu
from planner.interconnect import communication
from planner.job import Job
from planner.memory.lines import largest
from planner.memory.widths import attention_kernel, in_16_bit, widths
from planner.roofline import SpeedAssumptions, card_rates
from planner.sharding import Sharding, check_sharding
from planner.work import Work, attention_flops, block_work, score_bytes

__all__ = ["SpeedAssumptions", "StepTime", "TimeLine", "step_time"]


class TimeLine(NamedTuple):
    """One part of a step's time in seconds, with the formula and where it is from."""

    name: str
    seconds: Any
    formula: str
    source: str


@dataclass(frozen=True)
class StepTime:
    """One optimizer step: its parts, which add up; `low_s` and `high_s` are a 90 % interval."""

    lines: tuple[TimeLine, ...]
    low_s: Any
    high_s: Any
    tokens: Any
    model_flops: Any
    hardware_flops: Any
    peak_flops_per_s: float

    @cached_property
    def seconds(self) -> Any:
        return sum(line.seconds for line in self.lines)

    @property
    def tokens_per_s(self) -> Any:
        return self.tokens / self.seconds

    @property
    def mfu(self) -> Any:
        return self.model_flops / self.seconds / self.peak_flops_per_s

    @property
    def hfu(self) -> Any:
        return self.hardware_flops / self.seconds / self.peak_flops_per_s


@cache
def _default_assumptions() -> SpeedAssumptions:
    return SpeedAssumptions()


# Times that an optimizer reads or writes a tensor of its parameters' size.
_PASSES = {
    "adamw": 24, "adamw-fused": 10, "adamw-8bit": 9, "paged-adamw": 12, "paged-adamw-8bit": 9, "adafactor": 20, "lion": 8,
    "lion-8bit": 7, "sgd": 6, "sgd-momentum": 9,
}  # fmt: skip


def step_time(
    job: Job,
    gpu: Gpu,
    sharding: Sharding | None = None,
    *,
    fabric_bytes_per_s: float | None = None,
    assumptions: SpeedAssumptions | None = None,
) -> StepTime:
    """One optimizer step of `job` on `gpu`."""
    A = assumptions or _default_assumptions()
    if sharding:
        check_sharding(job, sharding)
    w = widths(job)
    if sharding and sharding.kind in ("fsdp", "hybrid", "zero1", "zero2", "zero3"):
        job, w = in_16_bit(job, w)
    a = job.architecture
    kernel = attention_kernel(job, w, gpu.compute_capability)
    rates = card_rates(job, gpu, A)
    B, S, ga, L = job.micro_batch_size, job.length, job.gradient_accumulation_steps, a.num_hidden_layers
    T = B * S
    split = sharding.num_gpus if sharding and sharding.kind == "tensor" else 1
    work = Work()
    for block in a.blocks:
        work = work.plus(block_work(job, block, w, kernel).times(block.num_blocks))
    checkpointing = job.gradient_checkpointing != "off"
    frozen = job.method == "freeze"
    through = job.trainable_layers / L if frozen and not checkpointing else 1.0
    trained_share = 1.0 if job.method == "full" else job.trainable_layers / L if frozen else 0.0

    def multiply(flops: Any, width: int, share: float = 1.0) -> Any:
        rate = rates.matmul if width < 4 or rates.peak == rates.matmul_fp32 else rates.matmul_fp32
        return flops / (rate * share)

    base_s = multiply(work.base_flops, w.compute) + multiply(work.expert_flops, w.compute, A.experts_share.value)
    adapter_width = w.compute if w.autocast else w.adapter
    adapter_s = multiply(work.adapter_flops, adapter_width)
    weights_s = work.weight_bytes / rates.memory
    pass_s = (T * (base_s + adapter_s) + weights_s) / split
    back_s = (T * (base_s * (through + trained_share) + 2 * adapter_s) + weights_s * (through + trained_share)) / split
    # attention
    forward, backward, square = attention_flops(job, kernel)
    slow = {"flash": 1.0, "efficient": 0.5, "eager": 1.0}[kernel.name]
    share = 1.0 if kernel.scores else A.attention_share.value * slow
    attn_s = multiply(forward, w.attention, share) / split
    attn_back_s = multiply(backward, w.attention, share) * through / split
    if kernel.scores:
        scores = score_bytes(job, w) / rates.memory / split
        attn_s, attn_back_s = attn_s + scores, attn_back_s + 2 * scores * through
    traffic_s = T * work.traffic_bytes / rates.memory
    dequant_s = work.dequantised_bytes / rates.memory
    # head and loss
    V, D = a.vocab_size, a.embedding_size or a.hidden_size
    head = 2 * T * V * D
    head_width = w.logits
    matmuls = 2 + job.trains_head + (job.loss == "cut-ce")
    c = w.logits
    loss_bytes = {"plain": 40 + 4 * c, "chunked": 40 + 4 * c, "liger": 5 * c, "cut-ce": 0}[job.loss]
    head_s = (
        multiply(head * matmuls, head_width) / split
        + (T * V * loss_bytes + 2 * V * D * (6 if w.autocast and w.vectors == 4 else c)) / rates.memory / split
    )
    # host
    operations = work.operations * (2 + through * 1.0) if checkpointing else work.operations * (1 + through)
    again = 1.0 if checkpointing else 0.0
    recompute_s = again * (pass_s + attn_s + traffic_s + dequant_s)
    trained_bytes = sum(t.params for t in job.trained_tensors) * (w.weights if job.adapter is None else w.adapter)
    shards = sharding.state_shards if sharding else 1
    optimizer_s = trained_bytes * _PASSES[job.optimizer] / rates.memory / shards
    accumulate_s = 3 * trained_bytes / rates.memory / (sharding.gradient_shards if sharding else 1)
    device_s = (
        pass_s + back_s + attn_s + attn_back_s + traffic_s * (1 + 2 * through) + dequant_s * (1 + through) + head_s + recompute_s
    )
    host_s = operations * A.operation_s.value
    waiting_s = largest(host_s - device_s, 0.0)
    lines = [
        TimeLine("matrix multiplications", ga * (pass_s + back_s), "", ""),
        TimeLine("output head and loss", ga * head_s, "", ""),
        TimeLine("attention", ga * (attn_s + attn_back_s), "", ""),
        TimeLine("memory-bound operators", ga * (traffic_s * (1 + 2 * through) + accumulate_s), "", ""),
        TimeLine("dequantisation", ga * dequant_s * (1 + through), "", ""),
        TimeLine("recomputation", ga * recompute_s, "", ""),
        TimeLine("optimizer", optimizer_s, "", ""),
        TimeLine("input and launches", ga * waiting_s + A.step_overhead_s.value, "", ""),
    ]
    exposed: Any = 0.0
    if sharding:
        exposed = communication(job, gpu, sharding, A, fabric_bytes_per_s, T, device_s, device_s - pass_s)
    lines.append(TimeLine("communication not hidden", exposed, "", ""))
    seconds = sum(line.seconds for line in lines)
    n = sharding.num_gpus if sharding else 1
    N = work.base_flops + work.expert_flops
    model = ga * (
        T * (N * (1 + through + trained_share) + 3 * work.adapter_flops)
        + head * (2 + job.trains_head)
        + square * (1 + 2 * through)
    )
    hardware = ga * (
        T * (N * (1 + through + trained_share + again) + (3 + again) * work.adapter_flops)
        + head * matmuls
        + forward * (1 + again)
        + backward * through
    )
    dp = sharding.data_parallel if sharding else 1
    return StepTime(
        tuple(lines),
        seconds * A.spread.low,
        seconds * A.spread.high,
        dp * ga * B * job.sequence_length,
        model * dp,
        hardware * dp,
        rates.peak * n,
    )
