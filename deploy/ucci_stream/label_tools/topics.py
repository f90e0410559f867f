"""What sync reads from Kafka and tells it: open label requests and labels told before in, acknowledged feedback out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from threading import Event

from recalibrator.labelling.label_studio import SOURCE
from recalibrator.labelling.queue import LabelQueue
from recalibrator.labelling.reconcile import Author, note_told
from schemas.errors import DecodeError
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from schemas.settings import Settings
from schemas.topics import FEEDBACK, LABEL_REQUESTS, RESULTS
from ucci_runtime.broker.errors import BrokerError
from ucci_runtime.broker.kafka_properties import reader_properties
from ucci_runtime.broker.kafka_topic_readers import KafkaTopicReader
from ucci_runtime.broker.kafka_topics import check_topics
from ucci_stream.topics.admin import admin_client, partition_counts
from ucci_stream.topics.feed import send_events

_MARK = SOURCE.encode()


class SyncTopics:
    """The topics as one project's synchronisation sees them; its calls block, and are made by one thread at a time.

    The feedback topic is the record of what was told, whoever told it: nothing else need be remembered.

    Parameters
    ----------
    settings : Settings
    workload : str
    project : int
        Label Studio's number; what was told of other projects is left alone.

    Raises
    ------
    BrokerError
        When the broker does not answer, or the topics are missing.
    """

    def __init__(self, settings: Settings, workload: str, project: int) -> None:
        prefix, options = settings.topics.prefix, settings.recalibrator
        check_topics(settings, (RESULTS, FEEDBACK, LABEL_REQUESTS), (FEEDBACK,))
        self._settings = settings
        self._workload = workload
        self._project = project
        self._closing = Event()
        self._queue = LabelQueue(
            [workload], prefix, retention_s=options.label_request_retention_s, most=options.label_requests_max
        )
        self._told: dict[Author, FeedbackEvent] = {}
        feedback = FEEDBACK.name(prefix)
        self._requests = self._reader("requests", LABEL_REQUESTS.name(prefix), 1)
        self._feedback = self._reader("told", feedback, partition_counts(admin_client(settings))[feedback])

    def requests(self, now: datetime, most: int) -> tuple[LabelRequested, ...]:
        """Return the newest open label requests, newest first."""
        for record in self._requests.up_to_end():
            self._queue.take(record.source.topic, record.key, record.value)
        return self._queue.page(self._workload, now, most).requests

    def told(self) -> dict[Author, FeedbackEvent]:
        """Return what was told with the highest revision, of each author and query; without the labels themselves."""
        for record in self._feedback.up_to_end():
            value = record.value
            # Feedback of others is the most of a busy topic, and parsing it the most of the work.
            if value is not None and _MARK in value:
                self._take(value)
        return self._told

    def tell(self, events: Sequence[FeedbackEvent]) -> None:
        """Send feedback and wait until the broker has it.

        Raises
        ------
        FeedStopped
            When one was not acknowledged.
        """
        send_events(self._settings, FEEDBACK, ((event.query_id, event) for event in events))

    def interrupt(self) -> None:
        """End a call that waits for the broker; callable from any thread."""
        self._closing.set()

    def close(self) -> None:
        """Close the readers."""
        self._requests.close()
        self._feedback.close()

    def _take(self, value: bytes) -> None:
        try:
            event = FeedbackEvent.from_json(value)
        except DecodeError:
            # The join makes it a dead letter; it says nothing here.
            return
        note_told(self._told, event, self._project)

    def _reader(self, name: str, topic: str, partitions: int) -> KafkaTopicReader:
        return KafkaTopicReader(
            f"label-studio-{name}",
            [topic],
            reader_properties(self._settings, f"{self._settings.topics.prefix}-label-studio-{name}") | {"log_level": 2},
            _count_nothing,
            on_final=_raise,
            closing=self._closing,
            partitions=partitions,
        )


def _count_nothing(name: str, amount: float = 1.0, **labels: str) -> None:
    """Take no notice: each round says what it did."""


def _raise(error: BrokerError) -> None:
    raise error
