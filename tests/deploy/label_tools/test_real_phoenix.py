"""Against the real server: what people annotate there reaches the topic once, and labels come back to its traces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from schemas.feedback import FeedbackEvent
from tests.support.broker import produce, read_all, unique_prefix
from tests.support.checkout import run_command
from tests.support.phoenix_server import PhoenixServer
from tests.support.recalibrator_events import feedback, routed
from tests.support.recalibrator_processes import create_all_topics, write_recalibrator_config
from tests.support.routers import value_of
from tests.support.waiting import wait_until
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.phoenix, pytest.mark.broker]

DEADLINE_S = 60.0
QUERIES = 6


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PhoenixServer]:
    with PhoenixServer(tmp_path_factory.mktemp("phoenix")) as running:
        yield running


class Site:
    """Topics with results that carry traces, and the command."""

    def __init__(self, bootstrap: str, url: str, folder: Path) -> None:
        self.bootstrap, self.url, self.prefix = bootstrap, url, unique_prefix()
        create_all_topics(bootstrap, self.prefix)
        self.config = write_recalibrator_config(folder / "ucci.toml", bootstrap, self.prefix, folder / "state")

    def round(self) -> dict[str, Any]:
        words = ("trace-scores", "sync", "phoenix", "--url", self.url, "--json", "--config", self.config)
        done = run_command(*words)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def said(self) -> dict[str, FeedbackEvent]:
        """What came from Phoenix, the last of each query."""
        messages = sorted(read_all(self.bootstrap, f"{self.prefix}.feedback"), key=lambda one: one.timestamp()[1])
        events = [FeedbackEvent.from_json(value_of(message)) for message in messages]
        return {event.query_id: event for event in events if event.source == "phoenix"}


def trace_id(number: int) -> str:
    return f"{number + 1:016x}{number + 1:016x}"


@pytest.fixture
def site(broker: LocalBroker, phoenix: PhoenixServer, tmp_path: Path) -> Site:
    site = Site(broker.bootstrap, phoenix.url, tmp_path)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(QUERIES):
        one, trace = routed(number), trace_id(number)
        headers: dict[str, str | bytes | None] = {"traceparent": f"00-{trace}-{trace[:16]}-01".encode()}
        producer.produce(f"{site.prefix}.results", key=one.query_id, value=one.to_json(), headers=headers)
        # Every other trace is of a program that knows nothing of our queries.
        phoenix.trace(trace, {"ucci.query_id": one.query_id} if number % 2 else {})
    assert producer.flush(DEADLINE_S) == 0
    wait_until(phoenix.spans, "Phoenix takes the spans", lambda found: found >= QUERIES)
    return site


def test_annotations_become_feedback_and_labels_come_back(site: Site, phoenix: PhoenixServer) -> None:
    right = {"camera": "leica", "lens": None}
    phoenix.annotate("trace", trace_id(0), result={"label": "correct"}, identifier="ann")
    phoenix.annotate("span", trace_id(1)[:16], result={"score": 0, "explanation": "no lens"})
    phoenix.annotate("trace", trace_id(2), name="correction", result={"explanation": json.dumps(right)})
    phoenix.annotate("trace", trace_id(3), annotator_kind="LLM", result={"label": "incorrect"})
    phoenix.annotate("trace", trace_id(4), result={"label": "meh"})
    produce(site.bootstrap, f"{site.prefix}.feedback", [("q-5", feedback(5, source="page").to_json())])
    first, again = site.round(), site.round()

    assert (first["new"], first["pushed"], again["new"], again["revised"]) == (3, 1, 0, 0)
    (fault,) = first["faults"]
    assert "'meh' is neither right nor wrong" in fault
    said = site.said()
    assert {name: (one.labeler, one.verdict, one.entities) for name, one in said.items()} == {
        "q-0": ("phoenix:ann", "right", None),
        "q-1": ("phoenix:api", "wrong", None),
        "q-2": ("phoenix:api", None, right),
    }
    (label,) = wait_until(lambda: phoenix.annotations(trace_id(5)), "the label comes back")
    assert (label["name"], label["result"]["label"], label["metadata"]["labeler"]) == ("ucci-label", "labelled", "ada")
    assert json.loads(label["result"]["explanation"]) == feedback(5).model_dump(mode="json")["entities"]

    phoenix.annotate("trace", trace_id(0), result={"label": "incorrect"}, identifier="ann")
    assert site.round()["revised"] == 1
    assert site.said()["q-0"].verdict == "wrong"
    assert len(phoenix.annotations(trace_id(5))) == 1
