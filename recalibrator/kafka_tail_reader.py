"""The end of a topic that is not compacted: its latest records and then what comes, in no group.

Records flow out; nothing is committed. For what is shown to people: a partition added later is read after a restart.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ucci_runtime.broker.errors import AccessDenied, BrokerError
from ucci_runtime.broker.kafka_client_reports import reports
from ucci_runtime.broker.kafka_errors import Side, is_fatal, kafka_error, translate
from ucci_runtime.broker.kafka_properties import Properties
from ucci_runtime.broker.records import Count

_log = structlog.get_logger()
MAX_POLLED = 500
_ASK_TIMEOUT_S = 2.0
_RETRY_S = 5.0


class TailReader:
    """A consumer of the end of one topic; used by one thread.

    Parameters
    ----------
    name : str
        Of the client in logs and metrics.
    topic : str
    properties : mapping
        See :func:`~ucci_runtime.broker.kafka_properties.reader_properties`.
    count : callable
    most : int
        Records of the past, over all partitions.
    on_final : callable
        Called with an error that waiting cannot mend.
    """

    def __init__(
        self,
        name: str,
        topic: str,
        properties: Properties,
        count: Count,
        *,
        most: int,
        on_final: Callable[[BrokerError], None],
    ) -> None:
        self._name = name
        self._topic = topic
        self._count = count
        self._most = most
        self._consumer = Consumer(properties | reports(name, count, on_final))
        self._is_assigned = False
        self._due_s = 0.0

    def poll(self) -> Iterator[Message]:
        """Yield what has come; blocks at most some seconds, and that only until the topic's ends are known.

        Raises
        ------
        AccessDenied
        """
        if not self._is_assigned and time.monotonic() >= self._due_s:
            self._assign()
        if not self._is_assigned:
            return
        for message in self._consumer.consume(MAX_POLLED, 0):
            error = message.error()
            if error is None:
                yield message
            elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 a client-side code
                self._report(error)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _assign(self) -> None:
        """Begin so many records before the ends; try again later where the broker does not tell them."""
        try:
            partitions = self._consumer.list_topics(self._topic, _ASK_TIMEOUT_S).topics[self._topic].partitions
            each = max(self._most // max(len(partitions), 1), 1)
            starts = []
            for partition in partitions:
                place = TopicPartition(self._topic, partition)
                low, high = self._consumer.get_watermark_offsets(place, _ASK_TIMEOUT_S, cached=False)
                starts.append(TopicPartition(self._topic, partition, max(low, high - each)))
        except KafkaException as error:
            self._due_s = time.monotonic() + _RETRY_S
            self._report(kafka_error(error))
        else:
            self._consumer.assign(starts)
            self._is_assigned = True

    def _report(self, error: KafkaError) -> None:
        reason = translate(error, Side.CONSUMER)
        if isinstance(reason, AccessDenied) or is_fatal(error):
            raise reason
        self._count("client_errors", client=self._name, code=error.name())
        _log.warning("reader", client=self._name, code=error.name(), error=error.str())
