"""The commit's thread: whatever is finished, committed together with its offsets, tick after tick.

A result is never in two committed transactions: when a transaction's end was not seen, the group's offsets show whether
it took place before anything is produced again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from threading import Condition, Thread

import structlog

from stream_router.commit.done_offsets import MAX_METADATA_CHARS, committed_offsets
from stream_router.commit.outcome import Outcome, OutputTopics
from stream_router.commit.shared_ledger import SharedLedger
from stream_router.prometheus_metrics import Metrics
from ucci_runtime.broker.dead_letters import reason_of
from ucci_runtime.broker.ports import Aborted, Committed, TransactionSession
from ucci_runtime.broker.records import Input, OffsetCommit, OutputRecord

_log = structlog.get_logger()

_METADATA_SHOWN_CHARS = 40


class CommitThread(Thread):
    """The thread that owns the transactions. ``interval_s``: longest time between two commits of what is finished."""

    def __init__(
        self,
        session: TransactionSession,
        ledger: SharedLedger,
        queries: str,
        outputs: OutputTopics,
        *,
        interval_s: float,
        on_failure: Callable[[BaseException], None],
        metrics: Metrics,
    ) -> None:
        super().__init__(name="commit", daemon=True)
        self.session = session
        self._ledger = ledger
        self._queries = queries
        self._outputs = outputs
        self._interval_s = interval_s
        self._on_failure = on_failure
        self._metrics = metrics
        self._metadata_chars = MAX_METADATA_CHARS
        self._turn = Condition()
        self._asked = 0
        self._served = 0
        self._closing = False

    def flush(self, timeout_s: float) -> bool:
        """Commit what is finished now; called by intake in a revocation and by the service at its end.

        Blocks up to ``timeout_s``; whether anything is left, the ledger knows. Returns whether a tick that began after
        this call has ended in time.
        """
        with self._turn:
            self._asked += 1
            ticket = self._asked
            self._turn.notify_all()
            return self._turn.wait_for(lambda: self._served >= ticket or not self.is_alive(), timeout_s)

    def close(self) -> None:
        """Let the thread end after its present tick; :meth:`join` waits for it."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()

    def run(self) -> None:
        """Commit until closed. An error that ends the thread is handed on."""
        try:
            self.session.start()
            while not self._closing:
                with self._turn:
                    self._turn.wait_for(lambda: self._asked > self._served or self._closing, self._interval_s)
                    ticket = self._asked
                self.tick()
                with self._turn:
                    self._served = ticket
                    self._turn.notify_all()
            self.session.close()
        except Exception as error:  # noqa: BLE001 handed on: the service ends with it
            self._on_failure(error)

    def tick(self) -> None:
        """Commit what is finished now; blocks for a transaction."""
        self.session.serve()
        taken = self._ledger.take(self._metadata_chars)
        if taken is None:
            return
        batch = taken.batch
        offsets = {Input(self._queries, partition): found for partition, found in batch.offsets.items()}
        end = self.session.commit([outcome.record for outcome in batch.outcomes], offsets, taken.group)
        if isinstance(end, Committed):
            self._ledger.ended(batch)
            self._count(batch.outcomes, end.written)
        elif isinstance(end, Aborted):
            self._ledger.ended(batch, {})
            if end.is_metadata_too_long:
                self._shorten(max(len(found.metadata) for found in offsets.values()))
        elif end.offsets is not None:
            self._ledger.ended(batch, committed_offsets(end.offsets, self.note_foreign))

    def limit_metadata(self, chars: int) -> None:
        """Write no longer commit metadata than this, which is as much as the broker takes; before the thread starts."""
        self._metadata_chars = min(self._metadata_chars, max(chars, 0))

    def _shorten(self, refused_chars: int) -> None:
        """Write half as much beside an offset as was refused: what does not fit waits for the query before it."""
        self.limit_metadata(refused_chars // 2)
        _log.warning(
            "the broker refuses what is noted beside an offset; slow queries hold others up sooner until "
            "offset.metadata.max.bytes is raised to 4096 on every broker, and the routers are started again",
            refused_chars=refused_chars,
            written_from_now_on=self._metadata_chars,
        )

    def note_foreign(self, source: Input, commit: OffsetCommit) -> None:
        """Count offset metadata that is not this router's."""
        self._metrics.count("foreign_offset_metadata")
        _log.warning(
            "offset metadata is not this router's; nothing beyond the committed offset counts as done",
            partition=source.partition,
            offset=commit.offset,
            metadata=commit.metadata[:_METADATA_SHOWN_CHARS],
        )

    def _count(self, outcomes: Iterable[Outcome], written: Iterable[OutputRecord]) -> None:
        results: Counter[tuple[str, str, str]] = Counter()
        for outcome, record in zip(outcomes, written, strict=True):
            if record.topic == self._outputs.dead_letters:
                self._metrics.count("dead_letters", reason=reason_of(record))
                continue
            results[outcome.labels] += 1
            if outcome.trial is not None:
                self._metrics.counters["trial_decisions"].labels(*outcome.trial).inc()
        for labels, count in results.items():
            self._metrics.counters["results"].labels(*labels).inc(count)
