"""Outcomes of queries and labels: results as they are committed, labels as they are joined, and what is set aside.

A follower takes its places at the present ends of the topics before anything is sent, so that no outcome is missed. It
reads committed records alone and leaves nothing behind on the broker.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager, suppress
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from rich.markup import escape

from schemas.labelled import LabelledExample
from schemas.routed import RoutedEvent
from schemas.settings import Settings
from schemas.topics import DEAD_LETTERS, DLQ_REASON, OBSERVATIONS, RESULTS, Topic
from ucci_runtime.broker.kafka_errors import kafka_error
from ucci_runtime.broker.kafka_records import record_of
from ucci_runtime.broker.records import Record, event_of
from ucci_stream.topics import admin
from ucci_stream.topics.admin import broker_failures, client_properties
from ucci_stream.topics.feed import Fed
from ucci_stream.topics.kafka_reading import NotRead

_POLL_S = 0.25
_QUIET_S = 1.5
_ELECTION_S = 0.1
_ELECTING = frozenset(
    {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.FENCED_LEADER_EPOCH}
)
_MOST = 500
#: How often topics are asked for new partitions, and how long the answer may take.
_GROWTH_S = 3.0
_GROWTH_ASK_S = 0.5
_LABELLED = b'"kind":"labelled"'

#: Makes of a record a query id and how it ended; None where it is about something else, or cannot be read.
Read = Callable[[Record], tuple[str, str] | None]


class Outcomes(NamedTuple):
    """Outcomes of the records sent, by query id."""

    #: How it ended, in a few words: ``small: kept``, ``joined``, ``set aside: missing_workload``.
    done: Counter[str]

    waiting: set[str]


class Follower:
    """Reads topics from where they ended when it was opened; of partitions that are added later, everything.

    ``dead_letters``: name of their topic.
    """

    def __init__(self, consumer: Consumer, starts: Sequence[TopicPartition], dead_letters: str) -> None:
        self._consumer = consumer
        self._dead_letters = dead_letters
        self._followed = {(place.topic, place.partition) for place in starts}
        self._growth_due_s = time.monotonic() + _GROWTH_S
        consumer.assign(list(starts))

    def records(self, timeout_s: float) -> list[Record]:
        """Return what came, waiting for the first at most so long."""
        if time.monotonic() >= self._growth_due_s:
            self._growth_due_s = time.monotonic() + _GROWTH_S
            # A broker that does not answer now is asked again as much later.
            with suppress(KafkaException):
                self._follow_growth()
        found = self._consumer.consume(num_messages=_MOST, timeout=timeout_s)
        return [record_of(message) for message in found if message.error() is None and message.value() is not None]

    def await_all(self, query_ids: AbstractSet[str], timeout_s: float, read: Read) -> Outcomes:
        """Wait for an outcome of each query. ``timeout_s``: ends the wait, restarted by each outcome."""
        outcomes = Outcomes(Counter(), set(query_ids))
        deadline = time.monotonic() + timeout_s
        while outcomes.waiting and time.monotonic() < deadline:
            for record in self.records(_POLL_S):
                found = _set_aside(record) if record.source.topic == self._dead_letters else read(record)
                if found is not None and found[0] in outcomes.waiting:
                    outcomes.waiting.discard(found[0])
                    outcomes.done[found[1]] += 1
                    deadline = time.monotonic() + timeout_s
        return outcomes

    def _follow_growth(self) -> None:
        topics = {topic for topic, _ in self._followed}
        found = {topic: self._consumer.list_topics(topic, timeout=_GROWTH_ASK_S).topics[topic] for topic in topics}
        places = {(topic, partition) for topic, one in found.items() for partition in one.partitions}
        if added := places - self._followed:
            self._consumer.incremental_assign([TopicPartition(*place, OFFSET_BEGINNING) for place in sorted(added)])
            self._followed |= added


def _set_aside(record: Record) -> tuple[str, str] | None:
    """Return the query of a dead letter and why it is one; None for a letter without a key."""
    reason = dict(record.headers).get(DLQ_REASON)
    if record.key is None or reason is None:
        return None
    return record.key.decode(errors="replace"), f"set aside: {reason.decode(errors='replace')}"


def outcome_of_result(record: Record) -> tuple[str, str] | None:
    """Return a result's query id, and which model answered and why."""
    routed = event_of(record, RoutedEvent)
    return None if routed is None else (routed.query_id, f"{routed.answered_by}: {routed.decision.reason}")


