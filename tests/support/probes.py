"""Requests to a process's probes."""

from __future__ import annotations

import http.client
import time
from contextlib import suppress

DEADLINE_S = 60.0


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=DEADLINE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def until_ready(port: int) -> None:
    """Wait until a process is ready; nothing need listen yet."""
    deadline_s, answer = time.monotonic() + DEADLINE_S, (0, "nothing listens")
    while answer[0] != http.client.OK:
        assert time.monotonic() < deadline_s, answer[1]
        time.sleep(0.05)
        with suppress(ConnectionRefusedError):
            answer = get(port, "/readyz")
