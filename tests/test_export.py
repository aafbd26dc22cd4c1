"""Exports of every target: written whole or not at all, no secret in them, each checked against the target's own schema."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from planner.architecture import Architecture
from planner.cli import planner
from planner.errors import InvalidJob, PlannerError
from planner.export import TARGETS, export, write_export
from planner.export.text import MARK, header, yaml_text
from planner.job import Job
from planner.planfile import PlanFile, write_plan
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
