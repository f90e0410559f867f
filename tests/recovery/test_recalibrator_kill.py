"""Recalibrator processes on a real broker: killed, robbed of their state, drained; each label counts once."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Message

from recalibrator.core import Recalibrator
from recalibrator.decoding import decode_observation
from schemas.command import Command
from tests.support.broker import create, documents, produce, read_all, unique_prefix
from tests.support.progress import following
from tests.support.recalibrator_events import START, feedback, routed
from tests.support.recalibrator_processes import RecalibratorProcess, recalibrator_settings, write_recalibrator_config
from tests.support.routers import value_of
from tests.support.waiting import eventually
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

QUERIES = 3_000
KILLS = 4
#: Before the restart after this kill the state directory is deleted.
STATE_LOST_AT = 3

SEED = 20260214
COMPACT = {"cleanup.policy": "compact"}

Start = Callable[..., None]


def counted(observation: Message) -> Iterator[tuple[str, int]]:
    """Yield how many labels and routed queries an observation holds."""
    found = json.loads(value_of(observation))
    if found["kind"] == "labelled":
        yield "labelled", 1
    elif found["kind"] == "traffic":
        yield "routed", sum(part["queries"] for part in found["versions"])


@pytest.fixture
def config(broker: LocalBroker, prefix: str, tmp_path: Path) -> Path:
    return write_recalibrator_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, tmp_path / "state")


@pytest.fixture
def recalibrator(config: Path, start: Start, tmp_path: Path) -> RecalibratorProcess:
    process = RecalibratorProcess(config, "recalibrator", tmp_path / "recalibrator.log", forked=True)
    start(process)
    return process


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


async def test_repeated_kills_count_each_label_once(
    broker: LocalBroker, prefix: str, recalibrator: RecalibratorProcess, tmp_path: Path
) -> None:
    draw, share = random.Random(SEED), QUERIES // (KILLS + 1) + 1
    with following(broker.bootstrap, f"{prefix}.observations", counted) as progress:
        for kill in range(KILLS + 1):
            first, last = kill * share, min((kill + 1) * share, QUERIES)
            await asyncio.to_thread(send_queries, broker.bootstrap, prefix, first, last, draw)
            if kill == KILLS:
                break
            await progress.until([recalibrator], labelled=first + draw.randint(1, last - first))
            await asyncio.sleep(draw.uniform(0.0, 0.2))
            recalibrator.kill()
            if kill == STATE_LOST_AT:
                shutil.rmtree(tmp_path / "state")
            recalibrator.start()
        await progress.until([recalibrator], labelled=QUERIES, routed=QUERIES)

    observations = read_all(broker.bootstrap, f"{prefix}.observations")
    found = [json.loads(value_of(each)) for each in observations]
    times = Counter(one["query_id"] for one in found if one["kind"] == "labelled")
    assert times == {f"q-{n}": 1 for n in range(QUERIES)}, f"seed {SEED}"
    assert sum(dict(counted(one)).get("routed", 0) for one in observations) == QUERIES, f"seed {SEED}"

    expected = plain_fold(observations, broker.bootstrap, prefix)
    assert len(expected) > KILLS
    history = await eventually(
        lambda: read_all(broker.bootstrap, f"{prefix}.calibration-history"), lambda found: len(found) >= len(expected)
    )
    recalibrator.terminate()
    assert await recalibrator.exit_code() == 0
    numbered = [(f"photo:{n}".encode(), version) for n, version in enumerate(expected, 1)]
    assert [(message.key(), message.value()) for message in history] == numbered, f"seed {SEED}"
    current = read_all(broker.bootstrap, f"{prefix}.calibration")
    assert [value_of(message) for message in current] == expected
    assert read_all(broker.bootstrap, f"{prefix}.dead-letters") == []
    assert documents(broker.bootstrap, f"{prefix}.status")[-1]["workload"] == "photo"


async def test_second_process_on_the_state_is_refused(
    config: Path, recalibrator: RecalibratorProcess, start: Start, tmp_path: Path
) -> None:
    await recalibrator.until_logged("assigned")
    second = RecalibratorProcess(config, "second", tmp_path / "second.log")
    start(second)
    assert await second.exit_code() == 1
    (line,) = second.lines()
    assert "another process runs stage" in line
    recalibrator.assert_runs()


def without_later_topics(broker: LocalBroker, tmp_path: Path, compacted: Iterable[str]) -> tuple[str, Path]:
    """Create the topics that there were at first, these of them compacted; return prefix and configuration."""
    name = unique_prefix()
    create(broker.bootstrap, {f"{name}.{topic}": 2 for topic in ("results", "feedback", "observations")})
    create(broker.bootstrap, {f"{name}.dead-letters": 2})
    create(broker.bootstrap, {f"{name}.{topic}": 1 for topic in compacted}, COMPACT)
    return name, write_recalibrator_config(tmp_path / "ucci.toml", broker.bootstrap, name, tmp_path / "state")


async def test_wrong_topic_policy_exits_with_1(broker: LocalBroker, start: Start, tmp_path: Path) -> None:
    name, config = without_later_topics(broker, tmp_path, ("calibration-history", "status", "routers"))
    create(broker.bootstrap, {f"{name}.calibration": 1}, {"cleanup.policy": "delete"})
    create(broker.bootstrap, {f"{name}.label-requests": 1}, {"cleanup.policy": "compact,delete"})
    process = RecalibratorProcess(config, "recalibrator", tmp_path / "recalibrator.log")
    start(process)
    assert await process.exit_code() == 1
    (line,) = process.lines()
    assert f"{name}.calibration: cleanup.policy is delete, needs compact" in line


async def test_without_topics_that_came_later_it_goes_on_and_says_so(
    broker: LocalBroker, start: Start, tmp_path: Path
) -> None:
    compacted = ("calibration", "calibration-history", "status", "routers")
    name, config = without_later_topics(broker, tmp_path, compacted)
    process = RecalibratorProcess(config, "recalibrator", tmp_path / "recalibrator.log", stages=("join", "fit", "api"))
    start(process)
    await process.until_logged("assigned", 2)
    process.terminate()
    assert await process.exit_code() == 0
    told = {line["topic"] for line in process.events() if line["event"].startswith("topic does not exist")}
    later = ("recalibrators", "label-requests", "calibration-trial", "happenings")
    assert told == {f"{name}.{topic}" for topic in later}
