"""Who may import whom, and that `import planner` costs a visitor little."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "planner"
HEAVY = {
    "torch",
    "transformers",
    "peft",
    "bitsandbytes",
    "plotly",
    "ipywidgets",
    "anywidget",
    "pandas",
    "numpy",
    "huggingface_hub",
    "gpuhunt",
    "pyarrow",
    "tokenizers",
}

# A module may import from lower layers only; in one layer, from the modules that are named beside it.
LAYERS: list[dict[str, set[str]]] = [
    {
        "turkish": set(),
        "texts": {"turkish"},
        "errors": {"texts"},
        "units": set(),
        "files": {"errors"},
        "credentials": {"errors"},
    },
    {
        "assumption": set(),
        "precision": set(),
        "stacks": set(),
        "blocks": set(),
        "architecture": {"blocks"},
        "families": {"architecture"},
        "adapters": {"architecture", "blocks"},
        "optimizers": set(),
        "hardware": set(),
        "job": {"adapters", "architecture", "blocks", "optimizers", "precision", "stacks"},
        "sharding": {"job"},
        "workload": {"architecture", "job"},
    },
    {
        "memory": set(),
        "spot": set(),
        "cost": set(),
        "delivery": set(),
        "storage": {"memory"},
        "host_memory": {"memory", "storage"},
    },
    {"roofline": set(), "work": set(), "interconnect": {"roofline"}, "compute": {"interconnect", "roofline", "work"}},
    {
        "catalogues": set(),
        "hub": {"catalogues"},
        "prices": {"catalogues"},
        "dataset": {"catalogues", "hub"},
        "plan": set(),
        "remedies": {"plan"},
        "nodes": {"plan"},
        "placement": {"plan", "nodes"},
        "ranking": {"plan", "placement"},
    },
    {"dryrun": set(), "pilot": {"dryrun"}},
    {"validation": set(), "planfile": set()},
    {"permalink": set(), "five_steps": set(), "care": set(), "record": set(), "guide": set()},
    {
        "sentences": set(),
        "figures": {"sentences"},
        "tables": {"sentences", "figures"},
        "comparison": {"sentences", "figures", "tables"},
        "offer_views": {"sentences", "figures", "tables"},
        "run_sentences": {"sentences", "offer_views"},
        "guide_sentences": {"sentences", "offer_views"},
        "pilot_views": {"sentences", "figures", "tables"},
        "validation_views": {"figures", "tables"},
        "dataset_views": {"figures", "tables"},
        "timeline": {"figures", "plotly_js"},
        "plotly_js": set(),
        "export": set(),
        "plan_views": {"sentences", "tables"},
        "record_views": {"plan_views", "sentences", "tables"},
    },
    {"report": set(), "report_page": {"report"}},
    {
        "job_options": set(),
        "dataset_command": {"job_options"},
        "dryrun_command": {"job_options"},
        "export_command": {"job_options"},
        "offers_command": {"job_options"},
        "pilot_command": {"job_options"},
        "record_command": {"job_options"},
        "report_command": {"job_options"},
        "validate_command": {"job_options"},
    },
    {"visitors": set(), "serve": {"visitors"}, "workbook": set(), "cli": {"serve"}},
]
LAYER_OF = {module: number for number, layer in enumerate(LAYERS) for module in layer}


def _imports(path: Path) -> set[str]:
    """The planner modules that a file imports, by their first name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "planner":
            found |= {alias.name for alias in node.names}
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {name.split(".")[1] for name in names if name.startswith("planner.")}
    return found


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    module = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert module in LAYER_OF, "a new module needs its place in the table above"
    layer = LAYER_OF[module]
    allowed = {name for lower in LAYERS[:layer] for name in lower} | {module} | LAYERS[layer][module]
    assert _imports(path) <= allowed


def _loaded_by(statement: str) -> set[str]:
    # Any network call would go through socket.connect or getaddrinfo; neither may happen.
    code = (
        "import json, socket, sys\n"
        "def no(*_, **__): raise AssertionError('the network was touched')\n"
        "socket.socket.connect = socket.getaddrinfo = socket.create_connection = no\n"
        f"{statement}\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    return set(json.loads(done.stdout))


def test_import_planner_is_light() -> None:
    assert not _loaded_by("import planner") & HEAVY


def test_the_command_line_is_light() -> None:
    assert not _loaded_by("import planner.cli") & (HEAVY - {"numpy"})


def test_a_visitors_kernel_loads_no_plotly_and_no_pandas() -> None:
    loaded = _loaded_by("from planner.workbook import Workbook\nWorkbook()")
    assert not loaded & {"torch", "transformers", "plotly", "pandas", "huggingface_hub"}


def test_offers_are_read_without_gpuhunt_and_without_a_network() -> None:
    assert not _loaded_by("from planner.prices import current_offers\ncurrent_offers()") & (HEAVY | {"requests"})
