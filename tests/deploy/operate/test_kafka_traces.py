"""`ucci-stream explain` and `what-moved` find what they look for among other records on a real broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from recalibrator.join.placement import home_of
from recalibrator.movement import TooFewQueries
from schemas.errors import ConfigError
from schemas.event import rfc3339
from schemas.labelled import LabelledExample
from schemas.routed import RoutedEvent
from tests.support.broker import create, documents, produce, read_all
from tests.support.recalibrator_events import feedback, routed
from tests.support.recalibrator_processes import RecalibratorProcess, create_all_topics, write_recalibrator_config
from tests.support.versions import sealed_version
from tests.support.waiting import wait_until
from ucci_stream.cli import app
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.operate.explanation import lines
from ucci_stream.operate.kafka_traces import QueryNotFound

pytestmark = pytest.mark.broker
SINCE = "2020-01-01T00:00:00Z"


def test_a_query_is_explained_from_the_topics(broker: LocalBroker, topic_prefix: str, tmp_path: Path) -> None:
    bootstrap = broker.bootstrap
    create_all_topics(bootstrap, topic_prefix)
    config = write_recalibrator_config(tmp_path / "ucci.toml", bootstrap, topic_prefix, tmp_path)
    version = sealed_version(version=4)
    decided = ((one, version.decide(one.decision.uncertainty, one.query_id)) for one in map(routed, range(20)))
    results = [one.model_copy(update={"decision": decision}) for one, decision in decided]
    mine, said = results[7], feedback(7, labelled_at=None)
    example = LabelledExample.from_events(mine, feedback(7))
    produce(bootstrap, f"{topic_prefix}.results", [(one.query_id, one.to_json()) for one in results])
    produce(bootstrap, f"{topic_prefix}.feedback", [(one.query_id, one.to_json()) for one in (said, feedback(8))])
    produce(bootstrap, f"{topic_prefix}.observations", [("photo", example.to_json())])
    produce(bootstrap, f"{topic_prefix}.calibration-history", [("photo:4", version.to_json())])

    def call(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["explain", *arguments, "--config", str(config)], catch_exceptions=False)

    found = json.loads(call(mine.query_id, "--since", SINCE, "--json").stdout)
    assert (found["results"], found["result"]["query_id"]) == (1, mine.query_id)
    assert (found["decision"]["calibration_version"], found["decision"]["repeatable"]) == (4, True)
    assert [len(found["label"][part]) for part in ("feedback", "joined")] == [1, 1]
    came = found["label"]["feedback"][0]["arrived_at"]
    people = call(mine.query_id, "--since", SINCE).stdout
    assert f"{came} from ada, revision 1" in people, "by the broker's clock, since the labeler names no time"
    assert "the same decision again" in people
    assert mine.text in people
    with pytest.raises(QueryNotFound, match="q-nowhere: no result"):
        call("q-nowhere", "--since", SINCE)


def test_explain_says_what_a_label_waits_for_or_met(broker: LocalBroker, topic_prefix: str, tmp_path: Path) -> None:
    """One waits, one was forwarded and one refused; they are found by the id in their value, whatever their key."""
    bootstrap = broker.bootstrap
    create_all_topics(bootstrap, topic_prefix)
    config = write_recalibrator_config(tmp_path / "ucci.toml", bootstrap, topic_prefix, tmp_path)
    elsewhere = 1 - home_of("q-1", 2)
    labels = [
        (feedback(1).to_json(), b'"q-1"', elsewhere),
        # The id with an escape, as other languages write it.
        (feedback(3).to_json().replace(b'"q-3"', b'"\\u0051-3"'), None, 1 - elsewhere),
        (feedback(2, gold={"aperture": "f/2"}).to_json(), b"q-2", home_of("q-2", 2)),
    ]
    produce(bootstrap, f"{topic_prefix}.results", [(one.query_id, one.to_json()) for one in map(routed, range(4))])
    producer = Producer({"bootstrap.servers": bootstrap})
    for value, key, partition in labels:
        producer.produce(f"{topic_prefix}.feedback", value, key, partition)
    assert producer.flush(30.0) == 0
    with RecalibratorProcess(config, "join-0", tmp_path / "log", stages=("join",), forked=True):
        wait_until(lambda: read_all(bootstrap, f"{topic_prefix}.dead-letters"), "the refused label is set aside")
        observed = f"{topic_prefix}.observations"
        wait_until(lambda: "q-1" in {one.get("query_id") for one in documents(bootstrap, observed)}, "q-1 is joined")

    def told(query_id: str) -> tuple[dict[str, Any], str]:
        done = CliRunner().invoke(app, ["explain", query_id, "--json", "--config", str(config)], catch_exceptions=False)
        found = json.loads(done.stdout)
        return found, "; ".join(text for _, text in lines(found))

    found, text = told("Q-3")
    (label,) = found["label"]["feedback"]
    place = f"{topic_prefix}.feedback/{1 - elsewhere}/0"
    assert (found["results"], label["place"], label["labeler"]) == (0, place, "ada")
    until = datetime.fromisoformat(label["arrived_at"]) + timedelta(days=1)
    assert datetime.fromisoformat(found["label"]["waits"]["until"]) == until, "join_retention_s after it came"
    assert found["label"]["waits"]["similar_ids"] == ["q-3"]
    for words in ("not yet: no result of this id has come", "(no_result)", "results are there of q-3", place):
        assert words in text
    found, text = told("q-1")
    sent, home = f"{topic_prefix}.feedback/{elsewhere}/0", f"{topic_prefix}.join-repartition/{1 - elsewhere}/0"
    assert found["forwarded"] == [{"what": "label", "sent": sent, "place": home}]
    assert f"sent to partition {elsewhere} of {topic_prefix}.feedback; the join forwarded it to partition" in text
    assert "yes: as joined" in text
    _, text = told("q-2")
    assert "no: it was set aside as a dead letter: unknown_fields" in text
    assert "'aperture': none is a field here" in text


_ENGLISH = "a fast portrait lens for weddings in dark churches, number"
_GERMAN = "ein lichtstarkes Objektiv für Hochzeiten in dunklen Kirchen, Nummer"


def test_results_before_and_after_are_compared(broker: LocalBroker, topic_prefix: str, tmp_path: Path) -> None:
    # Dated by its producer, where the service's own is dated by the broker: an hour passes at once.
    create(broker.bootstrap, {f"{topic_prefix}.results": 2})
    config = write_recalibrator_config(tmp_path / "ucci.toml", broker.bootstrap, topic_prefix, tmp_path)
    since = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    until = since + timedelta(minutes=20)

    def results(first: int, texts: str, start: datetime, **changes: Any) -> list[tuple[RoutedEvent, datetime]]:
        made = (routed(number, text=f"{texts} {number}", **changes) for number in range(first, first + 200))
        return [(one, start + timedelta(seconds=5 * number)) for number, one in enumerate(made)]

    sent = [
        *results(0, _GERMAN, since - timedelta(hours=1)),  # too long ago
        *results(1_000, _ENGLISH, since - timedelta(minutes=19)),
        *results(2_000, _GERMAN, since),
        *results(3_000, _ENGLISH, until),  # too late
        *results(4_000, _ENGLISH, since, workload="other"),
    ]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for one, at in sent:
        at_ms = int(at.timestamp() * 1_000)
        producer.produce(f"{topic_prefix}.results", key=one.query_id, value=one.to_json(), timestamp=at_ms)
    assert producer.flush(30.0) == 0

    def call(*arguments: str) -> Any:
        given = ["what-moved", "--since", rfc3339(since), "--until", rfc3339(until), "--config", str(config)]
        return CliRunner().invoke(app, [*given, *arguments], catch_exceptions=False)

    found = json.loads(call("--json").stdout)
    assert [found[side]["results"] for side in ("before", "after")] == [200, 200]
    assert (found["moved"][0]["what"], found["moved"][0]["after"]["de"]) == ("language", 1.0)
    people = call("--most", "150").stdout
    for words in ("200 results", "150 and 150 compared", "language: de 0% → 100%"):
        assert words in people
    with pytest.raises(TooFewQueries, match="0 results from"):
        call("--until", rfc3339(since + timedelta(minutes=1)), "--since", rfc3339(since - timedelta(hours=4)))
    with pytest.raises(ConfigError, match="--since: must lie before"):
        call("--until", rfc3339(since))
