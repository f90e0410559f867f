"""A receiver of webhooks on a real port: keeps what it gets, and answers as the test says."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple


class Received(NamedTuple):
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """What came; ``answers`` holds the statuses of the next answers, 204 after them."""

    url: str = ""
    received: list[Received] = field(default_factory=list)
    answers: deque[int] = field(default_factory=deque)


@contextmanager
def receiving(*answers: int) -> Iterator[Receiver]:
    receiver = Receiver(answers=deque(answers))

    class Handler(Silent):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.received.append(Received({k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(receiver.answers.popleft() if receiver.answers else 204)
            self.send_header("Location", receiver.url)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with answering(Handler) as address:
        receiver.url = f"http://{address}/services/T0/secret-token"
        yield receiver


class Silent(BaseHTTPRequestHandler):
    """A handler that logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the library's name
        """Log nothing."""


@contextmanager
def answering(handler: type[Silent]) -> Iterator[str]:
    """Serve HTTP on a free port until the block ends; yields host and port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
