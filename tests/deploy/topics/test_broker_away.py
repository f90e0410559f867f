"""Commands whose broker is away end with one clear line, in bounded time, whatever they were about to do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from schemas.command import Command
from schemas.errors import ConfigError
from schemas.routed import MAX_TEXT_CHARS
from schemas.settings import Settings, TopicSettings
from tests.support.broker import create
from ucci_runtime.broker import kafka_topics
from ucci_runtime.broker.errors import BrokerError, BrokerUnreachable, Fenced
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.offline import bootstrap
from ucci_stream.topics import admin, feed
from ucci_stream.topics import ask as asking
from ucci_stream.topics.ask import NoAnswer, ask
from ucci_stream.topics.feed import FeedStopped, Sends
from ucci_stream.topics.outcomes import watermarks

NOWHERE = "127.0.0.1:1"
SETTINGS = Settings(kafka={"bootstrap.servers": NOWHERE})


@pytest.fixture(autouse=True)
def _impatient(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("broker") is None:
        monkeypatch.setattr(admin, "ANSWER_TIMEOUT_S", 0.2)
        monkeypatch.setattr(kafka_topics, "REQUEST_TIMEOUT_S", 0.2)


@pytest.mark.parametrize(
    "call",
    [
        lambda file: admin.create_topics(SETTINGS),
        lambda file: ask(SETTINGS, "canon 5d", None, 30.0),
        lambda file: feed.send_queries(SETTINGS, file),
        lambda file: feed.send_feedback(SETTINGS, file),
        lambda file: bootstrap.send_events(SETTINGS, "w", []),
    ],
    ids=["topics create", "ask", "send", "label", "bootstrap"],
)
def test_unreachable_broker_is_one_line(tmp_path: Path, call: Callable[[Path], object]) -> None:
    file = tmp_path / "events.jsonl"
    file.write_bytes(b'{"query_id": "q", "text": "canon 5d", "entities": {}}')
    with pytest.raises(BrokerUnreachable) as caught:
        call(file)
    assert f"no broker answers at {NOWHERE} within 0.2 s" in str(caught.value)
    assert ("\n" in str(caught.value), caught.value.exit_code) == (False, 1)


def failing_client(room: int = 10, **fails: int) -> Any:
    """Return a producer whose broker fails over: it takes records and acknowledges none, or fails in one call."""
    client = Mock()
    client.flush.return_value = 1
    client.produce.side_effect = chain(repeat(None, room), repeat(BufferError()))
    for name, code in fails.items():
        getattr(client, name).side_effect = KafkaException(KafkaError(code))
    return client


@pytest.mark.parametrize("room", [0, 10])
def test_broker_that_acknowledges_nothing_stops_the_feed(room: int) -> None:
    """A minute of silence, or for ever where the client's queue was full, when a broker failed over during a feed."""
    client = failing_client(room)
    sends = Sends(client, "ucci.queries")
    with pytest.raises(FeedStopped, match=r"^ucci.queries: no acknowledgement for 0.2 s; 0 records were acknowledged"):  # noqa: PT012
        sends.send("q-1", b"{}")
        sends.finish()
    client.purge.assert_called_once_with()


@pytest.mark.parametrize(
    ("call", "code", "kind", "message"),
    [
        ("init_transactions", KafkaError._TIMED_OUT, BrokerUnreachable, "the cluster may be failing over"),
        ("init_transactions", KafkaError._FENCED, Fenced, "another process runs"),
        ("commit_transaction", KafkaError._TIMED_OUT, BrokerUnreachable, "the cluster may be failing over"),
    ],
)
def test_failing_over_broker_ends_bootstrap_in_one_line(
    monkeypatch: pytest.MonkeyPatch, call: str, code: int, kind: type[BrokerError], message: str
) -> None:
    client = failing_client(**{call: code, "abort_transaction": KafkaError._TIMED_OUT})
    client.flush.return_value = 0
    monkeypatch.setattr(bootstrap, "Producer", lambda _properties: client)
    monkeypatch.setattr(bootstrap, "require_broker", lambda _settings, _topic: None)
    command = Command(workload="w", action="refit", issued_by="me", issued_at=datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(kind, match=message) as caught:
        bootstrap.send_events(SETTINGS, "w", [command])
    assert "\n" not in str(caught.value)


@pytest.mark.broker
def test_ask_whose_query_is_not_taken_says_so(
    broker: LocalBroker, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that stands still when the query is sent: no router is to blame, and no query waits in the topic."""
    settings = Settings(kafka={"bootstrap.servers": broker.bootstrap}, topics=TopicSettings(prefix=topic_prefix))
    create(broker.bootstrap, {f"{topic_prefix}.queries": 1, f"{topic_prefix}.results": 1})

    def producer_of_a_frozen_broker(properties: dict[str, object]) -> Producer:
        broker.freeze()
        return Producer(properties)

    monkeypatch.setattr(asking, "Producer", producer_of_a_frozen_broker)
    try:
        with pytest.raises(NoAnswer) as caught:
            ask(settings, "canon 5d", None, 1.0)
    finally:
        broker.thaw()
    assert f"{topic_prefix}.queries: the query was not acknowledged within 1 s" in str(caught.value)
    assert "router" not in str(caught.value)


def electing(requests: int) -> Any:
    """Return a consumer whose partition has no leader for so many requests."""
    lost = KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
    return Mock(get_watermark_offsets=Mock(side_effect=[*repeat(lost, requests), (3, 9)]))


def test_a_leader_that_moves_ended_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a topic is asked for again until its leader is elected, within the time for an answer."""
    place = TopicPartition("ucci.results", 0)
    monkeypatch.setattr(admin, "ANSWER_TIMEOUT_S", 10.0)
    assert watermarks(electing(2), place) == (3, 9)
    monkeypatch.setattr(admin, "ANSWER_TIMEOUT_S", 0.2)
    with pytest.raises(KafkaException, match="NOT_LEADER"):
        watermarks(electing(1_000), place)


@pytest.mark.parametrize("text", ["", "x" * (MAX_TEXT_CHARS + 1)])
def test_a_text_that_is_no_query_printed_a_traceback(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ask(Settings(), text, None, 1.0)
    (line,) = caught.value.faults
    assert line.startswith("text: ")
    assert len(line) < 200
