"""Notebooks are sentences, not programs: short cells, a word before each, no stored output; and they run."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
PROGRAM = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Try, ast.While, ast.Lambda)

pytestmark = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_is_thin(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    kinds = [cell["cell_type"] for cell in cells]
    if kinds == ["code"]:  # the app alone: in Voila a word above it would stand on the page
        kinds.insert(0, "markdown")
    assert kinds[0] == "markdown"
    for before, cell in zip(kinds if len(kinds) > len(cells) else [None, *kinds], cells, strict=False):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        assert before == "markdown", f"say first what this asks: {source}"
        assert len(source.splitlines()) <= 12, source
        assert not [node for node in ast.walk(ast.parse(source)) if isinstance(node, PROGRAM)], source


def test_stores_nothing(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert "widgets" not in notebook["metadata"]
    assert notebook["metadata"]["title"]
    assert notebook["metadata"]["voila"] == {"template": "planner"}
    for cell in notebook["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.slow
def test_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat  # seconds
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(path.parents[1]))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("application/vnd.jupyter.widget-view+json" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.output_type == "stream"]
