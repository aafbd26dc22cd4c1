"""What travels in the wheel, so that `pip install .` anywhere is enough."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.slow
def test_data_and_notebooks_are_inside(names: set[str]) -> None:
    for folder in ("data", "data/samples", "notebooks"):
        for path in (ROOT / folder).glob("*.*"):
            assert f"planner/{folder}/{path.name}" in names


@pytest.mark.slow
def test_the_page_is_inside(names: set[str]) -> None:
    for name in ("chart.js", "file_input.js", "page.js", "style.css", "tokens.css"):
        assert f"planner/workbook/{name}" in names
    template = "share/jupyter/voila/templates/planner/index.html.j2"
    assert f"planner/workbook/{template}" in names, "for a server that this package starts"
    assert any(name.endswith(f".data/data/{template}") for name in names), "for Jupyter itself, as on Binder"


def test_binder_pins_every_direct_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[^\w-]", line)[0].lower() for line in project["dependencies"]}
    lines = (ROOT / "binder" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.lower().split("==") for line in lines if not line.startswith("#"))
    assert pins.keys() == wanted
