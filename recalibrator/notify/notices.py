"""What people are notified of: what has changed in a workload for a minute, with its headline, under one id. Pure.

A notice is made once, when the change has lasted, and keeps its id through every attempt to deliver it and through
restarts: a receiver that remembers ids sees each change once. What comes and goes for a minute is one change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from schemas.event import rfc3339
from schemas.settings import NoticeKind
from schemas.status import BAD_STATES, Headline, WorkloadStatus

_ALARMED = frozenset({"suspected", "drifted"})
#: The value of a condition of which there is nothing to say.
FINE = "ok"

#: What lasts for less is not announced.
SETTLE = timedelta(seconds=60)

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
class Change:
    """One respect in which a workload stands otherwise than was announced."""

    kind: NoticeKind
    before: Condition | None
    now: Condition


@dataclass(frozen=True, slots=True)
class Notice:
    """What has changed in one workload; the first of its changes stands for all."""

    notice_id: str
    workload: str
    changes: tuple[Change, ...]
    headline: Headline

    @classmethod
    def of(cls, workload: str, changes: Sequence[Change], headline: Headline) -> Notice:
        """Return a notice under an id that these changes alone have."""
        words = [workload]
        for one in changes:
            words += [one.kind, "" if one.before is None else one.before.value, one.now.value, one.now.since]
        return cls(sha256("\x00".join(words).encode()).hexdigest()[:_ID_CHARS], workload, tuple(changes), headline)


@dataclass(slots=True)
class Leaning:
    """A condition on its way to be announced: when it was first otherwise, since when it is as it is, and last was."""

    now: Condition
    first: datetime
    since: datetime | None
    last: datetime

    def is_due(self, now: datetime) -> bool:
        """Whether it has lasted: what is bad even where it comes and goes, what is good without a break."""
        began = self.first if self.now.is_bad else self.since
        return self.since is not None and began is not None and now - began >= SETTLE


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


def leaning(before: Leaning | None, known: Condition | None, found: Condition, now: datetime) -> Leaning | None:
    """Return how a condition stands to what was announced of it; None where there is nothing to say."""
    if (known is None and not found.is_bad) or (known is not None and known.value == found.value):
        if before is None or now - before.last >= SETTLE:
            return None
        before.since = None
        return before
    if before is None:
        return Leaning(found, now, now, now)
    if before.since is None or before.now.value != found.value:
        before.now, before.since = found, now
    before.last = now
    return before


def trial_notice(at: datetime, workload: str) -> Notice:
    """Return a notice that asks nobody to do anything."""
    now = Condition("test", is_bad=False, since=rfc3339(at))
    said = "This is a test: notifications of this webhook arrive."
    headline = Headline(kind="test", severity="calm", cause=said.removesuffix("."), sentence=said)
    return Notice.of(workload, [Change("state", None, now)], headline)


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
