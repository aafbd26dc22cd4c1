"""How many visitors the app takes, whose place is given away, and what the one too many is told."""

import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tornado.web import Finish

from planner.visitors import at_most


def arrives(count: int, *kernels: tuple[str, str, int, float]) -> tuple[list[str], str]:
    """One more visitor beside (name, state, connections, idle seconds) of others: kernels ended, and the page of refusal."""
    ended: list[str] = []
    sent: list[Any] = []
    models = {
        name: {"execution_state": state, "connections": connections, "last_activity": (datetime.now(UTC) - timedelta(seconds=idle)).isoformat()}
        for name, state, connections, idle in kernels
    }  # fmt: skip

    async def shutdown(name: str, now: bool) -> None:
        assert now
        ended.append(name)

    manager = SimpleNamespace(list_kernel_ids=lambda: list(models), kernel_model=models.get, shutdown_kernel=shutdown)
    handler = SimpleNamespace(kernel_manager=manager, set_status=sent.append, set_header=lambda *_: None)

    async def visit() -> str:
        try:
            at_most(count)(handler, notebook=None, cwd="")
        except Finish as refused:
            return str(refused.args[0])
        await asyncio.sleep(0.01)
        return ""

    text = asyncio.run(visit())
    assert sent == ([503] if text else [])
    return ended, text


def test_while_there_is_room_nobody_leaves() -> None:
    assert arrives(3, ("a", "idle", 0, 9e9), ("b", "idle", 0, 9e9)) == ([], "")


def test_the_longest_closed_page_gives_its_place_away() -> None:
    assert arrives(2, ("a", "idle", 0, 61), ("b", "idle", 0, 90)) == (["b"], "")


@pytest.mark.parametrize(
    ("state", "connections", "idle_s", "stays"),
    [("idle", 0, 30, True), ("idle", 1, 600, True), ("idle", 1, 3700, False), ("busy", 1, 3700, True), ("busy", 0, 3700, True)],
)
def test_whose_place_is_given_away(state: str, connections: int, idle_s: float, stays: bool) -> None:
    ended, text = arrives(1, ("a", state, connections, idle_s))
    assert ended == ([] if stays else ["a"])
    assert bool(text) is stays


def test_the_one_too_many_is_told_in_both_languages() -> None:
    _, text = arrives(1, ("a", "busy", 1, 0))
    assert "as many visitors as it takes" in text
    assert "kadar ziyaretçi" in text
