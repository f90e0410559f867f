"""An HTTP proxy on loopback: it notes what it is asked, and forwards to one server whatever name was asked for."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

_END = b"\r\n\r\n"


class ScriptedProxy:
    """Forwards requests of http to ``port``; tunnels are refused, since nobody here has a certificate."""

    def __init__(self, port: int) -> None:
        self._behind = port
        #: The first line and the headers of each request, names in lower case.
        self.asked: list[tuple[str, dict[str, str]]] = []

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    await self._one(reader, writer)
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *rest = (await reader.readuntil(_END)).decode("latin-1").rstrip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
        self.asked.append((first, headers))
        method, target, _ = first.split(" ")
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
            return
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        path = "/" + target.split("/", 3)[3]
        behind, to_behind = await asyncio.open_connection("127.0.0.1", self._behind)
        kept = [line for line in rest if not line.lower().startswith("proxy-")]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Connection: close"])
        to_behind.write(head.encode("latin-1") + _END + body)
        writer.write(await behind.read())
        await writer.drain()
        to_behind.close()
