"""The API stage: the HTTP server on a thread of its own, and the loop that keeps its read model up to date."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fastapi import FastAPI

from recalibrator.api.http_app import create_app, create_waiting_app
from recalibrator.api.http_context import Context
from recalibrator.api.http_server import HttpServer
from recalibrator.api.keys import Keys
from recalibrator.api.read_model.dead_letter_log import MOST_KEPT, DeadLetterLog
from recalibrator.api.read_model.status_documents import StatusDocuments
from recalibrator.api.read_model.topic_cache import TopicCache
from recalibrator.api.routes_movement import MOST_READ
from recalibrator.labelling.queue import LabelQueue
from recalibrator.prometheus_metrics import Metrics
from recalibrator.stage import ReaderName, Stage
from schemas.settings import Settings
from schemas.topics import (
    CALIBRATION_HISTORY,
    DEAD_LETTERS,
    HAPPENINGS,
    LABEL_REQUESTS,
    RECALIBRATORS,
    RESULTS,
    ROUTERS,
    STATUS,
    Topic,
)
from ucci_runtime.broker.contact import Health
from ucci_runtime.broker.ports import Broker
from ucci_runtime.browser_safety import RequestHosts
from ucci_runtime.clock import Clock

_POLL_S = 0.1

#: The topics that the API serves whole.
VIEWED = (STATUS, ROUTERS, RECALIBRATORS, CALIBRATION_HISTORY, HAPPENINGS, LABEL_REQUESTS)


@dataclass(frozen=True, slots=True)
class Shared:
    """What the stage shares with the other stages of its process."""

    metrics: Metrics
    clock: Clock
    #: Returns which stages are not ready, one word each.
    missing: Callable[[], list[str]]
    #: Returns whether the process and the broker talk.
    health: Callable[[], Health] = Health


def waiting_server(settings: Settings, shared: Shared, listening: socket.socket) -> HttpServer:
    """Return a server, not started yet, that answers probes until an :class:`ApiStage` takes it over."""
    options = settings.recalibrator
    hosts = RequestHosts.of(options.http_host, options.allowed_hosts)
    app = create_waiting_app(shared.missing, shared.metrics, hosts, shared.health)
    return HttpServer(app, options.http_host, options.http_port, listening)


class ApiStage(Stage):
    """Serves what the compacted topics say; driven by one thread through :meth:`turn`.

    ``server``: what has answered so far, see :func:`waiting_server`; by default a new one. Raises OSError when the
    address is taken.
    """

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        shared: Shared,
        viewed: Sequence[Topic] = VIEWED,
        server: HttpServer | None = None,
    ) -> None:
        prefix, options = settings.topics.prefix, settings.recalibrator
        self._count = shared.metrics.count
        self._cache = TopicCache(tuple(settings.workloads), prefix)
        self._letters = DeadLetterLog(tuple(settings.workloads))
        self._queue = LabelQueue.configured(settings)
        self._reader = broker.topic_reader(ReaderName.VIEW.value, [topic.name(prefix) for topic in viewed])
        self._tail = broker.topic_reader(ReaderName.DEAD_LETTERS.value, [DEAD_LETTERS.name(prefix)], tail=MOST_KEPT)
        self._results = partial(broker.topic_reader, ReaderName.RESULTS.value, [RESULTS.name(prefix)], tail=MOST_READ)
        self._producer = broker.publisher("api-producer")
        self._shared = shared
        app = self._app(settings)
        if server is None:
            server = HttpServer(app, options.http_host, options.http_port)
        else:
            server.use(app)
        self._server = server

    def _app(self, settings: Settings) -> FastAPI:
        shared = self._shared
        context = Context(
            settings,
            Keys(settings.recalibrator.api_keys),
            self._cache,
            self._letters,
            StatusDocuments(settings, self._cache, self._letters, lambda: shared.health().heard),
            self._queue,
            self._producer,
            self._results,
            shared.metrics,
            shared.clock,
            shared.missing,
            shared.health,
        )
        return create_app(context)

    def use(self, settings: Settings) -> None:
        """Answer the requests to come under these settings; quotas restart."""
        self._server.use(self._app(settings))

    @property
    def http_port(self) -> int:
        """The port that is listened on."""
        return self._server.port

    @property
    def is_ready(self) -> bool:
        """Whether every topic was read to its end once."""
        return self._reader.has_reached_ends

    def start(self) -> None:
        """Serve from now on; ``/readyz`` says what is still missing."""
        self._server.start()

    def turn(self) -> None:
        """Take what has come; blocks up to 0.1 s."""
        for record in self._reader.poll(_POLL_S):
            topic, key, value = record.source.topic, record.key, record.value
            if not (self._cache.take(topic, key, value, record.timestamp_ms) or self._queue.take(topic, key, value)):
                self._count("view_records_ignored", topic=topic)
        for letter in self._tail.poll(0.0):
            self._letters.take(letter.key, letter.value, dict(letter.headers), letter.timestamp_ms)

    def close(self) -> None:
        """Answer what is being answered, deliver what is queued, and end."""
        self._server.close()
        self._producer.close()
        self._reader.close()
        self._tail.close()
