"""Jobs on which the closed form is held against the dry run, and the table of what came out.

`python tests/dryrun_grid.py` runs them all (some minutes) and writes data/closed_form_against_dry_run.csv.
"""

import csv
import multiprocessing
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from reference_runs import without_workspace

from planner.catalogues import find_model
from planner.dryrun import dry_run
from planner.errors import InvalidJob
from planner.job import Job
from planner.memory import memory_breakdown

TABLE = Path(__file__).parent.parent / "data" / "closed_form_against_dry_run.csv"
MODELS = (
    "meta-llama/Llama-2-7b-hf", "meta-llama/Llama-3.1-8B", "mistralai/Mistral-7B-v0.1", "Qwen/Qwen2.5-7B", "Qwen/Qwen3-8B",
    "google/gemma-2-9b", "google/gemma-3-4b-pt", "microsoft/Phi-3-mini-4k-instruct", "gpt2", "facebook/opt-1.3b", "tiiuae/falcon-7b",
    "mosaicml/mpt-7b", "EleutherAI/pythia-1.4b", "mistralai/Mixtral-8x7B-v0.1", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V2-Lite",
    "openai/gpt-oss-20b", "allenai/OLMo-2-1124-7B",
)  # fmt: skip
# Method, base, how many jobs of it each model gets.
METHODS: tuple[tuple[str, str, int], ...] = (
    ("full", "none", 5), ("freeze", "none", 1), ("lora", "none", 5), ("qlora", "nf4", 6), ("lora", "int8", 1), ("dora", "none", 1),
    ("dora", "nf4", 1), ("ia3", "none", 1), ("prefix", "none", 1), ("prompt", "none", 1), ("p-tuning", "none", 1), ("bottleneck", "none", 1),
)  # fmt: skip


class Compared(NamedTuple):
    """One job's peak of live tensors by both routes, in bytes, without cuBLAS's workspace."""

    model: str
    method: str
    job: Job
    closed_form: float
    dry_run: float

    @property
    def error(self) -> float:
        return self.closed_form / self.dry_run - 1


def grid() -> Iterator[tuple[str, Job]]:
    """At least 400 jobs, the same every time: each option is drawn for each job."""
    for model in MODELS:
        draw = random.Random(model)
        architecture = find_model(model)
        for method, quantization, count in METHODS:
            for _ in range(count):
                for _attempt in range(50):
                    with suppress(InvalidJob):
                        yield model, _drawn(draw, architecture, method, quantization)
                        break


def _drawn(draw: random.Random, architecture: Any, method: str, quantization: str) -> Job:
    length = draw.choice([n for n in (256, 512, 1024, 2048, 4096, 8192) if n <= architecture.max_position_embeddings - 32])
    batch = draw.choice([n for n in (1, 2, 4, 8) if n * length <= 16384])
    attention = architecture.attention_kernels
    names = [linear.name for linear in architecture.blocks[0].attention]
    fields: dict[str, Any] = {
        "method": method, "quantization": quantization, "sequence_length": length, "micro_batch_size": batch,
        "precision": draw.choice(["bf16-mixed", "bf16-mixed", "bf16", "fp16", "fp32"]),
        "optimizer": draw.choice(["adamw", "adamw", "adamw-fused", "adamw-8bit", "paged-adamw-8bit", "adafactor", "lion", "sgd"]),
        "gradient_checkpointing": draw.choice(["on", "on", "reentrant", "off"]), "attention": draw.choice(attention),
        "gradient_accumulation_steps": draw.choice([1, 1, 2]), "packing": draw.choice([True, True, False]),
        "loss": draw.choice(["plain", "plain", "plain", "liger", "chunked"]), "keep_outputs": draw.choice([False, False, True]),
        "kbit_preparation": draw.choice([True, False]), "double_quant": draw.choice([True, False]), "lora_rank": draw.choice([8, 16, 64]),
        "target_modules": draw.choice([("all-linear",), tuple(dict.fromkeys(names))]), "lora_dropout": draw.choice([0.0, 0.05]),
        "autocast_adapter_dtype": draw.choice([True, True, False]),
    }  # fmt: skip
    return Job(architecture=architecture, **fields)


def compared(item: tuple[str, Job]) -> Compared | str:
    """Both routes for one job; a sentence where the libraries refuse it."""
    model, job = item
    try:
        found = dry_run(job, without=["cublas_workspace"])
    except InvalidJob as error:
        return f"{model}, {job.method}: {error}"
    dry = max(found.tensor_bytes_at(instant) for instant in found.windows)
    return Compared(model, job.method, job, without_workspace(memory_breakdown(job)), dry)


def run(jobs: list[tuple[str, Job]], *, processes: int = 2) -> list[Compared | str]:
    """Compare many jobs, several at a time."""
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(compared, jobs, chunksize=4))


def quantile(values: list[float], share: float) -> float:
    """The value below which `share` of them lie."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def write_table(results: list[Compared]) -> None:
    """Errors by model and by method (LoRA apart by base): count, median, 95th percentile, worst, in percent."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for result in results:
        for group in (("all", "all"), (result.model, "all"), ("all", result.method)):
            groups[group].append(100 * abs(result.error))
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("model", "method", "jobs", "median_percent", "p95_percent", "worst_percent"))
        for (model, method), errors in groups.items():
            figures = (statistics.median(errors), quantile(errors, 0.95), max(errors))
            writer.writerow((model, method, len(errors), *(f"{figure:.2f}" for figure in figures)))


if __name__ == "__main__":
    outcomes = run(list(grid()))
    refused = [outcome for outcome in outcomes if isinstance(outcome, str)]
    write_table([outcome for outcome in outcomes if isinstance(outcome, Compared)])
    print(f"{len(outcomes)} jobs, {len(refused)} refused", *refused, sep="\n", file=sys.stderr)