def outcome_of_label(record: Record) -> tuple[str, str] | None:
    """Return a joined label's query id, and whether the label counts; None for other observations."""
    example = event_of(record, LabelledExample) if _LABELLED in (record.value or b"") else None
    if example is None:
        return None
    how = "joined" if example.label_requested else "joined, but was not asked for: shown, not counted"
    if not example.is_counted:
        how = f"a verdict alone, {example.verdict}: shown, and moves no estimate"
    return example.query_id, "withdrawn or skipped" if example.retracted else how


@contextmanager
def follow(
    settings: Settings, topics: Sequence[Topic], last: int = 0, *, group_id: str | None = None
) -> Iterator[Follower]:
    """Open a follower of these topics at their present ends.

    ``last``: start so many records before the end of each partition. ``group_id``: under which it reads; it has no
    members. Raises NotRead, BrokerUnreachable or AccessDenied.
    """
    admin.require_broker(settings)
    prefix = settings.topics.prefix
    properties = client_properties(
        settings,
        enable_auto_commit="false",
        isolation_level="read_committed",
        fetch_wait_max_ms=20,
        group_id=group_id or f"{prefix}-follow-{uuid.uuid4()}",
    )
    with closing(Consumer(properties)) as consumer:
        with broker_failures(settings):
            places = [place for topic in topics for place in _ends(consumer, topic.name(prefix), last)]
            follower = Follower(consumer, places, DEAD_LETTERS.name(prefix))
        yield follower


def _ends(consumer: Consumer, topic: str, last: int) -> Iterator[TopicPartition]:
    metadata = consumer.list_topics(topic, timeout=admin.ANSWER_TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        raise NotRead(f"{topic}: {metadata.error.str()}; run `ucci-stream topics create`")
    for partition in metadata.partitions:
        place = TopicPartition(topic, partition)
        begin, end = watermarks(consumer, place)
        yield TopicPartition(topic, partition, max(begin, end - last) if end >= 0 else OFFSET_END)


def watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return the first offset and the end of a partition, asking again while its leader is being elected.

    Raises KafkaException: what the client said last, once the time for an answer is over.
    """
    deadline_s = time.monotonic() + admin.ANSWER_TIMEOUT_S
    while True:
        try:
            begin, end = consumer.get_watermark_offsets(place, timeout=admin.ANSWER_TIMEOUT_S)
        except KafkaException as error:
            # A broker that is not the leader says so at once; the client waits for brokers alone.
            if kafka_error(error).code() not in _ELECTING or time.monotonic() > deadline_s:
                raise
            time.sleep(_ELECTION_S)
        else:
            return begin, end


def latest_results(settings: Settings, last: int, *, endless: bool) -> Iterator[RoutedEvent]:
    """Yield results: some of the past, and where it is endless all that come; what is malformed is left out.

    ``last``: of the past, at most so many of each partition. ``endless``: otherwise it ends once nothing has come for a
    second and a half. Raises NotRead, BrokerUnreachable or AccessDenied.
    """
    with follow(settings, [RESULTS], last) as follower:
        quiet_since = time.monotonic()
        while endless or time.monotonic() - quiet_since < _QUIET_S:
            for record in follower.records(_POLL_S):
                quiet_since = time.monotonic()
                if (routed := event_of(record, RoutedEvent)) is not None:
                    yield routed


def result_line(routed: RoutedEvent) -> str:
    """Return a result in one line for people, with rich markup."""
    said = {name: value for name, value in routed.entities.items() if value is not None}
    words = ", ".join(f"{name}={value if isinstance(value, str) else '; '.join(value)}" for name, value in said.items())
    when = routed.routed_at.strftime("%H:%M:%S")
    begin = f"[dim]{when}[/] {escape(routed.query_id)} [bold]{routed.answered_by}[/]"
    return f"{begin} {routed.decision.reason} u={uncertainty_words(routed, 4)} {escape(words)}"


def uncertainty_words(routed: RoutedEvent, digits: int) -> str:
    """Return u for people: a dash where the small model failed."""
    u = routed.decision.uncertainty
    return "–" if u is None else f"{u:.{digits}f}"


#: The topics in which an outcome appears, and how it is read there.
Wanted = tuple[tuple[Topic, ...], Read]
OF_RESULTS: Wanted = ((RESULTS, DEAD_LETTERS), outcome_of_result)
OF_LABELS: Wanted = ((OBSERVATIONS, DEAD_LETTERS), outcome_of_label)


def sent_and_followed(
    settings: Settings, send: Callable[[], Fed], wanted: Wanted | None, timeout_s: float
) -> tuple[Fed, Outcomes | None]:
    """Send records; where outcomes are ``wanted``, wait for each. Raises FeedStopped, NotRead or BrokerError."""
    if wanted is None:
        return send(), None
    topics, read = wanted
    with follow(settings, topics) as follower:
        fed = send()
        return fed, follower.await_all(fed.query_ids, timeout_s, read)
