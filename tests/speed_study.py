"""The step's time against published speeds: `python tests/speed_study.py` prints errors with each family of sources left out."""

import csv
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from reference_runs import own_forward

from planner.architecture import Architecture
from planner.catalogues import data_folder, find_gpu
from planner.compute import SpeedAssumptions, step_time
from planner.hardware import Gpu
from planner.job import Job
from planner.sharding import Sharding
from planner.validation.intervals import publisher
from planner.validation.published import Skipped, published_run

TABLE = Path(__file__).parent / "reference" / "llm_foundry_speed.csv"
# Shapes of llm-foundry's models: hidden size, layers, heads. Source: llm-foundry scripts/train/yamls/pretrain/mpt-*.yaml.
MPT = {
    "125m": (768, 12, 12), "350m": (1024, 24, 16), "760m": (1536, 24, 12), "1b": (2048, 24, 16), "3b": (2560, 32, 20), "7b": (4096, 32, 32),
    "13b": (5120, 40, 40), "30b": (7168, 48, 56),
}  # fmt: skip


class Published(NamedTuple):
    """A published run as a job, and its tokens/s over all GPUs. A family is all sources of one publisher."""

    id: str
    family: str
    source: str
    job: Job
    gpu: Gpu
    sharding: Sharding | None
    tokens_per_s: float


@cache
def mpt(name: str, positions: int) -> Architecture:
    """A model of llm-foundry."""
    D, L, H = MPT[name.removeprefix("MPT-")]
    return Architecture(
        name=name, model_type="gpt", hidden_size=D, num_hidden_layers=L, num_attention_heads=H, num_key_value_heads=H, head_dim=D // H,
        intermediate_size=4 * D, vocab_size=50_368, max_position_embeddings=positions, tie_word_embeddings=True, hidden_act="gelu",
        qkv_names=("Wqkv",), out_name="out_proj", mlp_names=("up_proj", "down_proj"), gated_mlp=False, norm="layernorm", rotary=False,
        learned_positions=positions,
    )  # fmt: skip


def of_llm_foundry(row: dict[str, str]) -> Published:
    """A row of the table of speeds alone: FSDP, full fine-tuning in bf16."""
    job = Job(
        architecture=mpt(row["model"], int(row["sequence_length"])),
        method="full",
        precision="bf16-mixed",
        sequence_length=int(row["sequence_length"]),
        micro_batch_size=int(row["micro_batch_size"]),
        gradient_accumulation_steps=int(row["gradient_accumulation_steps"]),
        gradient_checkpointing="on" if row["gradient_checkpointing"] == "yes" else "off",
        attention="flash",
    )
    gpu = find_gpu({"a100_80gb": "a100-sxm4-80", "a100_40gb": "a100-sxm4-40", "h100_80gb": "h100-sxm5-80"}[row["gpu"]])
    sharding = Sharding("fsdp", int(row["num_gpus"]), fsdp_version=1) if int(row["num_gpus"]) > 1 else None
    return Published(row["id"], row["family"], row["source"], job, gpu, sharding, float(row["tokens_per_second"]))


def runs() -> list[Published]:
    """Runs of data/measurements.csv that publish a speed, each once, and llm-foundry's. Fused kernels of any kind stand as Liger's.

    Left out: GPTQ bases, DeepSpeed's stages on one GPU (no Sharding), and runs whose tokens per step are not known: ms-swift, LitGPT's
    LoRA tables and stanford_alpaca take rows of varying length.
    """
    with (data_folder() / "measurements.csv").open(encoding="utf-8") as file:
        rows = [published_run(row) for row in csv.DictReader(file)]
    found = {}
    for row in rows:
        if (
            isinstance(row, Skipped)
            or not (row.tokens_per_second and row.gpu)
            or row.lengths != "exact"
            or row.job.quantization == "gptq"
        ):
            continue
        liger = row if row.job.loss == "plain" else replace(row, job=row.job.changed(loss="liger"))
        job = own_forward(liger)
        sharding = row.sharding
        if sharding and sharding.kind in ("zero2", "zero3"):
            # DeepSpeed's bf16 has fp32 masters, and its hooks stall the host as FSDP1's do.
            job, sharding = job.changed(precision="bf16-mixed"), replace(sharding, fsdp_version=1)
        run = Published(row.id, publisher(row.source), row.source, job, row.gpu, sharding, row.tokens_per_second)
        found.setdefault((job.model_dump_json(), sharding, run.tokens_per_s), run)  # one run publishes several levels of memory
    with TABLE.open(encoding="utf-8") as file:
        return [*found.values(), *map(of_llm_foundry, csv.DictReader(file))]


FABRIC = 25e9  # of llm-foundry's clusters: 1600 Gbit/s for a node of eight


