"""One rank of several GPUs: which lines it divides, and what it holds because others hold the rest.

DDP and FSDP are held to torch's own on fake tensors, DeepSpeed's stages to published runs, tensor parallelism to arithmetic only.
"""

from collections.abc import Iterator

from planner.job import Job
from planner.memory.fsdp import divided, fully_sharded_lines
from planner.memory.lines import RESIDENT, Line, largest
from planner.memory.resident import resident_lines, trained_bytes, trained_formula
from planner.memory.step import instant_lines
from planner.memory.widths import Kernel, Widths, in_16_bit
from planner.sharding import Sharding

__all__ = ["lines_of_rank"]

_BUCKETS = "torch/csrc/distributed/c10d/reducer.cpp: buckets as large as the gradients (gradient_as_bucket_view off)"
_ZERO = "deepspeed 0.19 runtime/zero/stage_1_and_2.py and stage3.py: 16-bit weights, and fp32 master weights that are divided"
_ZERO_LIVE = "deepspeed 0.19 runtime/zero/config.py: max_live_parameters 1e9 stay gathered between their uses"
_ZERO_BUCKET = "transformers/integrations/deepspeed.py: reduce_bucket_size auto is the hidden size squared"
_TENSOR = "Shoeybi et al. 2019, arXiv:1909.08053, sec. 3: heads and inner features are divided, the residual stream is not"

_MAX_LIVE_PARAMETERS = 1e9
_SUB_GROUP = 1e9  # sub_group_size: parameters that one part of stage 3's step updates
# Parts of a block that tensor parallelism divides; all else belongs to the residual stream, which each rank holds whole.
_DIVIDED_BY_HEADS = ("queries, keys, values", "attention scores", "attention output", "MLP:", "experts:", "query and key norms")


def lines_of_rank(job: Job, w: Widths, kernel: Kernel, sharding: Sharding) -> Iterator[Line]:
    """The lines of one rank: those of a whole model, divided, and the buffers that dividing needs."""
    match sharding.kind:
        case "ddp":
            yield from resident_lines(job, w)
            yield from instant_lines(job, w, kernel)
            size = trained_bytes(job, w)
            yield Line("gradient buckets", "gradients", RESIDENT, size, trained_formula(job, w), _BUCKETS)
        case "tensor":
            yield from _tensor_parallel(job, w, kernel, sharding.num_gpus)
        case "fsdp" | "hybrid":
            yield from fully_sharded_lines(job, w, kernel, sharding)
        case _:
            yield from _zero(job, w, kernel, sharding)


# ---- DeepSpeed ---------------------------------------------------------------------------------------------------------


def _zero(job: Job, w: Widths, kernel: Kernel, sharding: Sharding) -> Iterator[Line]:
    """ZeRO: weights in the compute dtype; fp32 master weights and optimizer states, divided, beside them."""
    run, wide = in_16_bit(job, w)
    n, b, trained = sharding.num_gpus, wide.compute, job.trained_params
    stage3, on_host = sharding.kind == "zero3", sharding.offload != "none"
    for line in resident_lines(run, wide):
        if line.component == "optimizer_states":
            if not on_host:
                yield line._replace(bytes=line.bytes * 4 / b / n, formula=f"({line.formula}) x {4 // b} / {n}", source=_ZERO)
        elif line.component in ("weights", "adapters") and stage3:
            yield from () if sharding.offload == "parameters" and line.name != "quantised weights" else divided([line], n)
        else:
            yield line
    if b < 4 and not on_host:
        yield Line("fp32 master weights", "optimizer_states", RESIDENT, 4 * trained / n, f"(P_t + P_copied) x 4 / {n}", _ZERO)
    for line in instant_lines(run, wide, kernel):
        if line.component != "gradients" and line.instant != "optimizer":
            yield from divided([line], n) if line.instant == "load" and stage3 else [line]
    yield from _zero_gradients(job, b, sharding)
    if stage3:
        held = job.architecture.num_params
        if job.quantization != "none":
            held -= job.architecture.linear_params(experts=job.experts_as_linears)[0]
        live = b * min(held, _MAX_LIVE_PARAMETERS)
        for instant in ("forward", "loss", "backward_start", "backward_end", *(["evaluation"] if job.evaluation else [])):
            yield Line(
                "gathered parameters", "temporaries", instant, live, "at most 1e9 parameters in the compute dtype", _ZERO_LIVE
            )


