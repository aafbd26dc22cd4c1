"""What the forward pass of one block saves for its backward, tensor by tensor, and what that backward needs besides.

Each entry follows one tensor that autograd keeps, read off the modeling code of transformers and checked against the same
step on fake tensors. Letters: T = B S tokens, D hidden, F intermediate, H query heads, K key/value heads, A features per head.
"""

from typing import Any, NamedTuple

from planner.adapters import IA3, BottleneckAdapter, LoRA
from planner.architecture import Architecture
from planner.blocks import Block, Linear
from planner.job import Job
from planner.memory.lines import largest
from planner.memory.widths import Kernel, Widths

__all__ = ["Saved", "block_backward", "norm_backward", "saved_by_block"]

_NORM = (
    "transformers modeling_llama.py, LlamaRMSNorm: pow and mul keep the fp32 input; a trained weight keeps its 16-bit product too"
)
_LAYER_NORM = "torch layer_norm keeps its input, in fp32 under autocast, and two fp32 statistics per token"
_LINEAR = "torch linear keeps its input where its weight is trained; autocast makes one 16-bit copy per layer"
_FLASH = "Dao 2023, arXiv:2307.08691, sec. 3: q, k, v, the output and one fp32 log-sum-exp per row are kept"
_RETURNING_SCORES = ("bloom", "falcon", "mpt")  # whose block returns them beside its output (transformers modeling files)
_EAGER = "transformers eager_attention_forward: softmax in fp32 keeps its result, and the product with v keeps its 16-bit copy"
_LORA = "peft/tuners/lora/{layer,bnb}.py: A keeps its input (its own copy where the dtype is cast), B the rank-r product"
_DORA = "peft/tuners/lora/dora.py: base result and low-rank result are both kept for the magnitude's gradient"
_DORA_DROPOUT = (
    "peft/tuners/lora/dora.py: with dropout the base's result is computed again, and the product keeps its cast weight"
)
_PADDED = "litgpt/lora.py, LoRAQKVLinear.zero_pad: index_copy keeps what it copies"
_IA3 = "peft/tuners/ia3/layer.py: the factor that is not the vector is kept, the MLP's in the vector's own dtype"
_DROPOUT = "torch native_dropout keeps a 1-byte mask"
_ACT = "the activation keeps its input, the product of gate and up both factors"
_PARAM_WRAPPER = "peft/tuners/lora/layer.py, ParamWrapper: W + BA of all experts is made whole before the grouped matmul"
_MOE = "transformers/integrations/moe.py, grouped matmul: rows are copied once per chosen expert"

_GELU_NEW = "transformers/activations.py, NewGELUActivation in Python: pow, x / 2, tanh, 1 + tanh; autocast runs pow in fp32"


_GELUS_IN_PYTHON = ("gelu_new", "gelu_fast")


def _in_python(job: Job) -> bool:
    """Whether the activation is transformers' own Python, not one kernel."""
    return job.architecture.hidden_act in _GELUS_IN_PYTHON and not job.stack_row.own_models


class Saved(NamedTuple):
    """Bytes that one block keeps for its backward; `by_mlp` of them belong to the MLP's half and are gone before attention's."""

    name: str
    bytes: Any
    formula: str
    source: str
    by_mlp: Any = 0


def _norms(a: Architecture, w: Widths, T: Any, trained: bool) -> list[Saved]:
    D, n = a.hidden_size, a.norms_per_block
    if a.norm == "layernorm":
        width = max(w.normed, w.residual)
        inputs = 1 if a.parallel_block and width == w.residual else n  # both norms of a parallel block read one tensor
        size = T * (inputs * width * D + 8 * n)
        return [Saved("norm inputs", size, f"T ({inputs} x {width} D + {8 * n})", _LAYER_NORM, size / 2)]
    product = (4 if a.norm_product_fp32 else w.normed) if trained else 0
    size = n * T * ((4 + product) * D + 4)
    saved = [Saved("norm inputs", size, f"{n} T ({4 + product} D + 4)", _NORM, size / 2)]
    if a.qk_norm != "none":
        width = a.query_size + a.key_value_size
        saved.append(Saved("query and key norms", T * width * (4 + product), f"T (H + K) A x {4 + product}", _NORM))
    if a.kv_lora_rank:
        width = a.kv_lora_rank + a.q_lora_rank
        saved.append(Saved("latent norms", T * width * (4 + product), f"T x {width} x {4 + product}", _NORM))
    return saved


