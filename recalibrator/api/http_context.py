"""What every route works with: settings, keys, the read model, the label queue, the producer, counters and time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request

from recalibrator.api.keys import Keys, Scope
from recalibrator.api.read_model.dead_letter_log import DeadLetterLog
from recalibrator.api.read_model.status_documents import StatusDocuments
from recalibrator.api.read_model.topic_cache import TopicCache
from recalibrator.labelling.queue import LabelQueue
from recalibrator.prometheus_metrics import Metrics
from schemas.settings import Settings
from ucci_runtime.broker.contact import Health
from ucci_runtime.broker.ports import Publisher, TopicReader
from ucci_runtime.clock import Clock
from ucci_runtime.refusals import RequestRefused

_NOT_FOUND = 404
_READING = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Context:
    """The parts behind the routes."""

    settings: Settings
    keys: Keys
    cache: TopicCache
    letters: DeadLetterLog
    documents: StatusDocuments
    queue: LabelQueue
    producer: Publisher
    #: Returns a new reader of the latest results, for one thread to read and close.
    results: Callable[[], TopicReader]

    metrics: Metrics
    clock: Clock
    #: Returns what is not ready, one word each.
    missing: Callable[[], list[str]]
    #: Returns whether the process and the broker talk.
    health: Callable[[], Health] = Health

    def authorise(self, request: Request, scope: Scope) -> str:
        """Return the caller's name. Raises RequestRefused: 401 or 403."""
        return self.keys.authorise(request.headers, scope, only_reads=request.method in _READING)

    def spend(self, caller: str, amount: int) -> None:
        """Take from the caller's quota. Raises RequestRefused: 429."""
        self.keys.spend(caller, amount, self.clock.monotonic())

    def owe(self, caller: str, amount: int) -> None:
        """Take from the caller's quota what was served already."""
        self.keys.owe(caller, amount, self.clock.monotonic())

    def require_workload(self, workload: str) -> None:
        """Refuse a workload that is not configured. Raises RequestRefused: 404."""
        if workload not in self.settings.workloads:
            known = ", ".join(sorted(self.settings.workloads))
            message = f"workload {workload[:60]!r} is not configured here (configured: {known})"
            raise RequestRefused(_NOT_FOUND, "unknown_workload", message, "workload")
