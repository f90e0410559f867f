"""Requests to a process's probes."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
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


def asked(url: str, headers: Mapping[str, str] | None = None, timeout_s: float = 10.0) -> tuple[int, str]:
    """Return status and body of one answer; status 0 where there is none."""
    try:
        request = urllib.request.Request(url, headers=dict(headers or {}))
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)


def until_ready(port: int) -> None:
    """Wait until a process is ready; nothing need listen yet."""
    deadline_s, answer = time.monotonic() + DEADLINE_S, (0, "nothing listens")
    while answer[0] != http.client.OK:
        assert time.monotonic() < deadline_s, answer[1]
        time.sleep(0.05)
        with suppress(ConnectionRefusedError):
            answer = get(port, "/readyz")
