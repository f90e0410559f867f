"""Requests to a process's probes."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

DEADLINE_S = 60.0


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    return asked(f"http://{host}:{port}{path}", timeout_s=DEADLINE_S)


def document(url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the JSON of an answer of 200; an empty one for any other, or none."""
    code, body = asked(url, headers)
    return dict(json.loads(body)) if code == 200 else {}


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