def _zero_gradients(job: Job, b: int, sharding: Sharding) -> Iterator[Line]:
    """Stage 1 keeps them whole, stages 2 and 3 the rank's part; the step makes an fp32 copy of that, of 1e9 at once in stage 3."""
    n, trained = sharding.num_gpus, job.trained_params
    shards = 1 if sharding.kind == "zero1" else n
    on_host = sharding.offload != "none"
    kept = 0 if on_host and shards > 1 else b * trained / shards
    always = sharding.kind == "zero3" or job.gradient_accumulation_steps > 1
    for instant in (*(("forward", "loss", "backward_start") if always else ()), "backward_end", "optimizer"):
        yield Line("gradients", "gradients", instant, kept, f"(P_t + P_copied) x {b} / {shards}", _ZERO)
    for instant in ("backward_start", "backward_end"):
        bucket = b * job.architecture.hidden_size**2
        yield Line("bucket of gradients", "gradients", instant, bucket, f"D D x {b}", _ZERO_BUCKET)
    if b < 4 and not on_host:
        own = trained / n
        if sharding.kind == "zero3":
            size, formula = 4 * (own - largest(own - _SUB_GROUP, 0)), "this rank's parameters, at most 1e9, x 4"
        else:
            size, formula = (b + 4) * own, f"(P_t + P_copied) x ({b} + 4) / {n}"
        yield Line("fp32 copy of this rank's gradients", "gradients", "optimizer", size, formula, _ZERO)


# ---- tensor parallelism ------------------------------------------------------------------------------------------------


def _tensor_parallel(job: Job, w: Widths, kernel: Kernel, n: int) -> Iterator[Line]:
    """Linear layers divided by columns, then by rows; norms, embeddings, the residual stream and the logits whole."""
    a = job.architecture
    linears = sum(b.num_blocks * (sum(x.params for x in b.linears) + b.expert_params) for b in a.blocks)
    divided = linears + a.head_params  # the rest of the model is on every rank
    share = 1 - divided / a.num_params * (1 - 1 / n)
    inner = _inner_share(job, n)
    for line in (*resident_lines(job, w), *instant_lines(job, w, kernel)):
        name = line.name.removeprefix("one block: ")
        if line.name == "block weights":
            rest = a.block_params - linears
            yield line._replace(bytes=w.vectors * (linears / n + rest), formula=f"linears / {n} and the rest, x {w.vectors}")
        elif line.name == "embeddings and head":
            yield line._replace(
                bytes=line.bytes - w.vectors * a.head_params * (1 - 1 / n), formula=f"P_e x {w.vectors}, the head / {n}"
            )
        elif job.adapter is None and (
            line.component in ("gradients", "optimizer_states") or "copies of weights" in line.name or line.instant == "optimizer"
        ):
            yield line._replace(bytes=line.bytes * share, formula=f"({line.formula}), linears / {n}")
        elif name.startswith(_DIVIDED_BY_HEADS):
            yield line._replace(bytes=line.bytes / n, formula=f"({line.formula}) / {n}", source=_TENSOR)
        elif name.startswith("inputs of"):
            yield line._replace(bytes=line.bytes * inner, formula=f"({line.formula}), inner ones / {n}", source=_TENSOR)
        else:
            yield line


def _inner_share(job: Job, n: int) -> float:
    """Of the inputs of a block's linears: those of the output and down projections are divided."""
    block = job.architecture.blocks[-1]
    inner = sum(x.in_features for x in (block.attention[-1], *block.mlp[-1:]))
    outer = 2 * job.architecture.hidden_size
    return (outer + inner / n) / (outer + inner)
