"""Whether the clients of a process and the broker still talk: the broker is away, or only this client is cut off.

A client that waits looks the same whether nothing comes, the broker stands still or the client has lost its way to it.
So a client that has heard nothing for some seconds is asked a question whose answer it must fetch. Where it gets none,
a new client is asked the same: if that one is answered, the old one is cut off and replaced. If the next one is cut off
too, the process ends, to be started again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Literal, NamedTuple

from ucci_runtime.broker.records import Input

#: Silence after which a client is asked, and time between two questions: one small request from idle clients.
ASK_S = 8.0

#: How long a member may wait for its partitions while its group's coordinator answers. A rebalance takes as long as its
#: slowest member needs to commit, up to 20 s; one that was killed without a successor keeps its place for a session.
UNASSIGNED_S = 30.0

#: Silence that `/healthz` reports: two questions without an answer.
SILENT_S = 20.0

#: Silence towards every client of a process after which the broker is away: one question without an answer.
AWAY_S = 10.0


class Heard(NamedTuple):
    """When any client of a process last heard the broker, since when without a gap, and its address."""

    at: datetime
    since: datetime
    is_away: bool
    address: str = ""


class Health(NamedTuple):
    """What `/healthz` says: a restart ends ``stuck``, not ``waiting``. ``heard`` is None while nobody listens."""

    status: Literal["alive", "waiting", "stuck"] = "alive"
    reason: str = ""
    heard: Heard | None = None

    def answer(self) -> tuple[dict[str, str], HTTPStatus]:
        """Return the body and the status of an answer; 503 only where a restart would help."""
        stuck = self.status == "stuck"
        found = {"status": self.status, "reason": self.reason}
        return {k: v for k, v in found.items() if v}, HTTPStatus.SERVICE_UNAVAILABLE if stuck else HTTPStatus.OK


def readiness(missing: Collection[str]) -> tuple[dict[str, str | list[str]], HTTPStatus]:
    """Return the body and the status of an answer of `/readyz`, which names what is missing."""
    if missing:
        return {"status": "not ready", "missing": list(missing)}, HTTPStatus.SERVICE_UNAVAILABLE
    return {"status": "ready"}, HTTPStatus.OK


class Contact:
    """One client's contact with the broker, by a clock that never goes back, in seconds.

    Examples
    --------
    >>> contact = Contact("intake", 0.0)
    >>> contact.heard(1.0)
    >>> contact.is_due(8.0), contact.is_due(9.0)
    (False, True)
    """

    def __init__(self, name: str, now_s: float) -> None:
        self.name = name
        self.heard_s: float | None = now_s
        """When the broker was last heard; None where nobody listens."""

        self.since_s = now_s
        """Since when it has been heard without a gap."""

        self.is_cut_off = False
        """Whether the broker answers others, and did not answer this client."""

        self._asked_s = now_s
        self._unassigned_s: float | None = None

    def heard(self, now_s: float) -> None:
        """Note records, or the end of a partition."""
        self._note(now_s)
        self.is_cut_off = False

    def answered(self, now_s: float) -> None:
        """Note the answer to a question; to a member that waits for its partitions it proves little."""
        self._note(now_s)
        self.is_cut_off &= self._unassigned_s is not None

    def _note(self, now_s: float) -> None:
        if self.heard_s is None or now_s - self.heard_s >= AWAY_S:
            self.since_s = now_s
        self.heard_s = now_s

    def closed(self) -> None:
        """Note that nobody listens any more."""
        self.heard_s = None

    def joining(self, now_s: float) -> None:
        """Note that the member waits for its partitions."""
        if self._unassigned_s is None:
            self._unassigned_s = now_s

    def assigned(self, now_s: float) -> None:
        """Note that the member was given its partitions, though there be none."""
        self._unassigned_s = None
        self.heard(now_s)

    def is_due(self, now_s: float) -> bool:
        """Return whether to ask now, and note that it is done."""
        if self.heard_s is None or now_s - max(self.heard_s, self._asked_s) < ASK_S:
            return False
        self._asked_s = now_s
        return True

    def waits_too_long(self, now_s: float) -> bool:
        """Return whether the member should have been given its partitions by now."""
        return self._unassigned_s is not None and now_s - self._unassigned_s >= UNASSIGNED_S

    def cut_off(self, now_s: float) -> bool:
        """Note that others are answered; return whether that was so for the client before this one, too."""
        again, self.is_cut_off = self.is_cut_off, True
        self._asked_s = now_s
        self._unassigned_s = None if self._unassigned_s is None else now_s
        return again


def health(contacts: Iterable[Contact], now_s: float, now_utc_s: float, busy_s: Iterable[float | None] = ()) -> Health:
    """Return how a process's clients stand, by the one that has heard nothing for longest.

    ``now_s``, ``now_utc_s``: now, on the contacts' clock and as a Unix time.
    """
    found = list(contacts)
    heard = _heard(found, now_s, now_utc_s)
    stuck = [contact.name for contact in found if contact.is_cut_off]
    if stuck:
        return Health("stuck", f"{', '.join(stuck)}: the broker answers other clients, and not this one", heard)
    since = [(contact.heard_s, "Kafka has not answered") for contact in found if contact.heard_s is not None]
    since += [(began_s, "a transaction has not ended") for began_s in busy_s if began_s is not None]
    oldest_s, what = min(since, default=(now_s, ""))
    if now_s - oldest_s < SILENT_S:
        return Health(heard=heard)
    at = datetime.fromtimestamp(now_utc_s - (now_s - oldest_s), UTC)
    return Health("waiting", f"{what} since {at:%Y-%m-%dT%H:%M:%SZ}", heard)


def _heard(contacts: Sequence[Contact], now_s: float, now_utc_s: float) -> Heard | None:
    heard = [(one.heard_s, one.since_s) for one in contacts if one.heard_s is not None]
    if not heard:
        return None
    latest_s, _ = max(heard)
    # A client that has just begun makes no gap.
    since_s = min(since_s for heard_s, since_s in heard if latest_s - heard_s < AWAY_S)
    at, since = (datetime.fromtimestamp(now_utc_s - (now_s - one_s), UTC) for one_s in (latest_s, since_s))
    return Heard(at, since, is_away=now_s - latest_s >= AWAY_S)


#: Silence of a partition after which the broker is asked about it, in seconds.
STILL_S = 30.0

#: Longest pause between two polls; after a longer one everybody's silence begins again.
GAP_S = 5.0

#: Partitions asked about at a time.
MOST = 4


class Standstill:
    """Follows what a member hears of its partitions, by a clock that never goes back, in seconds.

    Examples
    --------
    >>> busy, idle = Input("results", 0), Input("results", 1)
    >>> watch = Standstill(still_s=2.0)
    >>> watch.assigned([busy, idle], 0.0)
    >>> for now_s in (1.0, 2.0, 3.0):
    ...     watch.polled(now_s)
    ...     watch.heard(busy, now_s)
    ...     watch.drained(now_s)
    >>> watch.suspects(paused=())
    [Input(topic='results', partition=1)]
    """

    def __init__(self, still_s: float = STILL_S) -> None:
        self._still_s = still_s
        self._heard_s: dict[Input, float] = {}
        self._polled_s = math.inf
        self._drained_s = -math.inf

    def assigned(self, sources: Iterable[Input], now_s: float) -> None:
        """Begin with these partitions."""
        self._heard_s = dict.fromkeys(sources, now_s)

    def polled(self, now_s: float) -> None:
        """Note that the client is polled now; records waited in it during a long gap."""
        if now_s - self._polled_s > GAP_S:
            self.assigned(self._heard_s, now_s)
        self._polled_s = now_s

    def heard(self, source: Input, now_s: float) -> None:
        """Note a record or the end of a partition, or an answer of the broker's about it."""
        if source in self._heard_s:
            self._heard_s[source] = now_s

    def drained(self, now_s: float) -> None:
        """Note that nothing waits in the client."""
        self._drained_s = now_s

    def suspects(self, paused: Collection[Input]) -> list[Input]:
        """Return the partitions to ask the broker about, the longest silent first."""
        silent = sorted(
            (heard_s, source)
            for source, heard_s in self._heard_s.items()
            if self._drained_s - heard_s >= self._still_s and source not in paused
        )
        return [source for _, source in silent[:MOST]]
