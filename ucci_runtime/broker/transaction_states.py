"""The transactional producer's states, and what to do when one of its calls fails.

::

            ┌────────────────── abandoned ───────────────────┐
            ▼                                                │
    ─► STARTING ─initialised─► READY ─begun─► PRODUCING ─offsets_sent─► COMMITTING
                                 ▲  ▲             │                       │  │
                                 │  └─────────────┼──── committed ────────┘  │
                                 │              failed                     failed
                                 │                ▼                          │
                                 └─ aborted ── ABORTING ◄────────────────────┘

    any state but CLOSED ─fenced─► FENCED ─closed─► CLOSED          any state ─closed─► CLOSED

A state machine: each event leads to the next state, and each failure to its remedy; no call is made here. A transaction
is begun, filled, given its offsets and committed in one go: an open one that is left alone blocks every reader of its
partitions.
"""

from __future__ import annotations

from enum import Enum

from ucci_runtime.broker.errors import (
    AbortTransaction,
    AccessDenied,
    BrokerError,
    Fenced,
    IllegalTransition,
    RecreateProducer,
    RetryCall,
)


class State(Enum):
    """Where the producer stands."""

    STARTING = "starting"
    READY = "ready"
    PRODUCING = "producing"
    COMMITTING = "committing"
    ABORTING = "aborting"
    FENCED = "fenced"
    CLOSED = "closed"


class Event(Enum):
    """What happened to the producer."""

    INITIALISED = "initialised"
    BEGUN = "begun"
    OFFSETS_SENT = "offsets_sent"
    COMMITTED = "committed"
    FAILED = "failed"
    ABORTED = "aborted"
    ABANDONED = "abandoned"
    FENCED = "fenced"
    CLOSED = "closed"


class Remedy(Enum):
    """What to do after a failed call."""

    #: Make the same call again.
    REPEAT = "repeat"

    #: Abort the transaction; its results go into the next one.
    ABORT = "abort"

    #: Leave this producer, make one under the same transactional id, and ask the group what was committed.
    ABANDON = "abandon"

    #: End the process with the error.
    STOP = "stop"


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.STARTING: {
        Event.INITIALISED: State.READY,
        Event.ABANDONED: State.STARTING,
        Event.FENCED: State.FENCED,
        Event.CLOSED: State.CLOSED,
    },
    State.READY: {
        Event.BEGUN: State.PRODUCING,
        Event.ABANDONED: State.STARTING,
        Event.FENCED: State.FENCED,
        Event.CLOSED: State.CLOSED,
    },
    State.PRODUCING: {
        Event.OFFSETS_SENT: State.COMMITTING,
        Event.FAILED: State.ABORTING,
        Event.ABANDONED: State.STARTING,
        Event.FENCED: State.FENCED,
        Event.CLOSED: State.CLOSED,
    },
    State.COMMITTING: {
        Event.COMMITTED: State.READY,
        Event.FAILED: State.ABORTING,
        Event.ABANDONED: State.STARTING,
        Event.FENCED: State.FENCED,
        Event.CLOSED: State.CLOSED,
    },
    State.ABORTING: {
        Event.ABORTED: State.READY,
        Event.ABANDONED: State.STARTING,
        Event.FENCED: State.FENCED,
        Event.CLOSED: State.CLOSED,
    },
    State.FENCED: {Event.CLOSED: State.CLOSED},
    State.CLOSED: {},
}

_ABORTABLE = frozenset({State.PRODUCING, State.COMMITTING})

# In which order: the first class that the error is an instance of decides. What cannot be aborted is abandoned.
_REMEDIES: tuple[tuple[type[BrokerError], Remedy], ...] = (
    (Fenced, Remedy.STOP),
    (AccessDenied, Remedy.STOP),
    (RetryCall, Remedy.REPEAT),
    (AbortTransaction, Remedy.ABORT),
    (RecreateProducer, Remedy.ABANDON),
)


class Transaction:
    """The state of one transactional id.

    Examples
    --------
    >>> transaction = Transaction()
    >>> transaction.advance(Event.INITIALISED)
    <State.READY: 'ready'>
    """

    def __init__(self) -> None:
        self._state = State.STARTING
        self._late_starters = 0

    @property
    def state(self) -> State:
        """Where the producer stands."""
        return self._state

    def advance(self, event: Event) -> State:
        """Go to the next state.

        Raises IllegalTransition when the event has no place here; the state is then as before.
        """
        following = TRANSITIONS[self._state].get(event)
        if following is None:
            raise IllegalTransition(f"{event.value} cannot happen in state {self._state.value}")
        if self._state is State.STARTING and event is Event.ABANDONED:
            # It was left while it started: it may finish that later, and fence its successor.
            self.expect_fences(1)
        self._state = following
        return following

    def expect_fences(self, count: int) -> None:
        """Note starts that were sent and not answered: each may come late, and fence whoever started after it."""
        self._late_starters += count

    def forgive_fence(self) -> bool:
        """Return whether a fence may come from a late start of our own, rather than from another process.

        Each start that nobody saw end is forgiven one fence.

        Examples
        --------
        >>> transaction = Transaction()
        >>> transaction.advance(Event.ABANDONED)
        <State.STARTING: 'starting'>
        >>> transaction.forgive_fence(), transaction.forgive_fence()
        (True, False)
        """
        if not self._late_starters:
            return False
        self._late_starters -= 1
        return True


def remedy(state: State, error: BrokerError, *, out_of_time: bool) -> Remedy:
    """Say what to do about a failed call.

    Parameters
    ----------
    state : State
        In which the call was made.
    out_of_time : bool
        Whether the time for repeating the call is over; aborting after a time-out is what ends in a fatal error, so
        the producer is abandoned instead.

    Examples
    --------
    >>> remedy(State.COMMITTING, RetryCall("timed out"), out_of_time=True)
    <Remedy.ABANDON: 'abandon'>
    """
    found = next((remedy for kind, remedy in _REMEDIES if isinstance(error, kind)), Remedy.ABANDON)
    if found is Remedy.REPEAT and out_of_time:
        return Remedy.ABANDON
    if found is Remedy.ABORT and state not in _ABORTABLE:
        return Remedy.ABANDON
    return found
