"""The HTTP server's thread: bound at once, so that a taken address stops the start, and ended within a few seconds."""

from __future__ import annotations

import asyncio
import socket
from threading import Thread

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

_DRAIN_S = 3
_BACKLOG = 512
STRAY_TIMEOUT_S = 10.0
"""How long a connection may send, or be silent, without a request that is being answered."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 whose patience ends.

    The server's own limits hold between two requests only. A head that never ends, and the rest of a body that was
    refused already, would keep a connection for as long as a byte comes now and then.
    """

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request from now on."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._unwatch()

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._patience is None:
            self._patience = self.loop.call_later(STRAY_TIMEOUT_S, self._end)

    def _unwatch(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _end(self) -> None:
        self._patience = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class HttpServer:
    """Serves an application on a thread of its own.

    Parameters
    ----------
    app : FastAPI
    host, port : str, int
        Port 0 takes a free one.

    Raises
    ------
    OSError
        When the address is taken.
    """

    def __init__(self, app: FastAPI, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        # Accepted connections inherit it. Without it an answer of two packets waits 40 ms for the caller's delayed
        # acknowledgement: asyncio sets it on sockets that name their protocol only, which this one does not.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(
            app,
            http=PatientProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=_DRAIN_S,
            ws="none",
        )
        self._server = uvicorn.Server(config)
        self._thread = Thread(target=self._run, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def close(self) -> None:
        """Finish what is being answered, for some seconds, and end."""
        self._server.should_exit = True
        self._thread.join(_DRAIN_S + 2.0)
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])
