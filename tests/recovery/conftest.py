"""Topics of a test's own, and processes that end with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.broker import unique_prefix
from tests.support.recalibrator_processes import create_all_topics
from tests.support.router_processes import RouterProcess
from ucci_stream.local.kafka_node import LocalBroker


@pytest.fixture
def start() -> Iterator[Callable[..., None]]:
    """Starts processes, which end with the test."""
    with ExitStack() as running:

        def begin(*processes: RouterProcess) -> None:
            for process in processes:
                running.enter_context(process)

        yield begin


@pytest.fixture
def prefix(broker: LocalBroker) -> str:
    name = unique_prefix()
    create_all_topics(broker.bootstrap, name)
    return name
