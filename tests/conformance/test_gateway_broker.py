"""What the gateway promises, held against a real broker."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from tests.support.broker import create, key_of, produce, read_all, unique_prefix
from tests.support.gateways import RunningGateway, gateway, gateway_settings
from tests.support.routers import create_topics, query, result_ids, router_settings, running
from ucci_runtime.broker.kafka_broker import kafka_connect
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = pytest.mark.broker

ASKED = 60
CALLERS = 8
DEADLINE_S = 60.0


async def test_a_gateway_works_beside_a_router(broker: LocalBroker) -> None:
    """It fences nobody, and its results lie where the labels of its queries will, by the partition of their key."""
    prefix = unique_prefix()
    create_topics(broker.bootstrap, prefix)
    create(broker.bootstrap, {f"{prefix}.feedback": 4})
    settings = gateway_settings(broker.bootstrap, prefix)
    produce(broker.bootstrap, f"{prefix}.queries", [query(f"q{n}") for n in range(ASKED)])
    async with (
        running(router_settings(broker.bootstrap, prefix)) as router,
        gateway(settings, kafka_connect(settings, "router")) as beside,
    ):
        found = await asyncio.gather(*(beside.complete(query_id=f"g{n}") for n in range(ASKED)))
        assert {one.status for one in found} == {200}
        await router.until_committed(ASKED)
        produce(broker.bootstrap, f"{prefix}.queries", [query("last")])
        await router.until_committed(ASKED + 1)
    ids = [f"{side}{n}" for side in "gq" for n in range(ASKED)]
    assert result_ids(broker.bootstrap, prefix) == sorted([*ids, "last"])
    produce(broker.bootstrap, f"{prefix}.feedback", [(f"g{n}", b"{}") for n in range(ASKED)])
    where = [
        {key_of(message): message.partition() for message in read_all(broker.bootstrap, f"{prefix}.{topic}")}
        for topic in ("results", "feedback")
    ]
    assert all(where[0][name] == partition for name, partition in where[1].items())
    assert len(set(where[1].values())) > 1


async def test_no_answer_is_given_without_a_result(own_broker: LocalBroker) -> None:
    """While the broker hangs or is dead, callers get 503; whatever was answered with 200 is in the topic."""
    prefix = unique_prefix()
    create_topics(own_broker.bootstrap, prefix)
    settings = gateway_settings(own_broker.bootstrap, prefix)
    async with gateway(settings, kafka_connect(settings, "router")) as asked:
        callers = Callers(asked)
        await callers.until(200, 100)
        own_broker.freeze()
        await callers.until(503, CALLERS)
        assert (await asked.get("/readyz")).status == 503
        assert (await asked.get("/healthz")).status == 200
        own_broker.thaw()
        await callers.until(200, 100)
        own_broker.kill()
        await callers.until(503, CALLERS)
        await asyncio.to_thread(own_broker.start)
        await callers.until(200, 100)
        await callers.end()
    assert set(callers.answers) == {200, 503}
    assert callers.without_retry_after == 0
    written = {
        json.loads(message.value() or b"")["query_id"]
        for message in read_all(own_broker.bootstrap, f"{prefix}.results")
    }
    assert callers.answered - written == set()
    assert len(callers.answered) >= 300


class Callers:
    """Ask all the time, each query again until it is answered, and keep count."""

    def __init__(self, asked: RunningGateway) -> None:
        self._asked = asked
        self._changed = asyncio.Condition()
        self._is_ending = False
        self.answers: Counter[int] = Counter()
        self.answered: set[str] = set()
        self.without_retry_after = 0
        self._tasks = [asyncio.create_task(self._ask(f"caller-{n}")) for n in range(CALLERS)]

    async def until(self, status: int, times: int) -> None:
        """Wait for so many more answers of this status."""
        wanted = self.answers[status] + times
        async with asyncio.timeout(DEADLINE_S), self._changed:
            await self._changed.wait_for(lambda: self.answers[status] >= wanted)

    async def end(self) -> None:
        """Ask no more; waits for what is on its way."""
        self._is_ending = True
        await asyncio.gather(*self._tasks)

    async def _ask(self, name: str) -> None:
        number = 0
        while not self._is_ending:
            found = await self._asked.complete(query_id=f"{name}-{number}")
            if found.status == 200:
                self.answered.add(found.json["id"])
                number += 1
            else:
                self.without_retry_after += "Retry-After" not in found.headers or found.code != "broker_unreachable"
                await asyncio.sleep(0.05)
            async with self._changed:
                self.answers[found.status] += 1
                self._changed.notify_all()
