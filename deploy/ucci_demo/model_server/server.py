"""The HTTP server of one checkpoint: requests come in on the event loop, tokens come from one generating thread."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import cache, partial
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic_core import from_json, to_json

from ucci_demo.model_server.checkpoint import Checkpoint
from ucci_demo.model_server.generation import FinishReason, GeneratedToken, Generation
from ucci_demo.model_server.memo import ALTERNATIVES, Memo
from ucci_demo.model_server.protocol import (
    Api,
    Asked,
    EventStream,
    Generated,
    ProtocolError,
    TokenTexts,
    error_body,
    read_request,
    reply,
)

SLOTS = 32
_MAX_BODY_BYTES = 4_000_000
_UNAVAILABLE = 503


class _Generator(threading.Thread):
    """The one thread that steps the batch; sleeps while there is nothing to do."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(name="generator", daemon=True)
        self._batch = checkpoint.batch
        self._wake = threading.Condition()
        self._stopping = False
        #: Called with the tokens of each step, from this thread; set before it is started.
        self.on_step: Callable[[float], object] = lambda _tokens: None

    def submit(self, generation: Generation) -> None:
        """Hand over a request; from any thread."""
        with self._wake:
            self._batch.submit(generation)
            self._wake.notify()

    def stop(self) -> None:
        """Abort what is running; from any thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def run(self) -> None:
        """Step until stopped."""
        while True:
            with self._wake:
                while not (any(self._batch.load) or self._stopping):
                    self._wake.wait()
                if self._stopping:
                    self._batch.abort()
                    return
            before = self._batch.generated
            self._batch.step()
            self.on_step(self._batch.generated - before)


class ModelServer:
    """One checkpoint behind the protocol. ``latency_s``: added to every answer, as a larger model's service time."""

    def __init__(self, checkpoint: Checkpoint, model: str, memo: Memo | None, latency_s: float = 0.0) -> None:
        self._checkpoint = checkpoint
        self._model = model
        self._memo = memo
        self._latency_s = latency_s
        self._generator = _Generator(checkpoint)
        self._ids = itertools.count(1)
        self._texts = TokenTexts(checkpoint.model.shape.eos_id, checkpoint.decode, cache(checkpoint.name))
        self._draining = False
        self._registry = CollectorRegistry()
        labels = {"namespace": "vllm", "registry": self._registry}
        self._succeeded = Counter("request_success", "Finished requests.", ["finished_reason"], **labels)  # type: ignore[arg-type]
        self._latency = Histogram("e2e_request_latency_seconds", "From request to answer.", **labels)  # type: ignore[arg-type]
        tokens = Counter("generation_tokens", "Tokens generated; those of remembered answers are not.", **labels)  # type: ignore[arg-type]
        self._generator.on_step = tokens.inc
        running = Gauge("num_requests_running", "Requests in the batch.", **labels)  # type: ignore[arg-type]
        waiting = Gauge("num_requests_waiting", "Requests that wait for a slot.", **labels)  # type: ignore[arg-type]
        running.set_function(lambda: checkpoint.batch.load[0])
        waiting.set_function(lambda: checkpoint.batch.load[1])

    def application(self) -> web.Application:
        """Return the aiohttp application; it starts and stops the generating thread."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post("/v1/completions", partial(self._answer, "completions"))
        app.router.add_post("/v1/chat/completions", partial(self._answer, "chat"))
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.on_startup.append(self._start)
        app.on_shutdown.append(self._stop)
        return app

    async def _start(self, _app: web.Application) -> None:
        self._generator.start()

    async def _stop(self, _app: web.Application) -> None:
        """Answer what is running with what it has got, as vLLM does on SIGTERM."""
        self._draining = True
        self._generator.stop()
        await asyncio.to_thread(self._generator.join)

    async def _answer(self, api: Api, request: web.Request) -> web.StreamResponse:
        if self._draining:
            return _json({"error": {"message": "shutting down", "code": _UNAVAILABLE}}, _UNAVAILABLE)
        began = time.perf_counter()
        try:
            asked = read_request(api, _decoded(await request.read()), self._model)
            if asked.streams:
                return await self._stream(asked, request, began)
            document = await self._generate(asked)
        except ProtocolError as error:
            return _json(error_body(error), error.status)
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        self._latency.observe(time.perf_counter() - began)
        self._succeeded.labels(document["choices"][0]["finish_reason"]).inc()
        return _json(document)

    async def _generate(self, asked: Asked) -> dict[str, Any]:
        prompt_ids = self._prompt_ids(asked)
        async with aclosing(self._tokens(asked, prompt_ids)) as coming:
            found = [pair async for pair in coming]
        reason = found[-1][1] if found else None
        generated = self._generated(len(prompt_ids), [token for token, _ in found], reason or "abort")
        return reply(asked, generated, self._texts)

    async def _stream(self, asked: Asked, request: web.Request, began: float) -> web.StreamResponse:
        """Send an event a token. A client that leaves ends the generation, since nobody reads what follows."""
        prompt_ids = self._prompt_ids(asked)
        events = EventStream(asked, self._generated(len(prompt_ids), [], "stop"), self._texts)
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        reason: FinishReason | None = None
        async with aclosing(self._tokens(asked, prompt_ids)) as tokens:
            async for token, reason in tokens:
                await response.write(_event(events.token(token, reason)))
        if asked.counts_usage:
            await response.write(_event(events.usage()))
        await response.write(b"data: [DONE]\n\n")
        self._latency.observe(time.perf_counter() - began)
        self._succeeded.labels(reason or "abort").inc()
        return response

    async def _tokens(
        self, asked: Asked, prompt_ids: list[int]
    ) -> AsyncGenerator[tuple[GeneratedToken, FinishReason | None]]:
        """Yield each token as it comes, remembered or computed, the last one with how the answer ends."""
        remembered = self._remembered(asked, prompt_ids)
        if remembered is not None:
            for place, known in enumerate(remembered, start=1):
                yield known, "stop" if place == len(remembered) else None
            return
        queue: asyncio.Queue[GeneratedToken | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(token: GeneratedToken | None) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, token)

        generation = Generation(prompt_ids, asked.max_tokens, lambda _: put(None), put)
        self._generator.submit(generation)
        try:
            following = await queue.get()
            while (token := following) is not None:
                following = await queue.get()
                yield token, generation.finish_reason if following is None else None
        finally:
            generation.cancelled = True

    def _prompt_ids(self, asked: Asked) -> list[int]:
        prompt_ids = self._checkpoint.encode(asked.prompt)
        if len(prompt_ids) >= self._checkpoint.model.shape.context:
            raise ProtocolError(400, f"the prompt of {len(prompt_ids)} tokens is longer than the context")
        return prompt_ids

    def _generated(self, prompt_tokens: int, tokens: Sequence[GeneratedToken], reason: FinishReason) -> Generated:
        request_id, created = str(next(self._ids)), int(time.time())
        return Generated(self._model, request_id, created, prompt_tokens, tokens, reason)

    def _remembered(self, asked: Asked, prompt_ids: list[int]) -> list[GeneratedToken] | None:
        """Return the recorded answer, or what is left of it, where it is there and holds what was asked for."""
        if self._memo is None or (asked.alternatives or 0) > ALTERNATIVES:
            return None
        tokens = self._memo.find(asked.prompt)
        if tokens is None:
            tokens = self._memo.find_rest(asked.prompt, prompt_ids, self._checkpoint.encode)
        return tokens if tokens is not None and len(tokens) <= asked.max_tokens else None

    async def _models(self, _request: web.Request) -> web.Response:
        return _json({"object": "list", "data": [{"id": self._model, "object": "model"}]})

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), content_type="text/plain")


def _decoded(body: bytes) -> Any:
    try:
        return from_json(body)
    except ValueError as error:
        raise ProtocolError(400, f"not valid JSON: {error}") from None


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + to_json(document) + b"\n\n"


def _json(document: Any, status: int = 200) -> web.Response:
    return web.Response(body=to_json(document), status=status, content_type="application/json")
