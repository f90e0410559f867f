"""What was announced of each workload, and what each webhook has yet to be sent. Pure.

Announced and pending are one state, stored together before anything is sent: a process that dies then sends the same
notices again, under the same ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Literal, NamedTuple

from pydantic import TypeAdapter

from recalibrator.headlines.facts import Facts
from recalibrator.headlines.rules import headline
from recalibrator.notify.notices import Change, Condition, Leaning, Notice, conditions, leaning
from schemas.settings import NoticeKind, Webhook, WorkloadSettings
from schemas.status import WorkloadStatus

_FORMAT: Literal[2] = 2


class Taken(NamedTuple):
    """What has come of it: whether anything is to be stored, and by webhook, how many notices were dropped."""

    is_changed: bool
    dropped: Mapping[str, int]


class Outbox:
    """Notices on their way. ``most``: notices that wait for one webhook; beyond it the oldest is dropped."""

    def __init__(
        self,
        webhooks: Mapping[str, Webhook],
        most: int,
        workloads: Mapping[str, WorkloadSettings] = MappingProxyType({}),
    ) -> None:
        self._webhooks = webhooks
        self._most = most
        self._workloads = workloads
        self._known: dict[str, dict[NoticeKind, Condition]] = {}
        self._pending: dict[str, list[Notice]] = {name: [] for name in webhooks}
        self._latest: dict[str, WorkloadStatus] = {}
        self._leaning: dict[str, dict[NoticeKind, Leaning]] = {}
        self._is_changed = False

    def take(self, status: WorkloadStatus, now: datetime) -> None:
        """Take a status in; what has changed is announced by :meth:`settle`, once it has lasted.

        ``now``: stands in for the time of a status that has none.
        """
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
            self._announce(
                workload, [Change(kind, known.get(kind), one.now) for kind, one in told.items()], now, dropped
            )
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
        waiting = self._pending[webhook]
        return waiting[0] if waiting else None

    def done(self, webhook: str, notice: Notice) -> None:
        """Forget a notice that was delivered, or never will be."""
        self._pending[webhook] = [one for one in self._pending[webhook] if one.notice_id != notice.notice_id]

    def state(self) -> bytes:
        """Return all as JSON."""
        return _STATE.dump_json(_State(_FORMAT, self._known, self._pending))

    def load(self, state: bytes) -> None:
        """Take a former :meth:`state` back; webhooks that are configured no longer are left out.

        Raises ValueError when it is none.
        """
        found = _STATE.validate_json(state)
        self._known = found.known
        self._pending = {name: found.pending.get(name, []) for name in self._webhooks}


@dataclass(frozen=True, slots=True)
class _State:
    format: Literal[2]
    known: dict[str, dict[NoticeKind, Condition]]
    pending: dict[str, list[Notice]]


_STATE = TypeAdapter(_State)
