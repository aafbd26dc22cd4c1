"""One GPU of several in a dry run. FSDP2 runs for real on torch's fake process group; DDP's buckets are written out.

On the CPU, FSDP2's streams do nothing. What it keeps alive for the sake of overlap is kept by Python references, the same as on
CUDA: the all-gather output until the next unit's copy-in, the prefetched unit in backward, one reduce-scatter input. CUDA's
allocator too counts a block as free when its reference is dropped, so `allocated` needs no streams. Not seen: that CUDA keeps the
blocks of each stream apart (`reserved`), NCCL's buffers, what loading holds before it has shards, and DDP's first broadcast.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from planner.dryrun.log import Allocation, EventLog
from planner.errors import InvalidJob, PlannerError
from planner.job import Job
from planner.sharding import Sharding, check_sharding

if TYPE_CHECKING:
    from planner.dryrun.ledger import Ledger

__all__ = ["booked", "check_kind", "fake_mesh", "fully_sharded", "shard_units", "with_buckets"]

# Source: torch/csrc/distributed/c10d/reducer.hpp (kDefaultFirstBucketBytes, kDefaultBucketBytesCap).
FIRST_BUCKET_BYTES, BUCKET_BYTES = 2**20, 25 * 2**20


def check_kind(job: Job, sharding: Sharding | None) -> None:
    """Raise InvalidJob for what cannot run on fake tensors: DeepSpeed, tensor parallelism, offload, FSDP1, a divided 4-bit base."""
    if sharding is None:
        return
    check_sharding(job, sharding)
    unknown = (sharding.offload, sharding.divided_base, sharding.fsdp_version) != ("none", False, 2)
    if sharding.kind not in ("ddp", "fsdp", "hybrid") or unknown:
        raise InvalidJob(
            "a dry run knows ddp, and fsdp and hybrid of version 2 with an integer base and no offload; use the closed form",
            field="kind",
        )


# ---- DDP ---------------------------------------------------------------------------------------------------------------


def with_buckets(log: EventLog) -> EventLog:
    """The log with DDP's gradient buckets, which live beside the gradients from the end of loading on.

    Gradients are put into buckets in the order in which they become ready; one that reaches its limit is closed. The C++ reducer
    itself cannot run: it reads values. Its first step has one bucket for all, or buckets in the order of the parameters.
    Source: torch/csrc/distributed/c10d/reducer.cpp (compute_bucket_assignment_by_size, initialize_buckets, rebuild_buckets) with
    gradient_as_bucket_view off.
    """
    ready = [
        log.allocations[event]
        for name, start, end in log.windows()
        for event in log.events[start:end]
        if name == "step 1 backward" and event >= 0 and log.allocations[event].category == "gradients"
    ]
    filling: dict[str, int] = {}
    closed: list[tuple[str, int]] = []
    full: set[str] = set()  # dtypes whose first bucket is closed
    for gradient in ready:
        dtype = gradient.dtype
        filling[dtype] = filling.get(dtype, 0) + gradient.bytes
        if filling[dtype] >= (BUCKET_BYTES if dtype in full else FIRST_BUCKET_BYTES):
            closed.append((dtype, filling.pop(dtype)))
            full.add(dtype)
    position = next(position for position, name in log.marks if name == "step 1 forward")
    first = len(log.allocations)
    log.allocations += [
        Allocation(size, "gradients", "load", "", "DDP bucket", dtype=dtype) for dtype, size in [*closed, *filling.items()]
    ]
    new = list(range(first, len(log.allocations)))
    log.events[position:position], log.at[position:position] = new, [None] * len(new)
    log.marks = [(at + len(new) * (at >= position), name) for at, name in log.marks]
    return log


# ---- FSDP2 -------------------------------------------------------------------------------------------------------------


@contextmanager
def fake_mesh(sharding: Sharding | None) -> Iterator[Any]:
    """The device mesh of rank 0, whose shards are the largest, in a group that sends nothing; None where nothing is divided.

    The group is gone afterwards, also after an error. Raises PlannerError where the process already has one.
    """
    if sharding is None or sharding.kind == "ddp":
        yield None
        return
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        raise PlannerError("this process has a torch.distributed group; start the dry run of several GPUs in another process")
    hybrid, excepthook = sharding.kind == "hybrid", sys.excepthook  # init_process_group puts its own around it
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=sharding.num_gpus)
    try:
        shape = (sharding.nodes, sharding.gpus_per_node) if hybrid else (sharding.num_gpus,)
        yield init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard") if hybrid else ("shard",))
    finally:
        dist.destroy_process_group()
        sys.excepthook = excepthook


def fully_sharded(model: Any, job: Job, count: int, sharding: Sharding, mesh: Any) -> list[tuple[str, Any, str]]:
    """Place the model's fake tensors, shard it, and list what planner.dryrun.placement.place does, as shards."""
    from planner.dryrun.placement import place

    placed = list(place(model, job))
    shard_units(model, job, count, sharding, mesh)
    shards = {name: p._local_tensor for name, p in model.named_parameters() if hasattr(p, "_local_tensor")}
    return [(name, shards.get(name, tensor), component) for name, tensor, component in placed]


