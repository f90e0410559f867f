"""The gateway without its promise: answers as soon as a result is queued for the broker. Only to measure the promise.

python -m research.gateway.unacknowledged --config ucci.toml
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from schemas.settings import Settings
from schemas.settings_text import load_settings
from stream_router.cascade.answerer import CascadeAnswerer
from stream_router.gateway.service import GatewayService
from stream_router.ports import Calibrations
from stream_router.process import run_until_signalled
from stream_router.prometheus_metrics import Metrics
from ucci_runtime.broker.kafka_broker import kafka_connect
from ucci_runtime.broker.ports import Broker, Publisher
from ucci_runtime.clock import Clock
from ucci_runtime.process import LogFormat, configure_logging


class Unwaiting:
    """A publisher that calls a record sent once it is queued."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    def __getattr__(self, name: str) -> Any:
        return getattr(self._publisher, name)

    async def queue(self, topic: str, key: bytes, value: bytes, headers: Mapping[str, bytes] | None = None) -> None:
        """Queue one record."""
        assert not headers
        assert self._publisher.post(topic, key, value), "the queue is full"


class UnwaitingBroker:
    """A broker with such publishers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def publisher(self, name: str) -> Unwaiting:
        """Return a publisher."""
        return Unwaiting(self._broker.publisher(name))


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(prog="python -m research.gateway.unacknowledged", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="an ucci.toml")
    parser.add_argument("--log-format", type=LogFormat, default=LogFormat.CONSOLE, help="console or json")
    options = parser.parse_args()
    configure_logging(options.log_format)
    read = partial(load_settings, options.config, os.environ)
    settings = read()
    asyncio.run(run_until_signalled(GatewayService(settings, _connect(settings), _cascade), read))


def _connect(settings: Settings) -> Any:
    connect = kafka_connect(settings, "router")
    return lambda *args, **named: UnwaitingBroker(connect(*args, **named))


def _cascade(settings: Settings, calibrations: Calibrations, clock: Clock, metrics: Metrics) -> CascadeAnswerer:
    return CascadeAnswerer(settings, calibrations, clock, settings.gateway.instance_id, metrics, waits=False)


if __name__ == "__main__":
    main()
