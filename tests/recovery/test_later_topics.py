"""A recalibrator on the topics that there were at first: what came later rests, and it says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.broker import create, unique_prefix
from tests.support.recalibrator_processes import RecalibratorProcess, write_recalibrator_config
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

FIRST = ("results", "feedback", "observations", "dead-letters")
COMPACTED = ("calibration", "calibration-history", "status", "routers")
LATER = ("recalibrators", "label-requests", "calibration-trial", "happenings")


async def test_without_topics_that_came_later_it_goes_on_and_says_so(
    broker: LocalBroker, start: Callable[..., None], tmp_path: Path
) -> None:
    name = unique_prefix()
    create(broker.bootstrap, {f"{name}.{topic}": 2 for topic in FIRST})
    create(broker.bootstrap, {f"{name}.{topic}": 1 for topic in COMPACTED}, {"cleanup.policy": "compact"})
    config = write_recalibrator_config(tmp_path / "ucci.toml", broker.bootstrap, name, tmp_path / "state")
    process = RecalibratorProcess(config, "recalibrator", tmp_path / "recalibrator.log", stages=("join", "fit", "api"))
    start(process)
    await process.until_logged("assigned", 2)
    process.terminate()
    assert await process.exit_code() == 0
    told = {line["topic"] for line in process.events() if line["event"].startswith("topic does not exist")}
    assert told == {f"{name}.{topic}" for topic in LATER}
    counts = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(f"{name}.join-repartition", timeout=10)
    assert len(counts.topics[f"{name}.join-repartition"].partitions) == 2, "the join has made its own topic"
