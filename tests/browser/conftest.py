"""Chromium, a Voila server, a JupyterLab server, and a page that must not leave this machine."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page
from ports import answers, free_port

ROOT = Path(__file__).parents[2]
QUIET = "disable-gpu disable-quic no-first-run disable-background-networking disable-component-update disable-sync"
TOY = """
import ipywidgets
from planner.workbook.chart import Chart, Page

def spec(count):
    bars = [{"type": "bar", "x": ["a", "b"], "y": [count, 2 * count], "marker": {"color": "var(--planner-weights)"}}]
    bars.append({"type": "scatter", "x": ["a", "b"], "y": [count, count]})
    return {"data": bars, "layout": {"title": {"text": f"count {count}"}}}

slider = ipywidgets.IntSlider(value=3, min=1, max=99, description="Count")
charts = [Chart(spec(3), alt="a toy", height=220) for _ in range(2)]
slider.observe(lambda change: [setattr(chart, "spec", spec(change["new"])) for chart in charts], "value")
app = ipywidgets.VBox([Page(language="tr", title="Toy"), slider, *charts])
app.add_class("planner-app")
app
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None and os.environ.get("CI"):
        pytest.fail("CI needs a Chromium: apt-get install chromium")
    if path is None:
        pytest.skip("no Chromium or Chrome on this machine")
    sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return {**browser_type_launch_args, "executable_path": path, "args": [*sandbox, *(f"--{flag}" for flag in QUIET.split())]}


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args: dict[str, Any]) -> dict[str, Any]:
    return {**browser_context_args, "viewport": {"width": 1440, "height": 900}}


@pytest.fixture(scope="session")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the product's notebooks and the toy."""
    folder = tmp_path_factory.mktemp("notebooks")
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        shutil.copyfile(path, folder / path.name)
    kernel = {"name": "python3", "language": "python", "display_name": "Python 3"}
    metadata = {"kernelspec": kernel, "title": "Toy", "voila": {"template": "planner"}}
    cell = {"cell_type": "code", "id": "toy", "source": TOY, "metadata": {}, "outputs": [], "execution_count": None}
    notebook = {"cells": [cell], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    (folder / "toy.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Start `python ARGUMENTS`, with {port} filled in, and wait until it answers; the URL. All end with the session."""
    running: list[subprocess.Popen[bytes]] = []
    home = tmp_path_factory.mktemp("jupyter")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JUPYTER_PATH": str(ROOT / "planner" / "workbook" / "share" / "jupyter"),
        **{f"JUPYTER_{name}_DIR": str(home / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")},
    }

    def start(*arguments: str) -> str:
        port = free_port()
        log = home / f"{port}.log"
        with log.open("wb") as output:
            command = [sys.executable, *(argument.replace("{port}", str(port)) for argument in arguments)]
            server = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT, cwd=home)
        running.append(server)
        if answers(port, server):
            return f"http://127.0.0.1:{port}"
        pytest.fail(f"the server did not start: {log.read_text()}")

    yield start
    for server in running:
        server.terminate()
    for server in running:
        server.wait(20)


def _served(notebook: Path) -> tuple[str, str]:
    code = "from pathlib import Path; from planner.serve import serve_app; "
    return "-c", code + f"serve_app(port={{port}}, open_browser=False, notebook=Path({str(notebook)!r}))"


@pytest.fixture(scope="session")
def voila_url(start: Callable[..., str], notebooks: Path) -> str:
    """The workbook as `planner app` serves it."""
    return start(*_served(notebooks / "workbook.ipynb"))


@pytest.fixture(scope="session")
def toy_url(start: Callable[..., str], notebooks: Path) -> str:
    """The toy notebook, served as the workbook is."""
    return start(*_served(notebooks / "toy.ipynb"))


@pytest.fixture(scope="session")
def lab_url(start: Callable[..., str], notebooks: Path) -> str:
    """JupyterLab on the notebooks, with Voila as its server extension (as on Binder)."""
    options = {
        "ServerApp.port": "{port}",
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.root_dir": notebooks,
        "ServerApp.open_browser": False,
        "ServerApp.allow_root": True,
        "IdentityProvider.token": "",
        "LabApp.expose_app_in_browser": True,
        "LabApp.news_url": "",
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
    }
    url = start("-m", "jupyterlab", *(f"--{name}={value}" for name, value in options.items()))
    with urlopen(f"{url}/api/status") as answer:
        assert answer.status == 200
    return url


@pytest.fixture
def offline(page: Page) -> Iterator[Page]:
    """A page that fails the test when it asks another host for something, or when a script fails."""
    outside: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: None if _inside(request.url) else outside.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    assert not outside
    assert not errors


def _inside(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "about:"))
