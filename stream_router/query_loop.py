"""The loop: each query a task, each outcome a record, in whatever order they end.

For every input record the loop hands the ledger one outcome: the cascade's result, or a dead letter. A query is given
up without an outcome only when its partition now belongs to another instance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import structlog

from schemas.errors import DecodeError
from schemas.routed import QueryEvent
from stream_router.cascade.lever import trial_labels
from stream_router.commit.ledger import RecordId
from stream_router.commit.outcome import Outcome, OutputTopics
from stream_router.errors import ModelsFailed
from stream_router.intake_thread import decode_query
from stream_router.otel_tracing import Trace, Tracing, as_headers
from stream_router.ports import Answerer
from ucci_runtime.broker.records import Record

_log = structlog.get_logger()

INTERNAL_ERROR = "internal_error"
BAD_HEADERS = "bad_headers"


class QueryLoop:
    """Answers records with the cascade."""

    def __init__(
        self,
        answerer: Answerer,
        workloads: Collection[str],
        *,
        outputs: OutputTopics,
        finished: Callable[[Outcome], object],
        tracing: Tracing,
        default_workload: str | None = None,
    ) -> None:
        self._tracing = tracing
        self._default_workload = default_workload
        self._answerer = answerer
        self._workloads = frozenset(workloads)
        self._outputs = outputs
        self._finished = finished
        self._tasks: dict[RecordId, asyncio.Task[None]] = {}

    def take(self, records: list[Record]) -> None:
        """Start answering records. Called in the loop's thread; never blocks."""
        create_task = asyncio.get_running_loop().create_task
        for record in records:
            if record.headers_fault is not None:
                self._finished(self._dead_letter(record, BAD_HEADERS, f"{record.headers_fault}; send keys as UTF-8"))
                continue
            try:
                query, workload = decode_query(record.value, self._workloads, self._default_workload)
            except DecodeError as error:
                self._finished(self._dead_letter(record, error.reason, str(error)))
                continue
            record_id = RecordId(record.source.partition, record.offset)
            self._tasks[record_id] = create_task(self._answer(record_id, record, query, workload))

    def give_up(self, record_ids: Collection[RecordId]) -> None:
        """Cancel queries that are another instance's now. Called in the loop's thread; never blocks."""
        for record_id in record_ids:
            task = self._tasks.pop(record_id, None)
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        """Cancel what is still in flight; it stays uncommitted, and the next instance answers it."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, record_id: RecordId, record: Record, query: QueryEvent, workload: str) -> None:
        try:
            with self._tracing.routing(record, query.query_id, workload) as trace:
                outcome = await self._outcome(record, query, workload, trace)
        except Exception as error:  # noqa: BLE001 a query that breaks the program must not stop the others
            _log.exception("unexpected error; the query becomes a dead letter", query_id=query.query_id)
            self._finished(self._dead_letter(record, INTERNAL_ERROR, f"{type(error).__name__}: {error}"))
        else:
            self._finished(outcome)
        finally:
            if self._tasks.get(record_id) is asyncio.current_task():
                del self._tasks[record_id]

    async def _outcome(self, record: Record, query: QueryEvent, workload: str, trace: Trace) -> Outcome:
        try:
            routed = await self._answerer.answer(query, workload, trace.headers)
        except ModelsFailed as error:
            trace.failed(error.reason, str(error))
            return self._dead_letter(record, error.reason, str(error))
        trace.answered(routed)
        labels = (workload, routed.answered_by, routed.decision.reason)
        written = self._outputs.result(record, routed, as_headers(trace.headers))
        return Outcome(record, written, labels, trial_labels(workload, routed.decision.trial))

    def _dead_letter(self, record: Record, reason: str, error: str) -> Outcome:
        return Outcome(record, self._outputs.dead_letter(record, reason, error))
