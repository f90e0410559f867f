"""Topics of a test's own, and processes that end with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.broker import unique_prefix
from tests.support.recalibrator_processes import create_all_topics
from tests.support.router_processes import RouterProcess
from ucci_stream.local.kafka_node import LocalBroker


@pytest.fixture
def started() -> Iterator[list[RouterProcess]]:
    processes: list[RouterProcess] = []
    yield processes
    for process in processes:
        process.close()


@pytest.fixture
def prefix(broker: LocalBroker) -> str:
    name = unique_prefix()
    create_all_topics(broker.bootstrap, name)
    return name
