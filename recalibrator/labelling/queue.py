"""The open label requests, newest first, and the label budget: a fold over their topic. No I/O, no clock.

One thread adds records, any thread reads pages. Each workload's requests are bounded by number and by bytes: the newest
stay, since nobody labels what lies behind ten thousand of them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from threading import Lock
from typing import NamedTuple, Self

from schemas.errors import DecodeError
from schemas.event import to_us
from schemas.label_requested import REQUEST_RETENTION_S, LabelRequested, RequestReason
from schemas.settings import Settings
from schemas.status import WorkloadStatus
from schemas.topics import LABEL_REQUESTS

#: Of the records of one workload that are held.
MAX_BYTES = 64_000_000


_RANKS: tuple[RequestReason, ...] = ("audit", "monitoring", "exploration")
_UNKNOWN_ERROR, _LEAST = 0.5, 1e-9
_SECONDS_PER_DAY = 86_400.0

#: Where a request stands in the queue: microseconds since 1970, query_id.
Place = tuple[int, str]


class QueuePage(NamedTuple):
    """Some open requests of a workload, newest first.

    ``open`` and ``by_reason`` count all of them; ``next`` is the cursor of the following page, None on the last.
    """

    workload: str
    open: int
    by_reason: dict[RequestReason, int]
    requests: tuple[LabelRequested, ...]
    next: str | None


class _Held(NamedTuple):
    workload: str
    place: Place
    reason: RequestReason
    value: bytes


@dataclass(slots=True)
class _Line:
    """The places of one workload's requests, oldest first."""

    places: list[Place] = field(default_factory=list)
    reasons: Counter[RequestReason] = field(default_factory=Counter)
    size_bytes: int = 0


