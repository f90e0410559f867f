"""Verdicts at the gateway: a caller's word on its own answers, and nothing that a label would do."""

from __future__ import annotations

from hashlib import sha256

import pytest

from schemas.feedback import FeedbackEvent
from schemas.topics import FEEDBACK
from tests.support.gateways import cluster, gateway, gateway_settings
from tests.support.memory_broker.broker import MemoryCluster

KEYS = {"shop": "the-key-of-the-shop", "rival": "the-key-of-the-rival"}
RING = {name: {"key_sha256": sha256(key.encode()).hexdigest()} for name, key in KEYS.items()}
FEEDBACK_PATH = "/v1/feedback"


def said(topics: MemoryCluster) -> list[FeedbackEvent]:
    return [FeedbackEvent.from_json(record.value or b"") for record in topics.records("ucci.feedback")]


async def test_a_verdict_goes_to_feedback_by_the_keys_name() -> None:
    topics = cluster()
    async with gateway(gateway_settings(gateway={"api_keys": RING}), topics) as running:
        assert (await running.complete(query_id="q-1")).status == 401
        asked = {"model": "photo", "prompt": "canon", "metadata": {"query_id": "q-1"}}
        assert (await running.post("/v1/completions", asked, X_Api_Key=KEYS["shop"])).status == 200
        found = await running.post(FEEDBACK_PATH, {"verdict": "wrong"}, X_Query_Id="q-1", X_Api_Key=KEYS["shop"])
        named = {"query_id": "q-1", "verdict": "right", "labeler": "ada"}
        again = await running.post(FEEDBACK_PATH, named, X_Api_Key=KEYS["shop"])
        none = await running.post(FEEDBACK_PATH, named)
        rival = await running.post(FEEDBACK_PATH, named, X_Api_Key=KEYS["rival"])
    assert (found.status, again.status, none.status) == (202, 202, 401)
    assert (rival.status, rival.code) == (404, "unknown_query")
    first, second = said(topics)
    assert found.json == {"query_id": "q-1", "feedback_id": first.identity()}
    assert (first.verdict, first.labeler, first.source) == ("wrong", "gateway:shop", "gateway")
    assert (second.verdict, second.labeler) == ("right", "gateway:shop"), "a key names nobody else"
    assert second.revision >= first.revision > 1
    assert {record.key for record in topics.records("ucci.feedback")} == {b"q-1"}


@pytest.mark.parametrize(
    ("body", "status", "param", "told"),
    [
        (b"{", 400, None, "not valid JSON"),
        (b'{"verdict": "right"}', 422, "query_id", "required"),
        (b'{"query_id": "q", "verdict": "right", "entities": {}}', 422, "verdict", "send one of the two"),
        (b'{"query_id": "q", "entities": {"iso": "100"}}', 422, "entities", "send a verdict"),
        (b'{"query_id": "q"}', 422, "entities", "a verdict"),
    ],
)
async def test_what_is_no_verdict_is_refused_with_its_field(
    body: bytes, status: int, param: str | None, told: str
) -> None:
    topics = cluster()
    async with gateway(connect=topics) as running:
        found = await running.post(FEEDBACK_PATH, body)
        other = await running.post(FEEDBACK_PATH, {"query_id": "q", "verdict": "right"}, X_Query_Id="p")
    assert (found.status, found.json["error"]["param"]) == (status, param)
    assert told in found.json["error"]["message"]
    assert (other.status, other.json["error"]["param"]) == (422, "query_id")
    assert not said(topics)


async def test_a_verdict_can_be_taken_back() -> None:
    topics = cluster()
    async with gateway(connect=topics) as running:
        body = {"query_id": "q", "entities": None, "retracted": True}
        assert (await running.post(FEEDBACK_PATH, body)).status == 202
    (event,) = said(topics)
    assert (event.retracted, event.labeler) == (True, "gateway")


async def test_without_the_topic_verdicts_alone_are_refused() -> None:
    topics = cluster()
    del topics.configs[FEEDBACK.name("ucci")]
    async with gateway(connect=topics) as running:
        assert (await running.complete(query_id="q")).status == 200
        found = await running.post(FEEDBACK_PATH, {"query_id": "q", "verdict": "right"})
    assert (found.status, found.code) == (503, "feedback_missing")
