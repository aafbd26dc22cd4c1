"""Bytes that each rank sends in a step, the link that carries them, and how much of that time compute does not hide."""

from typing import Any

from planner.errors import PlannerError
from planner.hardware import Gpu
from planner.job import Job
from planner.memory.lines import largest
from planner.roofline import SpeedAssumptions
from planner.sharding import Sharding

__all__ = ["communication", "link_bytes_per_s"]

# One direction of 16 lanes. Source: PCI-SIG, 8, 16, 32 and 64 GT/s a lane, 128b/130b.
_PCIE = {3: 15.75e9, 4: 31.5e9, 5: 63e9, 6: 121e9}


def link_bytes_per_s(gpu: Gpu, A: SpeedAssumptions) -> float:
    if gpu.nvlink_bytes_per_s and "bridge" not in gpu.note:
        return gpu.nvlink_bytes_per_s / 2 * A.nvlink_share.value
    return host_bytes_per_s(gpu, A)


def host_bytes_per_s(gpu: Gpu, A: SpeedAssumptions) -> float:
    if gpu.pcie_generation not in _PCIE:
        raise PlannerError(
            "the link of {gpu} is not known, so its time cannot be planned on several cards", field="gpu", gpu=gpu.label
        )
    return _PCIE[gpu.pcie_generation] * A.pcie_share.value


def communication(
    job: Job, gpu: Gpu, sharding: Sharding, A: SpeedAssumptions, fabric: float | None, T: Any, micro_s: Any, backward_s: Any
) -> Any:
    a, n, ga = job.architecture, sharding.num_gpus, job.gradient_accumulation_steps
    link = link_bytes_per_s(gpu, A)
    inside = link
    if sharding.nodes > 1:
        if not fabric:
            raise PlannerError(
                "the network between nodes is not known, so the time on {nodes} nodes cannot be planned", nodes=sharding.nodes
            )
        link = min(link, fabric * A.fabric_share.value)
    b = job.numbers.compute_bytes
    grad_b = 4 if sharding.fp32_reduction else b
    G = job.trained_params * grad_b
    part = (n - 1) / n
    if sharding.kind == "tensor":
        passes = 4 + (2 if job.gradient_checkpointing != "off" else 0)
        return ga * passes * 2 * part * T * a.hidden_size * b * a.num_hidden_layers / inside

    def shown(sent: Any, hiding: Any) -> Any:
        h = A.overlap.value
        return largest(sent - h * hiding, (1 - h) * sent)

    if sharding.kind == "ddp":
        return shown(2 * part * G / link, backward_s)
    W = 2 * (a.num_params + job.trained_params * (job.adapter is not None))
    if job.quantization != "none":
        q = a.linear_params(experts=job.experts_as_linears)[0]
        W -= 2 * q
        W += 0.5 * q if sharding.divided_base else 0
    if sharding.kind in ("zero1", "zero2"):
        every = ga if sharding.kind == "zero2" else 1
        return every * shown(part * G / link, backward_s) + part * job.trained_params * b / link
    if sharding.kind == "hybrid":
        m = sharding.gpus_per_node
        local = (m - 1) / m
        k = sharding.nodes
        across = 2 * (k - 1) / k * G / m / (fabric * A.fabric_share.value)
        return ga * shown((2 * local * W + local * G) / inside + across, micro_s)
    return ga * shown((2 * part * W + part * G) / link, micro_s)