class LabelQueue:
    """The open label requests of the configured workloads; others on the topic are left alone.

    ``most``, ``max_bytes``: held of one workload. ``retention_s``: from then on not shown, even if not withdrawn.
    """

    def __init__(
        self,
        workloads: Sequence[str],
        prefix: str,
        *,
        most: int,
        retention_s: float = REQUEST_RETENTION_S,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._lock = Lock()
        self._topic = LABEL_REQUESTS.name(prefix)
        self._retention = timedelta(seconds=retention_s)
        self._most = most
        self._max_bytes = max_bytes
        self._lines = {name: _Line() for name in sorted(workloads)}
        self._held: dict[str, _Held] = {}
        #: Whether any request has been read: without one, the topic may be missing.
        self.has_records = False

    @classmethod
    def configured(cls, settings: Settings) -> Self:
        """Return an empty queue of all configured workloads, bounded as configured."""
        return cls(tuple(settings.workloads), settings.topics.prefix, most=settings.recalibrator.label_requests_max)

    def take(self, topic: str, key: bytes | None, value: bytes | None) -> bool:
        """Take one record; returns False where it is not what the topic holds."""
        if topic != self._topic or key is None:
            return False
        try:
            query_id = key.decode()
            request = None if value is None else LabelRequested.from_json(value)
        except (DecodeError, UnicodeDecodeError):
            return False
        if request is not None and request.query_id != query_id:
            return False
        with self._lock:
            self.has_records = True
            self._drop(query_id)
            if request is not None and value is not None and request.workload in self._lines:
                self._hold(request, value)
        return True

    def workload_of(self, query_id: str) -> str | None:
        """Return the workload of an open request, None where there is none."""
        with self._lock:
            held = self._held.get(query_id)
        return None if held is None else held.workload

    def waiting(self, workload: str, query_ids: Iterable[str]) -> list[LabelRequested]:
        """Return the requests of these queries that are still open, in the order asked for."""
        with self._lock:
            held = [self._held[one] for one in query_ids if one in self._held]
        return [LabelRequested.from_json(one.value) for one in held if one.workload == workload]

    def page(
        self,
        workload: str,
        now: datetime,
        limit: int,
        *,
        reason: RequestReason | None = None,
        cursor: str | None = None,
    ) -> QueuePage:
        """Return what to label next, up to ``limit`` requests.

        ``cursor``: ``next`` of the page before, whatever has come meanwhile. Raises ValueError when it is none.
        """
        with self._lock:
            line = self._lines[workload]
            oldest = bisect_left(line.places, (to_us(now - self._retention), ""))
            for _, query_id in line.places[:oldest]:
                self._drop(query_id)
            end = len(line.places) if cursor is None else bisect_left(line.places, _place(cursor))
            matching = (
                self._held[query_id]
                for _, query_id in reversed(line.places[:end])
                if reason is None or self._held[query_id].reason == reason
            )
            found = list(islice(matching, limit + 1))
            counts = +line.reasons
        shown = found[:limit]
        return QueuePage(
            workload=workload,
            open=counts.total(),
            by_reason=dict(sorted(counts.items())),
            requests=tuple(LabelRequested.from_json(held.value) for held in shown),
            next=_cursor(shown[-1].place) if len(found) > limit else None,
        )

    def _hold(self, request: LabelRequested, value: bytes) -> None:
        line, place = self._lines[request.workload], (to_us(request.requested_at), request.query_id)
        insort(line.places, place)
        line.reasons[request.reason] += 1
        line.size_bytes += len(value)
        self._held[request.query_id] = _Held(request.workload, place, request.reason, value)
        while len(line.places) > self._most or line.size_bytes > self._max_bytes:
            self._drop(line.places[0][1])

    def _drop(self, query_id: str) -> None:
        held = self._held.pop(query_id, None)
        if held is None:
            return
        line = self._lines[held.workload]
        del line.places[bisect_left(line.places, held.place)]
        line.reasons[held.reason] -= 1
        line.size_bytes -= len(held.value)


def most_telling_first(requests: Iterable[LabelRequested]) -> list[LabelRequested]:
    """Return requests in the order in which their labels tell most.

    First explored queries, which alone show both models where one runs; then those whose label stands for most doubt:
    the standard deviation of its outcome times the queries that it represents; audits last, since trusted labelers ask
    for them by name. Only what estimates condition on is looked at: u, and how the label was drawn; never what the
    answers say.
    """
    return sorted(requests, key=_telling, reverse=True)


def _telling(request: LabelRequested) -> tuple[int, float]:
    error = _UNKNOWN_ERROR if request.error_probability is None else request.error_probability
    return _RANKS.index(request.reason), math.sqrt(error * (1.0 - error)) / max(request.probability, _LEAST)


class Audits(NamedTuple):
    """The open audits of a workload: how many, and who should answer them."""

    open: int
    trusted_labelers: tuple[str, ...]
    note: str


def audits_of(page: QueuePage, trusted_labelers: Sequence[str]) -> Audits:
    """Return what a page of the queue says of audits."""
    note = f"only {', '.join(trusted_labelers)} should answer audits; all others leave them"
    if not trusted_labelers:
        note = "only people who gave none of the suspected labels should answer audits; "
        note += f"workloads.{page.workload}.trusted_labelers can name them"
    return Audits(page.by_reason.get("audit", 0), tuple(trusted_labelers), note)


@dataclass(frozen=True, slots=True)
class LabelBudget:
    """How many labels a workload asks for, gets and would need."""

    #: Labels asked for since traffic was first seen.
    requested: int
    #: The mean since then; None without traffic.
    requested_per_day: float | None
    #: Of the requested ones, in [0, 1]; None before the first request.
    received_share: float | None

    pending: int
    #: Seconds from routing to label.
    delay_p50_s: float | None
    delay_p90_s: float | None
    #: Labels behind the estimate, weighted by age and by the traffic that they stand for.
    effective: float
    #: Upper minus lower end of the 95% interval of the expected micro-F1; None where none is quoted.
    interval_width: float | None


def label_budget(status: WorkloadStatus) -> LabelBudget:
    """Return the label budget of a workload.

    Examples
    --------
    >>> from schemas.calibration import Interval, Target
    >>> from schemas.status import DriftStatus
    >>> quality = Interval(estimate=0.91, lower=0.90, upper=0.92)
    >>> status = WorkloadStatus(workload="w", state="active", sentence="", target=Target(micro_f1=0.9),
    ...                         drift=DriftStatus(state="ok"), micro_f1=quality)
    >>> round(label_budget(status).interval_width, 4)
    0.02
    """
    labels, quality = status.labels, status.micro_f1
    days = 0.0
    if labels.since is not None and status.updated_at is not None:
        days = (status.updated_at - labels.since).total_seconds() / _SECONDS_PER_DAY
    return LabelBudget(
        requested=labels.requested,
        requested_per_day=labels.requested / days if days > 0.0 else None,
        received_share=1.0 - labels.pending / labels.requested if labels.requested else None,
        pending=labels.pending,
        delay_p50_s=labels.delay_s.p50,
        delay_p90_s=labels.delay_s.p90,
        effective=labels.effective,
        interval_width=None if quality is None else quality.upper - quality.lower,
    )


def queue_document(page: QueuePage, budget: LabelBudget, trusted_labelers: Sequence[str]) -> dict[str, object]:
    """Return a page, the budget and who should answer audits as they are shown to programs."""
    return {**page._asdict(), "budget": budget, "audits": audits_of(page, trusted_labelers)._asdict()}


def cursor_after(request: LabelRequested) -> str:
    """Return the cursor of what is older than a request."""
    return _cursor((to_us(request.requested_at), request.query_id))


def _cursor(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


def _place(cursor: str) -> Place:
    moment, separator, query_id = cursor.partition(":")
    if not (separator and moment.isascii() and moment.isdigit()):
        raise ValueError(f"{cursor[:60]!r} is not the `next` of an earlier page")
    return int(moment), query_id
