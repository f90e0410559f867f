"""Records in, the broker's acknowledgement out, for callers on an event loop: nobody is told "taken" before that.

The client's delivery reports come on a thread of their own and wake the waiting request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from threading import Event, Thread
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from recalibrator.kafka_properties import DELIVERY_TIMEOUT_S
from ucci_runtime.broker.errors import BrokerUnreachable
from ucci_runtime.broker.kafka_properties import Properties

_POLL_S = 0.1
_FLUSH_S = 5.0


class Publisher:
    """An idempotent producer whose sends are awaited; used by one event loop.

    Parameters
    ----------
    properties : mapping
        See :func:`~recalibrator.kafka_properties.producer_properties`.
    """

    def __init__(self, properties: Properties) -> None:
        self._producer = Producer(properties)
        self._closing = Event()
        self._poller = Thread(target=self._poll, name="api-producer", daemon=True)
        self._poller.start()

    async def send(self, topic: str, key: bytes, value: bytes, headers: Mapping[str, bytes] | None = None) -> None:
        """Send one record and wait until the broker has it.

        Raises
        ------
        BrokerUnreachable
            When it was not acknowledged within 5 s; it may have come in all the same.
        """
        await self.queue(topic, key, value, headers)

    def queue(
        self, topic: str, key: bytes, value: bytes, headers: Mapping[str, bytes] | None = None
    ) -> asyncio.Future[None]:
        """Queue one record; the future is done when the broker has it, or raises :class:`BrokerUnreachable`."""
        loop = asyncio.get_running_loop()
        acknowledged: asyncio.Future[None] = loop.create_future()

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            loop.call_soon_threadsafe(_settle, acknowledged, error)

        options: dict[str, Any] = {"headers": list(headers.items())} if headers else {}
        try:
            self._producer.produce(topic, value, key, on_delivery=on_delivery, **options)
        except BufferError:
            acknowledged.set_exception(BrokerUnreachable("too many records wait for the broker"))
        except KafkaException as error:
            acknowledged.set_exception(BrokerUnreachable(str(error)))
        return acknowledged

    def close(self) -> None:
        """Deliver what is queued, for up to 5 s, and end."""
        self._closing.set()
        self._poller.join()
        self._producer.flush(_FLUSH_S)

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(_POLL_S)


def _settle(acknowledged: asyncio.Future[None], error: KafkaError | None) -> None:
    if acknowledged.done():
        return
    if error is None:
        acknowledged.set_result(None)
    else:
        message = f"not acknowledged within {DELIVERY_TIMEOUT_S:g} s ({error.name()})"
        acknowledged.set_exception(BrokerUnreachable(message))
