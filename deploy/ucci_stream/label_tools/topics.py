"""The topics behind a label tool's synchronisation: open label requests, feedback sent before, feedback to send."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from threading import Event

from recalibrator.labelling.queue import LabelQueue
from recalibrator.labelling.reconcile import Author, Sent, note_sent
from schemas.errors import DecodeError
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from schemas.settings import Settings
from schemas.topics import FEEDBACK, LABEL_REQUESTS, RESULTS
from ucci_runtime.broker.kafka_topic_readers import KafkaTopicReader
from ucci_runtime.broker.kafka_topics import check_topics
from ucci_stream.topics.admin import partition_counts
from ucci_stream.topics.feed import send_events
from ucci_stream.topics.kafka_reading import topic_reader


def reading_group(prefix: str, source: str, name: str) -> str:
    """Return the name under which a tool's synchronisation reads; access rules of the broker may list it.

    Examples
    --------
    >>> reading_group("ucci", "label-studio", "requests")
    'ucci-label-studio-requests'
    """
    return f"{prefix}-{source}-{name}"


class SyncTopics:
    """The topics as one project's synchronisation sees them; its calls block, and are made by one thread at a time.

    The feedback topic is the record of what was sent, by whichever process: nothing else need be remembered.

    Parameters
    ----------
    source : str
        The tool; what others sent is left alone.
    project : str
        As the tool knows it; what was sent of other projects is left alone.

    Raises
    ------
    BrokerError
        When the broker does not answer, or the topics are missing.
    """

    def __init__(self, settings: Settings, workload: str, source: str, project: str) -> None:
        prefix, options = settings.topics.prefix, settings.recalibrator
        check_topics(settings, (RESULTS, FEEDBACK, LABEL_REQUESTS), (FEEDBACK,))
        self._settings = settings
        self._workload = workload
        self._source = source
        self._project = project
        self._closing = Event()
        self._queue = LabelQueue([workload], prefix, most=options.label_requests_max)
        self._sent: dict[Author, Sent] = {}
        feedback = FEEDBACK.name(prefix)
        self._requests = self._reader("requests", LABEL_REQUESTS.name(prefix), 1)
        self._feedback = self._reader("told", feedback, partition_counts(settings)[feedback])

    def requests(self, now: datetime, most: int) -> tuple[LabelRequested, ...]:
        """Return the newest open label requests, newest first."""
        for record in self._requests.up_to_end():
            self._queue.take(record.source.topic, record.key, record.value)
        return self._queue.page(self._workload, now, most).requests

    def sent(self) -> dict[Author, Sent]:
        """Return what was sent with the highest revision, of each author and query; without the labels themselves."""
        mark = self._source.encode()
        for record in self._feedback.up_to_end():
            value = record.value
            # Feedback of others is the most of a busy topic, and parsing it the most of the work.
            if value is not None and mark in value:
                self._take(value)
        return self._sent

    def send(self, events: Sequence[FeedbackEvent]) -> None:
        """Send feedback and wait until the broker has it. Raises FeedStopped when one was not acknowledged."""
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
            event = FeedbackEvent.from_record(value)
        except DecodeError:
            # The join makes it a dead letter; it says nothing here.
            return
        note_sent(self._sent, event, self._source, self._project)

    def _reader(self, name: str, topic: str, partitions: int) -> KafkaTopicReader:
        group = reading_group(self._settings.topics.prefix, self._source, name)
        client = f"{self._source}-{name}"
        return topic_reader(self._settings, client, [topic], group, partitions=partitions, closing=self._closing)
