"""The instants of a run, each as the lines that are alive then beyond the resident ones."""

from collections.abc import Iterator
from typing import Any

from planner.adapters import LoRA
from planner.blocks import Block
from planner.job import Job
from planner.memory.activations import Saved, block_backward, norm_backward, saved_by_block
from planner.memory.lines import Line, largest
from planner.memory.loss import loss_memory
from planner.memory.resident import trained_bytes, trained_formula, weight_lines
from planner.memory.widths import Kernel, Widths

__all__ = ["instant_lines", "load_lines", "optimizer_lines"]

_CHECKPOINT = "Chen et al. 2016, arXiv:1604.06174: one input per block is kept, the block runs again in backward"
_AUTOGRAD = "torch autograd: a gradient appears in its layer's backward and lives until zero_grad(set_to_none=True)"
_AUTOCAST = "aten/src/ATen/autocast_mode.cpp: 16-bit copies of fp32 weights that need a gradient are cached in the region"
_IN_BACKWARD = (
    "torchtune optimizer_in_bwd, torch register_post_accumulate_grad_hook: step and drop the gradient, tensor by tensor"
)
_ONE_GRADIENT = "largest trained tensor x its width"
_EMBEDDING = "torch embedding_dense_backward makes the whole gradient; a tied head's waits to be added to it"
_HEAD = "aten/src/ATen/autocast_mode.cpp: an fp32 head is copied to 16 bit, and the graph keeps the copy"
_DEQUANT = "bitsandbytes/autograd/_functions.py, MatMul4Bit: a layer's weight is made 16-bit for its matrix multiplication"
_INT8 = "bitsandbytes/autograd/_functions.py, MatMul8bitLt: the input is kept on the node itself, out of checkpointing's reach"
_LOAD = "transformers/core_model_loading.py: tensors are put on the card and quantised one by one"
_PREFIX = "peft/peft_model.py, get_prompt: the table is repeated for every row of the batch and kept as past keys and values"
_MASK = "transformers/masking_utils.py: eager and padded attention take a full mask"
_EVALUATE = "transformers Trainer.prediction_step: no gradients, one block's tensors at a time, the whole batch's logits"
_MERGE = "peft merge_and_unload: a quantised layer is made 16-bit, added to and quantised again"


def instant_lines(job: Job, w: Widths, kernel: Kernel) -> Iterator[Line]:
    """Lines of load, forward end, loss, backward of the last and first block, optimizer step; evaluation and save if asked."""
    yield from load_lines(job, w)
    saved = [saved_by_block(job, block, w, kernel) for block in job.architecture.blocks]
    yield from _forward_and_loss(job, w, kernel, saved)
    yield from _backward(job, w, kernel, saved)
    yield from optimizer_lines(job, w)
    if job.evaluation:
        yield from _evaluation(job, w, kernel)
    if job.save == "merged":
        yield from _merge(job)


def load_lines(job: Job, w: Widths) -> Iterator[Line]:
    """The load; its fullest moment is near its end: the last quantisation, the last cast to fp32, or the adapter's arrival."""
    a = job.architecture
    yield from weight_lines(job, w.vectors, "load")
    if job.adapter is None:
        return
    more = trained_bytes(job, w)
    if job.quantization != "none":
        more = largest(more, w.weights * a.largest_linear)
    if w.vectors > w.weights:
        fused = 0 if job.experts_as_linears else max(block.largest_fused_params for block in a.blocks)
        more = largest(more, w.weights * max(a.embedding_params, fused))
    formula = f"max of {trained_formula(job, w)}, largest weight x {w.weights}"
    yield Line("adapters, or a weight being cast or quantised", "temporaries", "load", more, formula, _LOAD)


def _kept_by_blocks(job: Job, w: Widths, saved: list[list[Saved]], instant: str) -> Iterator[Line]:
    """What all blocks together hold when forward is over: their checkpoints, or everything that each has saved."""
    if job.gradient_checkpointing != "off":
        size = _input_bytes(job, w) * _blocks_in_graph(job)
        yield Line(
            "block inputs (checkpoints)", "activations", instant, size, f"{_blocks_in_graph(job)} T D x {w.residual}", _CHECKPOINT
        )
        yield from _held_by_int8(job, w, instant)
        return
    left = _blocks_in_graph(job)
    for block, parts in zip(reversed(job.architecture.blocks), reversed(saved), strict=True):
        count = min(left, block.num_blocks)
        left -= count
        for part in parts if count else ():
            yield Line(part.name, "activations", instant, count * part.bytes, f"{count} blocks x {part.formula}", part.source)


