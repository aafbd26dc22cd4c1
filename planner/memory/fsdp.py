"""FSDP2 on one rank: shards at rest, whole units while they compute, gradients reduced unit by unit.

A unit is what is gathered at once: a block, the embeddings, the final norm with the head, as Accelerate wraps them. Held to
torch's own FSDP2 on fake tensors by tests/test_sharding.py.
FSDP1 keeps embeddings and head in the root unit, and a flat buffer per unit with the next one prefetched.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from planner.blocks import Block
from planner.job import Job
from planner.memory.lines import Line, largest
from planner.memory.resident import resident_lines, trained_bytes, trained_formula
from planner.memory.step import instant_lines, load_lines, optimizer_lines
from planner.memory.widths import Kernel, Widths, in_16_bit
from planner.precision import quantized_weight_bytes
from planner.sharding import Sharding

__all__ = ["divided", "fully_sharded_lines"]

_FSDP = (
    "torch/distributed/fsdp/_fully_shard: a unit's all-gather output lives until the next unit is copied in; backward prefetches"
)
_REDUCE = (
    "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: one unit's gradients wait to be reduced while the next appear"
)
_HOOKS = (
    "torch/distributed/fsdp/_runtime_utils.py, _register_post_backward_reshard_only_hook: on a frozen unit's input, which a reentrant "
    "checkpoint makes a leaf; the hook holds the leaf and its gradient until the end of backward"
)
_WHOLE = "LitGPT tutorials/resource-tables.md (2023-10): LoRA on 2 and 4 GPUs peaks at the model and its part, whatever the batch"
_NO_SYNC = "accelerate no_sync: only the last micro-batch reduces; until then each rank keeps all gradients in the compute dtype"


class _Units(NamedTuple):
    """Bytes of FSDP's units as they are gathered, and of the gradients in them as they are reduced."""

    last: Any
    first: Any
    head: Any
    embedding: Any
    last_gradient: Any
    first_gradient: Any
    head_gradient: Any
    together: bool  # embeddings and head are one unit, which stays whole from forward to the end of backward


def divided(lines: Iterable[Line], shards: int, *, base: bool = False) -> Iterator[Line]:
    """Resident lines with all that can be divided by `shards`; a 4-bit base can where it was stored in a float dtype."""
    for line in lines:
        whole = line.name == "quantised weights" and not base
        if line.component in ("weights", "adapters", "optimizer_states", "temporaries") and not whole:
            yield line._replace(bytes=line.bytes / shards, formula=f"({line.formula}) / {shards}")
        else:
            yield line


def _units(job: Job, w: Widths, sharding: Sharding) -> _Units:
    a, full = job.architecture, job.adapter is None
    adapters = 0 if full else (job.trained_params - job.copied_params) / a.num_hidden_layers

    def gathered(block: Block) -> Any:
        experts = block.num_experts * sum(x.in_features * x.out_features for x in block.experts) if job.experts_as_linears else 0
        quantized = sum(x.in_features * x.out_features for x in block.linears) + experts if job.quantization != "none" else 0
        base = quantized_weight_bytes(quantized, job.quantization) if sharding.divided_base and quantized else 0
        return w.vectors * (block.params - quantized) + base + w.adapter * adapters

    last, first = a.blocks[-1], a.blocks[0]
    matrix = w.vectors * a.embedding_params
    together = a.tie_word_embeddings or sharding.fsdp_version == 1
    matrices = 2 if together and not a.tie_word_embeddings else 1
    return _Units(
        last=gathered(last),
        first=gathered(first),
        head=matrix * (matrices + ("lm_head" in job.modules_to_save)),
        embedding=0 if together else matrix,
        last_gradient=w.weights * last.params if full else w.adapter * adapters,
        first_gradient=(w.weights * first.params if job.method == "full" else 0) if full else w.adapter * adapters,
        head_gradient=matrix * matrices if job.trains_head else 0,
        together=together,
    )


def fully_sharded_lines(job: Job, w: Widths, kernel: Kernel, sharding: Sharding) -> Iterator[Line]:
    """The lines of one rank under FSDP, full or hybrid shard."""
    n, base = sharding.weight_shards, sharding.divided_base
    run, wide = in_16_bit(job, w)
    host = sharding.offload == "parameters"
    for line in resident_lines(job, w):
        whole = line.component in ("quantization_state", "workspace") or (line.name == "quantised weights" and not base)
        if whole or not host:
            yield from divided([line], n, base=base)
    units = _units(run, wide, sharding)
    loading = list(load_lines(job, w))
    yield from divided(loading, n, base=base)
    if job.stack_row.whole_model_first:
        model_bytes = sum(line.bytes for line in loading if line.component == "weights")
        yield Line("whole model before it is divided", "weights", "load", model_bytes, f"P x {w.weights}", _WHOLE)
    step = [x for x in instant_lines(run, wide, kernel) if x.component != "gradients" and x.instant not in ("load", "optimizer")]
    step += [*_gathered(job, units), *_reduced(job, w, wide, units, sharding, on_host=host)]
    # With few tokens the last block's forward is fuller than the end: two units have just arrived beside the one that ran.
    at_end = sum(
        x.bytes for x in step if x.instant == "forward" and (x.component == "logits" or x.name == "final norm and head input")
    )
    in_block = largest(3 * units.last - at_end - (units.last if units.together else 2 * units.head), 0)
    step.append(
        Line("units gathered ahead", "temporaries", "forward", in_block, "what 3 x block unit exceeds logits and head by", _FSDP)
    )
    if sharding.fsdp_version == 1 and job.gradient_checkpointing == "reentrant" and job.adapter is not None:
        size = (
            (2 * job.architecture.num_hidden_layers - 1)
            * wide.residual
            * job.micro_batch_size
            * job.length
            * job.architecture.hidden_size
        )
        formula = f"(2 L - 1) T D x {wide.residual}"
        step.append(Line("block inputs and their gradients, kept by hooks", "activations", "backward_end", size, formula, _HOOKS))
    yield from step
    if job.method == "full":
        yield _embedding_backward(job, w, wide, units, sharding, step, on_host=host)
    if not host:
        yield from divided((x for x in optimizer_lines(job, w) if x.component != "gradients"), n)


