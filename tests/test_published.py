"""The app as a stranger meets it over the network: what it refuses, what it sends along, and that bad messages break nothing."""

import asyncio
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from kernel_talk import channels, closed, kernel_of, send, states
from ports import answers, free_port

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Start the app with the options given; its address."""
    home = tmp_path_factory.mktemp("served")
    environment = {**os.environ, **{f"JUPYTER_{name}_DIR": str(home / name) for name in ("CONFIG", "DATA", "RUNTIME")}}
    running = []

    def serve(**options: Any) -> str:
        port = free_port()
        code = f"from planner.serve import serve_app; serve_app(port={port}, open_browser=False, **{options!r})"
        running.append(subprocess.Popen([sys.executable, "-c", code], env=environment, cwd=ROOT, stdout=subprocess.DEVNULL))
        if answers(port, running[-1]):
            return f"http://127.0.0.1:{port}"
        pytest.fail("the app did not start")

    yield serve
    for server in running:
        server.terminate()
    for server in running:
        server.wait(20)


@pytest.fixture(scope="module")
def app(serve: Callable[..., str]) -> str:
    return serve()


def ask(url: str, **options: Any) -> tuple[int, Message, str]:
    """Status, headers and text of an answer; redirects are followed."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, **options), timeout=60) as answer:
            return answer.status, answer.headers, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode(errors="replace")


# ---- what it refuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/api/contents", "/api/contents/workbook.ipynb", "/api/kernels", "/api/kernelspecs", "/api/sessions", "/api/terminals",
        "/api/status", "/api/nbconvert", "/files/workbook.ipynb", "/voila/files/workbook.ipynb", "/voila/files/../planner/cli.py",
        "/voila/files/%2e%2e/pyproject.toml", "/voila/render/workbook.ipynb", "/lab", "/tree", "/terminals/1", "/voila/static/../../app.py",
        "/voila/labextensions/../../../etc/passwd",
    ],
)  # fmt: skip
def test_there_is_nothing_but_the_page(app: str, path: str) -> None:
    status, _, text = ask(app + path)
    assert status in (400, 403, 404, 405)
    assert "def " not in text
    assert "Traceback" not in text


@pytest.mark.parametrize("path", ["/api/kernels", "/api/sessions", "/api/contents", "/api/terminals"])
def test_nothing_can_be_started_or_written(app: str, path: str) -> None:
    assert ask(app + path, data=b'{"name": "python3", "type": "file"}', method="POST")[0] in (403, 404, 405)


def test_the_page_shows_no_source_and_takes_no_other_template(app: str) -> None:
    status, headers, page = ask(f"{app}/?template=lab&theme=dark&voila-template=lab")
    assert status == 200
    assert "import planner" not in page
    assert "from planner" not in page
    assert 'id="planner-loading"' in page  # still our template
    policy = headers["Content-Security-Policy"]
    assert {"default-src 'self'", "object-src 'none'", "frame-ancestors 'self'", "form-action 'self'"} <= set(policy.split("; "))
    assert "http" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"


def test_only_this_machine_is_listened_on_unless_asked(app: str) -> None:
    port = int(app.rsplit(":", 1)[1])
    own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1", "127.0.1.1"}
    if not own:
        pytest.skip("this machine has no other address")
    with pytest.raises(OSError, match=r"refused|timed out"):
        socket.create_connection((str(own.pop()), port), 2)


def test_a_token_is_asked_for_everywhere(serve: Callable[..., str]) -> None:
    url = serve(token="a-word")
    for path in ("/", "/?token=another"):
        _, _, text = ask(url + path)
        assert "kernelId" not in text
        assert 'type="password"' in text
    page = ask(f"{url}/?token=a-word")[2]
    with pytest.raises(Exception, match="403"):
        asyncio.run(channels(url, kernel_of(page)))


def test_one_visitor_more_than_allowed_is_told_so(serve: Callable[..., str]) -> None:
    url = serve(most_visitors=2)
    assert [ask(url)[0] for _ in range(2)] == [200, 200]
    status, headers, text = ask(url)
    assert status == 503
    assert headers["Retry-After"] == "30"
    assert "2" in text
    assert 'lang="tr"' in text
    assert "kernelId" not in text


# ---- messages ----------------------------------------------------------------------------------------------------------


def test_code_sent_to_the_kernel_is_not_run(app: str, tmp_path: Path) -> None:
    proof = tmp_path / "proof"

    async def attack() -> None:
        talk = await channels(app, kernel_of(ask(app)[2]))
        code = f"open({str(proof)!r}, 'w')"
        for channel in ("shell", "control"):
            await send(talk, "execute_request", {"code": code, "silent": False}, channel)
            await send(talk, "debug_request", {"command": "evaluate", "arguments": {"expression": code}}, channel)
        model = {"_model_module": "@jupyter-widgets/controls", "_model_name": "IntSliderModel"}
        await send(talk, "comm_open", {"comm_id": "x", "target_name": "jupyter.widget", "data": {"state": model}})
        assert await states(talk)  # the kernel answers later messages, so it has seen those before
        await closed(talk)

    asyncio.run(attack())
    assert not proof.exists()


def test_no_message_breaks_the_page(app: str) -> None:
    """Nonsense for every input, then the page must still answer a plain move. tests/test_workbook.py tries many more values."""

    async def attack() -> None:
        talk = await channels(app, kernel_of(ask(app)[2]))
        before = await states(talk)
        inputs = {comm: state for comm, state in before.items() if {"value", "index"} & state.keys()}
        assert len(inputs) > 40
        for comm, state in inputs.items():
            name = "value" if "value" in state else "index"
            for data in (
                {"method": "update", "state": {name: "x" * 2_000, "nothing": 1}, "buffer_paths": []},
                {"method": "update", "state": {name: {"a": [10**30]}}, "buffer_paths": [["no", "such"]]},
                {"method": "custom", "content": "x"}, {"method": "update", "state": []}, {}, None, "x",
            ):  # fmt: skip
                await send(talk, "comm_msg", {"comm_id": comm, "data": data})
        model, good = next(
            (comm, state["value"]) for comm, state in inputs.items() if state.get("value") == "meta-llama/Llama-3.1-8B"
        )
        update = {"method": "update", "state": {"value": good}, "buffer_paths": []}
        await send(talk, "comm_msg", {"comm_id": model, "data": update})
        after = await states(talk)
        await closed(talk)
        assert after.keys() >= inputs.keys()
        assert after[model]["value"] == good

    asyncio.run(attack())