def _blocks_in_graph(job: Job) -> int:
    """Blocks that a gradient passes through: below the lowest trained one autograd records nothing, unless blocks are checkpointed.

    Source: transformers/modeling_utils.py, gradient_checkpointing_enable: the embeddings' output is made to need a gradient.
    """
    below = job.method == "freeze" and job.gradient_checkpointing == "off"
    return job.trainable_layers if below else job.architecture.num_hidden_layers


def _held_by_int8(job: Job, w: Widths, instant: str) -> Iterator[Line]:
    """Inputs of int8 linears, which checkpointing cannot drop unless it runs the forward without a graph (reentrant)."""
    if job.quantization == "int8" and job.gradient_checkpointing == "on":
        per_token = 0
        for block in job.architecture.blocks:
            first, *rest = block.attention
            inputs = w.attention * rest[-1].in_features
            if job.architecture.model_type != "olmo2":  # its norms come last: the first layers read the block's own input
                inputs += w.normed * first.in_features
            inputs += sum(w.linear * x.in_features for x in rest[:-1] if x.in_features != first.in_features)
            if block.mlp:
                inputs += w.normed * block.mlp[0].in_features + w.linear * block.mlp[-1].in_features
            per_token += block.num_blocks * inputs
        size = job.micro_batch_size * job.length * per_token
        yield Line("inputs of int8 layers", "activations", instant, size, "T x bytes of the distinct inputs of all blocks", _INT8)


def _forward_and_loss(job: Job, w: Widths, kernel: Kernel, saved: list[list[Saved]]) -> Iterator[Line]:
    loss, a = loss_memory(job, w), job.architecture
    trained_fp32 = job.adapter is None or w.adapter == 4
    backward = largest(loss.backward, norm_backward(job, w))  # the final norm's own backward follows the loss's
    moments = (("forward", loss.forward, loss.forward_formula), ("loss", backward, f"max of {loss.backward_formula}, T D x 20"))
    for instant, logits, formula in moments:
        yield from _kept_by_blocks(job, w, saved, instant)
        yield from _around_blocks(job, w, kernel, instant)
        yield Line(
            "final norm and head input", "activations", instant, _tail_bytes(job, w), "T D x bytes kept", "as inside a block"
        )
        yield Line("logits and loss", "logits", instant, logits, formula, loss.source)
        if job.gradient_accumulation_steps > 1:
            yield _gradients(job, w, instant)
        in_region = instant == "forward" or job.gradient_checkpointing == "off"  # or kept by the graph that blocks have built
        if w.autocast and trained_fp32 and in_region:
            yield Line(
                "16-bit copies of weights", "temporaries", instant, 2 * job.trained_params, "(P_t + P_copied) x 2", _AUTOCAST
            )
        if w.autocast and w.vectors == 4 and not (job.adapter is None and in_region):
            yield Line("head in 16 bit", "temporaries", instant, 2 * a.embedding_params, "P_head x 2", _HEAD)


