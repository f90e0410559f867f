"""What can go wrong between a service and the broker; each class says what the caller does next."""

from __future__ import annotations

from typing import TypeVar

from schemas.errors import UcciError


class BrokerError(UcciError):
    """A broker call failed; the subclass says what to do."""


Error = TypeVar("Error", bound=BrokerError)


def without_frames(error: Error) -> Error:
    """Return an error without the calls that it came through and the error that it came from.

    Their frames hold the client that failed. Whatever is done about the error, with another client for minutes perhaps,
    is to be done outside its ``except`` block, too: an error object of the client library (confluent-kafka 2.16, as
    CPython sets it up) never lets go of the exception that was being handled when it was made.

    Examples
    --------
    >>> try:
    ...     raise RetryCall("slow") from ValueError("deep down")
    ... except RetryCall as error:
    ...     found = without_frames(error)
    >>> (found.__traceback__, found.__cause__, found.__context__)
    (None, None, None)
    """
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


class RetryCall(BrokerError):
    """Repeat the same call until its deadline."""


class AbortTransaction(BrokerError):
    """Abort, and produce again what the transaction held."""


class Rejoin(AbortTransaction):
    """The consumer group moved on: abort, drop what is no longer owned, read fresh group metadata, go on."""


class MetadataTooLong(AbortTransaction):
    """The note beside an offset is longer than the broker's ``offset.metadata.max.bytes``: commit a shorter one."""


class RecreateProducer(BrokerError):
    """The producer cannot go on: make a new one under the same transactional id."""


class TopicShrank(RecreateProducer):
    """A topic takes smaller records than this producer does: read the limits again, then make a new one."""


class Fenced(BrokerError):
    """Another process runs under the same instance id: this one must stop, and exit non-zero."""


class AccessDenied(BrokerError):
    """The broker refuses these credentials, or what they ask for: stop, waiting will not help."""


class NeverAccepted(AccessDenied):
    """A limit of the broker excludes what a client asks for: stop, only its configuration or ours helps."""


class OffsetsBeyondLog(BrokerError):
    """A group has taken more of a partition than its log holds, or the log was cut back: it is not the log it was.

    ``taken``, ``end``: the group's next offset, and the log's.
    """

    def __init__(self, group: str, topic: str, partition: int, taken: int, end: int) -> None:
        super().__init__(
            f"{topic}, partition {partition}: the group {group} has taken all before offset {taken}, and the log ends "
            f"at {end}: the topic was recreated, restored from an older copy or cut back. Nothing more is taken, since "
            "it may have been taken before. End all members of the group and choose where it goes on, once their "
            f"sessions have ended: kafka-consumer-groups.sh --bootstrap-server HOST:PORT --group {group} --topic "
            f"{topic} --reset-offsets --to-latest --execute skips what the topic holds, --to-earliest takes all of it"
        )


class CutOff(BrokerError):
    """The broker answers other clients, and did not answer a new one of ours either: stop, a restart recreates all."""


class BrokerUnreachable(BrokerError):
    """No broker answers: at start wait and ask again; in an API answer 503."""


class TopicsUnusable(UcciError):
    """The topics are not what the services need; each of ``faults`` names topic, property, value and remedy."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))


class IllegalTransition(UcciError):
    """An event that cannot happen in this state: a fault of this program, not of the broker."""
