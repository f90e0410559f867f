"""The demo's observer and its labelers: reads what services commit, and answers label requests late, as people do."""

from __future__ import annotations

import heapq
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Self

from confluent_kafka import Producer

from schemas.calibration import CalibrationVersion
from schemas.feedback import FeedbackEvent
from schemas.routed import RoutedEvent
from schemas.settings import Settings
from schemas.status import ALARMED, WorkloadStatus
from schemas.topics import CALIBRATION, DEAD_LETTERS, FEEDBACK, RESULTS, STATUS
from ucci_runtime.broker.records import Record
from ucci_stream.demo.scenario import PlannedQuery, Scenario, plan_label, wrong_gold
from ucci_stream.demo.summary import Observations, SeenResult, SeenVersion
from ucci_stream.local.processes import StackFailed
from ucci_stream.topics.admin import client_properties
from ucci_stream.topics.outcomes import follow

_SETTLE_S = 1.0
_POLL_S = 0.05
#: Queries between a label and its copy.
_TWICE_AFTER = 120
_LABELS_AHEAD = 60
_WAIT_S = 5.0


class Watcher(threading.Thread):
    """Follows the topics from their beginning; a context manager that ends with the demo."""

    def __init__(self, settings: Settings, stream: Sequence[PlannedQuery], scenario: Scenario) -> None:
        super().__init__(name="demo-watcher", daemon=True)
        self.seen = Observations()
        self._plan = {query.query_id: query for query in stream}
        self._scenario = scenario
        self._settings = settings
        self._labels = _Labelers(settings, scenario)
        self._stopping = threading.Event()
        self._news = threading.Condition()
        self._began = time.monotonic()
        self._began_wall = time.time()
        self._failure: BaseException | None = None
        self._labels_before = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join()

    @property
    def answered(self) -> int:
        """How many queries have a committed result or a dead letter."""
        return len(self.seen.results) + self.seen.dead_letters

    def begin(self) -> None:
        """Mark the beginning of the stream, from which all times count."""
        before_s, self._began, self._began_wall = self._began_wall, time.monotonic(), time.time()
        earlier_s = self._began_wall - before_s
        self.seen.versions = [replace(v, published_s=v.published_s - earlier_s) for v in self.seen.versions]
        self.seen.versions_before = len(self.seen.versions)
        self._labels_before = self._labels_taken()

    def await_fit(self) -> None:
        """Block for a bounded time while the fit is far behind the labels: the demo advances by queries, not time."""
        self._await(lambda: self._labels.queries - self._labels_taken() + self._labels_before < _LABELS_AHEAD, _WAIT_S)

    def _labels_taken(self) -> int:
        return 0 if self.seen.status is None else self.seen.status.labels.received

    def router_killed(self, instance_id: str) -> None:
        """Mark the moment of a router's SIGKILL."""
        self.seen.killed_s, self.seen.killed_router = self._now(), instance_id

    def await_first_version(self, timeout_s: float) -> CalibrationVersion:
        """Block until the first calibration version is published. Raises StackFailed when none came in time."""
        if not self._await(lambda: bool(self.seen.versions), timeout_s):
            raise StackFailed(f"no calibration version was published within {timeout_s:g} s of the bootstrap")
        return self.seen.versions[0].version

    def await_labels(self, count: int, timeout_s: float) -> None:
        """Block until the service has taken in so many labels. Raises StackFailed when it has not in time."""
        if not self._await(lambda: self._labels_taken() >= count, timeout_s):
            raise StackFailed(f"the {count} labels of the bootstrap were not taken in within {timeout_s:g} s")

    def settle(self) -> None:
        """Wait a moment for what would be doubled, then raise if the watcher itself failed."""
        time.sleep(_SETTLE_S)
        if self._failure is not None:
            raise StackFailed(f"the demo's watcher failed: {self._failure!r}") from self._failure

    def run(self) -> None:
        """Read until :meth:`settle` or the end of the block."""
        try:
            with follow(self._settings, (RESULTS, CALIBRATION, STATUS, DEAD_LETTERS), last=sys.maxsize) as follower:
                while not self._stopping.is_set():
                    for record in follower.records(_POLL_S):
                        self._take(record)
                    self.seen.labels_sent += self._labels.send_due(self.answered)
        except Exception as error:  # noqa: BLE001  kept for the main thread, which raises it
            self._failure = error
            self._tell()

    def _await(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        with self._news:
            return self._news.wait_for(lambda: condition() or self._failure is not None, timeout_s) and condition()

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _take(self, record: Record) -> None:
        topic, value = record.source.topic.removeprefix(f"{self._settings.topics.prefix}."), record.value or b""
        if topic == RESULTS.suffix:
            self._take_result(RoutedEvent.from_record(value))
        elif topic == CALIBRATION.suffix:
            published_s = record.timestamp_ms / 1000.0 - self._began_wall
            self.seen.versions.append(SeenVersion(CalibrationVersion.from_json(value), published_s))
            self._tell()
        elif topic == STATUS.suffix:
            self._take_status(WorkloadStatus.from_json(value))
        else:
            self.seen.dead_letters += 1

    def _take_result(self, routed: RoutedEvent) -> None:
        planned, now = self._plan.get(routed.query_id), self._now()
        if planned is None:
            return
        if routed.query_id in self.seen.results:
            self.seen.duplicated += 1
            return
        self.seen.results[routed.query_id] = SeenResult(routed, now)
        if planned.index >= self._scenario.drift_index and self.seen.drift_started_s is None:
            self.seen.drift_started_s = now
        self._mark_kill(routed, now)
        self._mark_first_use(routed)
        if routed.label.requested:
            self._labels.schedule(planned, self.answered, is_audit=routed.label.reason == "audit")

    def _mark_kill(self, routed: RoutedEvent, now: float) -> None:
        seen, used_s = self.seen, routed.routed_at.timestamp() - self._began_wall
        is_wanted = seen.first_commit_after_kill_s is None and routed.routed_by == seen.killed_router
        if is_wanted and seen.killed_s is not None and used_s > seen.killed_s:
            seen.first_commit_after_kill_s = now

    def _mark_first_use(self, routed: RoutedEvent) -> None:
        """Note when each router first decided by each version, by the result's own time."""
        used_s, router = routed.routed_at.timestamp() - self._began_wall, routed.routed_by
        for seen in self.seen.versions:
            if routed.decision.calibration_version == seen.version.version:
                seen.first_use_s[router] = min(seen.first_use_s.get(router, used_s), used_s)

    def _take_status(self, status: WorkloadStatus) -> None:
        self.seen.status = status
        self._tell()
        started = self.seen.drift_started_s
        if started is not None and self.seen.drift_seen_s is None and status.drift.state in ALARMED:
            self.seen.drift_seen_s = self._now()


class _Labelers:
    """Answer label requests some queries later; some late, some wrong, some twice. Audits are the trusted one's."""

    def __init__(self, settings: Settings, scenario: Scenario) -> None:
        self._producer = Producer(client_properties(settings, linger_ms=5, enable_idempotence=True))
        self._topic = FEEDBACK.name(settings.topics.prefix)
        self._scenario = scenario
        self._due: list[tuple[int, str, FeedbackEvent]] = []
        self.queries = 0

    def schedule(self, query: PlannedQuery, answered: int, *, is_audit: bool) -> None:
        """Plan the label of one query."""
        plan = plan_label(query.query_id, self._scenario, is_audit=is_audit)
        gold = wrong_gold(query.recorded.gold) if plan.wrong else query.recorded.gold
        event = FeedbackEvent(query_id=query.query_id, entities=dict(gold), labeler=plan.labeler, source="demo")
        for repeat in range(2 if plan.twice else 1):
            due = answered + plan.delay + repeat * _TWICE_AFTER
            heapq.heappush(self._due, (due, f"{query.query_id}/{repeat}", event))

    def send_due(self, answered: int) -> int:
        """Send the labels that are due once so many queries are answered; returns how many."""
        sent = 0
        while self._due and self._due[0][0] <= answered:
            _, copy, event = heapq.heappop(self._due)
            self.queries += copy.endswith("/0")
            stamped = event.model_copy(update={"labelled_at": datetime.now(UTC), "feedback_id": event.identity()})
            self._producer.produce(self._topic, key=event.query_id.encode(), value=stamped.to_json())
            sent += 1
        self._producer.poll(0)
        return sent
