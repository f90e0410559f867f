"""How far services have come, by what they commit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Message

from tests.support.broker import follow
from tests.support.router_processes import RouterProcess

DEADLINE_S = 100.0


class Progress:
    """Adds up what ``count`` says of each record of a topic as it is committed."""

    def __init__(self, consumer: Consumer, count: Callable[[Message], Iterable[tuple[str, int]]]) -> None:
        self._consumer = consumer
        self._count = count
        self.seen: Counter[str] = Counter()

    async def until(self, processes: Iterable[RouterProcess], **wanted: int) -> None:
        """Wait until so much of each is committed, by processes that go on running."""
        async with asyncio.timeout(DEADLINE_S):
            while any(self.seen[name] < least for name, least in wanted.items()):
                for process in processes:
                    process.assert_runs()
                for message in await asyncio.to_thread(self._consumer.consume, 1_000, 0.05):
                    if message.error() is None:
                        self.seen.update(dict(self._count(message)))


@contextmanager
def following(
    bootstrap: str, topic: str, count: Callable[[Message], Iterable[tuple[str, int]]] = lambda _: [("results", 1)]
) -> Iterator[Progress]:
    """Follow a topic for the length of a block."""
    consumer = follow(bootstrap, topic)
    try:
        yield Progress(consumer, count)
    finally:
        consumer.close()
