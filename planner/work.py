"""What the blocks' forward pass asks of a card: multiplications, bytes of memory-bound operators, operators launched.

Bytes and operators are read off the modeling code of transformers and PEFT, operator by operator as PyTorch runs it eagerly.
"""

from typing import Any, NamedTuple

from planner.adapters import IA3, BottleneckAdapter, LoRA
from planner.blocks import Block, Linear
from planner.job import Job
from planner.memory.widths import Kernel, Widths
from planner.precision import quantization_state_bytes, quantized_weight_bytes

__all__ = ["Work", "attention_flops", "forward_work", "score_bytes"]

_GELUS_IN_PYTHON = ("gelu_new", "gelu_fast")


class Work(NamedTuple):
    """Of one forward pass. FLOPs and the first two kinds of bytes are per token, the rest per pass."""

    linear_flops: Any = 0  # linears of the model, routed experts apart
    expert_flops: Any = 0  # routed experts that a token is sent to
    adapter_flops: Any = 0
    stream_bytes: Any = 0  # memory-bound operators on the residual stream: norms, sums, casts
    inner_bytes: Any = 0  # memory-bound operators inside attention and MLP, and the adapters'
    weight_bytes: Any = 0  # weights read by matrix multiplications, and cast for them by autocast
    dequantised_bytes: Any = 0  # quantised weights read, 16-bit ones written
    operators: Any = 0  # that the host launches


def forward_work(job: Job, w: Widths, kernel: Kernel) -> Work:
    """All blocks together."""
    total = Work()
    for block in job.architecture.blocks:
        for part in (_block(job, block, w, kernel), _adapter(job, block, w)):
            total = Work(*(sum_ + block.num_blocks * value for sum_, value in zip(total, part, strict=True)))
    return total


def _block(job: Job, block: Block, w: Widths, kernel: Kernel) -> Work:
    a, c, fused = job.architecture, w.compute, job.loss == "liger"
    D, k = a.hidden_size, a.num_experts_per_tok if block.experts else 0
    dense = sum(x.in_features * x.out_features for x in block.linears)
    expert = sum(x.in_features * x.out_features for x in block.experts)
    # Norms. LlamaRMSNorm: to fp32, pow, mean, product, cast back, weight; layer_norm and Liger's RMSNorm are one kernel.
    norm, norm_operators = w.residual + w.normed, 1
    if a.norm == "rmsnorm" and not fused:
        casts = 2 * (w.residual + 4) if w.residual < 4 else 0
        norm, norm_operators = casts + 8 + 4 + 8 + w.residual + w.normed, 7
    stream = D * a.norms_per_block * norm
    operators: float = a.norms_per_block * norm_operators
    if a.qk_norm != "none":
        stream += (a.query_size + a.key_value_size) * norm
        operators += 2 * norm_operators
    stream += 2 * 3 * w.residual * D  # residual sums
    operators += 2
    if w.normed != c:  # the input of each linear is cast
        readers = sum(x.in_features == D for x in block.attention + block.mlp)
        stream += readers * (w.normed + c) * D
        operators += readers
    # Rotary embedding: two halves negated and joined, two products, a sum, on queries and keys; Liger's is one kernel.
    inner: float = 0
    if a.rotary:
        inner += (a.query_size + a.key_value_size) * w.linear * (2 if fused else 13)
        operators += 2 if fused else 12
    if kernel.expanded:
        inner += 2 * 2 * w.attention * a.query_size
    operators += 16 if kernel.scores else 9  # views and transposes, and the kernel
    # The activation, and its product with the gate.
    width = (block.mlp[-1].in_features if block.mlp else 0) + k * a.moe_intermediate_size
    passes, launched = (3, 1) if fused else (5, 2)
    if not a.gated_mlp:
        passes, launched = (16, 8) if a.hidden_act in _GELUS_IN_PYTHON else (2, 1)
    inner += width * w.linear * passes
    operators += launched + len(block.linears)
    if block.experts:  # rows gathered and scattered; transformers 4 loops over the experts
        inner += k * 4 * D * c
        operators += 10 + (12 * block.num_experts if job.experts_as_linears else 12)
    weights, dequantised = dense + block.num_experts * expert, 0.0
    if job.quantization != "none":
        quantised = dense + (block.num_experts * expert if job.experts_as_linears else 0)
        rows = sum(x.out_features for x in block.linears)
        scales = quantization_state_bytes(quantised, rows, job.quantization, double_quant=job.double_quant)
        dequantised = quantized_weight_bytes(quantised, job.quantization) + scales + c * quantised
        operators += 3 * len(block.linears)
        if job.quantization == "int8":  # inputs quantised row by row, int32 results scaled
            inner += sum(4 * x.in_features + 10 * x.out_features for x in block.linears)
    cast_weights = 6 * weights if w.weights == 4 and w.autocast else 0
    return Work(
        linear_flops=2 * dense,
        expert_flops=2 * k * expert,
        stream_bytes=stream,
        inner_bytes=inner,
        weight_bytes=c * weights + cast_weights,
        dequantised_bytes=dequantised,
        operators=operators,
    )


