"""Health of one model server: whether it answers anybody, as a circuit breaker, and its latencies. Pure.

::

             failure            probes fail, nobody answered
    CLOSED ──────────▶ SUSPECT ─────────────────────────────▶ OPEN ⇄ HALF_OPEN
      ▲  ▲                │                                    │        │
      │  └── success ─────┘                                    │        │
      └────────────────── success ─────────────────────────────┴────────┘

A failed call may be the fault of its query, or the sign of a server that has too much to do; neither makes the server
absent. A refused one may show a server that refuses everybody, which is as good as absent. So a failure or a refusal
only raises suspicion: calls go through as before, and unless another call is answered first, a probe (a real completion
of one token) asks the server itself. Calls stop only when several probes in a row fail, or wait longer than a busy
server would let them, and nothing else was answered meanwhile; or at once, when a probe is refused, too. Probes go on,
and any answer to any call closes the breaker again.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Literal

#: From the first failure to the first probe, and between probes at most; each pause is 1.6 times the one before.
FIRST_PAUSE_S, MAX_PAUSE_S = 0.2, 1.0

#: Failed probes and refused connections in a row, nothing being answered between them, that count as absence. Of a
#: server that fails each call with probability .3, three in a row are 3%, and only if no other call is answered within
#: the second that three probes take.
FAILURE_LIMIT = 3

Health = Literal["up", "probing", "down"]
Quantile = Literal["p50", "p90", "p99"]

_SHARES: dict[Quantile, float] = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


class HealthState(Enum):
    """State of a breaker."""

    CLOSED = "closed"
    SUSPECT = "suspect"
    HALF_OPEN = "half_open"
    OPEN = "open"


_HEALTH: dict[HealthState, Health] = {
    HealthState.CLOSED: "up",
    HealthState.SUSPECT: "up",
    HealthState.HALF_OPEN: "probing",
    HealthState.OPEN: "down",
}


class HealthEvent(Enum):
    """What can happen to a breaker."""

    #: A call or a probe was answered.
    SUCCESS = "success"
    #: A call failed, or was refused, after the server had received it; whose fault that is remains open.
    FAILURE = "failure"
    #: No connection: that is never the fault of a query, so it counts like a failed probe.
    UNREACHABLE = "unreachable"
    PROBE_SENT = "probe_sent"
    #: A probe got an error.
    PROBE_FAILED = "probe_failed"
    #: A probe was sent away (429, 503) or not answered in time: the server may be busy with calls sent before.
    PROBE_DELAYED = "probe_delayed"
    #: Nobody can be answered as configured: a wrong address, model name, key or parameter.
    OUTAGE = "outage"


_DOUBTED = (HealthEvent.FAILURE, HealthEvent.UNREACHABLE, HealthEvent.PROBE_FAILED, HealthEvent.PROBE_DELAYED)
_CLOSED_OR_GONE = {HealthEvent.SUCCESS: HealthState.CLOSED, HealthEvent.OUTAGE: HealthState.OPEN}
_IN_DOUBT = _CLOSED_OR_GONE | dict.fromkeys(_DOUBTED, HealthState.SUSPECT)
_ABSENT = _CLOSED_OR_GONE | dict.fromkeys(_DOUBTED, HealthState.OPEN) | {HealthEvent.PROBE_SENT: HealthState.HALF_OPEN}

#: Besides, SUSPECT becomes OPEN with the failure that reaches the limit, and with a probe delayed beyond patience.
_NEXT: dict[HealthState, dict[HealthEvent, HealthState]] = {
    HealthState.CLOSED: _IN_DOUBT,
    HealthState.SUSPECT: _IN_DOUBT | {HealthEvent.PROBE_SENT: HealthState.SUSPECT},
    HealthState.OPEN: _ABSENT,
    HealthState.HALF_OPEN: _ABSENT,
}

_COUNTED = frozenset({HealthEvent.UNREACHABLE, HealthEvent.PROBE_FAILED})


class Breaker:
    """Presence of one server.

    ``patience_s``: how long after the first failure a server that sends probes away, or leaves them waiting, counts as
    busy rather than absent. ``successes`` grows with every success; two readings show whether the server answered
    anything in between. ``since_s``: when the state was entered.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._failures_in_a_row = 0
        self._pause_s = FIRST_PAUSE_S
        self._probe_at_s = 0.0
        self.state = HealthState.CLOSED
        self.successes = 0
        self.since_s = 0.0

    @property
    def is_closed(self) -> bool:
        """Whether there is no doubt that the server answers."""
        return self.state is HealthState.CLOSED

    @property
    def lets_through(self) -> bool:
        """Whether calls may be made."""
        return self.state in (HealthState.CLOSED, HealthState.SUSPECT)

    @property
    def health(self) -> Health:
        """The state in the words of the status."""
        return _HEALTH[self.state]

    def advance(self, event: HealthEvent, now_s: float) -> HealthState:
        """Take one event and return the state after it.

        ``now_s``: monotonic seconds. Raises RuntimeError if a probe is sent while there is no doubt; the breaker stays
        as it was.
        """
        before = self.state
        after = _NEXT[before].get(event)
        if after is None:
            raise RuntimeError(f"{event.value} while {before.value}")
        if event is HealthEvent.SUCCESS:
            self.successes += 1
            self._failures_in_a_row = 0
        elif event is HealthEvent.PROBE_SENT:
            self._pause_s = min(MAX_PAUSE_S, self._pause_s * 1.6)
            self._probe_at_s = now_s + self._pause_s
        else:
            self._failures_in_a_row += event in _COUNTED
        if before is HealthState.SUSPECT and self._is_gone(event, now_s):
            after = HealthState.OPEN
        if before is HealthState.CLOSED and after is not HealthState.CLOSED:
            self._pause_s = FIRST_PAUSE_S
            self._probe_at_s = now_s + self._pause_s
        if after is not before:
            self.state, self.since_s = after, now_s
        return after

    def _is_gone(self, event: HealthEvent, now_s: float) -> bool:
        if event is HealthEvent.PROBE_DELAYED:
            return now_s - self.since_s >= self._patience_s
        return event in _COUNTED and self._failures_in_a_row >= FAILURE_LIMIT

    def probe_in_s(self, now_s: float) -> float:
        """Return the seconds until the next probe is due, 0 when it is; meaningless while closed."""
        return max(0.0, self._probe_at_s - now_s)


class LatencyWindow:
    """The last calls' latencies."""

    def __init__(self, size: int = 1_000) -> None:
        self._kept: deque[float] = deque(maxlen=size)
        self._sum_s = 0.0

    @property
    def mean_s(self) -> float | None:
        """Mean in seconds, None before the first call."""
        return max(0.0, self._sum_s) / len(self._kept) if self._kept else None

    def add(self, latency_s: float) -> None:
        """Add one call's latency, in seconds; beyond the size the oldest is dropped."""
        if len(self._kept) == self._kept.maxlen:
            self._sum_s -= self._kept[0]
        self._kept.append(latency_s)
        self._sum_s += latency_s

    def quantiles_s(self) -> dict[Quantile, float]:
        """Return the median, 90th and 99th percentile in seconds; empty before the first call."""
        if not self._kept:
            return {}
        ordered = sorted(self._kept)
        return {name: ordered[int(share * (len(ordered) - 1))] for name, share in _SHARES.items()}
