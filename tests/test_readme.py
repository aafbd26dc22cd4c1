"""What README.md tells to type works: each command of its consoles is run, and the exported script trains two real steps."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_model import tiny_model

ROOT = Path(__file__).parents[1]
CONSOLES = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
ELSEWHERE = ("org/model", "./my-model", "--refresh", "pip install")  # a model or a network that a test has not


def _lines(console: str) -> list[str]:
    """Commands, without their prompts, remarks and what they are piped to or followed by."""
    commands = (line.removeprefix("$ ").split("  #")[0] for line in console.splitlines())
    parts = (part.strip() for line in commands for part in line.split(" | ")[0].split(" && "))
    return [part for part in parts if not any(name in part for name in ELSEWHERE)]


def _run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    program = [sys.executable, "-c", "from planner.cli import main; main()"] if words[0] == "planner" else [sys.executable]
    paths = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([*program, *words[1:]], cwd=folder, capture_output=True, text=True, env=paths)


@pytest.mark.slow
@pytest.mark.parametrize("command", _lines(CONSOLES[0]))
def test_a_command_answers(command: str, tmp_path: Path) -> None:
    done = _run(command, tmp_path)
    assert done.returncode in (0, 1) and done.stdout, done.stderr


@pytest.mark.slow
def test_from_plan_to_run(tmp_path: Path) -> None:
    """The second console in its order, with a tiny model in the place of one that is downloaded."""
    (tmp_path / "data").symlink_to(ROOT / "data")
    tiny = tiny_model(tmp_path / "tiny")
    outputs = {}
    for command in _lines(CONSOLES[1]):
        trains = command.startswith("python ")
        done = _run(f"{command} --model {tiny}" if trains else command, tmp_path)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        outputs[" ".join(command.split()[:3])] = done.stdout
    trained = outputs["python run/train.py --data"]
    assert len(re.findall(r"'loss': '?[\d.]+", trained)) == 2
    record = json.loads((tmp_path / "record.json").read_text())
    assert len(record["losses"]) == 2 and record["environment"]["trl"] and record["tokenizer"]["sha256"]
    assert (tmp_path / "report.html").stat().st_size > 10_000
