"""What each rank sends in an optimizer step, over which link, and how much of that time its computing does not hide."""

from typing import Any, Literal, NamedTuple

from planner.errors import PlannerError
from planner.hardware import Gpu
from planner.job import Job
from planner.memory.lines import largest
from planner.roofline import SpeedAssumptions
from planner.sharding import Sharding

__all__ = ["Collective", "collectives", "exposed_seconds", "link_bytes_per_s", "offload_seconds", "pcie_bytes_per_s"]

# One direction of 16 lanes, by generation. Source: PCI-SIG, 8 to 64 GT/s a lane, 128b/130b (6: PAM4 with FLIT).
_PCIE_BYTES_PER_S = {3: 15.75e9, 4: 31.5e9, 5: 63e9, 6: 121e9}


class Collective(NamedTuple):
    """Bytes that one rank sends for each micro-batch, or once per optimizer step, and what computes meanwhile.

    `over`: `all` ranks, those of a `node`, or `across` nodes, each rank with its fellows of the same place.
    """

    name: str
    bytes: Any
    each_micro_batch: bool
    over: Literal["all", "node", "across"]
    behind: Literal["micro-batch", "backward", "nothing"]


def collectives(job: Job, sharding: Sharding) -> list[Collective]:
    """All that a rank sends. A ring moves (n-1)/n of a tensor to gather or to scatter it, and twice that to reduce it for all.

    Source: Patarasuk & Yuan 2009 (ring all-reduce); Rajbhandari et al. 2019, arXiv:1910.02054, sec. 7 (stages 1 to 3); Zhao et al.
    2023, arXiv:2304.11277 (FSDP, hybrid); Shoeybi et al. 2019, arXiv:1909.08053, sec. 3 (tensor parallelism: two all-reduces per
    block and pass). DDP and stage 1 reduce once per optimizer step, the others for each micro-batch.
    """
    a, n = job.architecture, sharding.num_gpus
    b = job.numbers.compute_bytes
    gradients = job.trained_params * (4 if sharding.fp32_reduction else b)
    part, checkpointing = (n - 1) / n, job.gradient_checkpointing != "off"
    match sharding.kind:
        case "tensor":
            hidden = job.micro_batch_size * job.length * a.hidden_size * b
            sums = (6 if checkpointing else 4) * a.num_hidden_layers
            return [Collective("hidden states summed", 2 * part * hidden * sums, True, "node", "nothing")]
        case "ddp":
            return [Collective("gradients reduced", 2 * part * gradients, False, "all", "backward")]
        case "zero1" | "zero2":
            return [
                Collective("gradients scattered", part * gradients, sharding.kind == "zero2", "all", "backward"),
                Collective("parameters gathered", part * job.trained_params * b, False, "all", "nothing"),
            ]
    weights = _gathered_bytes(job, sharding, b)
    # Stage 3 lets go of a layer between its recomputation and its backward; FSDP keeps the block.
    passes = 3 if sharding.kind == "zero3" and checkpointing else 2
    if sharding.kind != "hybrid":
        return [
            Collective("weights gathered", passes * part * weights, True, "all", "micro-batch"),
            Collective("gradients scattered", part * gradients, True, "all", "micro-batch"),
        ]
    m, nodes = sharding.gpus_per_node, sharding.nodes
    return [
        Collective("weights gathered", passes * (m - 1) / m * weights, True, "node", "micro-batch"),
        Collective("gradients scattered", (m - 1) / m * gradients, True, "node", "micro-batch"),
        Collective("gradients reduced", 2 * (nodes - 1) / nodes * gradients / m, True, "across", "micro-batch"),
    ]


def _gathered_bytes(job: Job, sharding: Sharding, b: int) -> Any:
    """Weights that are divided and so gathered: a 4-bit base only where FSDP may divide it (see Sharding)."""
    a = job.architecture
    weights = b * (a.num_params + (job.trained_params if job.adapter else 0))
    if job.quantization == "none":
        return weights
    quantised = a.linear_params(experts=job.experts_as_linears)[0]
    return weights - (b - (0.5 if sharding.divided_base else 0)) * quantised


