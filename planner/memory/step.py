"""The instants of a run, each as the lines that are alive then beyond the resident ones."""

from collections.abc import Iterator
from typing import Any

from planner.blocks import Block
from planner.job import Job
from planner.memory.activations import Saved, block_backward, norm_backward, saved_by_block
from planner.memory.lines import Line, largest
from planner.memory.loss import loss_memory
from planner.memory.resident import trained_bytes, trained_formula, weight_lines
from planner.memory.widths import Kernel, Widths

__all__ = ["instant_lines"]

_CHECKPOINT = "Chen et al. 2016, arXiv:1604.06174: one input per block is kept, the block runs again in backward"
_AUTOGRAD = "torch autograd: a gradient appears in its layer's backward and lives until zero_grad(set_to_none=True)"
_AUTOCAST = "aten/src/ATen/autocast_mode.cpp: 16-bit copies of fp32 weights that need a gradient are cached in the region"
_HEAD = "aten/src/ATen/autocast_mode.cpp: an fp32 head is copied to 16 bit, and the graph keeps the copy"
_DEQUANT = "bitsandbytes/autograd/_functions.py, MatMul4Bit: a layer's weight is made 16-bit for its matrix multiplication"
_INT8 = "bitsandbytes/autograd/_functions.py, MatMul8bitLt: the input is kept on the node itself, out of checkpointing's reach"
_LOAD = "transformers/core_model_loading.py: tensors are put on the card and quantised one by one"
_MASK = "transformers/masking_utils.py: eager and padded attention take a full mask"
_EVALUATE = "transformers Trainer.prediction_step: no gradients, one block's tensors at a time, the whole batch's logits"
_MERGE = "peft merge_and_unload: a quantised layer is made 16-bit, added to and quantised again"


def instant_lines(job: Job, w: Widths, kernel: Kernel) -> Iterator[Line]:
    """Lines of load, forward end, loss, backward of the last and first block, optimizer step; evaluation and save if asked."""
    yield from _load(job, w)
    saved = [saved_by_block(job, block, w, kernel) for block in job.architecture.blocks]
    yield from _forward_and_loss(job, w, kernel, saved)
    yield from _backward(job, w, kernel, saved)
    yield from _optimizer(job, w)
    if job.evaluation:
        yield from _evaluation(job, w)
    if job.save == "merged":
        yield Line(
            "layer being merged", "temporaries", "save", 8 * job.architecture.largest_linear, "largest linear x (4 + 4)", _MERGE
        )


def _load(job: Job, w: Widths) -> Iterator[Line]:
    yield from weight_lines(job, w.weights, "load")
    if job.quantization != "none":
        yield Line(
            "weight before quantisation", "temporaries", "load", 2 * job.architecture.largest_linear, "largest linear x 2", _LOAD
        )
    if w.vectors > w.weights:
        size = w.vectors * job.architecture.embedding_params
        yield Line("embedding made fp32", "temporaries", "load", size, f"V D x {w.vectors}", _LOAD)


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
    """Blocks that a gradient passes through: below the lowest trained one autograd records nothing."""
    return job.trainable_layers if job.method == "freeze" else job.architecture.num_hidden_layers


def _held_by_int8(job: Job, w: Widths, instant: str) -> Iterator[Line]:
    """Inputs of int8 linears, which checkpointing cannot drop unless it runs the forward without a graph (reentrant)."""
    a = job.architecture
    if job.quantization == "int8" and job.gradient_checkpointing == "on":
        per_token = (
            2 * a.hidden_size * w.normed + a.num_attention_heads * a.value_head_dim * w.attention + a.intermediate_size * w.linear
        )
        size = job.micro_batch_size * job.sequence_length * a.num_hidden_layers * per_token
        yield Line("inputs of int8 layers", "activations", instant, size, "L T x (2 D b + H A b + F b)", _INT8)


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
            yield Line("head in 16 bit", "temporaries", instant, 2 * a.embedding_params, "V D x 2", _HEAD)


