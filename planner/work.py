"""What a forward pass asks of a card: multiplications, bytes moved by memory-bound operators, operators launched.

All are per token unless the name says otherwise, and grow with the number of tokens; attention scores are apart.
"""

from typing import Any, NamedTuple

from planner.adapters import IA3, BottleneckAdapter, LoRA
from planner.blocks import Block, Linear
from planner.job import Job
from planner.memory.widths import Kernel, Widths
from planner.precision import quantization_state_bytes

__all__ = ["Work", "attention_flops", "block_work", "score_bytes"]


class Work(NamedTuple):
    """Of one forward pass through some blocks."""

    base_flops: Any = 0  # per token, linears of the model
    expert_flops: Any = 0  # per token, routed experts among them
    adapter_flops: Any = 0  # per token
    traffic_bytes: Any = 0  # per token, operators that are not matrix multiplications
    weight_bytes: Any = 0  # per pass, weights read
    dequantised_bytes: Any = 0  # per pass
    operations: Any = 0  # per pass, each launched by the host

    def times(self, count: Any) -> "Work":
        return Work(*(count * value for value in self))

    def plus(self, other: "Work") -> "Work":
        return Work(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def block_work(job: Job, block: Block, w: Widths, kernel: Kernel) -> Work:
    """One block's forward."""
    a = job.architecture
    D, c = a.hidden_size, w.compute
    fused = job.loss == "liger"
    k = a.num_experts_per_tok if block.experts else 0
    dense = sum(x.in_features * x.out_features for x in block.linears)
    expert = sum(x.in_features * x.out_features for x in block.experts)
    weights = dense + block.num_experts * expert
    traffic = operations = 0.0
    # norms
    if a.norm == "rmsnorm" and not fused:
        width = (4 if w.residual == 4 else 2 + 4 + 4 + 2) + 4 + 12 + 8 + w.residual + w.normed
        per_norm = 7
    else:
        width, per_norm = w.residual + w.normed, 1
    traffic += a.norms_per_block * width * D
    operations += a.norms_per_block * per_norm
    if a.qk_norm != "none":
        traffic += width * (a.query_size + a.key_value_size)
        operations += 2 * per_norm
    # linears: autocast of inputs, results
    cast = (w.normed + c) if w.normed != c else 0
    inputs = [x for x in block.attention + block.mlp if x.in_features == D]
    traffic += cast * D * len(inputs)
    operations += len(block.linears) * (1 + (cast > 0))
    # rotary embedding, on queries and keys: rotate_half (negate, cat), two products, one sum
    if a.rotary:
        heads = a.query_size + a.key_value_size
        traffic += w.linear * heads * (2 if fused else 13)
        operations += 2 if fused else 12
    operations += 8 + (8 if kernel.scores else 1)
    if kernel.expanded:
        traffic += 2 * w.attention * 2 * a.query_size
    # activation, and the product with the gate
    F = block.mlp[-1].in_features if block.mlp else 0
    inner = F + k * a.moe_intermediate_size if block.experts else F
    if a.gated_mlp:
        traffic += w.linear * inner * (3 if fused else 5)
        operations += 1 if fused else 2
    else:
        traffic += w.linear * inner * (2 if a.hidden_act not in ("gelu_new", "gelu_fast") else 16)
        operations += 1 if a.hidden_act not in ("gelu_new", "gelu_fast") else 8
    traffic += 2 * 3 * w.residual * D  # residual sums
    operations += 2
    if block.experts:
        traffic += k * (4 * D * c)  # rows gathered and scattered
        operations += 10 + (12 * block.num_experts if job.experts_as_linears else 12)
    # quantised weights
    dequantised = 0.0
    quantised = dense + (block.num_experts * expert if job.experts_as_linears else 0) if job.quantization != "none" else 0
    if quantised:
        state = quantization_state_bytes(quantised, 0, job.quantization, double_quant=job.double_quant)
        stored = quantised * (1 if job.quantization == "int8" else 0.5) + state
        dequantised = stored + c * quantised
        operations += 3 * len(block.linears)
        if job.quantization == "int8":  # rows quantised, int32 results scaled
            traffic += sum(4 * x.in_features + 10 * x.out_features for x in block.linears)
    adapter = _adapter_work(job, block, w)
    own = Work(
        base_flops=2 * dense,
        expert_flops=2 * k * expert,
        traffic_bytes=traffic,
        weight_bytes=c * weights + (6 * weights if w.weights == 4 and w.autocast else 0),
        dequantised_bytes=dequantised,
        operations=operations,
    )
    return own.plus(adapter)


def _adapter_work(job: Job, block: Block, w: Widths) -> Work:
    a, adapter = job.architecture, job.adapter
    b = w.compute if w.autocast else w.adapter
    fused = job.loss == "liger"
    if isinstance(adapter, LoRA):
        targets: list[tuple[Linear, Any]] = [(x, 1) for x in adapter.targets(block)]
        targets += [(x, a.num_experts_per_tok) for x in adapter.expert_targets(block)]
        traffic = flops = 0.0
        for x, times in targets:
            first = (w.normed + w.adapter) if w.normed != w.adapter else 0
            again = (w.adapter + b) if w.adapter != b else 0
            wide = max(w.linear, b)
            result = 3 * b + w.linear + wide + ((wide + w.linear) if wide != w.linear else 0)
            traffic += times * (x.in_features * (first + again + b) + x.out_features * result)
            flops += times * 2 * adapter.rank * (x.in_features + x.out_features)
            if adapter.dropout:
                traffic += times * x.in_features * (2 * b + 1)
        operations = len(targets) * (7 + (10 if adapter.use_dora else 0))
        if adapter.use_dora:
            traffic = 2 * traffic
        return Work(adapter_flops=flops, traffic_bytes=traffic, operations=operations)
    if isinstance(adapter, IA3):
        width = sum(x.out_features for x in adapter.targets(block))
        return Work(traffic_bytes=3 * w.linear * width, operations=2 * len(adapter.targets(block)))
    if isinstance(adapter, BottleneckAdapter):
        D, m = a.hidden_size, adapter.bottleneck_size
        return Work(adapter_flops=8 * D * m, traffic_bytes=2 * b * (5 * D + 4 * m), operations=14)
    return Work()


def attention_flops(job: Job, kernel: Kernel) -> tuple[Any, Any, Any]:
    """FLOPs of all blocks' attention for a micro-batch: forward, backward, and the full square's forward."""
    a = job.architecture
    B, S = job.micro_batch_size, job.length
    keys = S + (job.virtual_tokens if job.method == "prefix" else 0)
    square = 2 * B * S * keys * a.num_attention_heads * (a.head_dim + a.value_head_dim) * a.num_hidden_layers
    if kernel.scores:
        return square, 2 * square, square
    half = square if kernel.masked else square / 2
    return half, 2.5 * half, square


def score_bytes(job: Job, w: Widths) -> Any:
    """Bytes that eager attention's forward moves: scores written, scaled, masked, softmax in fp32, cast back, read."""
    a, c = job.architecture, w.attention
    return job.micro_batch_size * job.length**2 * a.num_attention_heads * a.num_hidden_layers * (7 * c + (8 + c if c < 4 else 8))
