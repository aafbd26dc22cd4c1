"""What the predictions are held to: steps that another tracer counted, and runs of data/measurements.csv, each as a job."""

import csv
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from planner.catalogues import data_folder
from planner.families import architecture_from_config
from planner.job import Job
from planner.memory import MemoryBreakdown
from planner.validation.intervals import publisher
from planner.validation.published import Published, published_run

REFERENCE = Path(__file__).parent / "reference"
STEPS = json.loads((REFERENCE / "fake_tensor_steps.json").read_text())["steps"]


def without_workspace(memory: MemoryBreakdown) -> float:
    """Peak bytes of the tensors alone."""
    (workspace,) = (line.bytes for line in memory.lines if line.name == "cuBLAS workspace")
    return float(memory.peak.allocated - workspace)


def traced_job(step: dict[str, Any]) -> Job:
    """The job of a step of the other tracer."""
    fields = {**step["job"]}
    for name in ("target_modules", "modules_to_save"):
        if name in fields:
            fields[name] = tuple(fields[name])
    return Job(architecture=architecture_from_config(step["config"]), **fields)


def measured(run: Published, quantity: str) -> float:
    """Bytes that the same run publishes of another quantity; not a number where it publishes none."""
    suffix = {"allocated": "alloc", "reserved": "resv"}[quantity]
    found = _runs().get(f"{run.id.rsplit('-', 1)[0]}-{suffix}")
    return found.measured_bytes if found else float("nan")


def own_forward(run: Published) -> Job:
    """The job, where Liger's forward or Qwen's modeling_qwen.py takes the place of transformers' own: no fp32 copy of logits before the loss."""
    own = run.job.loss == "liger" or publisher(run.source) == "qwen"
    return run.job.changed(transformers="5") if own else run.job


@cache
def _runs() -> dict[str, Published]:
    with (data_folder() / "measurements.csv").open(encoding="utf-8") as table:
        runs = [published_run(row) for row in csv.DictReader(table)]
    return {run.id: run for run in runs if isinstance(run, Published)}


@cache
def published_runs(source: str, *, several: bool = False) -> tuple[Published, ...]:
    """Runs of one publisher in data/measurements.csv that publish what is allocated (Qwen: one figure, not said which), on one GPU or several.

    Left to tests/test_validation.py: GPTQ bases, Triton cross-entropies, and fms-acceleration's models outside the catalogue.
    """
    return tuple(
        replace(run, job=own_forward(run))
        for run in _runs().values()
        if publisher(run.source) == source and bool(run.sharding) == several
        and run.quantity == ("unspecified" if source == "qwen" else "allocated") and run.job.loss in ("plain", "liger")
        and run.job.quantization != "gptq" and (source == "qwen" or "as published" not in run.job.architecture.source)
    )  # fmt: skip