def pcie_bytes_per_s(gpu: Gpu, assumptions: SpeedAssumptions) -> float:
    """One direction between card and host, as achieved. Raises PlannerError where the generation is not known."""
    if gpu.pcie_generation not in _PCIE_BYTES_PER_S:
        raise PlannerError(
            "neither NVLink nor the PCIe generation of {gpu} is known, so its speed among several cards cannot be predicted; "
            "choose another card",
            field="gpu", gpu=gpu.label,
        )  # fmt: skip
    return _PCIE_BYTES_PER_S[gpu.pcie_generation] * assumptions.pcie_share.value


def link_bytes_per_s(gpu: Gpu, assumptions: SpeedAssumptions) -> float:
    """One direction between the cards of a node, as achieved: NVLink where each card has it to all others, else PCIe.

    A bridge joins two cards only, and few machines for rent have one: such cards are taken to use PCIe.
    """
    if gpu.nvlink_bytes_per_s and "bridge" not in gpu.note:
        return gpu.nvlink_bytes_per_s / 2 * assumptions.nvlink_share.value
    return pcie_bytes_per_s(gpu, assumptions)


def exposed_seconds(
    job: Job,
    gpu: Gpu,
    sharding: Sharding,
    assumptions: SpeedAssumptions,
    *,
    fabric_bytes_per_s: float | None,
    micro_batch_s: Any,
    backward_s: Any,
) -> Any:
    """Seconds of an optimizer step in which cards only communicate.

    Of what runs beside computing, at most the share `overlap` is hidden, and at most that share of the computing hides it. Between
    nodes each card has a network port of its own (`fabric_bytes_per_s`, each direction), and a ring leaves a node once per port, so
    that a node's ports carry one tensor together. Raises PlannerError where the network between nodes is not known.
    """
    link, fabric = link_bytes_per_s(gpu, assumptions), None
    if sharding.nodes > 1:
        if not fabric_bytes_per_s:
            raise PlannerError(
                "the network between nodes is not known, so the speed of {nodes} nodes cannot be predicted; give its bytes per second, "
                "or stay on one node",
                field="num_gpus", nodes=sharding.nodes,
            )  # fmt: skip
        fabric = fabric_bytes_per_s * assumptions.fabric_share.value
    hiding: dict[str, Any] = {"micro-batch": micro_batch_s, "backward": backward_s}
    sent: dict[tuple[str, bool], Any] = {}
    for found in collectives(job, sharding):
        seconds = found.bytes / link
        if fabric and found.over == "all":
            seconds = largest(seconds, found.bytes / (fabric * min(sharding.gpus_per_node, sharding.num_gpus)))
        elif fabric and found.over == "across":
            seconds = found.bytes / fabric
        key = (found.behind, found.each_micro_batch)
        sent[key] = sent.get(key, 0) + seconds
    h, exposed = assumptions.overlap.value, 0
    for (behind, each), seconds in sent.items():
        alone = seconds if behind == "nothing" else largest(seconds - h * hiding[behind], (1 - h) * seconds)
        exposed = exposed + alone * (job.gradient_accumulation_steps if each else 1)
    return exposed


def offload_seconds(job: Job, gpu: Gpu, sharding: Sharding, assumptions: SpeedAssumptions) -> Any:
    """Seconds of an optimizer step that offloading adds: gradients to the host, Adam there, parameters back.

    The ranks of a node share its processor. Offloaded parameters come up for each gather, a rank its part. FSDP runs PyTorch's own
    Adam on the host, 6 times as slow as DeepSpeed's. Source: arXiv:2101.06840, sec. 4 and table 4.
    """
    if sharding.offload == "none":
        return 0
    b, n = job.numbers.compute_bytes, sharding.num_gpus
    pcie, trained = pcie_bytes_per_s(gpu, assumptions), job.trained_params / n
    each = job.gradient_accumulation_steps
    moved = each * b * trained + b * trained
    if sharding.offload == "parameters":
        moved = moved + each * 2 * _gathered_bytes(job, sharding, b) / n
    adam = assumptions.cpu_adam_params_per_s.value / (6 if sharding.kind in ("fsdp", "hybrid") else 1)
    return moved / pcie + trained * min(sharding.gpus_per_node, n) / adam
