"""The seams between a service and the broker: what a service asks of it, whichever broker it is.

A service is given a :class:`Connect`, calls it once, and builds every reader and writer from the :class:`Broker` that
it returns. What a group reads and what it writes meet in one transaction, so one name goes through all of it: the
session called ``join`` commits the offsets of the group called ``join``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import NamedTuple, Protocol

from schemas.topics import Topic
from ucci_runtime.broker.contact import Health
from ucci_runtime.broker.errors import BrokerError
from ucci_runtime.broker.records import Count, EndReached, Input, Lag, OffsetCommit, OutputRecord, Record

#: Most records that one poll returns, unless it asks for fewer.
MAX_POLLED = 2_000

#: How long a member that ends may wait until its departure is on its way to the group.
LEAVE_S = 6.0


class CheckedTopics(NamedTuple):
    """What a service needs to know of the cluster."""

    cluster_id: str
    #: Largest record, in bytes, that every topic it writes takes.
    max_record_bytes: int
    #: Those that it can do without and that are not there.
    missing: frozenset[Topic] = frozenset()
    #: What could be better, one line each, though everything works without.
    warnings: tuple[str, ...] = ()
    #: Longest note beside an offset that the broker takes; None where it does not say.
    max_metadata_chars: int | None = None
    #: Longest time-out of a transaction that the broker takes; None where it does not say.
    max_transaction_ms: int | None = None


def sources_of_owner(owned: Sequence[Input], partition_counts: Mapping[str, int]) -> list[Input]:
    """Return the partitions that the owner of these partitions of one topic reads, of all topics, sorted.

    ``partition_counts``: of each topic, the owned one included.

    Examples
    --------
    >>> found = sources_of_owner([Input("placed", 1)], {"placed": 2, "labels": 5})
    >>> [(source.topic, source.partition) for source in found]
    [('labels', 1), ('labels', 3), ('placed', 1)]
    """
    found = set(owned)
    for owner in owned:
        step = partition_counts[owner.topic]
        for topic, count in partition_counts.items():
            if topic != owner.topic:
                found |= {Input(topic, number) for number in range(owner.partition, count, step)}
    return sorted(found)


#: What a group has committed; None where it has committed nothing yet.
GroupOffsets = Mapping[Input, OffsetCommit | None]


class Assignee(Protocol):
    """Takes partitions over and gives them up; called by a :class:`GroupReader`, from within its poll alone."""

    def assigned(self, committed: GroupOffsets) -> Mapping[Input, int]:
        """Take over these partitions, in place of all before; return the offset to read each from.

        ``committed``: the group's offsets: everything below was taken, and its outputs are committed.
        """

    def revoked(self) -> None:
        """Commit what can be committed now, and let go of all partitions."""

    def lost(self) -> None:
        """Let go of all partitions; commit nothing, others own them already."""


class GroupReader(Protocol):
    """One member of a group, for one thread; its offsets go into transactions of a :class:`TransactionSession`.

    The group shares out the partitions of the reader's first topic alone. The owner of partition h of it also reads, of
    every other topic, each partition whose number leaves the remainder h when divided by the first topic's number of
    partitions. Partitions that are added to those other topics are found within some seconds, and handed over by
    :meth:`Assignee.assigned` together with all others.
    """

    @property
    def partition_count(self) -> int:
        """Number of partitions of the first of several topics at the latest assignment; 0 before there was one."""

    def subscribe(self, assignee: Assignee) -> None:
        """Join the group; partitions are handed over from within :meth:`poll`."""

    def poll(self, timeout_s: float, most: int = MAX_POLLED) -> Sequence[Record | EndReached]:
        """Return what has come; blocks up to ``timeout_s`` while nothing has.

        Nothing of an earlier assignment is ever among it. Records that the log has deleted before the group took them
        are counted (``records_lost``). Raises Fenced or AccessDenied; raises OffsetsBeyondLog when the group has taken
        more than the log holds.
        """

    def group(self) -> object:
        """Return the group's metadata as this member knows it; a commit under an older one is refused."""

    def rewind(self) -> None:
        """Ask the group's offsets again and have the present partitions reassigned."""

    def pause(self, sources: Collection[Input]) -> None:
        """Deliver nothing of these partitions until they are resumed, or read from an offset, or reassigned."""

    def resume(self, sources: Collection[Input]) -> None:
        """Deliver these partitions again."""

    def read_from(self, starts: Mapping[Input, int]) -> None:
        """Read all partitions from these offsets; an offset that the log no longer has means its beginning."""

    def lag(self, reached: Mapping[Input, int] | None = None) -> Mapping[Input, Lag]:
        """Return how far each partition is behind its end, as last heard; never blocks.

        ``reached``: offsets to count from, such as the committed ones; by default those that were read.
        """

    def has_successors(self) -> bool:
        """Return whether others would take the partitions over, or may; blocks for a second or so, from any thread."""

    def close(self) -> None:
        """Give up the partitions: to the group's other members at once, to its own restart where it is alone."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction took place."""

    #: What was written for each record: itself, or what it named for where it is too large.
    written: tuple[OutputRecord, ...]


