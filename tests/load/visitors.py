"""Many visitors at once, each with a websocket of his own, moving a slider: python tests/load/visitors.py --visitors 40

Starts the app on this machine, lets visitors arrive two a second, and prints how long a move takes until all charts have followed, who was
lost, and the memory before, with all of them, and after their kernels were ended.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from tornado.httpclient import AsyncHTTPClient

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from kernel_talk import channels, closed, kernel_of, next_message, send, states  # noqa: E402
from ports import answers, free_port  # noqa: E402

IDLE_S = 15


class Visit(NamedTuple):
    """One visitor's seconds: until the first page was there, and of each move; `lost` says what went wrong."""

    first_s: float = 0.0
    moves_s: tuple[float, ...] = ()
    lost: str = ""


async def visit(url: str, moves: int) -> Visit:
    """Open the page, move the sequence length up and down, wait each time until all charts have followed."""
    begun = time.monotonic()
    try:
        client = AsyncHTTPClient(force_instance=True)  # a shared one queues beyond ten
        page = (await client.fetch(url, request_timeout=120)).body.decode()
        talk = await channels(url, kernel_of(page))
        widgets = await states(talk)
        first_s = time.monotonic() - begun
        slider = next(key for key, state in widgets.items() if state.get("description") == "Sequence length" and "index" in state)
        charts = {key for key, state in widgets.items() if "spec" in state}
        at, taken = widgets[slider]["index"], []
        for number in range(moves):
            await asyncio.sleep(random.uniform(1, 3))
            moved = time.monotonic()
            sent = await send(
                talk, "comm_msg", {"comm_id": slider, "data": {"method": "update", "state": {"index": at + 1 - number % 2}}}
            )
            await asyncio.wait_for(_answered(talk, sent, charts), 30)
            taken.append(time.monotonic() - moved)
        await closed(talk)
        return Visit(first_s, tuple(taken))
    except Exception as error:  # noqa: BLE001 - whatever it was, this visitor was lost
        return Visit(lost=f"{type(error).__name__}: {error}")


async def _answered(talk: Any, sent: str, charts: set[str]) -> None:
    """Until the kernel has done all that one message asked for, a chart among it."""
    drawn = False
    while True:
        answer = await next_message(talk)
        if answer.get("parent_header", {}).get("msg_id") != sent:
            continue
        content = answer["content"]
        drawn |= answer["msg_type"] == "comm_msg" and content["comm_id"] in charts and "spec" in content["data"].get("state", {})
        if answer["msg_type"] == "status" and content["execution_state"] == "idle":
            assert drawn, "no chart followed"
            return


async def crowd(url: str, visitors: int, per_s: float, moves: int) -> list[Visit]:
    """All visitors; they arrive one after the other."""
    running = []
    for _ in range(visitors):
        running.append(asyncio.create_task(visit(url, moves)))
        await asyncio.sleep(1 / per_s)
    return list(await asyncio.gather(*running))


def memory_mib(server: psutil.Process) -> float:
    """Proportional memory of the server and its kernels."""
    return sum(process.memory_full_info().pss for process in (server, *server.children(recursive=True))) / 2**20


def measured(visitors: int, per_s: float, moves: int) -> dict[str, Any]:
    """The figures of one crowd."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    code = f"from planner.serve import serve_app; serve_app(port={port}, open_browser=False, idle_s={IDLE_S})"
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "JUPYTER_RUNTIME_DIR": home}
        started = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            server = psutil.Process(started.pid)
            assert answers(port, started), "the app did not start"
            asyncio.run(crowd(url, 1, per_s, 1))  # what the server loads once
            _ended(server)
            before = memory_mib(server)
            found = asyncio.run(crowd(url, visitors, per_s, moves))
            full = memory_mib(server)
            _ended(server)
            after = memory_mib(server)
        finally:
            started.terminate()
            started.wait(20)
    kept = [visit for visit in found if not visit.lost]
    taken = sorted(seconds for visit in kept for seconds in visit.moves_s)
    return {
        "visitors": visitors, "lost": [visit.lost for visit in found if visit.lost], "moves": len(taken),
        "first_page_median_s": round(statistics.median(visit.first_s for visit in kept), 2) if kept else None,
        "move_median_ms": round(1000 * statistics.median(taken)) if taken else None,
        "move_p95_ms": round(1000 * taken[int(0.95 * (len(taken) - 1))]) if taken else None,
        "memory_before_mib": round(before), "memory_full_mib": round(full), "memory_after_mib": round(after),
    }  # fmt: skip


def _ended(server: psutil.Process) -> None:
    """Wait until the kernels were ended."""
    for _ in range(10 * IDLE_S):
        if not server.children():
            return
        time.sleep(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visitors", type=int, default=40)
    parser.add_argument("--per-second", type=float, default=2)
    parser.add_argument("--moves", type=int, default=10)
    options = parser.parse_args()
    print(json.dumps(measured(options.visitors, options.per_second, options.moves), indent=2))
