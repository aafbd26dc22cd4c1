"""What the predictions are held to: steps that another tracer counted, and published runs, each as a job."""

import csv
import json
from pathlib import Path
from typing import Any

from planner.catalogues import find_gpu, find_model
from planner.families import architecture_from_config
from planner.job import Job
from planner.memory import MemoryBreakdown

REFERENCE = Path(__file__).parent / "reference"
STEPS = json.loads((REFERENCE / "fake_tensor_steps.json").read_text())["steps"]
PRECISIONS = {"bf16_true": "bf16", "bf16_mixed": "bf16-mixed", "fp16_mixed": "fp16-mixed", "fp16_true": "fp16"}
_SHAPES = {"deepseek-ai/deepseek-coder-1.3b-instruct": (2048, 5504, 24, 16, 32_256)}


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


def published_rows(source: str = "", file: str = "published_runs.csv") -> list[dict[str, str]]:
    """Published runs, those whose source holds a text."""
    with (REFERENCE / file).open(encoding="utf-8") as table:
        return [row for row in csv.DictReader(table) if source in row["source"]]


def published_job(row: dict[str, str]) -> tuple[Job, Any]:
    """The job of a published run. The fitcheck loop holds the model's output and uses no autocast; its T4 has sm_75."""
    fitcheck = "fitcheck" in row["source"]
    if row["model"] in _SHAPES:
        D, F, L, H, V = _SHAPES[row["model"]]
        config = {"hidden_size": D, "intermediate_size": F, "num_hidden_layers": L, "num_attention_heads": H, "vocab_size": V}
        model = architecture_from_config({"model_type": "llama", "max_position_embeddings": 16384, **config})
    else:
        model = find_model(row["model"])
    fields: dict[str, Any] = {"method": "full"}
    if row["method"] == "lora":
        names = ("q_proj", "k_proj", "v_proj", "o_proj")
        fields = {
            "method": "lora",
            "quantization": row["base_quantization"] or "none",
            "target_modules": names,
            "lora_rank": int(row["lora_rank"]),
        }
    job = Job(
        architecture=model,
        **fields,
        precision="fp16" if fitcheck else PRECISIONS[row["precision"]],
        sequence_length=int(row["sequence_length"]),
        micro_batch_size=int(row["micro_batch_size"]),
        attention={"flash2": "flash"}.get(row["attention"], row["attention"]),
        loss=row["loss_kernel"],
        keep_outputs=fitcheck,
        kbit_preparation="no fp32 upcast" not in row["notes"] and "without the fp32 cast" not in row["notes"],
        double_quant="no double quant" not in row["notes"],
        experts_as_linears=bool(model.num_experts),
    )
    return job, find_gpu("t4" if fitcheck else "a100-sxm4-80")
