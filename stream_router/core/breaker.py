"""Health of one model server, told from the outcomes of its calls: the state machine of a circuit breaker. Pure.

::

               failures in a row ≥ limit, or an outage           success
    CLOSED ───────────────────────────────────────────▶ OPEN ──────────▶ CLOSED
                                                        ▲  │
                                           failure      │  │ probe sent
                                                        │  ▼
                                                      HALF_OPEN ───────▶ CLOSED
                                                                success

Closed, calls go through. Open and half-open, they fail at once, so that nobody waits for a server that is down; a
probe, a real completion, tells when it is back. A success always closes: whoever asked, the server answers.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal


class State(Enum):
    """State of a breaker; the value is what people read in the status."""

    CLOSED = "up"
    HALF_OPEN = "probing"
    OPEN = "down"


class Event(Enum):
    """What can happen to a breaker."""

    SUCCESS = "success"
    """A call or a probe was answered."""
    FAILURE = "failure"
    """One attempt failed; by itself it means little while calls go through."""
    OUTAGE = "outage"
    """What was learnt leaves no doubt: nothing was answered in a whole round of attempts, or nobody can be."""
    PROBE_SENT = "probe_sent"


_NEXT: dict[State, dict[Event, State]] = {
    State.CLOSED: {
        Event.SUCCESS: State.CLOSED,
        Event.FAILURE: State.CLOSED,
        Event.OUTAGE: State.OPEN,
    },
    State.OPEN: {
        Event.SUCCESS: State.CLOSED,
        Event.FAILURE: State.OPEN,
        Event.OUTAGE: State.OPEN,
        Event.PROBE_SENT: State.HALF_OPEN,
    },
    State.HALF_OPEN: {
        Event.SUCCESS: State.CLOSED,
        Event.FAILURE: State.OPEN,
        Event.OUTAGE: State.OPEN,
        Event.PROBE_SENT: State.HALF_OPEN,
    },
}


class IllegalTransitionError(RuntimeError):
    """An event that cannot happen in this state; the program is at fault."""


class Breaker:
    """Health of one server.

    Parameters
    ----------
    failure_limit : int
        Failures in a row, with no success between them, that count as an outage.
    first_pause_s, max_pause_s : float
        From opening to the first probe, and between probes at most; each pause is 1.6 times the one before.

    Attributes
    ----------
    state : State
    successes : int
        Grows with every success; two readings tell whether the server answered anything in between.
    since_s : float
        When the state was entered, on the clock of ``now_s``.
    """

    def __init__(self, failure_limit: int = 5, first_pause_s: float = 0.2, max_pause_s: float = 1.0) -> None:
        self._failure_limit = failure_limit
        self._first_pause_s = first_pause_s
        self._max_pause_s = max_pause_s
        self._failures_in_a_row = 0
        self._pause_s = first_pause_s
        self._probe_at_s = 0.0
        self.state = State.CLOSED
        self.successes = 0
        self.since_s = 0.0

    @property
    def is_closed(self) -> bool:
        """Whether calls may be made."""
        return self.state is State.CLOSED

    @property
    def health(self) -> Literal["up", "probing", "down"]:
        """The state in the words of the status."""
        return self.state.value

    def advance(self, event: Event, now_s: float) -> State:
        """Take one event and return the state after it.

        Parameters
        ----------
        event : Event
        now_s : float
            Monotonic seconds.

        Raises
        ------
        IllegalTransitionError
            If a probe is sent while calls go through; the breaker stays as it was.

        Examples
        --------
        >>> breaker = Breaker(failure_limit=2)
        >>> [breaker.advance(Event.FAILURE, now).value for now in (0.0, 1.0)]
        ['up', 'down']
        """
        before = self.state
        if event is Event.FAILURE and before is State.CLOSED and self._failures_in_a_row + 1 >= self._failure_limit:
            event = Event.OUTAGE
        after = _NEXT[before].get(event)
        if after is None:
            raise IllegalTransitionError(f"{event.value} while {before.value}")
        if event is Event.SUCCESS:
            self.successes += 1
            self._failures_in_a_row = 0
        elif event is Event.PROBE_SENT:
            self._pause_s = min(self._max_pause_s, self._pause_s * 1.6)
            self._probe_at_s = now_s + self._pause_s
        else:
            self._failures_in_a_row += 1
        if before is State.CLOSED and after is State.OPEN:
            self._pause_s = self._first_pause_s
            self._probe_at_s = now_s + self._pause_s
        if after is not before:
            self.state, self.since_s = after, now_s
        return after

    def probe_in_s(self, now_s: float) -> float:
        """Return the seconds until the next probe is due, 0 when it is; meaningless while closed."""
        return max(0.0, self._probe_at_s - now_s)