def _backward(job: Job, w: Widths, kernel: Kernel, saved: list[list[Saved]]) -> Iterator[Line]:
    a, checkpointed = job.architecture, job.gradient_checkpointing != "off"
    work = [block_backward(job, block, w, kernel, parts) for block, parts in zip(a.blocks, saved, strict=True)]
    bottom = -1 if _blocks_in_graph(job) <= a.blocks[-1].num_blocks else 0
    for instant, at, inputs in (("backward_start", -1, _blocks_in_graph(job)), ("backward_end", bottom, 1)):
        block, parts, inside = a.blocks[at], saved[at], work[at]
        if checkpointed:
            # The block's own input may be what its first norm keeps: one tensor, counted there.
            shared = w.residual == 4 or (a.norm == "layernorm" and not w.autocast)
            yield Line(
                "block inputs (checkpoints)", "activations", instant, _input_bytes(job, w) * (inputs - shared),
                f"{inputs - shared} T D x {w.residual}", _CHECKPOINT,
            )  # fmt: skip
            if instant == "backward_start":
                yield from _held_by_int8(job, w, instant)
        if checkpointed or instant == "backward_end":
            for part in parts:
                yield Line(f"one block: {part.name}", "activations", instant, part.bytes, part.formula, part.source)
        else:
            yield from _kept_by_blocks(job, w, saved, instant)
        yield from _around_blocks(job, w, kernel, instant)
        yield from _kept_logits(job, w, instant)
        yield Line("one block: gradients inside", "temporaries", instant, inside.bytes, inside.formula, inside.source)
        yield from _weights_made_16_bit(job, block, w, instant)
        if job.gradient_accumulation_steps > 1 or (instant == "backward_end" and job.method != "full"):
            yield _gradients(job, w, instant)
        elif instant == "backward_end":
            # This block's own gradients and the embedding's are still to come, the MLP's last linear apart.
            to_come = (
                block.params - (block.mlp[-1].params if block.mlp else 0) + (0 if a.tie_word_embeddings else a.embedding_params)
            )
            size = _largest_gradient(job, w) if job.optimizer_in_backward else trained_bytes(job, w) - w.weights * to_come
            formula = _ONE_GRADIENT if job.optimizer_in_backward else f"(P_t - what is still to come) x {w.weights}"
            yield Line("gradients so far", "gradients", instant, size, formula, _AUTOGRAD)
            # In the embedding's own backward the block is gone and its gradients are there, and a tied head's as well.
            own = w.weights * (to_come + (a.embedding_params if a.tie_word_embeddings else 0))
            own = 0 if job.optimizer_in_backward else own
            more = largest(own - sum(part.bytes for part in parts) - inside.bytes, 0)
            formula = f"what P_head x {w.weights} exceeds a block by"
            yield Line("gradient of the embedding", "gradients", instant, more, formula, _EMBEDDING)
        elif job.trains_head:
            width = w.weights if job.adapter is None else w.vectors
            yield Line("gradient of the head", "gradients", instant, width * a.embedding_params, f"P_head x {width}", _AUTOGRAD)


def optimizer_lines(job: Job, w: Widths) -> Iterator[Line]:
    """Lines of the optimizer's step."""
    yield _gradients(job, w, "optimizer")
    yield from _kept_logits(job, w, "optimizer")
    row = job.optimizer_row
    if row.temporary_copies:
        size = row.temporary_copies * (_largest_gradient(job, w) if job.optimizer_in_backward else trained_bytes(job, w))
        formula = f"{row.temporary_copies:g} x ({trained_formula(job, w)})"
        yield Line("optimizer temporaries", "temporaries", "optimizer", size, formula, row.source)
    elif row.own_temporaries:
        count = row.own_temporaries + (2 if (w.weights if job.adapter is None else w.adapter) < 4 else 0)
        of_blocks = [tensor.elements for tensor in job.trained_tensors if tensor.copies > 2]  # not embedding or head
        last = largest(*of_blocks) if of_blocks else 0
        size = 4 * (count * largest(*(tensor.elements for tensor in job.trained_tensors)) + last)
        yield Line(
            "optimizer temporaries", "temporaries", "optimizer", size,
            f"4 x ({count} x largest tensor + largest of a block)", row.source,
        )  # fmt: skip


def _kept_logits(job: Job, w: Widths, instant: str) -> Iterator[Line]:
    """A loop that holds the model's output holds its logits through backward and step."""
    if job.keep_outputs and job.loss in ("plain", "chunked"):
        size = w.logits * job.micro_batch_size * job.length * job.architecture.vocab_size
        yield Line("logits kept by the loop", "logits", instant, size, f"T V x {w.logits}", "transformers ModelOutput.logits")