def _adapter(job: Job, block: Block, w: Widths) -> Work:
    """LoRA: the input cast to A's dtype and, under autocast, back; A; B; scaling; the sum with the base's result, cast back.

    Source: peft/tuners/lora/layer.py, Linear.forward.
    """
    a, adapter = job.architecture, job.adapter
    b = w.adapted
    if isinstance(adapter, LoRA):
        targets: list[tuple[Linear, int]] = [(x, 1) for x in adapter.targets(block)]
        targets += [(x, a.num_experts_per_tok) for x in adapter.expert_targets(block)]
        casts = (w.normed + w.adapter if w.normed != w.adapter else 0) + (w.adapter + b if w.adapter != b else 0)
        read = casts + b + (2 * b + 1 if adapter.dropout else 0)
        wide = max(w.linear, b)
        written = 3 * b + w.linear + wide + (wide + w.linear if wide != w.linear else 0)
        inner = sum(n * (x.in_features * read + x.out_features * written) for x, n in targets)
        flops = sum(2 * n * adapter.rank * (x.in_features + x.out_features) for x, n in targets)
        dora = adapter.use_dora  # norms of W + B A, and a second product with the base's result
        return Work(adapter_flops=flops, inner_bytes=inner * (1 + dora), operators=len(targets) * (7 + 10 * dora))
    if isinstance(adapter, IA3):
        scaled = sum(x.out_features for x in adapter.targets(block))
        return Work(inner_bytes=3 * w.linear * scaled, operators=2 * len(adapter.targets(block)))
    if isinstance(adapter, BottleneckAdapter):
        D, m = a.hidden_size, adapter.bottleneck_size
        return Work(adapter_flops=8 * D * m, inner_bytes=2 * b * (5 * D + 4 * m), operators=14)
    return Work()


def attention_flops(job: Job, kernel: Kernel) -> tuple[Any, Any, Any]:
    """FLOPs of a micro-batch's attention, all blocks: forward, backward, and the forward of all S x S scores.

    Fused kernels skip the half above the diagonal unless a mask is given, and make the scores again in backward: 5 products for
    forward's 2. Source: Dao 2023, arXiv:2307.08691, sec. 3.1 and 4.1.
    """
    a, S = job.architecture, job.length
    keys = S + (job.virtual_tokens if job.method == "prefix" else 0)
    features = a.num_attention_heads * (a.head_dim + a.value_head_dim)
    square = 2 * job.micro_batch_size * S * keys * features * a.num_hidden_layers
    if kernel.scores:
        return square, 2 * square, square
    forward = square if kernel.masked else square / 2
    return forward, 2.5 * forward, square


def score_bytes(job: Job, w: Widths) -> Any:
    """Bytes that eager attention's forward moves: scores written, scaled, masked, fp32 softmax, cast back, read.

    Source: transformers modeling_llama.py, eager_attention_forward.
    """
    a, c = job.architecture, w.attention
    softmax = 2 * (c + 4) if c < 4 else 8
    heads = a.num_attention_heads * a.num_hidden_layers
    return job.micro_batch_size * job.length**2 * heads * (c + 2 * c + 2 * c + softmax + c)
