"""The dry run: the real training step of a job on fake tensors, with no GPU and no weights.

`dry_run(job)` needs torch, transformers, PEFT and bitsandbytes (the `pilot` extra), and imports them only when it is called.
"""

from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any

from planner.dryrun.allocator import replay
from planner.dryrun.depth import NotRepeatable, deepened, shallow_blocks
from planner.dryrun.distributed import check_kind, with_buckets
from planner.dryrun.load import LOAD_BEHAVIOURS, with_load_phase
from planner.dryrun.options import AllocatorOptions
from planner.dryrun.result import DryRun
from planner.errors import InvalidJob, PlannerError
from planner.hardware import Gpu
from planner.job import Job
from planner.memory.device import Assumptions
from planner.sharding import Sharding

__all__ = ["DryRun", "dry_run", "missing_packages"]

# Versions whose insides the tracer knows: package -> first, first that is too new.
_KNOWN = {
    "torch": ((2, 8), (2, 14)),
    "transformers": ((4, 56), (6,)),
    "peft": ((0, 17), (0, 23)),
    "bitsandbytes": ((0, 47), (0, 52)),
}
_MOST_BLOCKS = 1000  # of a model that must be traced whole


def missing_packages() -> list[str]:
    """Packages that a dry run needs and that are not installed."""
    return [name for name in _KNOWN if _version(name) is None]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _checked_versions() -> dict[str, str]:
    versions = {}
    for package, (first, too_new) in _KNOWN.items():
        found = _version(package)
        if found is None:
            raise PlannerError("a dry run needs the package {package!r}: pip install 'finetune-planner[pilot]'", package=package)
        number = tuple(int(part) for part in found.split("+")[0].split(".")[:2] if part.isdigit())
        if not first <= number < too_new:
            known = f"{'.'.join(map(str, first))} to below {'.'.join(map(str, too_new))}"
            raise PlannerError(
                "the dry run does not know {package} {found} (it knows {known}), and will not guess; install one of those",
                package=package, found=found, known=known,
            )  # fmt: skip
        versions[package] = found
    return versions


def dry_run(
    job: Job,
    gpu: Gpu | None = None,
    *,
    sharding: Sharding | None = None,
    full: bool = False,
    without: Iterable[str] = (),
    allocator: AllocatorOptions | None = None,
    capacity_bytes: int | None = None,
    assumptions: Assumptions | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> DryRun:
    """Run two optimizer steps of `job` on fake tensors, and its allocations through the caching allocator of `gpu`.

    With `sharding` it is the run of one of several GPUs.

    A few blocks are traced and repeated to the model's depth; `full` traces all blocks and both steps. `without` switches off
    rows of planner.dryrun.cuda.BEHAVIOURS or planner.dryrun.load.LOAD_BEHAVIOURS. `capacity_bytes` is what the allocator may
    take. Raises InvalidJob or PlannerError, each one sentence.
    """
    check_kind(job, sharding)
    if job.stack_row.own_models or job.quantization == "gptq":
        what = "a GPTQ base" if job.quantization == "gptq" else job.stack_row.label
        raise InvalidJob(
            "{what} cannot be run dry, as its layers are not among those installed; use the closed form", field="stack", what=what
        )
    versions = _checked_versions()
    from planner.dryrun.cuda import BEHAVIOURS, Behaviours
    from planner.dryrun.trace import trace_steps

    off = frozenset(without)
    if unknown := off - BEHAVIOURS.keys() - LOAD_BEHAVIOURS.keys():
        known = ", ".join((*BEHAVIOURS, *LOAD_BEHAVIOURS))
        raise InvalidJob("there is no CUDA behaviour {name!r} to switch off; there are {known}", name=min(unknown), known=known)
    if job.experts_as_linears and job.architecture.num_experts and not versions["transformers"].startswith("4."):
        raise InvalidJob(
            "transformers {version} has the experts of {model} fused, not as linears; leave experts_as_linears out, or use the closed form",
            field="experts_as_linears", version=versions["transformers"], model=job.architecture.name,
        )  # fmt: skip
    assumptions = assumptions or Assumptions()
    capability = gpu.compute_capability if gpu else None
    behaviours = Behaviours(
        compute_capability=capability or (8, 0),
        workspace_bytes=int(assumptions.workspace(capability).value / 2),
        flash=job.attention == "flash",
        without=off,
    )
    kinds = block_kinds(job)
    everything = list(range(len(kinds)))
    kept = everything if full or job.method == "prefix" else shallow_blocks(kinds)  # a prefix is one table for all blocks
    log = None
    if len(kept) < len(everything):
        shallow = trace_steps(job, kept, behaviours, sharding=sharding, progress=progress)
        try:
            log = deepened(shallow, kinds, kept)
        except NotRepeatable:
            kept = everything
    if log is None:
        if len(kept) > _MOST_BLOCKS:
            raise InvalidJob(
                "{model} has {count:,} blocks that cannot be repeated from a few; a dry run traces at most {limit:,}",
                field="num_hidden_layers", model=job.architecture.name, count=len(kept), limit=_MOST_BLOCKS,
            )  # fmt: skip
        log = trace_steps(job, kept, behaviours, both_steps=full, sharding=sharding, progress=progress)
    log = with_load_phase(log, job, off)
    if sharding is not None and sharding.kind == "ddp":
        log = with_buckets(log)
    progress("replaying the allocator")
    options = allocator or AllocatorOptions()
    replayed = replay(log.events, log.sizes, options=options, capacity_bytes=capacity_bytes, empty_cache_at=log.emptied_at)
    band = assumptions.band(several_gpus=sharding is not None)
    return DryRun(job, log, replayed, assumptions.context(capability), band, tuple(kept), versions)


def block_kinds(job: Job) -> list[str]:
    """What sets the blocks of a model apart: attention (sliding, full), dense or mixture, trained or frozen."""
    from planner.dryrun.model import transformers_config

    a = job.architecture
    config = transformers_config(a)
    kinds = [""] * a.num_hidden_layers
    for field in ("layer_types", "mlp_layer_types", "no_rope_layers"):
        values: Any = getattr(config, field, None)
        if isinstance(values, list) and len(values) == len(kinds):
            kinds = [f"{kind} {value}" for kind, value in zip(kinds, values, strict=True)]
    dense = getattr(config, "first_k_dense_replace", None) or 0
    trained = a.num_hidden_layers - (job.trainable_layers if job.method == "freeze" else a.num_hidden_layers)
    return [f"{kind}{' dense' if i < dense else ''}{' frozen' if i < trained else ''}" for i, kind in enumerate(kinds)]
