"""What people are notified of: two conditions of a workload, before and after, as a notice with an id of its own. Pure.

A notice is made once, when a status first shows the change, and keeps its id through every attempt to deliver it and
through restarts: a receiver that remembers ids sees each change once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from schemas.event import rfc3339
from schemas.settings import NoticeKind
from schemas.status import BAD_STATES, WorkloadStatus

_ALARMED = frozenset({"suspected", "drifted"})
#: The value of a condition of which there is nothing to say.
FINE = "ok"

_ID_CHARS = 32
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Condition:
    """How a workload stands in one respect."""

    #: One word, or a few.
    value: str

    is_bad: bool
    #: RFC 3339 time of the status that first showed it.
    since: str


@dataclass(frozen=True, slots=True)
class Notice:
    """One change of one workload."""

    notice_id: str
    workload: str
    kind: NoticeKind
    before: Condition | None
    now: Condition
    sentence: str


def conditions(status: WorkloadStatus, at: datetime) -> dict[NoticeKind, Condition]:
    """Return how a workload stands in each respect."""
    since = rfc3339(at)
    alarm = status.drift.state if status.drift.state in _ALARMED else FINE
    labels, failing = _labels(status), _failing(status)
    return {
        "state": Condition(status.state, status.state in BAD_STATES, since),
        "drift": Condition(alarm, alarm != FINE, since),
        "labels": Condition(labels, labels != FINE, since),
        "outage": Condition(failing, failing != FINE, since),
    }


def changes(known: Mapping[NoticeKind, Condition], status: WorkloadStatus, at: datetime) -> Iterator[Notice]:
    """Yield a notice for each condition that differs from the known one.

    Of a workload of which nothing is known yet, only what is bad is worth a notice.
    """
    for kind, now in conditions(status, at).items():
        before = known.get(kind)
        if before is None and not now.is_bad:
            continue
        if before is not None and before.value == now.value:
            continue
        words = (status.workload, kind, "" if before is None else before.value, now.value, now.since)
        notice_id = sha256("\x00".join(words).encode()).hexdigest()[:_ID_CHARS]
        yield Notice(notice_id, status.workload, kind, before, now, status.sentence)


def trial_notice(at: datetime, workload: str) -> Notice:
    """Return a notice that asks nobody to do anything."""
    now = Condition("test", is_bad=False, since=rfc3339(at))
    sentence = "This is a test: notifications of this webhook arrive."
    notice_id = sha256(f"test\x00{workload}\x00{now.since}".encode()).hexdigest()[:_ID_CHARS]
    return Notice(notice_id, workload, "state", None, now, sentence)


def _labels(status: WorkloadStatus) -> str:
    """Return what is wrong with labels: suspected by an audit, or set aside with their labelers."""
    audit, people = status.details.get("label_audit"), status.details.get("labelers_set_aside")
    if isinstance(audit, dict) and isinstance(suspected := audit.get("suspected"), str):
        return f"suspected: {suspected}"
    if isinstance(people, dict) and people:
        names = sorted(people)
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"set aside: {', '.join(names[:_MOST_NAMED])}{more}"
    return FINE


def _failing(status: WorkloadStatus) -> str:
    if status.outage is None:
        return FINE
    return "small model" if status.outage.small_failing > status.outage.large_failing else "large model"
