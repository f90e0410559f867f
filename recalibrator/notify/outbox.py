"""What was announced of each workload, and what each webhook has yet to be sent. Pure.

Announced and pending are one state, stored together before anything is sent: a process that dies then sends the same
notices again, under the same ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, NamedTuple

from recalibrator.notify.notices import Condition, Notice, changes, conditions
from schemas.settings import NoticeKind, Webhook
from schemas.status import WorkloadStatus

_FORMAT = 1


class Taken(NamedTuple):
    """What a status has changed: whether anything is to be stored, and by webhook, how many notices were dropped."""

    is_changed: bool
    dropped: Mapping[str, int]


class Outbox:
    """Notices on their way.

    Parameters
    ----------
    most : int
        Notices that wait for one webhook; beyond it the oldest is dropped.
    """

    def __init__(self, webhooks: Mapping[str, Webhook], most: int) -> None:
        self._webhooks = webhooks
        self._most = most
        self._known: dict[str, dict[NoticeKind, Condition]] = {}
        self._pending: dict[str, list[Notice]] = {name: [] for name in webhooks}

    def take(self, status: WorkloadStatus, now: datetime) -> Taken:
        """Take a status in; what there is to announce waits from now on.

        Parameters
        ----------
        now : datetime
            Stands in for the time of a status that has none.
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

    def state(self) -> dict[str, Any]:
        """Return all as JSON values."""
        return {
            "format": _FORMAT,
            "known": {
                workload: {kind: asdict(one) for kind, one in by_kind.items()}
                for workload, by_kind in self._known.items()
            },
            "pending": {name: [asdict(one) for one in waiting] for name, waiting in self._pending.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take a former :meth:`state` back; webhooks that are configured no longer are left out.

        Raises
        ------
        ValueError, KeyError, TypeError
            When it is none.
        """
        if state["format"] != _FORMAT:
            raise ValueError(f"format is {state['format']}, this release reads {_FORMAT}")
        known = {
            workload: {kind: Condition(**one) for kind, one in by_kind.items()}
            for workload, by_kind in state["known"].items()
        }
        pending = {name: [_notice(one) for one in state["pending"].get(name, ())] for name in self._webhooks}
        self._known, self._pending = known, pending


def _wants(webhook: Webhook, notice: Notice) -> bool:
    return notice.kind in webhook.kinds and (not webhook.workloads or notice.workload in webhook.workloads)


def _notice(one: Mapping[str, Any]) -> Notice:
    before = one["before"]
    parts = {"before": None if before is None else Condition(**before), "now": Condition(**one["now"])}
    return Notice(**{**one, **parts})
