"""Ports of this machine for servers that tests start."""

import socket
import subprocess
import time
from typing import Any

__all__ = ["answers", "free_port"]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int, server: "subprocess.Popen[Any]", *, seconds: float = 60) -> bool:
    """Wait until the server takes connections; False where it ended, or has not come up in time."""
    for _ in range(int(10 * seconds)):
        if server.poll() is not None:
            return False
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return True
        except OSError:
            time.sleep(0.1)
    return False
