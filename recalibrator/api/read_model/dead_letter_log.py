"""The latest dead letters and their counts by reason; only the services' own headers are kept, not the contents."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from threading import Lock
from typing import NamedTuple

from schemas.event import from_ms
from schemas.json_bytes import text_member
from schemas.status import DeadLetterCount, DeadLetterStatus
from schemas.topics import DLQ_ERROR, DLQ_OFFSET, DLQ_PARTITION, DLQ_REASON, DLQ_STAGE, DLQ_TOPIC

MOST_KEPT = 5_000
WINDOW = timedelta(hours=24)
_MAX_PARSED_BYTES = 65_536
_MAX_CHARS = 300
#: In place of the workload of a letter whose workload is unknown.
_UNKNOWN = ""


class DeadLetter(NamedTuple):
    """One record that was set aside."""

    at: datetime
    #: None where it is unknown.
    workload: str | None
    #: Who set it aside, in a word why, and in a sentence.
    stage: str
    reason: str
    error: str
    #: Where the original is: ``topic/partition/offset``.
    source: str


class DeadLetterLog:
    """The latest letters; one thread writes, any read. Where one workload is configured, all letters are its own."""

    def __init__(self, workloads: Collection[str]) -> None:
        self._workloads = frozenset(workloads)
        self._lock = Lock()
        self._letters: deque[DeadLetter] = deque(maxlen=MOST_KEPT)
        self._since = from_ms(0)
        self._counted_at: tuple[int, datetime] | None = None
        self._counts: defaultdict[str | None, Counter[tuple[str, str]]] = defaultdict(Counter)
        self._last: dict[tuple[str | None, str, str], datetime] = {}
        self.revision = 0

    def take(
        self, key: bytes | None, value: bytes | None, headers: Mapping[str, bytes | None], timestamp_ms: int
    ) -> None:
        """Take one record of the topic."""
        fields = {name: _text(headers.get(name)) for name in (DLQ_STAGE, DLQ_REASON, DLQ_ERROR)}
        letter = DeadLetter(
            at=from_ms(timestamp_ms),
            workload=self._workload(key, value),
            stage=fields[DLQ_STAGE] or "unknown",
            reason=fields[DLQ_REASON] or "unknown",
            error=fields[DLQ_ERROR],
            source="/".join(_text(headers.get(name)) for name in (DLQ_TOPIC, DLQ_PARTITION, DLQ_OFFSET)),
        )
        with self._lock:
            self._letters.append(letter)
            self.revision += 1

    def status(self, workload: str | None, now: datetime) -> DeadLetterStatus:
        """Return counts of the last day by reason, the most frequent first.

        None: of all workloads. ``now``: counts are renewed once a minute, and when letters have arrived.
        """
        minute = now.replace(second=0, microsecond=0)
        with self._lock:
            if self._counted_at != (self.revision, minute):
                self._count(minute)
                self._counted_at = (self.revision, minute)
            since = self._since
            names = (None,) if workload is None else (workload, _UNKNOWN)
            counts = sum((self._counts[name] for name in names), Counter())
            last = {key: max(self._last[n, *key] for n in names if (n, *key) in self._last) for key in counts}
        by_reason = tuple(
            DeadLetterCount(stage=stage, reason=reason, count=count, last_at=last[stage, reason])
            for (stage, reason), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        )
        return DeadLetterStatus(since=since, total=counts.total(), by_reason=by_reason)

    def _count(self, minute: datetime) -> None:
        self._since = minute - WINDOW
        if len(self._letters) == MOST_KEPT:
            self._since = max(self._since, self._letters[0].at)
        self._counts.clear()
        self._last.clear()
        for letter in (one for one in self._letters if one.at >= self._since):
            key = letter.stage, letter.reason
            for name in (None, letter.workload or _UNKNOWN):
                self._counts[name][key] += 1
                self._last[name, *key] = max(letter.at, self._last.get((name, *key), letter.at))

    def latest(self, workload: str | None, most: int) -> list[DeadLetter]:
        """Return the newest letters, newest first."""
        with self._lock:
            found = [letter for letter in self._letters if self._concerns(letter, workload)]
        return sorted(found, key=lambda letter: letter.at, reverse=True)[:most]

    def count_since(self, workload: str | None, start: datetime) -> int:
        """Return how many of the letters that are kept were set aside at or after a time; ``None``: of all."""
        with self._lock:
            return sum(letter.at >= start and self._concerns(letter, workload) for letter in self._letters)

    def _concerns(self, letter: DeadLetter, workload: str | None) -> bool:
        return workload is None or letter.workload in (None, workload)

    def _workload(self, key: bytes | None, value: bytes | None) -> str | None:
        if len(self._workloads) == 1:
            return next(iter(self._workloads))
        named = _text(key)
        if named not in self._workloads and value is not None and len(value) <= _MAX_PARSED_BYTES:
            named = text_member(value, "workload") or ""
        return named if named in self._workloads else None


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")[:_MAX_CHARS]
