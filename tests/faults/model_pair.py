"""Both model servers, in an event loop of their own, and what befalls them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from threading import Thread
from typing import Any, Literal, Self

from tests.support.scripted_model_server import Fault, ScriptedModelServer

Side = Literal["small", "large"]
SIDES: tuple[Side, ...] = ("small", "large")
LATENCY_S = 0.01
_PLACES = 64


class ModelPair:
    """A context manager; its methods may be called from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="models", daemon=True)
        self._servers: dict[Side, ScriptedModelServer] = {
            side: ScriptedModelServer(side, latency_s=LATENCY_S, drops_abandoned=True, record=False) for side in SIDES
        }

    def __enter__(self) -> Self:
        self._thread.start()
        for server in self._servers.values():
            self._await(server.start())
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            self._await(server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def base_url(self, side: Side) -> str:
        return self._servers[side].base_url

    def down(self, side: Side) -> None:
        self._await(self._servers[side].stop())

    def up(self, side: Side) -> None:
        self._await(self._servers[side].start())

    def play(self, side: Side, fault: Fault) -> None:
        """Let every call end in this fault until :meth:`recover`."""
        self._do(lambda: self._servers[side].play(fault))

    def rename(self, side: Side, model: str) -> None:
        """Serve another model than the one that the router asks for."""
        self._do(lambda: setattr(self._servers[side], "model", model))

    def brown_out(self, side: Side) -> None:
        """Serve two calls at a time, and each for half a second."""
        self._do(lambda: self._servers[side].saturate(places=2, latency_s=0.5))

    def recover(self, side: Side) -> None:
        """End whatever befell a server, except :meth:`down`; what hangs is answered."""

        def mend() -> None:
            server = self._servers[side]
            server.recover()
            server.model = side
            server.saturate(places=_PLACES, latency_s=LATENCY_S)

        self._do(mend)

    def _do(self, act: Callable[[], object]) -> None:
        async def done() -> None:
            act()

        self._await(done())

    def _await(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30.0)
