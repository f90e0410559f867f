"""The cascade between two scripted model servers, over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from schemas.calibration import CalibrationVersion
from schemas.costs import ModelCosts
from schemas.draws import uniform
from schemas.routed import QueryEvent, RoutedEvent
from schemas.settings import Settings
from schemas.trial import CalibrationTrial
from stream_router.cascade.answerer import CascadeAnswerer
from tests.support.model_clients import CallCounts, workload
from tests.support.scripted_model_server import Fault, ScriptedModelServer
from tests.support.versions import sealed_version
from ucci_runtime.process import SystemClock

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
PLAIN = next(f"q-{n}" for n in range(500) if uniform(f"q-{n}", "photo") > 0.5)


def version(uncertainty_threshold: float, costs: ModelCosts | None = None) -> CalibrationVersion:
    return sealed_version(version=7, created_at=NOW, uncertainty_threshold=uncertainty_threshold, costs=costs)


class InForce:
    """One version for every workload; may be swapped."""

    def __init__(self, in_force: CalibrationVersion | None) -> None:
        self.now = in_force

    def in_force(self, workload: str) -> CalibrationVersion | None:
        return self.now

    def trial(self, workload: str) -> CalibrationTrial | None:
        return None


KEEPS, ESCALATES, COLD = InForce(version(1.0)), InForce(version(-1.0)), InForce(None)


class Bench:
    def __init__(
        self, small: ScriptedModelServer, large: ScriptedModelServer, answerer: CascadeAnswerer, counts: CallCounts
    ) -> None:
        self.small = small
        self.large = large
        self.answerer = answerer
        self.counts = counts

    @property
    def outages(self) -> set[str]:
        return {role for role, server in self.answerer.health()["photo"].items() if server.state != "up"}

    def play(self, fault: Fault) -> None:
        for server in (self.small, self.large):
            server.play(fault)

    async def answer(self, text: str = "canon", headers: Mapping[str, str] | None = None) -> RoutedEvent:
        return await self.answerer.answer(QueryEvent(query_id=PLAIN, text=text), "photo", headers)


@asynccontextmanager
async def bench(
    calibrations: InForce = COLD,
    large_outage: str = "serve_small",
    *,
    deadline_s: float | None = None,
    draw_key: str | None = None,
    waits: bool = True,
    **changes: Any,
) -> AsyncIterator[Bench]:
    """Two servers that forget abandoned calls, as vLLM does, and an answerer that asks them."""
    async with (
        ScriptedModelServer("small", drops_abandoned=True) as small,
        ScriptedModelServer("large", drops_abandoned=True) as large,
    ):
        counts = CallCounts()
        photo = workload(small.base_url, large.base_url, **changes).model_dump()
        router: dict[str, Any] = {"large_outage": large_outage, "draw_key": draw_key}
        router |= {} if deadline_s is None else {"query_deadline_s": deadline_s}
        settings = Settings.model_validate({"router": router, "workloads": {"photo": photo}})
        answerer = CascadeAnswerer(settings, calibrations, SystemClock(), "router-0", counts, waits=waits)
        await answerer.start()
        try:
            yield Bench(small, large, answerer, counts)
        finally:
            await answerer.close()
