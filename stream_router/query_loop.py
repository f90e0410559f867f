"""The loop: each query a task, each outcome a record, in whatever order they end.

Input records flow in from intake; an outcome for every one of them flows out to the ledger: the cascade's result, or
a dead letter. A query is given up without an outcome only when its partition now belongs to another instance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import structlog

from schemas.errors import DecodeError
from schemas.query import QueryEvent
from stream_router.calibration.active_versions import trial_labels
from stream_router.commit.ledger import RecordId
from stream_router.commit.outcome import InputRecord, Outcome, dead_letter, result
from stream_router.errors import ModelsFailed
from stream_router.intake.decode import decode_query
from stream_router.ports import Answerer, QueryTrace, Tracing
from stream_router.trace_context import as_headers

_log = structlog.get_logger()

INTERNAL_ERROR = "internal_error"


class Router:
    """Answers records with the cascade.

    Parameters
    ----------
    answerer : Answerer
    workloads : collection of str
        The configured names.
    default_workload : str, optional
        That of queries which name none.
    results, dead_letters : str
        Topic names.
    finished : callable
        Takes each outcome; must not block.
    tracing : Tracing
        Follows each query.
    """

    def __init__(
        self,
        answerer: Answerer,
        workloads: Collection[str],
        *,
        results: str,
        dead_letters: str,
        finished: Callable[[Outcome], object],
        tracing: Tracing,
        default_workload: str | None = None,
    ) -> None:
        self._tracing = tracing
        self._default_workload = default_workload
        self._answerer = answerer
        self._workloads = frozenset(workloads)
        self._results = results
        self._dead_letters = dead_letters
        self._finished = finished
        self._tasks: dict[RecordId, asyncio.Task[None]] = {}

    def take(self, records: list[InputRecord]) -> None:
        """Start answering records. Called in the loop's thread; never blocks."""
        for record in records:
            try:
                query, workload = decode_query(record.value, self._workloads, self._default_workload)
            except DecodeError as error:
                self._finished(self._buried(record, error.reason, str(error)))
                continue
            record_id = RecordId(record.partition, record.offset)
            self._tasks[record_id] = asyncio.create_task(self._answer(record_id, record, query, workload))

    def give_up(self, record_ids: Collection[RecordId]) -> None:
        """Cancel queries that are another instance's now. Called in the loop's thread; never blocks."""
        for record_id in record_ids:
            task = self._tasks.pop(record_id, None)
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        """Cancel what is still in flight; it stays uncommitted, and whoever comes next answers it."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, record_id: RecordId, record: InputRecord, query: QueryEvent, workload: str) -> None:
        try:
            with self._tracing.routing(record, query.query_id, workload) as trace:
                outcome = await self._outcome(record, query, workload, trace)
        except Exception as error:  # noqa: BLE001 a query that breaks the program must not stop the others
            _log.exception("unexpected error; the query becomes a dead letter", query_id=query.query_id)
            self._finished(self._buried(record, INTERNAL_ERROR, f"{type(error).__name__}: {error}"))
        else:
            self._finished(outcome)
        finally:
            if self._tasks.get(record_id) is asyncio.current_task():
                del self._tasks[record_id]

    async def _outcome(self, record: InputRecord, query: QueryEvent, workload: str, trace: QueryTrace) -> Outcome:
        try:
            routed = await self._answerer.answer(query, workload, trace.headers)
        except ModelsFailed as error:
            trace.failed(error.reason, str(error))
            return self._buried(record, error.reason, str(error))
        trace.answered(routed)
        labels = (workload, routed.answered_by, routed.decision.reason)
        written = result(self._results, routed, as_headers(trace.headers))
        return Outcome(record, written, labels, trial_labels(workload, routed.decision.trial))

    def _buried(self, record: InputRecord, reason: str, error: str) -> Outcome:
        return Outcome(record, dead_letter(self._dead_letters, record, reason, error))
