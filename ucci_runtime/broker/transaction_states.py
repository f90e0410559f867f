"""The transactional producer's states, what to do when one of its calls fails, and what may still arrive of it.

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

Late requests: which requests of a producer may still be on the network, sent and never answered.

A connection breaks after a producer has sent EndTxn. The client sends it again on a new connection, and the broker
answers that one. The first one may still lie in a proxy, a load balancer or a broker that stands still, and arrive in
the middle of the producer's next transaction. It carries the same producer id and epoch, so the broker takes it for the
end of that transaction (KAFKA-17754). Offsets are committed without their records, or records without their offsets:
results are lost or doubled without an error anywhere. The other requests of a transaction can come late as well.

There are two ways to prevent it:

(a) order the requests so that an early end does no harm: send the offsets only after the records were acknowledged. A
    late commit then finds the records without their offsets, and a late abort the offsets without the records: it moves
    the window and does not close it;
(b) raise the epoch before the next transaction begins: InitProducerId makes the broker refuse every request of the
    epoch before (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED), however late it comes.

We take (b), and only where a request was left without an answer, since a new epoch needs a new producer. The sign is
exact rather than a time limit: the client logs each request as it was sent and each answer as it was read, with the
connection and a number. It rests on the wording of these lines, so silence counts as bad news: unless the last thing
that was answered is InitProducerId or EndTxn, the epoch is raised. A client that words them otherwise makes each commit
slow, and none wrong.

What follows: when a transaction begins, no request of its epoch is on the network, so all that arrives in it belongs to
it. Its records and offsets are committed together or not at all, and the group's offsets show which.

What remains: InitProducerId itself may come late. It aborts the open transaction as a whole and fences the producer,
which is forgiven once for each that was not answered. That a late request of an older epoch is refused was measured on
brokers 4.1; old ones check less (KIP-890, part 1). The newer protocol ends all of this: with ``transaction.version=2``
each EndTxn of version 5 raises the epoch by itself (KIP-890, part 2). librdkafka 2.16 speaks version 1.
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


_WHEREVER_IT_WORKS = {Event.ABANDONED: State.STARTING, Event.FENCED: State.FENCED, Event.CLOSED: State.CLOSED}
TRANSITIONS: dict[State, dict[Event, State]] = {
    State.STARTING: {Event.INITIALISED: State.READY, **_WHEREVER_IT_WORKS},
    State.READY: {Event.BEGUN: State.PRODUCING, **_WHEREVER_IT_WORKS},
    State.PRODUCING: {Event.OFFSETS_SENT: State.COMMITTING, Event.FAILED: State.ABORTING, **_WHEREVER_IT_WORKS},
    State.COMMITTING: {Event.COMMITTED: State.READY, Event.FAILED: State.ABORTING, **_WHEREVER_IT_WORKS},
    State.ABORTING: {Event.ABORTED: State.READY, **_WHEREVER_IT_WORKS},
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
    """The state of one transactional id."""

    def __init__(self) -> None:
        self.state = State.STARTING
        self._late_starters = 0

    def advance(self, event: Event) -> State:
        """Go to the next state. Raises IllegalTransition, and stays, when the event has no place here."""
        following = TRANSITIONS[self.state].get(event)
        if following is None:
            raise IllegalTransition(f"{event.value} cannot happen in state {self.state.value}")
        if self.state is State.STARTING and event is Event.ABANDONED:
            # It was left while it started: it may finish that later, and fence its successor.
            self.expect_fences(1)
        self.state = following
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

    ``state``: in which the call was made. ``out_of_time``: whether the time for repeating the call is over; aborting
    after a time-out is what ends in a fatal error, so the producer is abandoned instead.

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


INITIALISE = "InitProducerId"
END = "EndTxn"
#: Kinds of requests, by their names in the protocol, that carry the producer's id and epoch.
TRANSACTIONAL = frozenset({INITIALISE, "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "Produce", END})


class UnansweredRequests:
    """What one producer has sent and had answered, request by request.

    Examples
    --------
    >>> requests = UnansweredRequests()
    >>> for kind, number in ((INITIALISE, 1), ("Produce", 2), (END, 3)):
    ...     requests.sent(kind, "coordinator", number)
    ...     requests.answered(kind, "coordinator", number)
    >>> requests.may_arrive
    False
    >>> requests.sent(END, "coordinator", 4)
    >>> requests.sent(END, "coordinator", 5)
    >>> requests.answered(END, "coordinator", 5)
    >>> requests.may_arrive
    True
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int], str] = {}
        self._overtaken = False
        self._last_answered = ""

    @property
    def may_arrive(self) -> bool:
        """Whether a request may still arrive, or nothing shows that none can; asked between two transactions."""
        return self._overtaken or bool(self._waiting) or self._last_answered not in {INITIALISE, END}

    @property
    def late_starts(self) -> int:
        """Number of initialisations that were not answered: each may fence this producer once."""
        return sum(kind == INITIALISE for kind in self._waiting.values())

    def sent(self, kind: str, connection: str, number: int) -> None:
        """Note a request that has left; ``number``, by which its answer is known, may be reused on a new connection."""
        if kind in TRANSACTIONAL:
            self._overtaken |= (connection, number) in self._waiting
            self._waiting[connection, number] = kind

    def answered(self, kind: str, connection: str, number: int) -> None:
        """Note the answer to a request, whatever it says."""
        if kind in TRANSACTIONAL:
            self._waiting.pop((connection, number), None)
            self._last_answered = kind
