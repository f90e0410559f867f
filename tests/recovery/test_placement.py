"""Labels count once on a real broker, however their producers hash keys and whenever partitions are added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from schemas.feedback import FeedbackEvent
from schemas.labelled import LabelledExample
from tests.support.broker import (
    add_partitions,
    committed_reader,
    create,
    documents,
    key_of,
    produce,
    read_all,
    unique_prefix,
)
from tests.support.broker_labs import Notes, collect, connected, drive
from tests.support.hashings import WAYS, Hashings
from tests.support.recalibrator_events import PHOTO, entities, feedback, routed
from tests.support.recalibrator_memory import Counts
from tests.support.recalibrator_processes import (
    RecalibratorProcess,
    create_all_topics,
    write_recalibrator_config,
)
from tests.support.waiting import wait_until
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

HOMES = 4
QUERIES = 300
LABELLED_FIRST, LABELLED_LATER = range(100), range(100, 290)
CORRECTED, WITHDRAWN = range(60), range(60, 100)
CORRECTED_LATE, WITHDRAWN_LATE = range(100, 140), range(140, 160)


def correction(number: int) -> FeedbackEvent:
    return feedback(number, entities(f"q-{number}", wrong=True), revision=2)


def withdrawal(number: int) -> FeedbackEvent:
    return feedback(number, revision=2, retracted=True)


class Labelers:
    """Say something of queries; each by the way that is next to the one by which that query was spoken of before."""

    def __init__(self, broker: LocalBroker, topic: str) -> None:
        self._bootstrap = broker.bootstrap
        self._topic = topic
        self._times: Counter[str] = Counter()
        self.said: dict[str, FeedbackEvent] = {}

    def say(self, events: Iterable[FeedbackEvent]) -> None:
        """Say all that, and wait until it is acknowledged."""
        failed: list[str] = []
        # Clients that begin now know all partitions.
        hashings = Hashings(self._bootstrap)

        def report(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failed.append(error.str())

        for event in events:
            number = int(event.query_id.removeprefix("q-")) + self._times[event.query_id]
            self._times[event.query_id] += 1
            hashings.produce(WAYS[number % len(WAYS)], self._topic, event.query_id, event.to_json(), report)
            self.said[event.query_id] = event
        hashings.flush()
        assert not failed, failed[0]


def examples(broker: LocalBroker, prefix: str) -> list[LabelledExample]:
    found = documents(broker.bootstrap, f"{prefix}.observations")
    return [LabelledExample.model_validate(one) for one in found if one["kind"] == "labelled"]


def uncounted(found: Iterable[LabelledExample], said: dict[str, FeedbackEvent]) -> list[str]:
    """Return the queries of which the last word is not the one that counts."""
    last = {one.query_id: one for one in sorted(found, key=lambda one: one.revision)}
    return [query_id for query_id, event in said.items() if not _counts(last.get(query_id), event)]


def _counts(example: LabelledExample | None, event: FeedbackEvent) -> bool:
    if event.retracted or example is None:
        # What is withdrawn before it counted leaves no trace.
        return event.retracted and (example is None or example.retracted)
    result = routed(int(event.query_id.removeprefix("q-")))
    return example == LabelledExample.from_events(result, event, fields=PHOTO.fields, revision=example.revision)


def open_requests(broker: LocalBroker, prefix: str) -> set[str]:
    found = read_all(broker.bootstrap, f"{prefix}.label-requests")
    latest = {key_of(message): message.value() for message in found}
    return {query_id for query_id, value in latest.items() if value is not None}


async def test_labels_count_once_by_any_hash_and_any_growth(
    broker: LocalBroker, start: Callable[..., None], tmp_path: Path
) -> None:
    """Corrections and withdrawals go another way than the first label; requests are open for what has no label.

    Partitions are added twice, once to feedback alone; a second join comes, and the first one leaves.
    """
    prefix = unique_prefix()
    create_all_topics(broker.bootstrap, prefix, HOMES)
    joins = [join(broker, prefix, tmp_path, name) for name in ("first", "second")]
    labelers = Labelers(broker, f"{prefix}.feedback")

    def all_count() -> list[str]:
        return uncounted(examples(broker, prefix), labelers.said)

    results = [(f"q-{number}", routed(number).to_json()) for number in range(QUERIES)]
    produce(broker.bootstrap, f"{prefix}.results", results)
    start(joins[0])
    labelers.say(map(feedback, LABELLED_FIRST))
    wait_until(all_count, "labels count", lambda left: not left)

    add_partitions(broker.bootstrap, {f"{prefix}.feedback": 2 * HOMES})
    start(joins[1])
    await joins[1].until_logged("assigned")
    labelers.say(map(feedback, LABELLED_LATER))
    labelers.say([*map(correction, CORRECTED), *map(withdrawal, WITHDRAWN)])
    grown = {f"{prefix}.{topic}": 3 * HOMES for topic in ("queries", "results", "feedback")}
    add_partitions(broker.bootstrap, grown)
    labelers.say([*map(correction, CORRECTED_LATE), *map(withdrawal, WITHDRAWN_LATE)])
    joins[0].terminate()
    await joins[0].exit_code()
    wait_until(all_count, "labels, corrections and withdrawals count", lambda left: not left)

    joins[1].terminate()
    await joins[1].exit_code()
    assert [place for place, times in revisions(broker, prefix).items() if times > 1] == []
    unlabelled = {*range(QUERIES)} - {*LABELLED_FIRST, *LABELLED_LATER}
    assert open_requests(broker, prefix) == {f"q-{n}" for n in {*unlabelled, *WITHDRAWN, *WITHDRAWN_LATE}}
    assert traffic(broker, prefix) == QUERIES
    assert read_all(broker.bootstrap, f"{prefix}.dead-letters") == []
    partitions = {message.partition() for message in read_all(broker.bootstrap, f"{prefix}.feedback")}
    assert partitions == {*range(3 * HOMES)}, "a partition got no label: nothing is shown of it"


def test_a_router_soon_reads_partitions_added_to_queries(broker: LocalBroker) -> None:
    """By the client's default a query there would wait for up to five minutes."""
    prefix = unique_prefix()
    create(broker.bootstrap, {f"{prefix}.queries": 2})
    process = connected({"bootstrap.servers": broker.bootstrap}, prefix, "one", Counts())
    reader, notes = process.group_reader("router", [f"{prefix}.queries"]), Notes()
    reader.subscribe(notes)
    drive([reader], lambda: len(notes.committed) == 2)
    add_partitions(broker.bootstrap, {f"{prefix}.queries": 4})
    drive([reader], lambda: len(notes.committed) == 4)
    reader.close()


