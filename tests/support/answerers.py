"""Answerers without models: for tests of the path around them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

from schemas.costs import QueryCost
from schemas.routed import Decision, LabelRequest, ModelRole, ModelRun, QueryEvent, RoutedEvent
from schemas.settings import Settings
from schemas.status import ModelHealth
from stream_router.errors import ModelsFailed
from stream_router.ports import Calibrations
from ucci_runtime.clock import Clock

ROUTED_AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def routed(query: QueryEvent, workload: str, routed_by: str = "test") -> RoutedEvent:
    """Return the result of a query that the small model answered with the query's own first words."""
    entities = {"camera": query.text[:100]}
    small = ModelRun(model="small", raw=query.text, entities=entities, valid=True, uncertainty=0.1)
    return RoutedEvent(
        query_id=query.query_id,
        workload=workload,
        text=query.text,
        entities=entities,
        answered_by="small",
        decision=Decision(escalated=False, reason="kept", uncertainty=0.1, large_probability=0.0),
        small=small,
        large=None,
        cost=QueryCost(sequential=1.0, paper=1.0),
        label=LabelRequest(requested=False, probability=0.0),
        routed_at=ROUTED_AT,
        routed_by=routed_by,
        metadata=query.metadata,
    )


class EchoAnswerer:
    """Answers each query with its own text, after whatever ``hold`` waits for with it."""

    def __init__(
        self,
        settings: Settings,
        calibrations: Calibrations,
        clock: Clock,
        hold: Callable[[QueryEvent], Awaitable[object]] | None = None,
    ) -> None:
        self._hold = hold
        self.routed_by = settings.router.instance_id
        self.asked: list[str] = []
        self.can_answer = True

    def use(self, settings: Settings) -> None:
        """Answer as before."""

    async def start(self) -> None:
        """Open nothing."""

    async def close(self) -> None:
        """Close nothing."""

    async def answer(self, query: QueryEvent, workload: str, headers: Mapping[str, str] | None = None) -> RoutedEvent:
        """Answer with the query's text; a text that begins with ``fail`` fails both models."""
        self.asked.append(query.query_id)
        if self._hold is not None:
            await self._hold(query)
        if query.text.startswith("fail"):
            raise ModelsFailed("refused", "refused")
        if query.text.startswith("break"):
            raise ZeroDivisionError("the program is at fault")
        return routed(query, workload, self.routed_by)

    def health(self) -> Mapping[str, Mapping[ModelRole, ModelHealth]]:
        return {}


async def forever(_query: QueryEvent) -> None:
    """Hold a query until it is cancelled."""
    await asyncio.Event().wait()
