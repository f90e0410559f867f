"""Recalibrator processes on a real broker: killed, robbed of their state, drained; each label counts once."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Message

from recalibrator.core import Recalibrator
from recalibrator.decoding import decode_observation
from schemas.command import Command
from tests.support.broker import create, follow, produce, read_all, unique_prefix
from tests.support.recalibrator_events import START, feedback, routed
from tests.support.recalibrator_processes import RecalibratorProcess, recalibrator_settings, write_recalibrator_config
from tests.support.routers import value_of
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

QUERIES = 3_000
KILLS = 4
#: Before the restart after this kill the state directory is deleted.
STATE_LOST_AT = 3

SEED = 20260214
DEADLINE_S = 100.0


class Progress:
    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._consumer = follow(bootstrap, f"{prefix}.observations")
        self.labelled = 0
        self.routed = 0

    async def until(self, process: RecalibratorProcess, labelled: int, routed_queries: int = 0) -> None:
        """Wait until so many examples, and so many queries in summaries, are committed."""
        async with asyncio.timeout(DEADLINE_S):
            while self.labelled < labelled or self.routed < routed_queries:
                assert process.process is not None
                assert process.process.poll() is None, f"ended: {process.lines()[-5:]}"
                for message in await asyncio.to_thread(self._consumer.consume, 1_000, 0.05):
                    if message.error() is None:
                        self._count(json.loads(value_of(message)))

    def _count(self, found: dict[str, object]) -> None:
        if found["kind"] == "labelled":
            self.labelled += 1
        elif found["kind"] == "traffic":
            self.routed += queries_in(found)

    def close(self) -> None:
        self._consumer.close()


def queries_in(summary: dict[str, object]) -> int:
    parts = summary["versions"]
    assert isinstance(parts, list)
    return sum(part["queries"] for part in parts)


@pytest.fixture
def recalibrator(broker: LocalBroker, prefix: str, tmp_path: Path) -> Iterator[RecalibratorProcess]:
    config = write_recalibrator_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, tmp_path / "state")
    process = RecalibratorProcess(config, "recalibrator", tmp_path / "recalibrator.log", forked=True)
    yield process
    process.close()


def send_queries(bootstrap: str, prefix: str, first: int, last: int, draw: random.Random) -> None:
    """Send results and labels of these queries, half of the labels before their results; then ask for a refit."""
    numbers = list(range(first, last))
    drifted = first >= QUERIES // 2
    results = [(f"q-{n}", routed(n, drifted=drifted).to_json()) for n in numbers]
    draw.shuffle(numbers)
    labels = [(f"q-{n}", feedback(n).to_json()) for n in numbers]
    half = len(labels) // 2
    produce(bootstrap, f"{prefix}.feedback", labels[:half])
    produce(bootstrap, f"{prefix}.results", results)
    produce(bootstrap, f"{prefix}.feedback", labels[half:] + labels[:10])
    refit = Command(workload="photo", action="refit", issued_by="test", issued_at=START + timedelta(seconds=last))
    produce(bootstrap, f"{prefix}.observations", [("photo", refit.to_json())])


def plain_fold(observations: list[Message], bootstrap: str, prefix: str) -> list[bytes]:
    """Return the versions that the core makes of the observations in the log's order."""
    core = Recalibrator(recalibrator_settings(bootstrap, prefix).workloads["photo"])
    events = (decode_observation(message.value(), {"photo"}) for message in observations)
    return [version.to_json() for event in events if (version := core.observe(event)) is not None]


async def until_published(bootstrap: str, prefix: str, versions: int) -> list[Message]:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = await asyncio.to_thread(read_all, bootstrap, f"{prefix}.calibration-history")
            if len(found) >= versions:
                return found


