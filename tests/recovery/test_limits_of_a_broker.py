"""Services on a broker whose limits exclude them: no wait would help, and they end with one line that names the key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.recovery.test_broker_away_at_start import PREFIX, both_services
from tests.support.broker import add_properties, running_broker
from tests.support.recalibrator_processes import create_all_topics
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LIMIT_MS = 5_000


class _Strict(LocalBroker):
    def _choose_ports(self) -> None:
        super()._choose_ports()
        add_properties(self, {"transaction.max.timeout.ms": str(LIMIT_MS)})


async def test_a_transaction_limit_too_low_ends_a_start(start: Callable[..., None], tmp_path: Path) -> None:
    with running_broker(_Strict(tmp_path / "kafka")) as broker:
        create_all_topics(broker.bootstrap, PREFIX)
        started = both_services(tmp_path, broker.bootstrap, 0, 0)
        start(*started)
        for process in started:
            assert await asyncio.to_thread(process.running.wait, 60.0) == 1
            said = process.log.read_text(encoding="utf-8")
            (line,) = (one for one in said.splitlines() if one.startswith("transaction.timeout.ms: "))
            assert f"transaction.max.timeout.ms is {LIMIT_MS} there" in line
            assert "Traceback" not in said
