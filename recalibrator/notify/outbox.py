"""What people are notified of: what has changed in a workload for a minute, with its headline, under one id. Pure.

A notice is made once, when the change has lasted, and keeps its id through every attempt to deliver it and through
restarts: a receiver that remembers ids sees each change once. What comes and goes for a minute is one change. Announced
and pending are one state, stored together before anything is sent: a process that dies then sends the same notices
again, under the same ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Literal, NamedTuple

from pydantic import TypeAdapter

from recalibrator.headlines.facts import Facts
from recalibrator.headlines.rules import headline
from schemas.event import rfc3339
from schemas.settings import NoticeKind, Webhook, WorkloadSettings
from schemas.status import ALARMED, BAD_STATES, Headline, WorkloadStatus

#: The value of a condition of which there is nothing to say.
FINE = "ok"

#: What lasts for less is not announced.
SETTLE = timedelta(seconds=60)

_ID_CHARS = 32
_MOST_NAMED = 5
_FORMAT: Literal[2] = 2


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
        """Whether it has lasted: what is bad even where it comes and goes, what is good by statuses without a break."""
        began, until = (self.first, now) if self.now.is_bad else (self.since, self.last)
        return self.since is not None and began is not None and until - began >= SETTLE


def conditions(status: WorkloadStatus, at: datetime) -> dict[NoticeKind, Condition]:
    """Return how a workload stands in each respect."""
    alarm, since = status.drift.state if status.drift.state in ALARMED else FINE, rfc3339(at)
    seen: dict[NoticeKind, str] = {"drift": alarm, "labels": _labels(status), "outage": _failing(status)}
    found = {kind: Condition(value, value != FINE, since) for kind, value in seen.items()}
    return {"state": Condition(status.state, status.state in BAD_STATES, since), **found}


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
    if isinstance(suspected := status.detail("label_audit").get("suspected"), str):
        return f"suspected: {suspected}"
    if names := sorted(status.detail("labelers_set_aside")):
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"set aside: {', '.join(names[:_MOST_NAMED])}{more}"
    return FINE


def _failing(status: WorkloadStatus) -> str:
    if status.outage is None:
        return FINE
    return "small model" if status.outage.small_failing > status.outage.large_failing else "large model"


class Taken(NamedTuple):
    """What has come of it: whether anything is to be stored, and by webhook, how many notices were dropped."""

    is_changed: bool
    dropped: Mapping[str, int]


class Outbox:
    """Notices on their way. ``most``: notices that wait for one webhook; beyond it the oldest is dropped."""

    def __init__(self, webhooks: Mapping[str, Webhook], most: int, workloads: Mapping[str, WorkloadSettings]) -> None:
        self._webhooks = webhooks
        self._most = most
        self._workloads = workloads
        self._known: dict[str, dict[NoticeKind, Condition]] = {}
        self._pending: dict[str, list[Notice]] = {name: [] for name in webhooks}
        self._latest: dict[str, WorkloadStatus] = {}
        self._leaning: dict[str, dict[NoticeKind, Leaning]] = {}
        self._is_changed = False

    def take(self, status: WorkloadStatus, now: datetime) -> None:
        """Take a status in, of ``now`` where it has no time; :meth:`settle` announces what has changed and lasted."""
        self._latest[status.workload] = status
        known = self._known.setdefault(status.workload, {})
        before = self._leaning.get(status.workload, {})
        after: dict[NoticeKind, Leaning] = {}
        for kind, found in conditions(status, status.updated_at or now).items():
            if (one := leaning(before.get(kind), known.get(kind), found, now)) is not None:
                after[kind] = one
            if kind not in known and not found.is_bad:
                known[kind] = found
                self._is_changed = True
        self._leaning[status.workload] = after

    def settle(self, now: datetime) -> Taken:
        """Make notices of what has lasted: one a workload, of all that has changed with it."""
        is_changed, self._is_changed = self._is_changed, False
        dropped: dict[str, int] = {}
        for workload, leanings in self._leaning.items():
            due = [one for one in leanings.values() if one.is_due(now)]
            if not due:
                continue
            are_bad = any(one.now.is_bad for one in due)
            told = {k: one for k, one in leanings.items() if one in due or (are_bad and one.since and one.now.is_bad)}
            known = self._known[workload]
            changes = [Change(kind, known.get(kind), one.now) for kind, one in told.items()]
            self._announce(workload, changes, now, dropped)
            known |= {kind: one.now for kind, one in told.items()}
            self._leaning[workload] = {kind: one for kind, one in leanings.items() if kind not in told}
            is_changed = True
        return Taken(is_changed, dropped)

    def _announce(self, workload: str, changes: list[Change], now: datetime, dropped: dict[str, int]) -> None:
        said = headline(self._latest[workload], Facts(now, workload=self._workloads.get(workload)))
        for name, webhook in self._webhooks.items():
            wanted = [change for change in changes if change.kind in webhook.kinds]
            if not wanted or (webhook.workloads and workload not in webhook.workloads):
                continue
            waiting = self._pending[name]
            waiting.append(Notice.of(workload, wanted, said))
            if len(waiting) > self._most:
                # The first may be on its way at this moment; what it says is the oldest all the same.
                del waiting[0]
                dropped[name] = dropped.get(name, 0) + 1

    def next(self, webhook: str) -> Notice | None:
        """Return the notice to send next, or None."""
        return next(iter(self._pending[webhook]), None)

    def done(self, webhook: str, notice: Notice) -> None:
        """Forget a notice that was delivered, or never will be."""
        self._pending[webhook] = [one for one in self._pending[webhook] if one.notice_id != notice.notice_id]

    def state(self) -> bytes:
        """Return all as JSON."""
        return _STATE.dump_json(_State(_FORMAT, self._known, self._pending))

    def load(self, state: bytes) -> None:
        """Take a former :meth:`state` back, for the webhooks that are still configured. Raises ValueError for none."""
        found = _STATE.validate_json(state)
        self._known = found.known
        self._pending = {name: found.pending.get(name, []) for name in self._webhooks}


@dataclass(frozen=True, slots=True)
class _State:
    format: Literal[2]
    known: dict[str, dict[NoticeKind, Condition]]
    pending: dict[str, list[Notice]]


_STATE = TypeAdapter(_State)
