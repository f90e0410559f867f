"""One real broker for the whole session; without one tests skip at a desk and fail in continuous integration."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from tests.support.broker import unique_prefix
from ucci_stream.local.kafka_install import BrokerNotInstalled
from ucci_stream.local.kafka_node import LocalBroker

# `make test` must end within minutes on two slow cores; HYPOTHESIS_PROFILE=thorough draws ten times as much.
settings.register_profile("quick", deadline=None, max_examples=20, derandomize=bool(os.environ.get("CI")))
settings.register_profile("thorough", deadline=None, max_examples=200)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@pytest.fixture(autouse=True)
def _log_lines_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command that a test calls in this process sends log lines elsewhere, or nowhere; the next test reads them.

    Loggers must not keep that output: it is closed by then, and a line written to it would end what writes it.
    """
    configure = structlog.configure
    monkeypatch.setattr(structlog, "configure", lambda **how: configure(**how | {"cache_logger_on_first_use": False}))
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A running Kafka broker; tests share it, keep to topics of their own and leave it running."""
    yield from _running(LocalBroker(tmp_path_factory.mktemp("kafka")))


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[LocalBroker]:
    """A running Kafka broker of this test's own, to freeze, kill and restart."""
    yield from _running(LocalBroker(tmp_path / "kafka"))


def _running(local: LocalBroker) -> Iterator[LocalBroker]:
    try:
        local.start()
    except BrokerNotInstalled as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    try:
        yield local
    finally:
        local.stop()


@pytest.fixture
def topic_prefix() -> str:
    """A topic prefix of this test's own."""
    return unique_prefix()
