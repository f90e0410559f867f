"""What the gateway promises, held against a real broker."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.broker import create, key_of, produce, read_all, unique_prefix
from tests.support.gateways import gateway, gateway_settings
from tests.support.outages import ENOUGH, Callers, Question
from tests.support.probes import get
from tests.support.routers import create_topics, query, result_ids, router_settings, running
from ucci_runtime.broker.kafka_broker import kafka_connect
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = pytest.mark.broker

ASKED = 60
CALLERS = 8


def completion(name: str) -> str:
    return json.dumps({"model": "photo", "prompt": "a query", "metadata": {"query_id": name}})


COMPLETION = Question("/v1/completions", completion, lambda _name, answer: [json.loads(answer)["id"]])


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

        def probed() -> None:
            assert [get(asked.port, path)[0] for path in ("/readyz", "/healthz")] == [503, 200]

        callers = Callers(asked.port, [COMPLETION] * CALLERS, "broker_unreachable")
        await asyncio.to_thread(callers.see_through, own_broker, probed)
    assert callers.unexpected == []
    assert callers.acknowledged - set(result_ids(own_broker.bootstrap, prefix)) == set()
    assert len(callers.acknowledged) >= 3 * ENOUGH