def _converted(job: Job, w: Widths, given: int) -> tuple[int, bool]:
    """Bytes per element of what a trained linear or an adapter's A keeps of an input `given` wide, and whether it is a copy.

    PEFT casts to the adapter's own dtype, and autocast from there to 16 bit.
    """
    if job.adapter is None:
        return w.compute, given != w.compute
    return w.adapted, _casts(job, w, given) or given != w.adapted


def _casts(job: Job, w: Widths, given: int) -> bool:
    """Whether PEFT casts an input to the adapter's dtype; its bitsandbytes layers leave that to autocast."""
    return w.adapter != given and not (w.autocast and job.quantization != "none")


def _dropout(job: Job) -> float:
    """LoRA's dropout, where there is one."""
    return job.adapter.dropout if isinstance(job.adapter, LoRA) else 0.0


def _inputs(job: Job, w: Widths, T: Any, linears: tuple[Linear, ...], given: int, *, kept_anyway: bool = False) -> Any:
    """Bytes kept as inputs of linears that read one and the same tensor: a copy each where it is cast or dropped out, else one."""
    if not linears:
        return 0
    converted, copied = _converted(job, w, given)
    if copied or _dropout(job):
        return T * converted * sum(x.in_features for x in linears)
    return 0 if kept_anyway else T * given * linears[0].in_features


def _adapter(job: Job, block: Block, w: Widths, T: Any) -> list[Saved]:
    """What LoRA, IA3 or a bottleneck adapter keeps on its targets beyond the linears' inputs."""
    a, adapter = job.architecture, job.adapter
    if isinstance(adapter, LoRA):
        targets, b = adapter.targets(block), w.adapted
        saved = [Saved("rank-r products", T * b * adapter.rank * len(targets), f"T r x {b} x {len(targets)}", _LORA)]
        projections = [x for x in block.attention[:-1] if x in targets]
        if job.stack_row.fused_projection and 0 < len(projections) < len(block.attention) - 1:
            width = sum(x.out_features for x in projections)
            saved.append(Saved("LoRA's part of the projection", T * b * width, f"T x {b} x sum of outputs", _PADDED))
        if adapter.dropout:
            width = sum(x.in_features for x in targets)
            if job.stack_row.fused_projection and projections:  # one input, dropped out once
                width -= (len(projections) - 1) * projections[0].in_features
            saved.append(Saved("dropout masks", T * width, "T x sum of inputs", _DROPOUT))
        if adapter.use_dora:
            base = b if adapter.dropout else w.linear
            size = T * (b + base) * sum(x.out_features for x in targets)
            saved.append(Saved("DoRA: both results", size, f"T ({b} + {base}) x sum of outputs", _DORA))
            if adapter.dropout and (width := _dora_weight(job, w)):
                size = width * sum(x.in_features * x.out_features for x in targets)
                saved.append(Saved("DoRA: weights", size, f"{width} x adapted weights", _DORA_DROPOUT))
        return saved
    if isinstance(adapter, IA3):
        size = sum(
            (w.adapter * x.in_features if x in block.mlp[-1:] else w.linear * x.out_features) for x in adapter.targets(block)
        )
        return [Saved("IA3: scaled values", T * size, "T b sum of scaled features", _IA3)]
    if isinstance(adapter, BottleneckAdapter):
        b = w.adapted
        size = 2 * T * b * (a.hidden_size + 2 * adapter.bottleneck_size)
        return [Saved("bottleneck inputs", size, f"2 T ({b} D + {2 * b} m)", "arXiv:1902.00751, sec. 2.1")]
    return []


def _dora_weight(job: Job, w: Widths) -> int:
    """Bytes per element of the copy of a weight with which DoRA computes the base's result again, of dropped-out inputs; 0: none."""
    return w.adapted if job.quantization != "none" or w.adapter != w.weights else 0


def _attention(job: Job, w: Widths, kernel: Kernel, B: Any, S: Any) -> list[Saved]:
    a, T, c = job.architecture, B * S, w.attention
    H, A, AV = a.num_attention_heads, a.head_dim, a.value_head_dim
    key_heads = H if kernel.expanded or a.kv_lora_rank else a.num_key_value_heads
    saved = []
    width = H * A + key_heads * (A + AV) + (H * a.qk_nope_head_dim if a.kv_lora_rank else 0)
    fused = job.stack_row.fused_projection and c < 4
    viewed = (fused or len(a.qkv_names) == 1) and a.rotary and not kernel.scores and w.linear == c
    if viewed:  # values are a view of the whole fused projection
        width += a.query_size + a.key_value_size
    saved.append(Saved("queries, keys, values", T * c * width, f"T x {width} x {c}", _EAGER if kernel.scores else _FLASH))
    if kernel.name == "eager":
        width = c if _softmax_in_16_bit(a, w) else 4 + (c if c < 4 else 0) + (c if a.attn_logit_softcapping else 0)
        saved.append(Saved("attention scores", B * H * S * S * width, f"B H S S x {width}", _EAGER))
    else:
        saved.append(Saved("attention output", T * (c * H * AV + 4 * H), f"T ({c * AV} H + 4 H)", _FLASH))
        if kernel.masked:
            saved.append(
                Saved(
                    "attention mask",
                    B * S * S * c,
                    f"B S S x {c}",
                    "ATen sdpa: each call makes its own 16-bit mask, and keeps it",
                )
            )
    return saved


