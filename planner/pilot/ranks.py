"""Several GPUs of one machine: each rank is a process that torchrun has started; torch's own DDP or FSDP2 shares the model."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh

from planner.dryrun.distributed import shard_units
from planner.job import Job
from planner.sharding import Sharding

__all__ = ["Ranks"]


class Ranks:
    """What changes when a step is shared; of one process, nothing."""

    def __init__(self, sharding: Sharding | None, device: str) -> None:
        self.sharding, self.device = sharding, device
        self.rank, self.count = 0, 1
        if sharding:
            if not torch.distributed.is_initialized():
                torch.distributed.init_process_group("gloo" if device == "cpu" else "nccl")
            self.rank, self.count = torch.distributed.get_rank(), torch.distributed.get_world_size()

    @property
    def casts(self) -> bool:
        """Whether FSDP casts by itself, so that no autocast is needed."""
        return self.sharding is not None and self.sharding.kind == "fsdp"

    def shared(self, job: Job, model: Any) -> Any:
        """The model as this rank holds it; its optimizer is made after this."""
        if self.sharding is None:
            return model
        if self.sharding.kind == "ddp":
            return torch.nn.parallel.DistributedDataParallel(model)
        mesh = init_device_mesh(self.device, (self.count,), mesh_dim_names=("shard",))
        shard_units(model, job, job.architecture.num_hidden_layers, self.sharding, mesh)
        return model

    def accumulating(self, model: Any, *, last: bool) -> Any:
        """Without the sum among ranks before the last micro-batch."""
        if self.casts:
            model.set_requires_gradient_sync(last)
        return model.no_sync() if self.sharding and self.sharding.kind == "ddp" and not last else nullcontext()

    def most(self, sizes: dict[str, int]) -> dict[str, int]:
        """The largest of each figure among ranks."""
        if self.sharding is None:
            return sizes
        values = torch.tensor(list(sizes.values()), dtype=torch.int64, device=self.device)
        torch.distributed.all_reduce(values, torch.distributed.ReduceOp.MAX)
        return dict(zip(sizes, values.tolist(), strict=True))

    def save(self, model: Any, optimizer: Any, folder: Path) -> None:
        """What a checkpoint holds: sharded under FSDP, else by the first rank. Raises OSError or RuntimeError."""
        if self.casts:
            from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
            from torch.distributed.checkpoint.state_dict_saver import save

            options = StateDictOptions(ignore_frozen_params=True)
            save({"state": get_state_dict(model, optimizer, options=options)}, checkpoint_id=folder)
        elif self.rank == 0:
            getattr(model, "module", model).save_pretrained(folder)
            torch.save(optimizer.state_dict(), folder / "optimizer.pt")