@dataclass(frozen=True, slots=True)
class Aborted:
    """The transaction did not take place; nothing of it will ever be read."""

    reason: str
    #: Whether the broker refused the note beside an offset: the same commit will never take place.
    is_metadata_too_long: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody saw how the transaction ended; it has ended."""

    reason: str
    #: What the group has committed of the partitions in question, asked afterwards: this is how it ended. None when the
    #: process closes before the group has answered.
    offsets: GroupOffsets | None


CommitEnd = Committed | Aborted | Unknown


class TransactionSession(Protocol):
    """Outputs and offsets, committed together or not at all; used by one thread.

    Back-off, fences and the replacement of a producer happen inside. Errors that it raises are final.
    """

    @property
    def is_started(self) -> bool:
        """Whether transactions can be made."""

    @property
    def hangs(self) -> bool:
        """Whether a call may never return: the process must then end without clean-up."""

    def start(self) -> None:
        """Fence the former process of this name, end what it left open; blocks. Raises Fenced or AccessDenied."""

    def commit(
        self, records: Sequence[OutputRecord], offsets: Mapping[Input, OffsetCommit], group: object
    ) -> CommitEnd:
        """Commit records and offsets in one go; blocks up to some 20 s. Raises Fenced or AccessDenied."""

    def serve(self) -> None:
        """Let the client report errors; never blocks."""

    def close(self) -> None:
        """Let go of the producer; nothing is open between commits."""


class TopicReader(Protocol):
    """Whole topics, or their ends, read in no group; used by one thread."""

    @property
    def has_reached_ends(self) -> bool:
        """Whether every topic was read to its end once."""

    def poll(self, timeout_s: float) -> Iterator[Record]:
        """Yield what has come; blocks up to ``timeout_s`` while nothing has. Raises AccessDenied."""

    def up_to_end(self) -> Iterator[Record]:
        """Yield all up to the ends as of now; blocks, with patience. Raises AccessDenied or BrokerUnreachable."""

    def close(self) -> None:
        """Close the reader."""


class Publisher(Protocol):
    """Single records, outside transactions."""

    def queue(
        self, topic: str, key: bytes, value: bytes, headers: Mapping[str, bytes] | None = None
    ) -> asyncio.Future[None]:
        """Queue one record; the future is done when the broker has it.

        It raises BrokerUnreachable when the record was not acknowledged in time; it may have come in all the same.
        """

    def post(self, topic: str, key: bytes, value: bytes) -> bool:
        """Queue one record that nobody waits for; False when it was dropped. Never blocks; callable from any thread."""

    def close(self, timeout_s: float = 5.0) -> None:
        """Deliver what is queued, for up to so many seconds, and end."""


class Broker(Protocol):
    """The broker as one process of a service sees it."""

    def check(
        self, touched: Sequence[Topic], written: Iterable[Topic], optional: Sequence[Topic] = ()
    ) -> CheckedTopics:
        """Compare the topics with the table of :mod:`schemas.topics`; to be called before anything else.

        ``optional``: newer than others: a service that was there before goes on without them until somebody creates
        them. Raises TopicsUnusable, naming every fault at once; raises BrokerUnreachable or AccessDenied.
        """

    def create_repartition(self) -> tuple[str, ...]:
        """Create the join's own topic where results and feedback are there without it.

        Returns what the broker refuses, one line each. Blocks up to some 20 s. Raises BrokerUnreachable or
        AccessDenied.
        """

    def group_reader(self, name: str, topics: Sequence[str]) -> GroupReader:
        """Return a member of a group, by this process's instance id; it owns partitions of the first topic."""

    def session(self, name: str) -> TransactionSession:
        """Return the session that commits for the group of this name."""

    def topic_reader(self, name: str, topics: Sequence[str], *, tail: int | None = None) -> TopicReader:
        """Return a reader of whole topics of one partition each, or of the last ``tail`` records of any topics."""

    def publisher(self, name: str) -> Publisher:
        """Return a publisher."""

    def health(self) -> Health:
        """Return whether what was made here and the broker talk; never blocks, from any thread."""


def health_of(broker: Broker | None, away: str | None) -> Health:
    """Return how a process stands that waits for its topics, for the reason given, or has connected."""
    if away is not None:
        return Health("waiting", away)
    return Health() if broker is None else broker.health()


class Connect(Protocol):
    """Makes the broker of one process."""

    def __call__(
        self, instance_id: str, *, count: Count, on_final: Callable[[BrokerError], None], closing: Event
    ) -> Broker:
        """Return the broker.

        ``instance_id``: names the process for as long as its state lives, restarts included. ``count``: counts
        ``client_errors``, ``rebalances``, ``records_lost`` and ``transactions``. ``on_final``: called with an error
        that waiting cannot fix, from any thread.
        """
