"""Exports of every target: written whole or not at all, no secret in them, each checked against the target's own schema."""

import dataclasses
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from export_fields import misfits

from planner.architecture import Architecture
from planner.catalogues import load_offers
from planner.cli import planner
from planner.credentials import secret_in
from planner.errors import InvalidJob, PlannerError
from planner.export import TARGETS, export, write_export
from planner.export.text import MARK, header, yaml_text
from planner.job import METHODS, Job
from planner.optimizers import OPTIMIZERS
from planner.planfile import DataVersion, HandOver, PlanFile, write_plan
from planner.sharding import Sharding


def _written(folder: Path, plan: PlanFile, target: str = "trl") -> dict[str, str]:
    files = export(plan, target)
    write_export(folder, files)
    return files


@pytest.fixture
def plan(llama_3_8b: Architecture) -> PlanFile:
    return PlanFile(title="a plan", job=Job(architecture=llama_3_8b))


@pytest.mark.parametrize("target", TARGETS)
def test_every_file_carries_the_mark_and_is_overwritten_again(target: str, plan: PlanFile, tmp_path: Path) -> None:
    files = _written(tmp_path, plan, target)
    assert all(MARK in content.split("\n\n")[0] for content in files.values())
    assert _written(tmp_path, plan.changed(seed=1), target).keys() == files.keys()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)


