"""What .deploy/ holds: nginx runs it in front of two apps; the compose file names what exists."""

import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from kernel_talk import channels, closed, kernel_of, states
from ports import answers, free_port
from test_published import serve

__all__ = ["serve"]
DEPLOY = Path(__file__).parents[1] / ".deploy"


def test_the_compose_file_and_the_proxy_name_the_same_apps_and_files() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services, proxy = compose["services"], compose["services"]["proxy"]
    config = (DEPLOY / "nginx.conf").read_text()
    apps = set(re.findall(r"server ([\w-]+):8866;", config))
    assert apps == services.keys() - {"proxy"} == set(proxy["depends_on"])
    assert proxy["ports"] == [f"127.0.0.1:8080:{re.findall(r'listen ([0-9]+);', config)[0]}"]
    source = proxy["volumes"][0].split(":")[0]
    assert (DEPLOY / source).is_file()
    for name in apps:
        assert (DEPLOY / services[name]["build"]["context"] / services[name]["build"]["dockerfile"]).is_file()


@pytest.mark.slow
def test_the_proxy_compresses_and_brings_each_visitor_to_his_own_kernel(serve: Callable[..., str], tmp_path: Path) -> None:
    import asyncio

    if shutil.which("nginx") is None:
        pytest.skip("no nginx on this machine")
    port = free_port()
    config = (DEPLOY / "nginx.conf").read_text().replace("listen 8080", f"listen 127.0.0.1:{port}")
    for name in ("app-1", "app-2"):
        config = config.replace(f"{name}:8866", serve().removeprefix("http://"))
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid; error_log {tmp_path}/log; daemon off;\n{config}")
    proxy = subprocess.Popen(["nginx", "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path)])
    try:
        assert answers(port, proxy, seconds=5)
        url = f"http://127.0.0.1:{port}"
        for _ in range(3):
            with urllib.request.urlopen(url, timeout=60) as answer:
                given = [text.split(";")[0] for text in answer.headers.get_all("Set-Cookie")]
                cookie = next(text for text in given if text.startswith("planner_at="))
                kernel = kernel_of(answer.read().decode())

            async def widgets(kernel: str = kernel, cookie: str = cookie) -> int:
                talk = await channels(url, kernel, cookie)
                found = await states(talk)
                await closed(talk)
                return len(found)

            assert asyncio.run(widgets()) > 100
        script = urllib.request.Request(f"{url}/voila/labextensions/plotly.min.js", headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(script, timeout=60) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            assert len(answer.read()) < 2_000_000  # of 4.8 MB
    finally:
        proxy.terminate()
        proxy.wait(10)
