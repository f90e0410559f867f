"""Probes and metrics of a process that runs without the API stage; with it, the API answers the same paths."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from ucci_runtime.broker.contact import Health, readiness
from ucci_runtime.process import affordable_connections, listen

_log = logging.getLogger("socketserver")

_ACCEPT_AGAIN_S = 1.0
#: The longest wait for a client's next byte; then its connection is closed.
STRAY_TIMEOUT_S = 10.0

#: The most open at once: each takes a thread and a file. A probe ends in milliseconds, so the oldest is none.
MAX_CONNECTIONS = 64


class ProbeServer:
    """Serves ``/healthz``, ``/readyz`` and ``/metrics`` on a thread of its own.

    ``/healthz`` answers while the process runs, 503 only where the broker answers others and not this process;
    ``/readyz`` names what is not ready. Raises OSError when the address is taken.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        missing: Callable[[], list[str]],
        registry: CollectorRegistry,
        health: Callable[[], Health] = Health,
        stray_timeout_s: float = STRAY_TIMEOUT_S,
    ) -> None:
        answers = {
            "/healthz": lambda: _answer(*health().answer()),
            "/readyz": lambda: _answer(*readiness(missing())),
            "/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry)),
        }
        self._server = _Server(listen(host, port), _handler(answers, stray_timeout_s))
        self._thread = Thread(target=self._server.serve_forever, name="probes", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening; only once started."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


_Answer = tuple[HTTPStatus, str, bytes]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listening: socket.socket, handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: dict[socket.socket, None] = {}
        self._lock = Lock()
        # The library's own way to bind looks the host's name up, which takes seconds where no name service answers.
        super().__init__(listening.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; where that fails, not again at once and for ever."""
        try:
            return super().get_request()
        except OSError as error:
            _log.error("probes: no connection can be accepted: %s", error)
            time.sleep(_ACCEPT_AGAIN_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread; where too many are open, the oldest goes."""
        with self._lock:
            self._open[request] = None
            if len(self._open) > affordable_connections(MAX_CONNECTIONS):
                oldest = next(iter(self._open))
                del self._open[oldest]
                # Its thread reads the end, and closes it.
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, _request: object, _client: object) -> None:
        """Let a prober that went away go."""


def _handler(answers: dict[str, Callable[[], _Answer]], stray_timeout_s: float) -> type[BaseHTTPRequestHandler]:
    def unknown() -> _Answer:
        return _answer({"status": "unknown path"}, HTTPStatus.NOT_FOUND)

    class Handler(BaseHTTPRequestHandler):
        timeout = stray_timeout_s

        def do_GET(self) -> None:
            """Answer one of the three paths."""
            status, kind, body = answers.get(self.path.partition("?")[0], unknown)()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes come every few seconds: no line for each."""

    return Handler


def _answer(document: Mapping[str, Any], status: HTTPStatus) -> _Answer:
    return status, "application/json", json.dumps(document).encode()
