"""A visitor without a browser: the page's kernel, its websocket, and the widgets that it holds."""

import asyncio
import json
import re
import uuid
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

__all__ = ["channels", "closed", "kernel_of", "next_message", "send", "states"]


def kernel_of(page: str) -> str:
    """The id of the kernel behind a page."""
    found = re.search(r'"kernelId": *"([0-9a-f-]{36})"', page)
    assert found, page[:500]
    return found[1]


async def channels(url: str, kernel: str, cookie: str = "") -> WebSocketClientConnection:
    """The websocket to a kernel."""
    address = f"{url.replace('http', 'ws', 1)}/api/kernels/{kernel}/channels?session_id={uuid.uuid4().hex}"
    return await websocket_connect(HTTPRequest(address, headers={"Cookie": cookie}))


async def closed(talk: WebSocketClientConnection) -> None:
    """Close the websocket and wait until it is."""
    talk.close()
    while await talk.read_message() is not None:
        pass


async def send(talk: WebSocketClientConnection, kind: str, content: dict[str, Any], channel: str = "shell") -> str:
    """Send a message; its id."""
    header = {"msg_id": uuid.uuid4().hex, "msg_type": kind, "session": "test", "username": "", "version": "5.3", "date": ""}
    metadata = {"version": "1.0.0"}  # of the widgets' control channel
    message = {"header": header, "parent_header": {}, "metadata": metadata, "content": content, "channel": channel, "buffers": []}
    await talk.write_message(json.dumps(message))
    return header["msg_id"]


async def next_message(talk: WebSocketClientConnection) -> dict[str, Any]:
    """What comes next, without its binary parts."""
    got = await talk.read_message()
    assert got is not None, "the connection was closed"
    if isinstance(got, bytes):  # parts behind a table of their places; the first is the JSON
        start, end = int.from_bytes(got[4:8], "big"), int.from_bytes(got[8:12], "big")
        got = got[start:end].decode()
    return dict(json.loads(got))


async def states(talk: WebSocketClientConnection) -> dict[str, dict[str, Any]]:
    """The state of each widget of the page, by id: what a browser asks for when it opens."""
    comm = uuid.uuid4().hex
    await send(talk, "comm_open", {"comm_id": comm, "target_name": "jupyter.widget.control", "data": {}})
    await send(talk, "comm_msg", {"comm_id": comm, "data": {"method": "request_states"}})
    while True:
        answer = await asyncio.wait_for(next_message(talk), 60)
        if answer.get("msg_type") == "comm_msg" and answer["content"]["comm_id"] == comm:
            return {key: state["state"] for key, state in answer["content"]["data"]["states"].items()}