def _evaluation(job: Job, w: Widths, kernel: Kernel) -> Iterator[Line]:
    """No gradients: one block's tensors at a time, then the whole batch's logits; the larger of the two."""
    a, B = job.architecture, job.eval_micro_batch_size
    T, b = B * job.length, w.logits
    logits = T * a.vocab_size * (b + 4 + (4 if b < 4 else 0) + (b if a.final_logit_softcapping else 0))
    widths = [
        (block.mlp[-1].in_features if block.mlp else 0)
        + (a.num_experts_per_tok * a.moe_intermediate_size if block.experts else 0)
        for block in a.blocks
    ]
    block = T * (2 * a.hidden_size * w.residual + (3 if a.gated_mlp else 2) * max(widths) * w.linear)
    if kernel.scores:
        block = largest(block, B * a.num_attention_heads * job.length * job.length * (2 * w.attention + 4))
    formula = f"max of T_eval V x ({b} + 4 + 4) and one block's tensors or scores"
    yield Line("evaluation pass", "activations", "evaluation", largest(logits, block), formula, _EVALUATE)
    if kernel.scores:
        yield Line(
            "attention mask",
            "activations",
            "evaluation",
            B * job.length * job.length * w.vectors,
            f"B_eval S S x {w.vectors}",
            _MASK,
        )


def _merge(job: Job) -> Iterator[Line]:
    """The weight that is being merged, in fp32, and its adapter's product; a fused parameter holds all experts."""
    weights = job.architecture.largest_linear
    if isinstance(job.adapter, LoRA) and not job.experts_as_linears:
        for block in job.architecture.blocks:
            adapted = job.adapter.expert_targets(block)
            weights = max(weights, block.num_experts * sum(x.in_features * x.out_features for x in adapted[:2]))
    yield Line("layer being merged", "temporaries", "save", 8 * weights, "largest weight x (4 + 4)", _MERGE)


def _largest_gradient(job: Job, w: Widths) -> Any:
    return w.weights * largest(*(tensor.elements for tensor in job.trained_tensors))


def _gradients(job: Job, w: Widths, instant: str) -> Line:
    if job.optimizer_in_backward:
        return Line("gradients", "gradients", instant, _largest_gradient(job, w), _ONE_GRADIENT, _IN_BACKWARD)
    return Line("gradients", "gradients", instant, trained_bytes(job, w), trained_formula(job, w), _AUTOGRAD)


def _input_bytes(job: Job, w: Widths) -> Any:
    return w.residual * job.micro_batch_size * job.length * job.architecture.hidden_size


def _tail_bytes(job: Job, w: Widths) -> Any:
    """The final norm's fp32 input, its product and the head's input where they are trained, the head's 16-bit input where cast."""
    per_feature = 4 + (w.normed if job.trains_head else 0) + (w.compute if job.trains_head or w.normed != w.logits else 0)
    return job.micro_batch_size * job.length * job.architecture.hidden_size * per_feature


def _around_blocks(job: Job, w: Widths, kernel: Kernel, instant: str) -> Iterator[Line]:
    """What all blocks share: rotary tables and the attention mask."""
    a, B, S = job.architecture, job.micro_batch_size, job.length
    if a.rotary:
        yield Line(
            "rotary tables",
            "activations",
            instant,
            2 * S * a.head_dim * w.residual,
            f"2 S A x {w.residual}",
            "transformers rotary_emb: cos and sin",
        )
    if job.method == "prefix":
        size = B * job.num_virtual_tokens * a.num_hidden_layers * 2 * a.key_value_size * w.attention
        yield Line("virtual keys and values", "activations", instant, size, f"B v L 2 K A x {w.attention}", _PREFIX)
    if kernel.name == "eager":
        yield Line("attention mask", "activations", instant, B * S * S * w.vectors, f"B S S x {w.vectors}", _MASK)
    elif kernel.masked:
        yield Line("attention mask", "activations", instant, B * S * S, "B S S", _MASK)


def _weights_made_16_bit(job: Job, block: Block, w: Widths, instant: str) -> Iterator[Line]:
    if job.adapter is None and w.autocast:
        everything = job.gradient_checkpointing == "off" and instant == "backward_start"
        size = 2 * (job.trained_params if everything else block.params)
        yield Line(
            "16-bit copies of weights", "temporaries", instant, size, "P_t x 2" if everything else "P of a block x 2", _AUTOCAST
        )
    elif job.quantization not in ("none", "gptq"):  # GPTQ's kernels take packed weights
        yield Line(
            "weight made 16-bit",
            "temporaries",
            instant,
            w.compute * job.architecture.largest_linear,
            f"largest linear x {w.compute}",
            _DEQUANT,
        )
