"""What was announced of each workload, and what each webhook has yet to be sent. Pure.

Announced and pending are one state, stored together before anything is sent: a process that dies then sends the same
notices again, under the same ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from pydantic import TypeAdapter

from recalibrator.notify.notices import Condition, Notice, changes, conditions
from schemas.settings import NoticeKind, Webhook
from schemas.status import WorkloadStatus

_FORMAT: Literal[1] = 1


class Taken(NamedTuple):
    """What a status has changed: whether anything is to be stored, and by webhook, how many notices were dropped."""

    is_changed: bool
    dropped: Mapping[str, int]


class Outbox:
    """Notices on their way. ``most``: notices that wait for one webhook; beyond it the oldest is dropped."""

    def __init__(self, webhooks: Mapping[str, Webhook], most: int) -> None:
        self._webhooks = webhooks
        self._most = most
        self._known: dict[str, dict[NoticeKind, Condition]] = {}
        self._pending: dict[str, list[Notice]] = {name: [] for name in webhooks}

    def take(self, status: WorkloadStatus, now: datetime) -> Taken:
        """Take a status in; what there is to announce waits from now on.

        ``now``: stands in for the time of a status that has none.
        """
        known = self._known.get(status.workload, {})
        at = status.updated_at or now
        dropped: dict[str, int] = {}
        for notice in changes(known, status, at):
            for name, webhook in self._webhooks.items():
                if not _wants(webhook, notice):
                    continue
                waiting = self._pending[name]
                waiting.append(notice)
                if len(waiting) > self._most:
                    # The first may be on its way at this moment; what it says is the oldest all the same.
                    del waiting[0]
                    dropped[name] = dropped.get(name, 0) + 1
        # What stays as it was keeps the time since when.
        found = {
            kind: known[kind] if kind in known and known[kind].value == one.value else one
            for kind, one in conditions(status, at).items()
        }
        self._known[status.workload] = found
        return Taken(found != known, dropped)

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
    format: Literal[1]
    known: dict[str, dict[NoticeKind, Condition]]
    pending: dict[str, list[Notice]]


_STATE = TypeAdapter(_State)


def _wants(webhook: Webhook, notice: Notice) -> bool:
    return notice.kind in webhook.kinds and (not webhook.workloads or notice.workload in webhook.workloads)