def log_error(run: Published, assumptions: SpeedAssumptions | None = None) -> float:
    """Logarithm of predicted over published seconds."""
    found = step_time(run.job, run.gpu, run.sharding, fabric_bytes_per_s=FABRIC, assumptions=assumptions)
    return math.log(run.tokens_per_s / found.tokens_per_s)


# ---- the fit -----------------------------------------------------------------------------------------------------------

# What is fitted, and where it starts: shares seen in vendors' and papers' benchmarks. A start weighs as much as a residual of
# its distance over PRIOR_WIDTH, so that a parameter no run speaks of stays.
STARTS = {
    "matmul_share": 0.75, "joules_per_teraflop": 1.7, "memory_share": 0.8, "attention_share": 0.5, "experts_share": 0.85, "operation_s": 20e-6,
    "overlap": 0.7,
}  # fmt: skip
PRIOR_WIDTH = 10.0


def with_values(values: dict[str, float]) -> SpeedAssumptions:
    """The default assumptions with these values."""
    start = SpeedAssumptions()
    return start.model_copy(
        update={name: getattr(start, name).model_copy(update={"value": value}) for name, value in values.items()}
    )


def loss(values: dict[str, float], groups: Iterable[list[Published]]) -> float:
    """Mean absolute logarithmic error, each family's runs on one card and on several weighing the same; and the pull of the starts."""
    assumptions = with_values(values)
    means = [statistics.fmean(abs(log_error(run, assumptions)) for run in group) for group in groups]
    pull = statistics.fmean(abs(math.log(value / STARTS[name])) for name, value in values.items())
    return statistics.fmean(means) + pull / PRIOR_WIDTH


def fitted(data: list[Published]) -> dict[str, float]:
    """Values of the parameters by coordinate descent on a shrinking grid; shares stay below 1."""
    by_group = defaultdict(list)
    for run in data:
        by_group[run.family, run.sharding is None].append(run)
    groups, values, step = list(by_group.values()), dict(STARTS), 0.2
    best = loss(values, groups)
    while step > 0.01:
        improved = False
        for name, sign in itertools.product(values, (1, -1)):
            tried = values | {name: values[name] * math.exp(sign * step)}
            if name.endswith(("share", "overlap")) and tried[name] > 0.95:
                continue
            if (found := loss(tried, groups)) < best:
                best, values, improved = found, tried, True
        step = step if improved else step / 2
    return values


def left_out(
    data: list[Published], family_of: Callable[[Published], str]
) -> dict[str, tuple[dict[str, float], list[tuple[Published, float]]]]:
    """For each family, the values fitted without it, and the errors of its runs with them."""
    result = {}
    for family in dict.fromkeys(map(family_of, data)):
        values = fitted([run for run in data if family_of(run) != family])
        assumptions = with_values(values)
        result[family] = values, [(run, log_error(run, assumptions)) for run in data if family_of(run) == family]
    return result


def figures(errors: Iterable[float]) -> str:
    """Count, median and 90th percentile of the error of tokens/s, and its mean sign, in percent."""
    signed = [math.exp(-error) - 1 for error in errors]
    sizes = sorted(map(abs, signed))
    p90 = sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]
    shown = [f"{100 * value:5.1f} %" for value in (statistics.median(sizes), p90, statistics.fmean(signed))]
    return f"{len(sizes):4} runs  median {shown[0]}  p90 {shown[1]}  bias {shown[2]}"


def grouped(pairs: Iterable[tuple[Published, float]]) -> dict[str, list[float]]:
    """Errors by source, card and method; a run is in three groups."""
    groups = defaultdict(list)
    for run, error in pairs:
        for name in (run.family, f"{run.family}: {run.source[:36]}", f"card {run.gpu.label}", f"{run.family} {run.job.method}"):
            groups[name].append(error)
    return groups


def main() -> None:
    data = runs()
    print("fitted to all:", {name: float(f"{value:.3g}") for name, value in fitted(data).items()})
    found = left_out(data, lambda run: run.family)
    for family, (values, _) in found.items():
        print(f"without {family}:", {name: float(f"{value:.3g}") for name, value in values.items()})
    for title, result in (("family", found), ("source", left_out(data, lambda run: run.source))):
        everything = [pair for _, pairs in result.values() for pair in pairs]
        for several in (False, True):
            pairs = [(run, error) for run, error in everything if (run.sharding is not None) == several]
            print(f"{'several cards' if several else 'one card'}, each {title} left out: {figures(error for _, error in pairs)}")
            ratios = sorted(math.exp(-error) for _, error in pairs)
            low, high = (ratios[int(share * len(ratios))] for share in (0.05, 0.95))
            print(f"  published / predicted seconds: 5 % {low:.2f}, 95 % {high:.2f}")
            for name, errors in sorted(grouped(pairs).items()):
                print(f"  {name:46} {figures(errors)}")


if __name__ == "__main__":
    main()
