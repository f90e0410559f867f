"""The HTTP server's thread: bound at once, so that a taken address stops the start, and ended within a few seconds."""

from __future__ import annotations

import asyncio
import socket
from threading import Thread

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ucci_runtime.process import BACKLOG, affordable_connections, listen

_END_TIMEOUT_S = 3
#: Connections accepted in one turn of the loop: the limit sees each before the next one takes a file.
_ACCEPTED = 1

#: How long a connection may send, or be silent, without a request that is being answered.
STRAY_TIMEOUT_S = 10.0

#: How long a caller may leave an answer unread; each byte it reads restarts the time.
UNREAD_TIMEOUT_S = 30.0

MAX_CONNECTIONS = 1_024


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for requests and for taking their answers, and a limit on connections.

    The server's own limits hold between two requests only. A head that never ends, the rest of a body that was refused
    already, and an answer that nobody reads would keep a connection for as long as its caller likes.
    """

    _patience: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    #: When the connection was made, or was last seen with a request; bytes alone do not count.
    idle_since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request from now on; beyond the limit, the connection that has been idle longest is closed."""
        super().connection_made(transport)
        self.idle_since_s = self.loop.time()
        self._watch()
        if len(self.connections) > affordable_connections(MAX_CONNECTIONS):
            idle = [one for one in self.connections if isinstance(one, PatientProtocol) and one.is_idle]
            longest = min(idle, key=lambda one: one.idle_since_s, default=self)
            longest.transport.abort()
            # Its loss is reported later; meanwhile it does not count.
            self.connections.discard(longest)

    @property
    def is_answering(self) -> bool:
        """Whether a request of this connection is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to answer: a request that comes slowly makes room as well."""
        return not self.is_answering or self.cycle.more_body

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


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; what the kernel may hold until it is accepted was set along with what is accepted in one turn."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)


class HttpServer:
    """Serves an application on a thread of its own; it may be followed by another, see :meth:`use`.

    ``port``: 0 takes a free one. ``listening``: where it was bound already. Raises OSError when the address is taken.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, listening: socket.socket | None = None) -> None:
        self._app = app
        self._socket = listening or listen(host, port)
        # Accepted connections inherit it. Without it an answer of two packets waits 40 ms for the caller's delayed
        # acknowledgement: asyncio sets it on sockets that name their protocol only, which this one does not.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            http=PatientProtocol,
            log_config=None,
            backlog=_ACCEPTED,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=_END_TIMEOUT_S,
            ws="none",
            server_header=False,
        )
        self._server = _Server(config)
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
        if scope.get("method") == "HEAD":
            # The server goes by its own copy, and leaves out the body.
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])
