"""Files of events reach their topic acknowledged; a bad line is named and the good ones before it stay sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Message

from schemas.settings import Settings
from tests.support.broker import create, key_of, read_all
from tests.support.recalibrator_events import workload
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.topics.feed import FeedStopped, send_feedback, send_queries

pytestmark = pytest.mark.broker


@pytest.fixture
def settings(broker: LocalBroker, topic_prefix: str) -> Settings:
    create(broker.bootstrap, {f"{topic_prefix}.queries": 2, f"{topic_prefix}.feedback": 2})
    return Settings(kafka={"bootstrap.servers": broker.bootstrap}, topics={"prefix": topic_prefix})


def stored_in(settings: Settings, topic: str) -> list[Message]:
    return read_all(str(settings.kafka["bootstrap.servers"]), f"{settings.topics.prefix}.{topic}")


def test_bad_line_is_named_and_those_before_it_stay_sent(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    with pytest.raises(FeedStopped, match=r"queries\.jsonl: cannot be read: No such file"):
        send_queries(settings, file)
    good = b'{"query_id": "q-1", "text": "canon"}'
    file.write_bytes(b"\n".join([good, good, b'{"query_id": "q-2"}', good]))
    with pytest.raises(FeedStopped, match=r"queries.jsonl:3: text: is required and missing; the 2 records"):
        send_queries(settings, file)
    assert [key_of(message) for message in stored_in(settings, "queries")] == ["q-1", "q-1"]


def test_a_misspelt_field_says_that_a_query_has_nothing(settings: Settings, tmp_path: Path) -> None:
    """The file is checked whole before a line is sent."""
    settings = settings.model_copy(update={"workloads": {"photo": workload(fields=("iso",))}})
    file = tmp_path / "gold.jsonl"
    good = b'{"query_id": "q-1", "entities": {"iso": "100", "lens": "85 mm"}}'
    file.write_bytes(good + b'\n\n{"query_id": "q-1", "entities": {"isso": "100"}}\n{"query_id": "q-2"}')
    with pytest.raises(FeedStopped, match=r"3: entities: .* are iso; 1 more lines are faulty; nothing was sent"):
        send_feedback(settings, file)
    assert stored_in(settings, "feedback") == []
    file.write_bytes(good + b'\n{"query_id": "q-2", "entities": {}}')
    assert (sent := send_feedback(settings, file)).records == 2
    assert (set(sent.query_ids), dict(sent.unknown_fields)) == ({"q-1", "q-2"}, {"lens": 1})


@pytest.mark.parametrize(("nulls", "count"), [((), 2), (("none",), 1)])
def test_lines_that_spell_nothing_are_counted(
    settings: Settings, tmp_path: Path, nulls: tuple[str, ...], count: int
) -> None:
    settings = settings.model_copy(update={"workloads": {"photo": workload(null_texts=nulls)}})
    file = tmp_path / "labels.jsonl"
    file.write_text(
        '{"query_id": "q-1", "entities": {"lens": "None", "camera": ["None"]}}\n'
        '{"query_id": "q-2", "entities": {"lens": "n/a", "camera": "none"}}\n'
        '{"query_id": "q-3", "entities": {"lens": null, "camera": "nonesuch"}}\n',
        encoding="utf-8",
    )
    assert send_feedback(settings, file).spelt_nulls == count
