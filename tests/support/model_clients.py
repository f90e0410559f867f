"""Clients of scripted model servers: endpoints, requests, what was counted, and waiting for what has no event."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from schemas.settings import WorkloadSettings
from schemas.settings_workload import ModelEndpoint
from stream_router.model_client.http_client import ModelClient
from stream_router.model_client.request import ModelRequest, build_request
from tests.support.scripted_model_server import FIELDS
from ucci_runtime.process import SystemClock

#: Where nobody listens: connections are refused at once.
NOBODY = "http://127.0.0.1:9/v1"


class CallCounts:
    """Keeps what a client counts of its calls and of its server's health."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.health: list[str] = []

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        assert amount >= 0.0
        if "outcome" in labels:
            self.outcomes[labels["outcome"]] += 1

    def gauge(self, name: str, value: float, **labels: str) -> None:
        assert name == "model_up"
        self.health.append("up" if value else "down")


def workload(small: str = NOBODY, large: str = NOBODY, **changes: Any) -> WorkloadSettings:
    """Return a workload whose servers are at these base URLs; ``small_*`` and ``large_*`` change an endpoint."""
    tables: dict[str, dict[str, Any]] = {
        "small": {"base_url": small, "model": "small", "timeout_s": 5.0},
        "large": {"base_url": large, "model": "large", "timeout_s": 5.0},
    }
    for key in [key for key in changes if key.startswith(("small_", "large_"))]:
        role, _, name = key.partition("_")
        tables[role][name] = changes.pop(key)
    table = {"name": "photo", "prompt": "Query: {text}", "fields": list(FIELDS), "target": {"micro_f1": 0.9}}
    return WorkloadSettings.model_validate(table | tables | changes)


def endpoint(settings: WorkloadSettings) -> ModelEndpoint:
    assert settings.small is not None
    return settings.small


def request(settings: WorkloadSettings, text: str = "iso 100") -> ModelRequest:
    return build_request(settings, endpoint(settings), text)


def client(settings: WorkloadSettings, counts: CallCounts | None = None) -> ModelClient:
    """A client of the small model's server."""
    return ModelClient(settings, "small", endpoint(settings), clock=SystemClock(), metrics=counts)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what has no event to await; the test's time-out is the deadline."""
    while not condition():  # noqa: ASYNC110 the condition is another connection's state
        await asyncio.sleep(0.002)


def draw_no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """Let retries follow at once; return the list that will hold the bounds each pause was drawn from."""
    drawn: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        drawn.append((low, high))
        return 0.0

    monkeypatch.setattr(random, "uniform", uniform)
    return drawn