def _mlp(job: Job, w: Widths, T: Any, F: int) -> Saved:
    a = job.architecture
    if _in_python(job):
        width = 14 if w.autocast and w.linear < 4 else 4 * w.linear
        return Saved("MLP: activation", T * width * F, f"T x {F} x {width}", _GELU_NEW, T * width * F)
    tensors = 3 if a.gated_mlp else 1
    size = T * w.linear * F * tensors
    name = "MLP: gate, up and activation" if a.gated_mlp else "MLP: activation"
    return Saved(name, size, f"T x {F} x {tensors} x {w.linear}", _ACT, size)


def saved_by_block(job: Job, block: Block, w: Widths, kernel: Kernel) -> list[Saved]:
    """Everything that one block of this kind keeps from its forward for its backward (no checkpointing)."""
    a, adapter = job.architecture, job.adapter
    B, S = job.micro_batch_size, job.length
    T, D = B * S, a.hidden_size
    trained = adapter is None
    lora = isinstance(adapter, LoRA)
    carries = adapter.targets(block) if isinstance(adapter, LoRA) else ()

    def on(linears: tuple[Linear, ...]) -> tuple[Linear, ...]:
        return tuple(x for x in linears if trained or x in carries)

    saved = _norms(a, w, T, trained) + _attention(job, w, kernel, B, S)
    *projections, output = block.attention
    first = tuple(x for x in projections if x.in_features == D)
    later = tuple(x for x in projections if x.in_features != D)  # latent attention's second factors
    mlp_inputs, down = block.mlp[:-1], block.mlp[-1:]
    if trained or lora:
        one_norm = a.parallel_block and a.norms_per_block == 1
        fused = job.stack_row.fused_projection  # one module with one input
        read = on(first)[: 1 if fused else None] + (on(mlp_inputs) if one_norm else ())
        kept = _inputs(job, w, T, read, w.normed)
        for linear in on(later):
            kept = kept + _inputs(job, w, T, (linear,), w.normed)
        kept = kept + _inputs(job, w, T, on((output,)), w.linear if kernel.scores else w.attention, kept_anyway=not kernel.scores)
        by_mlp = 0 if one_norm else _inputs(job, w, T, on(mlp_inputs), w.normed)
        by_mlp = by_mlp + _inputs(job, w, T, on(down), w.linear, kept_anyway=a.hidden_act == "relu" and not a.gated_mlp)
        name, source = ("inputs of trained linears", _LINEAR) if trained else ("inputs of adapters", _LORA)
        formula = "T b sum of inputs, one copy per layer where the dtype is cast"
        saved.append(Saved(name, kept + by_mlp, formula, source, by_mlp))
    if block.mlp:
        saved.append(_mlp(job, w, T, block.mlp[-1].in_features))
    if block.experts:
        saved += _experts(job, block, w, T)
    if a.residual_dropout:
        saved.append(Saved("residual dropout masks", 2 * T * D, "2 x T D", _DROPOUT))
    return saved + _adapter(job, block, w, T)


def _experts(job: Job, block: Block, w: Widths, T: Any) -> list[Saved]:
    """Rows sent to k experts each: their copies, the experts' inner tensors, and the results before they are summed."""
    a, adapter = job.architecture, job.adapter
    k, D, M, c = a.num_experts_per_tok, a.hidden_size, a.moe_intermediate_size, w.routed
    adapted = adapter.expert_targets(block) if isinstance(adapter, LoRA) else ()
    weights_need_gradient = adapter is None or bool(adapted)
    inner = T * k * c * M * (6 if a.experts_clamped else 3 if a.gated_mlp else 1)
    rows = T * k * c * ((2 * D + M) if weights_need_gradient else D)
    router = T * (4 * a.num_experts + 12 * k + (4 * D if a.kv_lora_rank else 0))
    saved = [
        Saved("experts: gate, up and activation", inner, "T k M b x 3 (6 where the activation is clamped)", _MOE, inner),
        Saved("experts: routed rows", rows, "T k b x (D, or 2 D + M where their weights need a gradient)", _MOE, rows),
        Saved("router", router, f"T x (4 E + 12 k{' + 4 D' if a.kv_lora_rank else ''})", _MOE, router),
    ]
    if adapted and isinstance(adapter, LoRA) and not adapter.experts_as_linears:
        dense = c * block.num_experts * sum(x.in_features * x.out_features for x in adapted)
        saved.append(Saved("experts with their LoRA added", dense, "P of a block's experts x b", _PARAM_WRAPPER, dense))
    return saved


