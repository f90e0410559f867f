"""A broker that stands still is named by what an operator looks at, and its return asks for no restart."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from recalibrator.stage import StageName
from tests.faults.stalls import StalledBroker
from tests.support.probes import asked
from tests.support.recalibrator_processes import RecalibratorProcess, create_all_topics, write_recalibrator_config
from tests.support.waiting import wait_until
from ucci_stream.local.kafka_node import pick_port

pytestmark = [pytest.mark.broker, pytest.mark.slow]

#: Long enough for a service that is heard no more to be called silent.
AGAIN_S = 40.0


class Looks:
    """What an operator sees of one recalibrator, look by look."""

    def __init__(self, url: str, process: RecalibratorProcess) -> None:
        self.url = url
        self.process = process
        self.kinds: list[str] = []

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        code, body = asked(self.url + path)
        return code, json.loads(body) if code else {}

    def look(self) -> tuple[int, bool, str]:
        """Return `/readyz`' code, whether it names Kafka, and the kind of the headline."""
        self.process.assert_runs()
        code, ready = self.get("/readyz")
        found, status = self.get("/v1/status/photo")
        kind = str(status["headline"]["kind"]) if found == 200 else ""
        self.kinds += [kind] if kind and kind not in self.kinds[-1:] else []
        return code, "kafka" in ready.get("missing", []), kind

    def until(self, *wanted: object) -> None:
        wait_until(self.look, f"{wanted}", lambda seen: seen == wanted)


def test_a_stopped_broker_was_blamed_on_the_fit(tmp_path: Path) -> None:
    """For two minutes `/readyz` was 200, and the page said "Start the recalibrator again"; nothing named Kafka."""
    with StalledBroker(tmp_path / "kafka") as broker, ExitStack() as held:
        create_all_topics(broker.bootstrap, "away")
        port = pick_port()
        config = write_recalibrator_config(tmp_path / "ucci.toml", broker.bootstrap, "away", tmp_path / "state", port)
        process = RecalibratorProcess(config, "recalibrator", tmp_path / "log", stages=tuple(StageName))
        held.enter_context(process)
        held.callback(broker.thaw)
        looks = Looks(f"http://127.0.0.1:{port}", process)
        looks.until(200, False, "cold_start")
        broker.freeze()
        looks.until(503, True, "kafka")
        said = looks.get("/v1/status/photo")[1]["headline"]
        assert broker.bootstrap in said["cause"]
        stands_until_s = time.monotonic() + AGAIN_S
        while time.monotonic() < stands_until_s:
            assert looks.look() == (503, True, "kafka")
            time.sleep(1.0)
        broker.thaw()
        looks.until(200, False, "cold_start")
    assert looks.kinds == ["cold_start", "kafka", "cold_start"], "at no time was a service asked to be started again"
