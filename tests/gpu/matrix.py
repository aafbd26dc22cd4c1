"""Ground truth on the attached GPU: 26 jobs of a few steps with random weights, each a record under data/pilots/CARD/.

    python tests/gpu/matrix.py [--out data/pilots] [--minutes 8] [--cpu]

A job whose record is there is left out, so the matrix can be run in pieces; --minutes ends it before a machine's time does. With
--cpu the same jobs run on the processor with tiny shapes of the same classes, to try the script itself. Prints one line a job:
peak allocated and reserved, with the closed form's and the dry run's error.
"""

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from planner.catalogues import find_model
from planner.dryrun.process import dry_run_in_process
from planner.errors import PlannerError
from planner.families import architecture_from_config
from planner.files import write_whole
from planner.job import Job
from planner.pilot import devices, start
from planner.pilot.compare import card_of, compared
from planner.pilot.record import Measurement, write_measurement

LLAMA, QWEN, QWEN3, GEMMA = "meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-7B", "Qwen/Qwen3-4B", "google/gemma-3-4b-pt"
MISTRAL, PHI, MOE = "mistralai/Mistral-7B-v0.1", "microsoft/Phi-3-mini-4k-instruct", "Qwen/Qwen3-30B-A3B"
JOBS: list[tuple[str, dict[str, Any]]] = [
    (LLAMA, {"method": "qlora", "sequence_length": 2048}),
    (LLAMA, {"method": "qlora", "sequence_length": 8192}),
    (LLAMA, {"method": "qlora", "sequence_length": 512, "micro_batch_size": 8, "gradient_checkpointing": "off"}),
    (LLAMA, {"method": "qlora", "sequence_length": 2048, "attention": "eager"}),
    (LLAMA, {"method": "qlora", "sequence_length": 1024, "micro_batch_size": 4, "packing": False}),
    (LLAMA, {"method": "lora", "sequence_length": 2048}),
    (LLAMA, {"method": "lora", "sequence_length": 4096, "gradient_checkpointing": "off"}),
    (LLAMA, {"method": "lora", "sequence_length": 2048, "gradient_accumulation_steps": 2}),
    (LLAMA, {"method": "full", "precision": "bf16", "sequence_length": 2048}),
    (LLAMA, {"method": "dora", "quantization": "nf4", "sequence_length": 1024}),
    (LLAMA, {"method": "lora", "quantization": "int8", "sequence_length": 1024}),
    (QWEN, {"method": "qlora", "sequence_length": 2048, "micro_batch_size": 2}),
    (QWEN, {"method": "lora", "sequence_length": 1024, "micro_batch_size": 4}),
    (QWEN, {"method": "full", "precision": "bf16", "sequence_length": 1024, "optimizer": "adamw-8bit"}),
    (QWEN3, {"method": "full", "sequence_length": 2048}),
    (QWEN3, {"method": "full", "sequence_length": 512, "micro_batch_size": 8, "gradient_checkpointing": "off"}),
    (QWEN3, {"method": "qlora", "sequence_length": 4096, "optimizer": "paged-adamw-8bit"}),
    (GEMMA, {"method": "qlora", "sequence_length": 2048}),
    (GEMMA, {"method": "lora", "sequence_length": 1024, "micro_batch_size": 2, "gradient_checkpointing": "off"}),
    (GEMMA, {"method": "full", "precision": "bf16", "sequence_length": 1024}),
    (MISTRAL, {"method": "qlora", "sequence_length": 8192}),
    (MISTRAL, {"method": "lora", "sequence_length": 2048, "attention": "eager", "gradient_checkpointing": "off"}),
    (PHI, {"method": "qlora", "sequence_length": 2048, "micro_batch_size": 4}),
    (PHI, {"method": "full", "sequence_length": 2048}),
    (MOE, {"method": "lora", "sequence_length": 1024, "target_modules": ("q_proj", "k_proj", "v_proj", "o_proj")}),
    (MOE, {"method": "lora", "sequence_length": 2048, "micro_batch_size": 2, "target_modules": ("q_proj", "v_proj")}),
]  # fmt: skip


def tiny(model: str) -> Any:
    """The same class with shapes for a processor."""
    config = json.loads(find_model(model).config_json or "{}") | {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "vocab_size": 512,
    }  # fmt: skip
    for field in ("layer_types", "rope_scaling", "rope_parameters", "sliding_window_pattern"):
        config.pop(field, None)
    if "num_experts" in config:
        config |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    return architecture_from_config({"model_type": find_model(model).model_type, **config}, name=model)


def job_of(model: str, fields: dict[str, Any], cpu: bool) -> Job:
    if cpu:
        return Job(architecture=tiny(model), **fields | {"sequence_length": 16})
    return Job(architecture=find_model(model), **fields)


def name_of(model: str, fields: dict[str, Any]) -> str:
    words = [model.rsplit("/", 1)[-1], *(f"{key}-{value}" for key, value in fields.items())]
    return re.sub(r"[^A-Za-z0-9.]+", "-", "_".join(words)).strip("-")


def line_of(name: str, found: Measurement, dry: Any) -> str:
    """Measured peaks and the errors of both predictions, a line."""
    rows = {row.name: row for row in compared(found, dry_run=dry)}
    parts = [f"{name}: {found.state} {found.problem}".rstrip()]
    for key in ("backward", "reserved", "step"):
        if (row := rows.get(key)) and row.measured:
            errors = [f"{error:+.1%}" if error is not None else "-" for error in (row.difference, row.dry_difference)]
            parts.append(f"{key} {row.measured:.4g} {row.unit} closed {errors[0]} dry {errors[1]}")
    return "; ".join(parts)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("data/pilots"))
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--only", type=int, default=len(JOBS), help="so many jobs from the first one on")
    parser.add_argument("--steps", type=int, default=6)
    asked = parser.parse_args(arguments)
    cards = devices()
    if not cards and not asked.cpu:
        print("no GPU is attached; --cpu tries the script with tiny models")
        return 1
    folder = asked.out / re.sub(r"[^a-z0-9]+", "-", ("cpu" if asked.cpu else cards[0]).lower()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * asked.minutes
    for model, fields in JOBS[: asked.only]:
        name = name_of(model, fields)
        if (folder / f"{name}.json").exists():
            continue
        if time.monotonic() > end:
            print("the time is over; run it again for the rest")
            return 0
        with tempfile.TemporaryDirectory() as runs:
            run = start(job_of(model, fields, asked.cpu), Path(runs), device="cpu" if asked.cpu else "cuda", steps=asked.steps)
            found = run.finish()
            if found.state == "failed":
                write_whole(folder / f"{name}.failed.txt", f"{found.problem}\n".encode())
                print(line_of(name, found, None), flush=True)
                continue
        write_measurement(folder / f"{name}.json", found)
        print(line_of(name, found, None), flush=True)
    for path in sorted(folder.glob("*.json")) if not asked.cpu else ():  # after the pilots, whose time is dear
        found = Measurement.model_validate_json(path.read_bytes())
        try:
            print(line_of(path.stem, found, asyncio.run(dry_run_in_process(Job(**found.job), card_of(found)))), flush=True)
        except PlannerError as error:
            print(f"{path.stem}: no dry run ({error})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