def _softmax_in_16_bit(a: Architecture, w: Widths) -> bool:
    """gpt-oss's eager attention: the softmax of scores and sinks names their own dtype (transformers modeling_gpt_oss.py)."""
    return w.attention < 4 and a.attention_sinks and w.vectors < 4


def _held_by_softmax_backward(job: Job, w: Widths) -> int:
    """Bytes per score in the softmax's backward beyond what forward saved (of which the 16-bit copy is gone by then).

    Result, gradient in, gradient out and one more temporary, all fp32; an fp16 softmax without autocast gives its gradient
    in fp16 (one kernel, half_to_float).
    """
    if _softmax_in_16_bit(job.architecture, w):
        return 3 * w.attention
    if w.attention == 4:
        return 12
    return 8 if job.precision == "fp16" else 10


def norm_backward(job: Job, w: Widths) -> Any:
    """Temporaries of one norm's backward: five fp32 tensors of the hidden states' shape for an RMSNorm written out in Python."""
    a = job.architecture
    width = 5 * 4 if a.norm == "rmsnorm" else w.residual + w.normed
    return job.micro_batch_size * job.length * a.hidden_size * width


def _passing(job: Job, w: Widths) -> int:
    """Bytes per element of an adapter's input between the linear's own and the one that A keeps: PEFT's cast and its dropout."""
    dropout, cast = _dropout(job), _casts(job, w, w.linear)
    width = w.adapter if cast else w.linear
    return (width if cast and (w.autocast or dropout) else 0) + (width if dropout and w.autocast and width != w.compute else 0)


def block_backward(job: Job, block: Block, w: Widths, kernel: Kernel, saved: list[Saved]) -> Saved:
    """The most that one block's recomputation or backward holds beyond what the block has saved. The largest of:

    the last linear running again, with its input and its adapter's fp32 copy alive; the backward of gate x up, which makes both
    gradients while its own is alive; a norm's backward, in fp32; the softmax's backward, where the scores are held.
    """
    a, adapter = job.architecture, job.adapter
    B, S = job.micro_batch_size, job.length
    T, D = B * S, a.hidden_size
    F = block.mlp[-1].in_features if block.mlp else 0
    on_last = adapter is None or (isinstance(adapter, LoRA) and bool(block.mlp) and block.mlp[-1] in adapter.targets(block))
    converted, copied = _converted(job, w, w.linear)
    kept = converted if on_last else 0  # of the product, as the last linear's input
    passing = _passing(job, w) if adapter is not None and on_last else 0
    running = T * (F * ((w.linear if copied or not on_last else 0) + passing) + D * (w.residual + w.normed + 3 * w.linear))
    routed = 0
    if block.experts:
        routed = a.num_experts_per_tok * a.moe_intermediate_size * w.routed * (2 if adapter is None else 3)
    inner = 12 if _in_python(job) and w.autocast else (3 if a.gated_mlp else 2) * w.linear - kept
    product = T * (F * inner + routed + 2 * D * w.residual)
    by_mlp = sum(part.by_mlp for part in saved)  # gone by the time that the norm before the MLP, or the softmax, runs backward
    if isinstance(adapter, LoRA) and adapter.use_dora and adapter.targets(block):
        last = adapter.targets(block)[-1]
        running = running + 4 * last.in_features * (last.in_features + 3 * last.out_features)  # B A of an identity, and W + B A
    most = largest(running, product, norm_backward(job, w) - by_mlp)
    if kernel.scores:
        held = _held_by_softmax_backward(job, w)
        query = max(w.linear, w.residual) if a.rotary else w.linear
        if job.gradient_checkpointing == "reentrant" and a.model_type in _RETURNING_SCORES and query < 4:
            held += 2 * w.attention  # a 16-bit output of the block: it lives on, and torch gives it a gradient of zeros
        scores = B * a.num_attention_heads * S * S * held
        most = largest(most, scores + 2 * T * D * w.residual - by_mlp)
    return Saved(
        "gradients inside", most, "max of T (F b + ...) over the block's operators, 12 B H S S for scores",
        "torch autograd, operator by operator; CUDA's softmax backward takes one more fp32 temporary (measured)",
    )  # fmt: skip