def test_a_join_waits_for_one_of_a_former_release_to_end(broker: LocalBroker) -> None:
    """Side by side both would take the same records: 100 of 200 results were counted twice, and 39 labels."""
    prefix = unique_prefix()
    results, topics = f"{prefix}.results", [f"{prefix}.{name}" for name in ("join-repartition", "results", "feedback")]
    create(broker.bootstrap, dict.fromkeys(topics, 2))
    former = committed_reader(broker.bootstrap, {"group.id": f"{prefix}-join", "group.instance.id": "former"})
    former.subscribe(topics[1:])
    wait_until(lambda: former.poll(0.05) or former.assignment(), "the former join is assigned its partitions")
    process = connected({"bootstrap.servers": broker.bootstrap}, prefix, "ours", Counts())
    reader, notes = process.group_reader("join", topics), Notes()
    reader.subscribe(notes)

    def both_polled(holds: Callable[[], bool]) -> Callable[[], bool]:
        return lambda: former.poll(0.02) is None and holds()

    drive([reader], both_polled(lambda: "lost" in notes.events))
    produce(broker.bootstrap, results, [("q-1", b"{}")])
    assert drive([reader], both_polled(lambda: True)) == []
    assert "assigned" not in notes.events
    former.unsubscribe()
    drive([reader], both_polled(lambda: len(notes.committed) == 6))
    assert len(collect(reader, 1)) == 1
    former.close()
    reader.close()


def join(broker: LocalBroker, prefix: str, directory: Path, name: str) -> RecalibratorProcess:
    path = directory / f"{name}.toml"
    config = write_recalibrator_config(path, broker.bootstrap, prefix, directory / f"state-{name}")
    return RecalibratorProcess(config, name, directory / f"{name}.log", forked=True, stages=("join",))


def revisions(broker: LocalBroker, prefix: str) -> Counter[tuple[str, int]]:
    return Counter((one.query_id, one.revision) for one in examples(broker, prefix))


def traffic(broker: LocalBroker, prefix: str) -> int:
    """Return how many results the summaries count."""
    found: list[Any] = documents(broker.bootstrap, f"{prefix}.observations")
    return sum(part["queries"] for one in found if one["kind"] == "traffic" for part in one["versions"])
