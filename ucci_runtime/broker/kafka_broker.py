"""Builds every port on Kafka, for one process of either service."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Literal

import structlog

from schemas.settings import BOOTSTRAP_KEY, Settings
from schemas.topics import Topic
from ucci_runtime.broker import kafka_properties as properties
from ucci_runtime.broker.contact import Health, health
from ucci_runtime.broker.errors import BrokerError
from ucci_runtime.broker.kafka_errors import reports
from ucci_runtime.broker.kafka_group_reader import KafkaGroupReader
from ucci_runtime.broker.kafka_lifeline import GroupPeers
from ucci_runtime.broker.kafka_producer import KafkaPublisher
from ucci_runtime.broker.kafka_session import KafkaTransactionSession, SessionClients
from ucci_runtime.broker.kafka_topic_creation import create_repartition
from ucci_runtime.broker.kafka_topic_readers import KafkaTailReader, KafkaTopicReader
from ucci_runtime.broker.kafka_topics import check_topics
from ucci_runtime.broker.ports import CheckedTopics, Connect
from ucci_runtime.broker.records import Count
from ucci_runtime.process import PUBLISHER

_log = structlog.get_logger()
_ASK_TIMEOUT_S = 1.0


class KafkaBroker:
    """Kafka as one process sees it; see :class:`~ucci_runtime.broker.ports.Broker`."""

    def __init__(
        self,
        settings: Settings,
        names: properties.ClientNames,
        *,
        count: Count,
        on_final: Callable[[BrokerError], None],
        closing: Event,
    ) -> None:
        self._settings = settings
        self._names = names
        self._count = count
        self._on_final = on_final
        self._closing = closing
        self._ask: Callable[[], CheckedTopics] | None = None
        self._max_record_bytes = 0
        self._readers: list[KafkaGroupReader | KafkaTopicReader | KafkaTailReader] = []
        self._sessions: list[KafkaTransactionSession] = []

    def health(self) -> Health:
        """Return whether this process and the broker talk; never blocks, from any thread."""
        busy_s = [session.busy_since_s for session in self._sessions]
        found = health([reader.contact for reader in self._readers], time.monotonic(), time.time(), busy_s)
        address = self._settings.kafka.get(BOOTSTRAP_KEY)
        heard = None if found.heard is None else found.heard._replace(address=str(address))
        return found._replace(reason=f"{found.reason} ({address})" if found.reason else "", heard=heard)

    def check(
        self, touched: Sequence[Topic], written: Iterable[Topic], optional: Sequence[Topic] = ()
    ) -> CheckedTopics:
        """Compare the broker's topics with the table; sessions ask the same again when they are refused a record."""
        self._ask = partial(check_topics, self._settings, touched, tuple(written), optional)
        checked = self._ask()
        self._max_record_bytes = checked.max_record_bytes
        return checked

    def create_repartition(self) -> tuple[str, ...]:
        """Create the join's own topic where it is missing; see the port."""
        return create_repartition(self._settings)

    def group_reader(self, name: str, topics: Sequence[str]) -> KafkaGroupReader:
        """Return a member of the group of this name."""
        asking = properties.admin_properties(self._settings) | reports("admin", self._count, self._on_final)
        reader = KafkaGroupReader(
            self._names.member_label(name),
            topics,
            properties.group_properties(self._settings, self._names, name),
            self._counted(name),
            on_final=self._on_final,
            closing=self._closing,
            peers=GroupPeers(asking, self._names.group_id(name), self._names.instance_id),
        )
        self._readers.append(reader)
        return reader

    def session(self, name: str) -> KafkaTransactionSession:
        """Return the session that commits for the group of this name; only after :meth:`check`."""
        label = self._names.session_label(name)

        def transactional(max_record_bytes: int) -> properties.Properties:
            made = properties.transactional_properties(self._settings, self._names, name, max_record_bytes)
            return made | reports(label, self._count, self._on_final)

        offsets = properties.offsets_properties(self._settings, self._names.group_id(name))
        assert self._ask is not None
        clients = SessionClients(transactional, offsets, self._ask)
        session = KafkaTransactionSession(label, clients, self._max_record_bytes, self._counted(name), self._closing)
        self._sessions.append(session)
        return session

    def topic_reader(
        self, name: str, topics: Sequence[str], *, tail: int | None = None
    ) -> KafkaTopicReader | KafkaTailReader:
        """Return a reader of whole topics of one partition each, or of the last ``tail`` records of one topic."""
        made = properties.reader_properties(self._settings, self._names.reader_group_id(name))
        reader: KafkaTopicReader | KafkaTailReader
        if tail is None:
            reader = KafkaTopicReader(name, topics, made, self._count, on_final=self._on_final, closing=self._closing)
        else:
            (topic,) = topics
            reader = KafkaTailReader(name, topic, made, self._count, most=tail, on_final=self._on_final)
        # Readers of one question come and go; each of them is closed once.
        for closed in [one for one in self._readers if one.contact.heard_s is None]:
            with suppress(ValueError):
                self._readers.remove(closed)
        self._readers.append(reader)
        return reader

    def publisher(self, name: str) -> KafkaPublisher:
        """Return a publisher; the one called ``heartbeat`` drops what it cannot send soon."""
        kind = properties.heartbeat_properties if name == PUBLISHER else properties.publisher_properties
        return KafkaPublisher(name, kind(self._settings) | reports(name, self._count, self._on_final), self._count)

    def _counted(self, group: str) -> Count:
        """Return a count that adds the labels by which the service separates the counts of its groups."""
        extra = self._names.labels(group)

        def count(name: str, amount: float = 1.0, **labels: str) -> None:
            # The client alone distinguishes the errors of a client.
            self._count(name, amount, **(labels if "client" in labels else labels | extra))

        return count


def kafka_connect(settings: Settings, service: Literal["router", "recalibrator"]) -> Connect:
    """Return what makes the broker of one process of a service."""

    def connect(
        instance_id: str, *, count: Count, on_final: Callable[[BrokerError], None], closing: Event
    ) -> KafkaBroker:
        names = properties.ClientNames(service, settings.topics.prefix, instance_id)
        return KafkaBroker(settings, names, count=count, on_final=on_final, closing=closing)

    return connect