def _gathered(job: Job, u: _Units) -> Iterator[Line]:
    """Parameters that are whole at an instant: the unit that computes, and the one that was or will be gathered beside it."""
    once, twice, block_twice = "head unit", "2 x head unit", "2 x block unit"
    tied = "head unit + "
    moments = {
        "forward": (u.head + u.last, tied + "block unit") if u.together else (2 * u.head, twice),
        "loss": (u.head, once),
        "backward_start": (u.head + 2 * u.last, tied + block_twice) if u.together else (2 * u.last, block_twice),
        "backward_end": (u.head + 2 * u.first, tied + block_twice)
        if u.together
        else (u.first + largest(u.first, u.embedding), "block unit + the larger of block and embedding unit"),
    }
    if job.evaluation:
        moments["evaluation"] = moments["forward"]
    for instant, (size, formula) in moments.items():
        yield Line("gathered parameters", "temporaries", instant, size, f"{formula}, in the compute dtype", _FSDP)


def _reduced(job: Job, w: Widths, wide: Widths, u: _Units, sharding: Sharding, *, on_host: bool) -> Iterator[Line]:
    """Gradients: whole until their unit is reduced, this rank's shard of each afterwards."""
    n = sharding.gradient_shards
    stored = trained_bytes(job, w)
    shards = 0 if on_host else stored / n
    per_gradient = stored / trained_bytes(job, wide)  # a shard has the parameter's own dtype
    whole = trained_bytes(job, wide)
    head = u.head_gradient
    widened = 2 if sharding.fp32_reduction and wide.compute < 4 else 1
    if job.gradient_accumulation_steps > 1:
        for instant in ("forward", "loss"):
            yield Line("gradients, not reduced", "gradients", instant, whole, f"P_t x {wide.compute}", _NO_SYNC)
    if head and not u.together:
        yield Line("gradients being reduced", "gradients", "backward_start", head * widened, "head unit", _REDUCE)
    elif head:
        yield Line("gradient of the head", "gradients", "backward_start", head, "head unit", _REDUCE)
    done = 0 if on_host or u.together else head * per_gradient / n
    if job.gradient_accumulation_steps > 1:
        done = done + whole - (0 if u.together else head)
    yield Line("gradients", "gradients", "backward_start", done, "shards of the head, and what is not reduced", _REDUCE)

    waiting = u.first_gradient * widened + (head if u.together else 0)
    yield Line("gradients being reduced", "gradients", "backward_end", waiting, "block unit", _REDUCE)
    outer = u.embedding if job.method == "full" or "embed_tokens" in job.modules_to_save else 0
    to_come = (2 * u.first_gradient if job.method == "full" else u.first_gradient) + (head if u.together else outer)
    # HSDP reduces twice, and the first result waits for the end of backward where the second is cast to another dtype.
    twice = 1 + (1 / per_gradient if sharding.kind == "hybrid" and per_gradient > 1 else 0)
    shard = 0 if on_host else twice * per_gradient / n  # of a byte of gradient in the compute dtype
    so_far = largest(whole * shard - to_come * shard, 0)
    if job.gradient_accumulation_steps > 1:  # at the second block from the end of the model few are reduced, at the last all are
        reduced = u.last_gradient + (0 if u.together else head)
        so_far = largest(so_far, whole - reduced + reduced * shard)
    if job.method == "full":
        block = job.architecture.blocks[0]
        so_far = so_far + wide.weights * (block.mlp[-1].params if block.mlp else 0)
    yield Line("gradients so far", "gradients", "backward_end", so_far, "shards, and what is not reduced", _REDUCE)
    yield Line("gradients", "gradients", "optimizer", shards, f"({trained_formula(job, w)}) / {n}", _REDUCE)


def _embedding_backward(
    job: Job, w: Widths, wide: Widths, u: _Units, sharding: Sharding, step: list[Line], *, on_host: bool
) -> Line:
    """What the embedding's own backward holds beyond the first block's: its whole gradient twice, and a shard of it."""
    n = sharding.gradient_shards
    at_end = [line for line in step if line.instant == "backward_end"]
    block = sum(line.bytes for line in at_end)
    outside = ("rotary tables", "attention mask", "logits kept by the loop")
    own = sum(line.bytes for line in at_end if line.name in outside)
    gradient = u.head if u.together else u.embedding
    own = own + (0 if on_host else trained_bytes(job, w) / n) + gradient * (2 + 1 / n) + (2 * u.head if u.together else 0)
    more = largest(own - block, 0)
    return Line(
        "gradient of the embedding", "gradients", "backward_end", more, "what its own backward holds beyond a block's", _REDUCE
    )
