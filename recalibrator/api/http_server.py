"""The HTTP server's thread: bound at once, so that a taken address stops the start, and ended within a few seconds."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import time
from collections.abc import Callable
from threading import Thread

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ucci_runtime.process import affordable_connections, raise_file_limit

_END_TIMEOUT_S = 3
_BACKLOG = 512
STRAY_TIMEOUT_S = 10.0
"""How long a connection may send, or be silent, without a request that is being answered."""

UNREAD_TIMEOUT_S = 30.0
"""How long a caller may leave an answer lying that it has asked for; bytes that it takes meanwhile begin it anew."""

MAX_CONNECTIONS = 1_024
REPEATED_AFTER_S = 60.0


def connection_limit() -> int:
    """Return how many connections are kept open: at most half of the files that the process may open."""
    return affordable_connections(MAX_CONNECTIONS)


class RepeatedLines(logging.Filter):
    """Lets a log line through once a minute, and says how often it came in between.

    Parameters
    ----------
    clock : callable
        Returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written."""
        # The template, not the text: that of each connection's line may name its address.
        key, now_s = f"{record.name} {record.msg}", self._clock()
        since_s, suppressed = self._seen.get(key, (-math.inf, 0))
        if now_s - since_s < REPEATED_AFTER_S:
            self._seen[key] = (since_s, suppressed + 1)
            return False
        if len(self._seen) >= _MOST_TEMPLATES:
            self._seen.clear()
        self._seen[key] = (now_s, 0)
        if suppressed:
            record.msg = f"{record.getMessage()} ({suppressed} more since)"
            record.args = ()
        return True


_MOST_TEMPLATES = 1_000
_LOGGERS = ("asyncio", "uvicorn.error")
_REPEATED = RepeatedLines()
"""One for all servers of the process: a logger takes the same filter once."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for requests and for taking their answers, and a limit on connections.

    The server's own limits hold between two requests only. A head that never ends, the rest of a body that was refused
    already, and an answer that nobody reads would keep a connection for as long as its caller likes.
    """

    _patience: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    idle_since_s = 0.0
    """When the connection was made, or was last seen with a request; bytes alone do not count."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request from now on; beyond the limit, the connection that has been idle longest is closed."""
        super().connection_made(transport)
        self.idle_since_s = self.loop.time()
        self._watch()
        if len(self.connections) > connection_limit():
            idle = [one for one in self.connections if isinstance(one, PatientProtocol) and not one.is_answering]
            longest = min(idle, key=lambda one: one.idle_since_s, default=self)
            longest.transport.abort()
            # Its loss is reported later; meanwhile it does not count.
            self.connections.discard(longest)

    @property
    def is_answering(self) -> bool:
        """Whether a request of this connection is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._unwatch()
        self._read_on()

    def pause_writing(self) -> None:
        """Wait for the caller to read on: what was sent fills its buffers and ours."""
        super().pause_writing()
        if self._unread is None:
            # Closed without what it has not read: waiting for that is what keeps the connection.
            self._unread = self.loop.call_later(UNREAD_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the caller has read."""
        super().resume_writing()
        self._read_on()

    def _read_on(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _watch(self) -> None:
        if self.is_answering:
            self.idle_since_s = self.loop.time()
            self._unwatch()
        elif self._patience is None:
            self._patience = self.loop.call_later(STRAY_TIMEOUT_S, self._end)

    def _unwatch(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _end(self) -> None:
        self._patience = None
        if not self.is_answering:
            self.transport.close()


class HttpServer:
    """Serves an application on a thread of its own; it may be followed by another, see :meth:`use`.

    Parameters
    ----------
    host, port : str, int
        Port 0 takes a free one.

    Raises
    ------
    OSError
        When the address is taken.
    """

    def __init__(self, app: ASGIApp, host: str, port: int) -> None:
        raise_file_limit()
        self._app = app
        # Refused connections and broken requests are logged by these two, a line each.
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_REPEATED)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        # Accepted connections inherit it. Without it an answer of two packets waits 40 ms for the caller's delayed
        # acknowledgement: asyncio sets it on sockets that name their protocol only, which this one does not.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            http=PatientProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=_END_TIMEOUT_S,
            ws="none",
            server_header=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = Thread(target=self._run, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._socket.getsockname()[1])

    def use(self, app: ASGIApp) -> None:
        """Answer by this application from now on; callable from any thread."""
        self._app = app

    def start(self) -> None:
        """Serve from now on; a second call changes nothing."""
        if self._thread.ident is None:
            self._thread.start()

    def close(self) -> None:
        """Finish what is being answered, for some seconds, and end."""
        self._server.should_exit = True
        self._thread.join(_END_TIMEOUT_S + 2.0)
        self._socket.close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])