def shard_units(model: Any, job: Job, count: int, sharding: Sharding, mesh: Any) -> None:
    """Put FSDP2 around the model in the units that Accelerate makes: each of the `count` blocks, embeddings, norm with head, the rest.

    4-bit parameters are left out, so that each rank has them whole. Mixed precision is FSDP's own, without autocast: Accelerate's
    prepare skips prepare_model here. Source: accelerate 1.15, utils/fsdp_utils.py (fsdp2_prepare_model), utils/dataclasses.py
    (set_mixed_precision).
    """
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    from planner.dryrun.model import DTYPES, block_list

    policy, dtype = MixedPrecisionPolicy(), DTYPES[job.precision]
    if job.numbers.autocast:
        policy = MixedPrecisionPolicy(dtype, torch.float32 if sharding.fp32_reduction else dtype, dtype)
    whole = {parameter for parameter in model.parameters() if hasattr(parameter, "quant_state")}

    def shard(unit: Any, **reshard: Any) -> None:
        fully_shard(unit, mesh=mesh, mp_policy=policy, ignored_params=whole, **reshard)

    for block in block_list(model, count)[1]:
        shard(block, reshard_after_forward=True)
    embeddings, head = model.get_input_embeddings(), model.get_output_embeddings()
    tail = [_final_norm(model), head]
    if head is not None and head.weight is embeddings.weight:
        tail.insert(1, embeddings)
    else:
        shard(embeddings, reshard_after_forward=True)
    shard([module for module in tail if module is not None], reshard_after_forward=False)
    shard(model)


def _final_norm(model: Any) -> Any:
    """The last norm among the children of the base model; Accelerate does not find that of a PEFT model either."""
    base = getattr(model, model.base_model_prefix, model)
    return next((child for child in reversed(list(base.children())) if "Norm" in type(child).__name__), None)


@contextmanager
def booked(ledger: "Ledger") -> Iterator[None]:
    """Show the ledger what FSDP does without an operator, name its buffers, and hide the whole shapes that DTensor asks about."""
    from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
    from torch.distributed.tensor._sharding_prop import ShardingPropagator
    from torch.utils._python_dispatch import _disable_current_modes

    from planner.dryrun.cuda import replaced

    unshard, post_backward = FSDPParamGroup.unshard, FSDPParamGroup.post_backward
    propagate = ShardingPropagator._propagate_tensor_meta_non_cached

    def resizing(plain: Callable[[Any], None]) -> Callable[[Any], None]:
        def resize(parameter: Any) -> None:
            plain(parameter)
            for tensor in parameter.all_gather_outputs:
                ledger.resized(tensor, "temporaries", "FSDP gathered parameter", parameter._param_fqn)

        return resize

    def named(group: Any, run: Callable[[], None], *operators: str) -> None:
        before = len(ledger.log.allocations)
        run()
        for number, allocation in enumerate(ledger.log.allocations[before:]):
            allocation.module, allocation.block = group._module_fqn, ledger.block_of(group._module_fqn)
            if allocation.category != "gradients":
                allocation.category, allocation.operator = "temporaries", operators[min(number, len(operators) - 1)]

    def unshard_named(group: Any, async_op: bool = False) -> None:
        named(group, lambda: unshard(group, async_op), "FSDP all-gather input")
        if group._all_gather_result is not None:
            ledger.relabel(group._all_gather_result.all_gather_output, "temporaries", "FSDP all-gather output")

    def post_backward_named(group: Any, *unused: Any) -> None:
        named(group, lambda: post_backward(group, *unused), "FSDP reduce-scatter input", "FSDP reduce-scatter output")
        if not group.reduce_grads:  # of a micro-batch that is not the last: they stay whole
            for parameter in (p for p in group.fsdp_params if hasattr(p, "_unsharded_param")):
                for gradient in (parameter.unsharded_accumulated_grad, parameter._unsharded_param.grad):
                    if gradient is not None:
                        ledger.relabel(gradient, "gradients", "FSDP gradient, not reduced")

    def propagate_unseen(propagator: Any, schema: Any) -> Any:
        with _disable_current_modes():
            return propagate(propagator, schema)

    with ExitStack() as stack:
        for owner, name, value in (
            (FSDPParam, "alloc_all_gather_outputs", resizing(FSDPParam.alloc_all_gather_outputs)),
            (FSDPParam, "free_unsharded_param", resizing(FSDPParam.free_unsharded_param)),
            (FSDPParamGroup, "unshard", unshard_named),
            (FSDPParamGroup, "post_backward", post_backward_named),
            (ShardingPropagator, "_propagate_tensor_meta_non_cached", propagate_unseen),
        ):
            stack.enter_context(replaced(owner, name, value))
        yield
