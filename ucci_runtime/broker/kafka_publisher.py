"""Single records, acknowledged by the broker before anybody is answered that they were taken.

The client's delivery reports come on a thread of their own and wake the waiting request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from threading import Event, Thread
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ucci_runtime.broker.errors import BrokerUnreachable
from ucci_runtime.broker.kafka_properties import Properties
from ucci_runtime.broker.records import Count

_POLL_S = 0.1
_MILLISECONDS = 1_000


class KafkaPublisher:
    """An idempotent producer; see :class:`~ucci_runtime.broker.ports.Publisher`."""

    def __init__(self, name: str, properties: Properties, count: Count) -> None:
        self._name = name
        self._count = count
        self._timeout_s = properties["message.timeout.ms"] / _MILLISECONDS
        self._producer = Producer(properties)
        self._closing = Event()
        self._poller = Thread(target=self._poll, name=name, daemon=True)
        self._poller.start()

    async def send(self, topic: str, key: bytes, value: bytes, headers: Mapping[str, bytes] | None = None) -> None:
        """Send one record and wait until the broker has it.

        Raises BrokerUnreachable when it was not acknowledged in time; it may have come in all the same.
        """
        await self.queue(topic, key, value, headers)

    def queue(
        self, topic: str, key: bytes, value: bytes, headers: Mapping[str, bytes] | None = None
    ) -> asyncio.Future[None]:
        """Queue one record; the future is done when the broker has it, or raises :class:`BrokerUnreachable`."""
        loop = asyncio.get_running_loop()
        acknowledged: asyncio.Future[None] = loop.create_future()

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            loop.call_soon_threadsafe(_settle, acknowledged, error, self._timeout_s)

        options: dict[str, Any] = {"headers": list(headers.items())} if headers else {}
        try:
            self._producer.produce(topic, value, key, on_delivery=on_delivery, **options)
        except BufferError:
            acknowledged.set_exception(BrokerUnreachable("too many records wait for the broker"))
        except KafkaException as error:
            acknowledged.set_exception(BrokerUnreachable(str(error)))
        return acknowledged

    def post(self, topic: str, key: bytes, value: bytes) -> bool:
        """Queue one record that nobody waits for; False when it was dropped. Never blocks."""
        try:
            self._producer.produce(topic, value, key)
        except (BufferError, KafkaException):
            self._count("client_errors", client=self._name, code="not_sent")
            return False
        return True

    def close(self, timeout_s: float = 5.0) -> None:
        """Deliver what is queued, for up to so many seconds, and end."""
        self._closing.set()
        self._poller.join()
        self._producer.flush(timeout_s)

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(_POLL_S)


def _settle(acknowledged: asyncio.Future[None], error: KafkaError | None, timeout_s: float) -> None:
    if acknowledged.done():
        return
    if error is None:
        acknowledged.set_result(None)
    else:
        message = f"not acknowledged within {timeout_s:g} s ({error.name()})"
        acknowledged.set_exception(BrokerUnreachable(message))
