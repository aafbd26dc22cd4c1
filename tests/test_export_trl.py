"""The exported TRL script really trains: two steps of a tiny model on this machine's processor, by one process or two, and on from
its last checkpoint."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_model import tiny_model, tiny_rows

from planner.architecture import Architecture
from planner.export import export, write_export
from planner.job import Job
from planner.planfile import PlanFile
from planner.sharding import Sharding
from planner.storage import StoragePolicy

POLICY = StoragePolicy(loader_workers=0, checkpoint_steps=1)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def _script(plan: PlanFile) -> str:
    return export(plan, "trl")["train.py"]


def _run(folder: Path, *arguments: object, ranks: int = 1) -> subprocess.CompletedProcess[str]:
    launcher = [] if ranks == 1 else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [sys.executable, *launcher, "train.py", *map(str, arguments)], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def _losses(folder: Path) -> list[float]:
    state = json.loads((folder / "out" / "trainer_state.json").read_text())
    return [row["loss"] for row in state["log_history"] if "loss" in row]


JOBS: dict[str, dict[str, Any]] = {
    "full": {"method": "full", "optimizer": "adamw-fused"},
    "lora": {"method": "lora", "save": "merged", "packing": False, "evaluation": True, "eval_micro_batch_size": 1},
    "qlora": {"method": "qlora", "optimizer": "paged-adamw-8bit", "stack": "trl"},
}


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_two_steps_really_run(job: dict[str, Any], llama_3_8b: Architecture, tiny: Path, tmp_path: Path) -> None:
    ranks = 2 if job["method"] == "full" else 1
    sharding = Sharding("ddp", ranks) if ranks > 1 else None
    plan = PlanFile(job=Job(architecture=llama_3_8b, sequence_length=64, **job), policy=POLICY, sharding=sharding)
    write_export(tmp_path, export(plan, "trl"))
    data = tiny_rows(tmp_path / "rows.jsonl")
    out = _run(tmp_path, "--model", tiny, "--data", data, "--max-steps", 2, ranks=ranks).stdout
    assert "float32 instead of bfloat16" in out
    assert len(re.findall(r"'loss': '?[\d.]+", out)) == 2
    assert all(4 < loss < 7 for loss in _losses(tmp_path))  # ln(320) = 5.8 of a model that knows nothing
    left = {path.name for path in (tmp_path / "out" / "final").iterdir()}
    assert ("model" if job["method"] == "full" else "adapter_model") + ".safetensors" in left
    assert (tmp_path / "out" / "merged" / "model.safetensors").is_file() == (job.get("save") == "merged")
    assert ("eval_loss" in out) == job.get("evaluation", False)
    if job["method"] == "qlora":
        assert "paged_adamw_8bit needs CUDA" in out
        (tmp_path / "out" / "checkpoint-9").mkdir()  # of a run that was interrupted while it wrote
        out = _run(tmp_path, "--model", tiny, "--data", data, "--max-steps", 3).stdout
        assert "going on from out/checkpoint-2" in out
        assert len(re.findall(r"'loss': ", out)) == 1 and len(_losses(tmp_path)) == 3


@pytest.mark.slow
def test_other_rows_train_too(llama_3_8b: Architecture, tiny: Path, tmp_path: Path) -> None:
    """Messages of a chat without a chat template, and questions with answers, through the script's own reader."""
    write_export(tmp_path, export(PlanFile(job=Job(architecture=llama_3_8b)), "trl"))
    chats = [{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}, {"conversations": []}]
    (tmp_path / "chats.jsonl").write_text("\n".join(map(json.dumps, chats)))
    (tmp_path / "pairs.csv").write_text("instruction,input,output\nAdd,1 and 2,3\n")
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    code = "import train\nprint(list(train.rows_of('chats.jsonl')))\nprint(list(train.rows_of('pairs.csv')))\ntrain.rows_of('other.jsonl')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "[{'messages': [{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Hello'}]}]" in done.stdout
    assert "[{'prompt': 'Add\\n1 and 2\\n', 'completion': '3'}]" in done.stdout
    assert done.returncode == 1 and "has the columns a; give messages" in done.stderr


def test_the_script_says_what_is_planned(llama_3_8b: Architecture) -> None:
    job = Job(
        architecture=llama_3_8b, lora_rank=8, sequence_length=1024, gradient_accumulation_steps=4, target_modules=("q_proj", "v_proj"),
        optimizer="lion-8bit", gradient_checkpointing="reentrant", attention="flash",
    )  # fmt: skip
    files = export(PlanFile(job=job, learning_rate=1e-5, seed=7, policy=StoragePolicy(checkpoint_steps=50)), "trl")
    for line in (
        "r=8,", 'target_modules=["q_proj", "v_proj"],', 'bnb_4bit_quant_type="nf4",', "max_length=1024,", "gradient_accumulation_steps=4,",
        "learning_rate=1e-05,", "seed=7,", "save_steps=50,", 'OPTIMIZER = "lion_8bit"', '{"use_reentrant": True}', "parameter.data.to(torch.float32)",
        '"flash_attention_2" if CUDA else "sdpa"', "bf16=CUDA,",
    ):  # fmt: skip
        assert line in files["train.py"], line
    assert "bitsandbytes==" in files["requirements.txt"] and "flash-attn" in files["requirements.txt"]


def test_what_trl_does_otherwise_stands_in_the_header(llama_3_8b: Architecture) -> None:
    job = Job(
        architecture=llama_3_8b, stack="unsloth", keep_outputs=True, loss="liger", optimizer_in_backward=True, transformers="4.46"
    )
    head = _script(PlanFile(job=job)).split('"""')[0]
    for word in ("Unsloth", "keep_outputs", "liger", "optimizer_in_backward", "4.46", "16 rows per optimizer step"):
        assert word in head
    assert all(line.startswith("#") for line in head.splitlines())


HOSTILE = 'x\U0001f600"""\nimport os  # \u2028 @SAVE@ \x85 \\"""'


@pytest.mark.parametrize("method", ["full", "freeze", "lora", "qlora", "dora", "ia3", "prefix", "prompt", "p-tuning"])
@pytest.mark.parametrize("sharding", [None, Sharding("fsdp", 8), Sharding("zero3", 16), Sharding("ddp", 2)], ids=str)
def test_every_script_compiles_and_no_text_of_a_plan_becomes_code(method: Any, sharding: Any, llama_3_8b: Architecture) -> None:
    named = llama_3_8b.model_copy(update={"name": HOSTILE})
    text = _script(PlanFile(title=HOSTILE, job=Job(architecture=named, method=method), sharding=sharding))
    assert (
        next(n.value.value for n in ast.parse(text).body if isinstance(n, ast.Assign) and n.targets[0].id == "MODEL") == HOSTILE
    )
    assert "import os  #" not in [line[:12] for line in text.splitlines()] and HOSTILE not in text
    plain = _script(PlanFile(job=Job(architecture=llama_3_8b, method=method), sharding=sharding))
    assert len(text.splitlines()) == len(plain.splitlines())


def test_scripts_are_clean(llama_3_8b: Architecture, tmp_path: Path) -> None:
    for number, job in enumerate(
        ({"method": "full", "loss": "chunked"}, {"method": "qlora", "save": "merged"}, {"method": "freeze"})
    ):
        (tmp_path / f"{number}.py").write_text(_script(PlanFile(job=Job(architecture=llama_3_8b, **job))))
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "E9,F", str(tmp_path)]
    done = subprocess.run(ruff, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
