"""How several GPUs share one model: copied, divided, or divided layer by layer. One GPU has no Sharding."""

from dataclasses import dataclass
from typing import Literal, get_args

from planner.errors import InvalidJob
from planner.job import Job

__all__ = ["Kind", "Offload", "Sharding", "check_sharding", "sharding_of"]

Kind = Literal["ddp", "zero1", "zero2", "zero3", "fsdp", "hybrid", "tensor"]
Offload = Literal["none", "optimizer", "parameters"]

# What may leave the GPUs for host memory. Source: deepspeed/runtime/zero/config.py (offload_optimizer in stages 1 to 3,
# offload_param in stage 3); torch FSDP2 CPUOffloadPolicy (parameters, gradients and states together).
_OFFLOADS: dict[str, tuple[Offload, ...]] = {
    "zero1": ("optimizer",), "zero2": ("optimizer",), "zero3": ("optimizer", "parameters"), "fsdp": ("parameters",),
    "hybrid": ("parameters",),
}  # fmt: skip


# Optimizers that take a part of a tensor for a tensor. Others of bitsandbytes and transformers refuse FSDP2's DTensors, or look at
# rows and columns, which DeepSpeed's flat parts have not.
_TAKE_PARTS = {
    "fsdp": ("adamw", "adamw-fused", "sgd", "sgd-momentum"),
    "deepspeed": ("adamw", "adamw-fused", "lion", "sgd", "sgd-momentum"),
}


@dataclass(frozen=True)
class Sharding:
    """How `num_gpus` ranks share one model. Raises InvalidJob.

    `ddp` copies all. DeepSpeed's `zero1` divides optimizer states, `zero2` gradients too, `zero3` parameters too. `fsdp` (FSDP2,
    full shard) divides all three by all GPUs, `hybrid` by those of a node. `tensor` divides every linear layer within one node,
    where all GPUs work on the same rows. A bitsandbytes 4-bit base is stored as integers and stays whole on each GPU, unless FSDP
    may divide it because it was stored in a float dtype (`divided_base`: bnb_4bit_quant_storage). `fsdp_version` 1 is the older
    FullyShardedDataParallel, Accelerate's default. Gradients are summed in the compute dtype, as Accelerate sets it, or with
    `fp32_reduction` in fp32.
    """

    kind: Kind
    num_gpus: int
    gpus_per_node: int = 8
    offload: Offload = "none"
    fp32_reduction: bool = False
    divided_base: bool = False
    fsdp_version: Literal[1, 2] = 2

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            known = ", ".join(get_args(Kind))
            raise InvalidJob(
                "{name} is {given}; it must be {expected}", field="kind", name="kind", given=repr(self.kind), expected=known
            )
        for name, limit in (("num_gpus", 2), ("gpus_per_node", 1)):
            if getattr(self, name) < limit:
                raise InvalidJob(
                    "{name} is {given}; it must be at least {limit}",
                    field=name,
                    name=name,
                    given=getattr(self, name),
                    limit=limit,
                )
        uneven = self.num_gpus > self.gpus_per_node and self.num_gpus % self.gpus_per_node
        if self.kind == "hybrid" and (self.gpus_per_node < 2 or uneven or self.nodes < 2):
            raise InvalidJob(
                "hybrid sharding needs two or more whole nodes of two or more GPUs; {num_gpus} GPUs are not that with {gpus_per_node} a node",
                field="gpus_per_node", num_gpus=self.num_gpus, gpus_per_node=self.gpus_per_node,
            )  # fmt: skip
        if self.kind == "tensor" and self.num_gpus > self.gpus_per_node:
            raise InvalidJob(
                "tensor parallelism stays within a node; {num_gpus} GPUs are more than the {gpus_per_node} of one",
                field="num_gpus", num_gpus=self.num_gpus, gpus_per_node=self.gpus_per_node,
            )  # fmt: skip
        allowed = ("none", *_OFFLOADS.get(self.kind, ()))
        if self.offload not in allowed:
            raise InvalidJob(
                "{name} is {given}; it must be {expected}", field="offload", name="offload", given=repr(self.offload), expected=", ".join(allowed)
            )  # fmt: skip

    @property
    def nodes(self) -> int:
        """Nodes, the last one perhaps not full."""
        return -(-self.num_gpus // self.gpus_per_node)

    @property
    def data_parallel(self) -> int:
        """Ranks that work on rows of their own."""
        return 1 if self.kind == "tensor" else self.num_gpus

    @property
    def weight_shards(self) -> int:
        """Parts into which the weights that can be divided are divided."""
        return {"zero3": self.num_gpus, "fsdp": self.num_gpus, "tensor": self.num_gpus, "hybrid": self.gpus_per_node}.get(
            self.kind, 1
        )

    @property
    def gradient_shards(self) -> int:
        """Parts into which gradients are divided once they are reduced."""
        return self.num_gpus if self.kind == "zero2" else self.weight_shards

    @property
    def state_shards(self) -> int:
        """Parts into which optimizer states are divided."""
        return self.num_gpus if self.kind in ("zero1", "zero2") else self.weight_shards


def check_sharding(job: Job, sharding: Sharding) -> None:
    """Raise InvalidJob, one sentence that names the field, where the libraries refuse `job` on several GPUs in this way."""
    kind, a = sharding.kind, job.architecture
    if kind == "tensor":
        if job.quantization != "none" or job.method not in ("full", "lora"):
            raise InvalidJob("transformers divides tensors of full fine-tuning and of LoRA on a 16-bit base only", field="method")
        if a.num_key_value_heads % sharding.num_gpus:
            raise InvalidJob(
                "{given} GPUs do not divide the {heads} key/value heads of {model}",
                field="num_gpus", given=sharding.num_gpus, heads=a.num_key_value_heads, model=a.name,
            )  # fmt: skip
        return
    if kind == "ddp":
        return
    if job.quantization == "int8" and kind in ("fsdp", "hybrid", "zero3"):
        raise InvalidJob(
            "bitsandbytes' int8 layers lose their row scales where parameters are divided; use a 4-bit base, or ddp",
            field="quantization",
        )
    known = _TAKE_PARTS["fsdp" if kind in ("fsdp", "hybrid") else "deepspeed"]
    if job.optimizer not in known:
        raise InvalidJob(
            "optimizer {optimizer} cannot work on the parts of tensors that {kind} gives it; use one of {known}, or ddp",
            field="optimizer", optimizer=job.optimizer, kind=kind, known=", ".join(known),
        )  # fmt: skip


def sharding_of(
    job: Job, num_gpus: int, sharding: str, gpus_per_node: int, offload: str, *, integer_base: bool = False
) -> Sharding | None:
    """How the options say that GPUs share `job`; None for one GPU. FSDP divides a 4-bit base, unless it is stored as integers."""
    if num_gpus == 1:
        return None
    base = not integer_base and job.quantization in ("nf4", "fp4") and sharding in ("fsdp", "hybrid")
    return Sharding(sharding, num_gpus, gpus_per_node, offload, divided_base=base)  # type: ignore[arg-type]