def test_a_file_of_another_hand_is_left_and_nothing_else_is_written(plan: PlanFile, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch\n")
    with pytest.raises(PlannerError, match="was not written by an export"):
        _written(tmp_path, plan)
    assert [path.name for path in tmp_path.iterdir()] == ["requirements.txt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(PlannerError, match="cannot be written"):
        _written(tmp_path / "file", plan)


def test_bottlenecks_are_refused(llama_3_8b: Architecture) -> None:
    with pytest.raises(InvalidJob, match="no bottleneck adapters"):
        export(PlanFile(job=Job(architecture=llama_3_8b, method="bottleneck")), "trl")


def test_the_command_writes_or_prints(plan: PlanFile, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_plan(path, plan)
    done = CliRunner().invoke(planner, ["export", str(path), "--to", "trl", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0 and str(tmp_path / "run" / "train.py") in done.output
    printed = CliRunner().invoke(planner, ["export", str(path), "--to", "trl"])
    assert printed.output == (tmp_path / "run" / "train.py").read_text()
    (tmp_path / "run" / "train.py").write_text("mine")
    again = CliRunner().invoke(planner, ["export", str(path), "--to", "trl", "--out", str(tmp_path / "run"), "--language", "tr"])
    assert again.exit_code == 2 and "dışa aktarımla yazılmamış" in again.output
    assert CliRunner().invoke(planner, ["export", "nothing.json", "--to", "trl"]).exit_code == 2


def test_yaml_reads_back_as_what_was_written() -> None:
    values = {
        "a": 1, "b": {"c": [1, "x"], "d": {"e": None, "f": True}}, "text": "one\n two\n\nthree\n", "odd: key": 1e-5, "g": "#'\"\u2028: -",
        "list": [{"path": "p", "more": {"q": [2]}}, {"path": "r"}], "empty": {}, "h": 2.5e-7,
        "i": "one\n\x85two: \u2028", "j": 0.1, "k": "eğitim \U0001f600\x07",
    }  # fmt: skip
    assert yaml.safe_load(yaml_text(values)) == values


def test_a_header_is_comments_only() -> None:
    text = header("A file", "title\nwith\u2028lines\x85", ["a note\nof two"])
    assert all(line.startswith("#") for line in text.splitlines())


SHARDINGS = [
    Sharding("ddp", 4), Sharding("ddp", 16), Sharding("zero1", 8, offload="optimizer"), Sharding("zero2", 8),
    Sharding("zero3", 16, offload="parameters"),
    Sharding("fsdp", 8, divided_base=True), Sharding("fsdp", 8, offload="parameters", fsdp_version=1), Sharding("hybrid", 16), Sharding("tensor", 4),
    Sharding("hybrid", 16, fsdp_version=1),
]  # fmt: skip


@pytest.mark.parametrize("sharding", [None, *SHARDINGS], ids=str)
def test_accelerate_reads_its_file(sharding: Sharding | None, llama_3_8b: Architecture, tmp_path: Path) -> None:
    """By Accelerate's own parser, and each of its sections against the options of `accelerate launch`."""
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import launch_command_parser

    method = "lora" if sharding and sharding.kind == "tensor" else "qlora"
    files = _written(tmp_path, PlanFile(job=Job(architecture=llama_3_8b, method=method), sharding=sharding))
    found = load_config_from_file(str(tmp_path / "accelerate.yaml"))
    assert found.num_processes == (sharding.num_gpus if sharding else 1)
    assert found.num_machines == (sharding.nodes if sharding else 1)
    kind = sharding.kind if sharding else "none"
    expected = {"none": "NO", "zero": "DEEPSPEED", "fsdp": "FSDP", "hybr": "FSDP"}.get(kind[:4], "MULTI_GPU")
    assert found.distributed_type.value == expected
    options = {action.dest for action in launch_command_parser()._actions}
    assert {*found.fsdp_config, *found.deepspeed_config, *found.parallelism_config} <= options
    assert ("deepspeed.json" in files) == kind.startswith("zero")
    if "deepspeed.json" in files:
        zero = json.loads(files["deepspeed.json"])["zero_optimization"]
        assert zero["stage"] == int(kind[-1])
        assert ("offload_param" in zero) == (sharding is not None and sharding.offload == "parameters")
        assert found.mixed_precision is None  # said in deepspeed.json, and Accelerate refuses both


# What other engines name, read from their wheels: see tests/export_fields.py.
KNOWN = json.loads((Path(__file__).parent / "reference" / "export_fields.json").read_text())


def _grid(a: Architecture) -> Iterator[PlanFile]:
    """Plans in which each field of a job has each of its values once, and each sharding three methods."""
    jobs: list[dict[str, Any]] = [{"method": method} for method in METHODS]
    jobs += [{"optimizer": optimizer} for optimizer in OPTIMIZERS]
    jobs += [{"method": "lora", "precision": precision} for precision in ("bf16-mixed", "fp16-mixed", "bf16", "fp16", "fp32")]
    jobs += [{"loss": loss} for loss in ("plain", "fused-ce", "chunked", "liger", "cut-ce")]
    jobs += [{"method": "lora", "quantization": base} for base in ("int8", "gptq", "fp4")]
    jobs += [
        {"gradient_checkpointing": "reentrant"},
        {"attention": "flash", "gradient_checkpointing": "off"},
        {"attention": "eager"},
    ]
    jobs += [
        {
            "packing": False,
            "evaluation": True,
            "save": "merged",
            "stack": "unsloth",
            "keep_outputs": True,
            "kbit_preparation": False,
        }
    ]
    jobs += [
        {
            "target_modules": ("q_proj",),
            "modules_to_save": ("lm_head",),
            "use_rslora": True,
            "lora_dropout": 0.05,
            "lora_alpha": 1.5,
        }
    ]
    yield from (PlanFile(job=Job(architecture=a, **job)) for job in jobs)
    for kind in ("messages", "instruction, input and output", "prompt and completion", "plain text"):
        yield PlanFile(job=Job(architecture=a), data=DataVersion(format=kind), hand_over=HandOver(checkpoints="s3://bucket/x"))
    for sharding in SHARDINGS:
        methods = ("full", "lora") if sharding.kind == "tensor" else ("full", "lora", "qlora")
        yield from (PlanFile(job=Job(architecture=a, method=method), sharding=sharding, learning_rate=1e-5) for method in methods)


def _exported(a: Architecture, target: str) -> Iterator[tuple[PlanFile, dict[str, str], dict[str, Any]]]:
    """Each plan of the grid that the target can express, its files, and what its main file says."""
    for plan in _grid(a):
        try:
            files = export(plan, target)
        except InvalidJob:
            assert plan.job.method not in ("full", "lora", "qlora") or (plan.sharding and plan.sharding.kind == "tensor")
            continue
        assert not any(map(secret_in, files.values()))
        main = next(iter(files.values()))
        yield plan, files, yaml.safe_load(main) if target != "trl" else {}


def test_axolotl_knows_every_field(llama_3_8b: Architecture) -> None:
    classes = KNOWN["axolotl"]["fields"]
    fields = classes["AxolotlInputConfig"] | classes["CutCrossEntropyArgs"] | classes["LigerArgs"]
    count = 0
    for plan, _, values in _exported(llama_3_8b, "axolotl"):
        assert misfits(values, fields, classes) == []
        assert (
            (values.get("adapter") == "qlora") == values.get("load_in_4bit", False) == (plan.job.quantization in ("nf4", "fp4"))
        )
        assert len(values.get("unfrozen_parameters", ())) == (plan.job.trainable_layers if plan.job.method == "freeze" else 0)
        assert values["learning_rate"] == plan.learning_rate
        count += 1
    assert count > 50


def test_llama_factory_knows_every_field(llama_3_8b: Architecture) -> None:
    """Its own three records, and those of transformers' training arguments."""
    from transformers import Seq2SeqTrainingArguments

    classes = KNOWN["llamafactory"]["fields"]
    own = classes["ModelArguments"] | classes["DataArguments"] | classes["FinetuningArguments"]
    of_transformers = {field.name for field in dataclasses.fields(Seq2SeqTrainingArguments)}
    for plan, files, values in _exported(llama_3_8b, "llama-factory"):
        assert misfits({name: value for name, value in values.items() if name not in of_transformers}, own, {}) == []
        assert values["dataset"] in json.loads(files["dataset_info.json"])
        assert (values.get("quantization_bit") == 4) == (plan.job.quantization in ("nf4", "fp4"))
        assert ("accelerate.yaml" in files) == (plan.sharding is not None and plan.sharding.kind in ("fsdp", "hybrid"))


def test_skypilot_knows_every_field(llama_3_8b: Architecture) -> None:
    fields = KNOWN["skypilot"]["fields"]
    for plan, files, values in _exported(llama_3_8b, "skypilot"):
        assert misfits(values, fields["task"], {}) == []
        assert misfits(values["resources"], fields["resources"], {}) == []
        assert ("flash-attn" in values["setup"]) == (plan.job.attention == "flash")
        for mount in values.get("file_mounts", {}).values():
            assert misfits(mount, fields["storage"], {}) == []
        assert "train.py" in files and "train.py --data rows.jsonl" in values["run"]
        assert values["num_nodes"] == (plan.sharding.nodes if plan.sharding else 1)


def test_skypilot_rents_the_chosen_offer_and_keeps_checkpoints_in_the_bucket(llama_3_8b: Architecture) -> None:
    offer = next(o for o in load_offers() if o.provider_id == "aws" and o.gpu_id == "l4")
    plan = PlanFile(job=Job(architecture=llama_3_8b), gpu="l4", offer=offer.key, hand_over=HandOver(checkpoints="s3://bucket/x"))
    values = yaml.safe_load(export(plan, "skypilot")["skypilot.yaml"])
    assert values["resources"]["infra"] == "aws" and values["resources"]["instance_type"] == offer.instance_type
    assert values["resources"]["accelerators"] == {"L4": 1}
    assert values["file_mounts"]["/checkpoints"]["source"] == "s3://bucket/x" and "out=/checkpoints/" in values["run"]
    text = export(plan.changed(hand_over=HandOver(checkpoints="the shared folder; rm -rf ~")), "skypilot")["skypilot.yaml"]
    assert "rm -rf" not in text and "names no bucket" in text


def test_the_shell_of_the_task_is_sound(llama_3_8b: Architecture) -> None:
    for _, _, values in _exported(llama_3_8b, "skypilot"):
        for script in (values["setup"], values["run"]):
            subprocess.run(["sh", "-n"], input=script, text=True, check=True)


def test_deepspeed_knows_every_field(llama_3_8b: Architecture) -> None:
    """Those that the Trainer fills in stand as `auto`."""
    fields = KNOWN["deepspeed"]["fields"]
    for _, files, _ in _exported(llama_3_8b, "trl"):
        if "deepspeed.json" in files:
            values = json.loads(files["deepspeed.json"])
            assert values.keys() - {"comment"} <= set(fields["keys"])
            zero = {name: value for name, value in values["zero_optimization"].items() if value != "auto"}
            assert misfits(zero, fields["DeepSpeedZeroConfig"], fields) == []


def test_a_misfit_is_seen() -> None:
    fields = {"a": "int | None", "b": "Literal['x', 'y']", "c": "list[Inner]"}
    inner = {"Inner": {"d": "Optional[bool]"}}
    assert misfits({"a": None, "b": "x", "c": [{"d": True}]}, fields, inner) == []
    for wrong in ({"z": 1}, {"a": True}, {"a": "1"}, {"b": "z"}, {"c": {"d": True}}, {"c": [{"d": 1}]}, {"c": [{"e": True}]}):
        assert len(misfits(wrong, fields, inner)) == 1


@pytest.mark.parametrize("target", ["axolotl", "llama-factory"])
def test_a_method_that_a_target_has_not_is_refused(target: str, llama_3_8b: Architecture) -> None:
    with pytest.raises(InvalidJob, match="has no method 'ia3'"):
        export(PlanFile(job=Job(architecture=llama_3_8b, method="ia3")), target)


@pytest.mark.parametrize("target", TARGETS)
def test_no_text_of_a_plan_leaves_its_comment(target: str, llama_3_8b: Architecture) -> None:
    hostile = "x\n\u2028stage: rm\x85run: |\n"
    plan = PlanFile(title=hostile, job=Job(architecture=llama_3_8b.model_copy(update={"name": hostile})))
    for name, content in export(plan, target).items():
        if name.endswith(".yaml"):
            plain = export(plan.changed(title="y", job=Job(architecture=llama_3_8b)), target)[name]
            assert yaml.safe_load(content).keys() == yaml.safe_load(plain).keys()