async def test_repeated_kills_count_each_label_once(
    broker: LocalBroker, prefix: str, recalibrator: RecalibratorProcess, tmp_path: Path
) -> None:
    draw = random.Random(SEED)
    progress = Progress(broker.bootstrap, prefix)
    share = QUERIES // (KILLS + 1) + 1
    recalibrator.start()
    for kill in range(KILLS + 1):
        first, last = kill * share, min((kill + 1) * share, QUERIES)
        await asyncio.to_thread(send_queries, broker.bootstrap, prefix, first, last, draw)
        if kill == KILLS:
            break
        await progress.until(recalibrator, first + draw.randint(1, last - first))
        await asyncio.sleep(draw.uniform(0.0, 0.2))
        recalibrator.kill()
        if kill == STATE_LOST_AT:
            shutil.rmtree(tmp_path / "state")
        recalibrator.start()
    await progress.until(recalibrator, QUERIES, QUERIES)
    progress.close()

    observations = read_all(broker.bootstrap, f"{prefix}.observations")
    found = [json.loads(value_of(message)) for message in observations]
    times = Counter(one["query_id"] for one in found if one["kind"] == "labelled")
    assert times == {f"q-{n}": 1 for n in range(QUERIES)}, f"seed {SEED}"
    assert sum(queries_in(one) for one in found if one["kind"] == "traffic") == QUERIES, f"seed {SEED}"

    expected = plain_fold(observations, broker.bootstrap, prefix)
    assert len(expected) > KILLS
    history = await until_published(broker.bootstrap, prefix, len(expected))
    recalibrator.terminate()
    assert await recalibrator.exit_code() == 0
    assert [value_of(message) for message in history] == expected, f"seed {SEED}"
    assert [message.key() for message in history] == [f"photo:{n + 1}".encode() for n in range(len(expected))]
    current = read_all(broker.bootstrap, f"{prefix}.calibration")
    assert [value_of(message) for message in current] == expected
    assert read_all(broker.bootstrap, f"{prefix}.dead-letters") == []
    status = json.loads(value_of(read_all(broker.bootstrap, f"{prefix}.status")[-1]))
    assert status["workload"] == "photo"


async def test_second_process_on_the_state_is_refused(recalibrator: RecalibratorProcess, tmp_path: Path) -> None:
    second = RecalibratorProcess(recalibrator.config, "second", tmp_path / "second.log")
    recalibrator.start()
    await recalibrator.until_logged("assigned")
    second.start()
    try:
        assert await second.exit_code() == 1
    finally:
        second.close()
    (line,) = second.lines()
    assert "another process runs stage" in line
    assert recalibrator.process is not None
    assert recalibrator.process.poll() is None


async def test_sigterm_before_anything_has_come_ends_with_0(recalibrator: RecalibratorProcess) -> None:
    recalibrator.start()
    await recalibrator.until_logged("assigned", 2)
    recalibrator.terminate()
    assert await recalibrator.exit_code() == 0


async def test_wrong_topic_policy_exits_with_1(broker: LocalBroker, tmp_path: Path) -> None:
    name = unique_prefix()
    create(broker.bootstrap, {f"{name}.calibration": 1}, {"cleanup.policy": "delete"})
    create(broker.bootstrap, {f"{name}.{topic}": 2 for topic in ("results", "feedback", "observations")})
    create(broker.bootstrap, {f"{name}.dead-letters": 2})
    compacted = {f"{name}.{topic}": 1 for topic in ("calibration-history", "status", "routers")}
    create(broker.bootstrap, compacted, {"cleanup.policy": "compact"})
    create(broker.bootstrap, {f"{name}.label-requests": 1}, {"cleanup.policy": "compact,delete"})
    config = write_recalibrator_config(tmp_path / "ucci.toml", broker.bootstrap, name, tmp_path / "state")
    process = RecalibratorProcess(config, "recalibrator", tmp_path / "recalibrator.log")
    process.start()
    try:
        assert await process.exit_code() == 1
    finally:
        process.close()
    (line,) = process.lines()
    assert f"{name}.calibration: cleanup.policy is delete, needs compact" in line


async def test_without_topics_that_came_later_it_goes_on_and_says_so(broker: LocalBroker, tmp_path: Path) -> None:
    name = unique_prefix()
    create(
        broker.bootstrap, {f"{name}.{topic}": 2 for topic in ("results", "feedback", "observations", "dead-letters")}
    )
    compacted = {f"{name}.{topic}": 1 for topic in ("calibration", "calibration-history", "status", "routers")}
    create(broker.bootstrap, compacted, {"cleanup.policy": "compact"})
    config = write_recalibrator_config(tmp_path / "ucci.toml", broker.bootstrap, name, tmp_path / "state")
    process = RecalibratorProcess(config, "recalibrator", tmp_path / "recalibrator.log", stages=("join", "fit", "api"))
    process.start()
    try:
        await process.until_logged("assigned", 2)
        process.terminate()
        assert await process.exit_code() == 0
    finally:
        process.close()
    told = {line["topic"] for line in process.events() if line["event"].startswith("topic does not exist")}
    later = ("recalibrators", "label-requests", "calibration-trial", "happenings")
    assert told == {f"{name}.{topic}" for topic in later}
