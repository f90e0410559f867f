"""Which requests of a transactional producer may still be on the network: those that were sent and never answered.

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
        """Note a request that has left completely.

        ``number``: by which its answer is known on this connection; it may be reused after the connection broke.
        """
        if kind in TRANSACTIONAL:
            self._overtaken |= (connection, number) in self._waiting
            self._waiting[connection, number] = kind

    def answered(self, kind: str, connection: str, number: int) -> None:
        """Note the answer to a request, whatever it says."""
        if kind in TRANSACTIONAL:
            self._waiting.pop((connection, number), None)
            self._last_answered = kind