def _backward(job: Job, w: Widths, kernel: Kernel, saved: list[list[Saved]]) -> Iterator[Line]:
    a, checkpointed = job.architecture, job.gradient_checkpointing != "off"
    work = [block_backward(job, block, w, kernel, parts) for block, parts in zip(a.blocks, saved, strict=True)]
    for instant, at, inputs in (("backward_start", -1, _blocks_in_graph(job)), ("backward_end", 0, 1)):
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
            size = trained_bytes(job, w) - w.weights * to_come
            yield Line("gradients so far", "gradients", instant, size, f"(P_t - a block's - V D) x {w.weights}", _AUTOGRAD)
        elif job.method == "full":
            yield Line(
                "gradient of the head", "gradients", instant, w.weights * a.embedding_params, f"V D x {w.weights}", _AUTOGRAD
            )


def _optimizer(job: Job, w: Widths) -> Iterator[Line]:
    yield _gradients(job, w, "optimizer")
    yield from _kept_logits(job, w, "optimizer")
    row = job.optimizer_row
    if row.temporary_copies:
        size = row.temporary_copies * trained_bytes(job, w)
        formula = f"{row.temporary_copies:g} x ({trained_formula(job, w)})"
        yield Line("optimizer temporaries", "temporaries", "optimizer", size, formula, row.source)
    elif row.largest_temporaries:
        size = row.largest_temporaries * 4 * largest(*(tensor.elements for tensor in job.trained_tensors))
        yield Line(
            "optimizer temporaries",
            "temporaries",
            "optimizer",
            size,
            f"largest tensor x 4 x {row.largest_temporaries:g}",
            row.source,
        )


def _kept_logits(job: Job, w: Widths, instant: str) -> Iterator[Line]:
    """A loop that holds the model's output holds its logits through backward and step."""
    if job.keep_outputs and job.loss == "plain":
        size = w.logits * job.micro_batch_size * job.sequence_length * job.architecture.vocab_size
        yield Line("logits kept by the loop", "logits", instant, size, f"T V x {w.logits}", "transformers ModelOutput.logits")


def _evaluation(job: Job, w: Widths) -> Iterator[Line]:
    a, T = job.architecture, job.eval_micro_batch_size * job.sequence_length
    b = w.logits
    yield Line(
        "evaluation logits",
        "logits",
        "evaluation",
        T * a.vocab_size * (b + 4 + (4 if b < 4 else 0)),
        f"T_eval V x ({b} + 4 + 4)",
        _EVALUATE,
    )
    width = 2 * a.hidden_size * w.residual + 3 * a.intermediate_size * w.linear
    yield Line("evaluation activations", "activations", "evaluation", T * width, "T_eval x (2 D + 3 F) x bytes", _EVALUATE)


def _gradients(job: Job, w: Widths, instant: str) -> Line:
    return Line("gradients", "gradients", instant, trained_bytes(job, w), trained_formula(job, w), _AUTOGRAD)


def _input_bytes(job: Job, w: Widths) -> Any:
    return w.residual * job.micro_batch_size * job.sequence_length * job.architecture.hidden_size


def _tail_bytes(job: Job, w: Widths) -> Any:
    """The final norm's fp32 input, its product and the head's input where they are trained, the head's 16-bit input where cast."""
    trained = job.method == "full" or "lm_head" in job.modules_to_save
    per_feature = 4 + (w.normed if trained else 0) + (w.compute if trained or w.normed != w.logits else 0)
    return job.micro_batch_size * job.sequence_length * job.architecture.hidden_size * per_feature


def _around_blocks(job: Job, w: Widths, kernel: Kernel, instant: str) -> Iterator[Line]:
    """What all blocks share: rotary tables and the attention mask."""
    a, B, S = job.architecture, job.micro_batch_size, job.sequence_length
    if a.rotary:
        yield Line(
            "rotary tables",
            "activations",
            instant,
            2 * S * a.head_dim * w.residual,
            f"2 S A x {w.residual}",
            "transformers rotary_emb: cos and sin",
        )
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
    elif job.quantization != "none":
        yield Line(
            "weight made 16-bit",
            "temporaries",
            instant,
            w.compute * job.architecture.largest_linear,
            f"largest linear x {w.compute}",
            _DEQUANT,
        )
