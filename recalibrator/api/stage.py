"""The API stage: the HTTP server on a thread of its own, and the loop that keeps its view up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event

from recalibrator.api.acknowledged import AcknowledgedProducer
from recalibrator.api.app import create_app
from recalibrator.api.context import Context
from recalibrator.api.keys import Keys
from recalibrator.api.label_queue import LabelQueue
from recalibrator.api.server import HttpServer
from recalibrator.api.view import View
from recalibrator.shell.kafka_properties import producer_properties, reader_properties
from recalibrator.shell.metrics import Metrics
from runtime.clock import Clock
from runtime.errors import BrokerError
from runtime.kafka.client_reports import reports
from runtime.kafka.compacted_reader import CompactedReader
from runtime.records import Input
from schemas.settings import Settings
from schemas.topics import CALIBRATION_HISTORY, LABEL_REQUESTS, ROUTERS, STATUS

_POLL_S = 0.1


class ApiStage:
    """Serves what the compacted topics say; driven by one thread through :meth:`turn`.

    Parameters
    ----------
    settings : Settings
    instance_id : str
    metrics : Metrics
    clock : Clock
    missing : callable
        Returns which stages are not ready, one word each.
    on_final : callable
        Called with an error that waiting cannot mend.
    closing : threading.Event

    Raises
    ------
    OSError
        When the address is taken.
    """

    def __init__(
        self,
        settings: Settings,
        instance_id: str,
        *,
        metrics: Metrics,
        clock: Clock,
        missing: Callable[[], list[str]],
        on_final: Callable[[BrokerError], None],
        closing: Event,
    ) -> None:
        prefix, options = settings.topics.prefix, settings.recalibrator
        self._count = metrics.count
        self._view = View(tuple(settings.workloads), prefix)
        self._queue = LabelQueue(
            tuple(settings.workloads),
            prefix,
            retention_s=options.label_request_retention_s,
            most=options.label_requests_max,
        )
        self._reader = CompactedReader(
            "view",
            [topic.name(prefix) for topic in (STATUS, ROUTERS, CALIBRATION_HISTORY, LABEL_REQUESTS)],
            reader_properties(settings, f"view-{instance_id}"),
            metrics.count,
            on_final=on_final,
            closing=closing,
        )
        self._producer = AcknowledgedProducer(
            producer_properties(settings) | reports("api-producer", metrics.count, on_final)
        )
        keys = Keys(options.api_keys)
        context = Context(settings, keys, self._view, self._queue, self._producer, metrics, clock, missing)
        self._server = HttpServer(create_app(context), options.http_host, options.http_port)

    @property
    def is_ready(self) -> bool:
        """Whether every topic was read to its end once."""
        return self._reader.has_reached_ends

    def start(self) -> None:
        """Serve from now on; ``/readyz`` says what is still missing."""
        self._server.start()

    def turn(self) -> None:
        """Take what has come; blocks up to 0.1 s."""
        for message in self._reader.poll(_POLL_S):
            topic = str(message.topic())
            takers = (self._view.take, self._queue.take)
            if not any(take(topic, message.key(), message.value()) for take in takers):
                self._count("view_records_ignored", topic=topic)

    def gauges(self) -> Mapping[str, float]:
        """Return nothing to watch."""
        return {}

    def lag(self) -> Mapping[Input, int]:
        """Return nothing: the topics are small."""
        return {}

    def close(self) -> None:
        """Answer what is being answered, deliver what is queued, and end."""
        self._server.close()
        self._producer.close()
        self._reader.close()
