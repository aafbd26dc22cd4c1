"""How long one optimizer step takes: a roofline over its operations, communication that is not hidden, and tokens per second.

Two conventions, stated once. `mfu` counts what the model and the method need: 2 FLOPs per weight and token in forward, 2 in
backward for the gradient of the input, 2 more where the weight is trained; attention over all S x S scores; no recomputation
(Chowdhery et al. 2022, arXiv:2204.02311, app. B, whose 6 N holds where all weights are trained). `hfu` counts what runs:
recomputation, and attention as its kernel does it. Both are over the catalogue's peak of all cards together.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

from planner.hardware import Gpu
from planner.interconnect import exposed_seconds, offload_seconds
from planner.job import Job
from planner.memory.lines import largest
from planner.memory.widths import Kernel, Widths, attention_kernel, in_16_bit, widths
from planner.roofline import Rates, SpeedAssumptions, card_rates
from planner.sharding import Sharding, check_sharding
from planner.work import attention_flops, forward_work, score_bytes

__all__ = ["SpeedAssumptions", "StepTime", "TimeLine", "step_time"]

_MATMUL = "Kaplan et al. 2020, arXiv:2001.08361, sec. 2.1: 2 FLOPs per weight and token, and again for each gradient; weights are read once a pass"
_HEAD = "transformers/loss/loss_utils.py, ForCausalLMLoss; arXiv:2410.10989 (Liger), arXiv:2411.09009 (CCE: logits made twice)"
_FLASH = "Dao 2023, arXiv:2307.08691; on Hopper its kernels reach 35 % of the peak: Shah et al. 2024, arXiv:2407.08608, sec. 1"
_TRAFFIC = "transformers and PEFT modeling code, operator by operator: bytes read and written; backward moves twice forward's"
_DEQUANTISED = "bitsandbytes/autograd/_functions.py, MatMul4Bit: weights are dequantised in forward and in backward"
_RECOMPUTED = "Chen et al. 2016, arXiv:1604.06174: with checkpointing, the blocks' forward runs again"
_OPTIMIZER = "torch/optim (foreach: one pass over memory per operation), bitsandbytes kernels, and the norm of gradient clipping"
_HOST = (
    "what the host takes to launch a micro-batch's operators, beyond what the card is busy; FSDP 1's units, whose limit of two "
    "gathers at once stops the host from running ahead (torch/distributed/fsdp, limit_all_gathers); one overhead per step"
)
_LINKS = "ring collectives, Patarasuk & Yuan 2009, and what each way of sharding sends: planner.interconnect"

# Times that a step reads or writes a tensor of the parameters' size, clipping (3) included; 8-bit states count a quarter or a half.
# Source: torch/optim/adamw.py, _multi_tensor_adamw (21 for its eight foreach calls), _fused_adamw; bitsandbytes kernels (one pass);
# transformers/optimization.py, Adafactor.
_OPTIMIZER_PASSES = {
    "adamw": 24, "adamw-fused": 10, "adamw-8bit": 8, "paged-adamw": 10, "paged-adamw-8bit": 8, "adafactor": 20, "lion": 8,
    "lion-8bit": 7, "sgd": 6, "sgd-momentum": 9,
}  # fmt: skip
# Bytes per logit that the loss moves beyond the head's own products: plain PyTorch copies, casts to fp32 and normalises.
_LOSS_BYTES = {"plain": 56, "fused-ce": 24, "chunked": 56, "liger": 10, "cut-ce": 0}
# What of flash attention's share is left: with the memory-efficient kernel, and on chips whose instructions FlashAttention-2 lacks.
# The first is read off the T4 runs (fitcheck), the second from arXiv:2407.08608 (35 % of the peak on an H100) and llm-foundry's H100 runs.
_EFFICIENT, _AFTER_AMPERE = 0.8, 0.6
# Operators per block and pass that gathering and scattering adds on the host: hooks in Python around each block, or each parameter.
# Estimates; the published runs of DeepSpeed (Qwen) and FSDP 1 (fms-acceleration) agree with them.
_GATHERING_OPERATORS = {"fsdp": 40, "hybrid": 40, "zero3": 150}
# Operators' worth of host time for one unit of FSDP 1, which its limit of two gathers at once does not let run ahead of the card.
_UNIT_OPERATORS = 25


class TimeLine(NamedTuple):
    """One part of a step's time: seconds (an array where the job's numbers are), the formula in words, and where it is from."""

    name: str
    seconds: Any
    formula: str
    source: str


@dataclass(frozen=True)
class StepTime:
    """One optimizer step: named parts that add up to `seconds`; `low_s` to `high_s` holds the true time in 9 of 10 cases.

    `tokens` are the positions of all GPUs, padding among them. FLOPs are of all GPUs (conventions: see the module).
    """

    lines: tuple[TimeLine, ...]
    low_s: Any
    high_s: Any
    tokens: Any
    model_flops: Any
    hardware_flops: Any
    peak_flops_per_s: float

    @cached_property
    def seconds(self) -> Any:
        """Seconds of one optimizer step, all its micro-batches included."""
        return sum(line.seconds for line in self.lines)

    @property
    def tokens_per_s(self) -> Any:
        """Positions per second, all GPUs together."""
        return self.tokens / self.seconds

    @property
    def mfu(self) -> Any:
        """Model FLOPs per second as a share of the peak."""
        return self.model_flops / (self.seconds * self.peak_flops_per_s)

    @property
    def hfu(self) -> Any:
        """FLOPs that ran per second as a share of the peak."""
        return self.hardware_flops / (self.seconds * self.peak_flops_per_s)


@cache
def _default_assumptions() -> SpeedAssumptions:
    return SpeedAssumptions()


class _MicroBatch(NamedTuple):
    """Seconds of one micro-batch on one rank, and its FLOPs."""

    matmul: Any
    head: Any
    attention: Any
    traffic: Any
    dequantised: Any
    recomputed: Any
    waiting: Any
    backward: Any  # of the card's time, what runs after the loss
    model_flops: Any
    hardware_flops: Any

    @property
    def card(self) -> Any:
        """Seconds in which the card works."""
        return self.matmul + self.head + self.attention + self.traffic + self.dequantised + self.recomputed


def step_time(
    job: Job,
    gpu: Gpu,
    sharding: Sharding | None = None,
    *,
    fabric_bytes_per_s: float | None = None,
    assumptions: SpeedAssumptions | None = None,
) -> StepTime:
    """One optimizer step of `job`: its accumulated micro-batches on each rank, the sums among ranks, and the optimizer.

    `fabric_bytes_per_s` is the network between nodes, per GPU and direction. Numeric fields of the job may be NumPy arrays. Raises
    PlannerError where the catalogue lacks a rate of the card or link, InvalidJob where the libraries refuse the sharding.
    """
    A = assumptions or _default_assumptions()
    if sharding:
        check_sharding(job, sharding)
    original = w = widths(job)
    run = job
    if sharding and sharding.kind not in ("ddp", "tensor"):
        run, w = in_16_bit(job, w)
    rates = card_rates(job, gpu, A)
    micro = _micro_batch(run, gpu, w, rates, A, sharding)
    each = job.gradient_accumulation_steps
    width = original.weights if job.adapter is None else original.adapter
    trained = job.trained_params * width / rates.memory
    state_shards, gradient_shards = (sharding.state_shards, sharding.gradient_shards) if sharding else (1, 1)
    optimizer, exposed = _OPTIMIZER_PASSES[job.optimizer] * trained / state_shards, 0
    if sharding:
        if sharding.offload != "none":
            optimizer = offload_seconds(job, gpu, sharding, A)
        exposed = exposed_seconds(
            job, gpu, sharding, A, fabric_bytes_per_s=fabric_bytes_per_s, micro_batch_s=micro.card, backward_s=micro.backward
        )
    traffic = each * (micro.traffic + 3 * trained / gradient_shards)  # gradients are added to the accumulated ones
    waiting = each * micro.waiting + A.step_overhead_s.value
    lines = (
        TimeLine(
            "matrix multiplications", each * micro.matmul, "2 P T per pass / sustained FLOP/s + weights / bandwidth", _MATMUL
        ),
        TimeLine("output head and loss", each * micro.head, "2 T V D per product / FLOP/s + T V bytes / bandwidth", _HEAD),
        TimeLine("attention", each * micro.attention, "2 B S S H A (half of it fused), x 2.5 backward / FLOP/s", _FLASH),
        TimeLine("memory-bound operators", traffic, "3 x forward's bytes / bandwidth", _TRAFFIC),
        TimeLine("dequantisation", each * micro.dequantised, "bytes read and written / bandwidth", _DEQUANTISED),
        TimeLine("recomputation", each * micro.recomputed, "the blocks' forward again", _RECOMPUTED),
        TimeLine("optimizer", optimizer, "passes x bytes of trained parameters / bandwidth", _OPTIMIZER),
        TimeLine("communication not hidden", exposed, "bytes sent / link, less what computing hides", _LINKS),
        TimeLine("input and launches", waiting, "operators x seconds each, beyond the card's time", _HOST),
    )
    seconds, spread = sum(line.seconds for line in lines), A.spread_several_gpus if sharding else A.spread
    ranks, num_gpus = (sharding.data_parallel, sharding.num_gpus) if sharding else (1, 1)
    return StepTime(
        lines,
        low_s=seconds * spread.low,
        high_s=seconds * spread.high,
        tokens=ranks * each * job.micro_batch_size * job.sequence_length,
        model_flops=ranks * each * micro.model_flops,
        hardware_flops=ranks * each * micro.hardware_flops,
        peak_flops_per_s=num_gpus * rates.peak,
    )


def _micro_batch(job: Job, gpu: Gpu, w: Widths, rates: Rates, A: SpeedAssumptions, sharding: Sharding | None) -> _MicroBatch:
    """One micro-batch on one rank; tensor parallelism divides all but the residual stream."""
    a, T = job.architecture, job.micro_batch_size * job.length
    parts = sharding.num_gpus if sharding and sharding.kind == "tensor" else 1
    kernel = attention_kernel(job, w, gpu.compute_capability)
    work = forward_work(job, w, kernel)
    again = 0 if job.gradient_checkpointing == "off" else 1
    # Layer freezing: backward ends at the lowest trained block, but with checkpointing goes all the way down, as transformers
    # makes the embeddings' output need a gradient.
    last = min(1.0, job.trainable_layers / a.num_hidden_layers) if job.method == "freeze" else 1.0
    reached = 1.0 if again else last
    trained = last if job.adapter is None else 0.0
    passes = 1 + reached + trained  # of products with the model's weights

    def seconds(flops: Any, width: int, share: float = 1.0) -> Any:
        return flops / ((rates.matmul if width < 4 else rates.matmul_fp32) * share * parts)

    model_s = T * (seconds(work.linear_flops, w.compute) + seconds(work.expert_flops, w.compute, A.experts_share.value))
    model_s = model_s + work.weight_bytes / rates.memory / parts
    adapter_s = T * seconds(work.adapter_flops, w.adapted)
    forward, backward, square = attention_flops(job, kernel)
    attention_s, attention_back_s = _attention_seconds(job, gpu, w, kernel, rates, A, parts, forward, backward)
    traffic_s = T * (work.stream_bytes + work.inner_bytes / parts) / rates.memory
    dequantised_s = work.dequantised_bytes / rates.memory / parts
    # output head and loss
    V, width = a.vocab_size, a.embedding_size or a.hidden_size
    logits = 2 * T * V * width
    products = 2 + job.trains_head
    run_products = products + (job.loss == "cut-ce")
    head_bytes = T * V * _LOSS_BYTES[job.loss] + run_products * V * width * w.vectors
    head_s = seconds(logits * run_products, w.logits) + head_bytes / rates.memory / parts
    # the host
    gathering = _GATHERING_OPERATORS.get(sharding.kind, 0) * a.num_hidden_layers if sharding else 0
    launching_s = (work.operators + gathering) * (1 + again + reached) * A.operation_s.value
    stalled_s = _stalled_units(job, sharding) * (1 + again + reached) * _UNIT_OPERATORS * A.operation_s.value

    forward_s = model_s + adapter_s + attention_s + traffic_s + dequantised_s
    found = _MicroBatch(
        matmul=model_s * passes + 3 * adapter_s,
        head=head_s,
        attention=attention_s + reached * attention_back_s,
        traffic=traffic_s * (1 + 2 * reached),
        dequantised=dequantised_s * (1 + reached),
        recomputed=again * forward_s,
        waiting=0,
        backward=0,
        model_flops=T * ((work.linear_flops + work.expert_flops) * passes + 3 * work.adapter_flops)
        + logits * products
        + square * (1 + 2 * reached),
        hardware_flops=T * ((work.linear_flops + work.expert_flops) * (passes + again) + (3 + again) * work.adapter_flops)
        + logits * run_products
        + forward * (1 + again)
        + backward * reached,
    )
    return found._replace(backward=found.card - forward_s, waiting=largest(launching_s - found.card, 0) + stalled_s)


def _attention_seconds(
    job: Job, gpu: Gpu, w: Widths, kernel: Kernel, rates: Rates, A: SpeedAssumptions, parts: int, forward: Any, backward: Any
) -> tuple[Any, Any]:
    """Seconds of all blocks' attention, forward and backward: fused kernels by their share, eager by products and score traffic."""
    rate = (rates.matmul if w.attention < 4 else rates.matmul_fp32) * parts
    if kernel.scores:
        scores_s = score_bytes(job, w) / rates.memory / parts
        return forward / rate + scores_s, backward / rate + 2 * scores_s
    share = A.attention_share.value
    if kernel.name == "efficient":
        share *= _EFFICIENT
    elif (gpu.compute_capability or (8, 0))[0] in (9, 10):
        share *= _AFTER_AMPERE
    return forward / (rate * share), backward / (rate * share)


def _stalled_units(job: Job, sharding: Sharding | None) -> int:
    """Units of FSDP 1: a block each, and each matrix of an adapter (peft/utils/other.py, fsdp_auto_wrap_policy)."""
    if not sharding or sharding.kind not in ("fsdp", "hybrid") or sharding.fsdp_version == 2:
        return 0
    adapter, blocks = job.adapter, job.architecture.blocks
    return sum(x.num_blocks * (1 + 2 * len(adapter.targets(x) if adapter else ())) for x in blocks)
