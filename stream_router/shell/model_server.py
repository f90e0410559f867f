"""One model server over HTTP: a request goes in, a reply or the reason why there is none comes out.

Every call has a deadline, a bounded number of attempts with jitter between them, and a place in a bounded pool. What
a server's answers say of its health is :mod:`stream_router.core.breaker`'s to tell; while it is down a probe, a real
completion, is sent until one is answered.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import aiohttp
import structlog

from schemas.settings import ModelEndpoint
from schemas.status import ModelHealth
from stream_router.core.breaker import Breaker, Health, Outcome
from stream_router.core.margin import MalformedReplyError, Reply, read_reply
from stream_router.core.request import ModelRequest
from stream_router.ports import Clock

_log = structlog.get_logger()

KEEPALIVE_S = 4.0
"""Below the 5 s after which vLLM closes idle connections: else a call may meet a closing one."""

MAX_REPLY_BYTES = 16_000_000
_REFUSED = frozenset({400, 413, 422})
_MISCONFIGURED = frozenset({401, 403, 404, 405})
_OK = 200
_BACKOFF_S = 0.1
_MAX_BACKOFF_S = 2.0
_PROBE_FIRST_S, _PROBE_MAX_S = 0.2, 1.0
_SHOWN_CHARS = 200
_LATENCIES_KEPT = 1_000


class CallError(Exception):
    """A model did not answer; the subclass says whose fault it is."""


class RefusedError(CallError):
    """The server refused this very request; asking again would be refused again."""


class FailedError(CallError):
    """Out of attempts on this query, while the server answered others."""


class ServerDownError(CallError):
    """The server is down; nothing is said about the query."""


class _TransientError(CallError):
    """One attempt failed; another may not."""


class _MisconfiguredError(CallError):
    """The server will answer nobody as configured: a wrong model name, path or key."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply and how long it took from the first attempt, in seconds."""

    reply: Reply
    latency_s: float


class ModelServerClient:
    """A client of one model server.

    Parameters
    ----------
    name : str
        For logs, for example ``photo-search/small``.
    endpoint : ModelEndpoint
    probe : ModelRequest
    clock : Clock
    """

    def __init__(self, name: str, endpoint: ModelEndpoint, probe: ModelRequest, clock: Clock) -> None:
        self._name = name
        self._endpoint = endpoint
        self._probe_request = probe
        self._clock = clock
        self._breaker = Breaker()
        self._pool = asyncio.Semaphore(endpoint.max_concurrency)
        self._session: aiohttp.ClientSession | None = None
        self._probing: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._up.set()
        self._latencies: deque[float] = deque(maxlen=_LATENCIES_KEPT)
        self._calls = self._failures = 0

    async def start(self) -> None:
        """Open the session."""
        headers = {"Content-Type": "application/json"}
        if self._endpoint.api_key is not None:
            headers["Authorization"] = f"Bearer {self._endpoint.api_key.get_secret_value()}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._endpoint.max_concurrency + 1, keepalive_timeout=KEEPALIVE_S),
            timeout=aiohttp.ClientTimeout(total=self._endpoint.timeout_s),
            headers=headers,
        )

    async def close(self) -> None:
        """End the probe and close all connections."""
        if self._probing is not None:
            self._probing.cancel()
            with suppress(asyncio.CancelledError):
                await self._probing
        if self._session is not None:
            await self._session.close()

    @property
    def is_up(self) -> bool:
        """Whether calls are let through."""
        return self._breaker.lets_through

    @property
    def mean_latency_s(self) -> float | None:
        """Mean of the recent latencies, None before the first."""
        return sum(self._latencies) / len(self._latencies) if self._latencies else None

    def health(self) -> ModelHealth:
        """Return what is known of the server."""
        ordered = sorted(self._latencies)
        quantiles = {name: ordered[int(share * (len(ordered) - 1))] for name, share in _QUANTILES} if ordered else {}
        state = self._breaker.health.value
        return ModelHealth(state=state, calls=self._calls, failures=self._failures, latency_s=quantiles)

    async def wait_up(self) -> None:
        """Wait until the server is up."""
        await self._up.wait()

    async def call(self, request: ModelRequest, headers: Mapping[str, str] | None = None) -> Answered:
        """Ask the model.

        Raises
        ------
        RefusedError
            The server refused this request.
        FailedError
            Every attempt failed while the server answered others.
        ServerDownError
            The server is down, known from others or from this query's own attempts.
        """
        began, seen = self._clock.monotonic(), self._breaker.successes
        last = "not asked"
        for attempt in range(self._endpoint.max_attempts):
            if not self._breaker.lets_through:
                raise ServerDownError(f"{self._name} is down: {last}")
            if attempt:
                await asyncio.sleep(random.uniform(0.0, min(_MAX_BACKOFF_S, _BACKOFF_S * 2**attempt)))
            try:
                async with self._pool:
                    reply = await self._attempt(request, headers)
            except _TransientError as error:
                last = str(error)
                self._count_failure(last)
            except _MisconfiguredError as error:
                self._take_down(str(error))
                raise ServerDownError(str(error)) from None
            else:
                latency = self._clock.monotonic() - began
                self._latencies.append(latency)
                return Answered(reply, latency)
        if self._breaker.successes > seen:
            raise FailedError(last)
        # Nothing was answered since this query's first attempt: the server, not the query, is to blame.
        self._take_down(last)
        raise ServerDownError(f"{self._name} is down: {last}")

    async def _attempt(self, request: ModelRequest, headers: Mapping[str, str] | None) -> Reply:
        """Make one call and record what it says of the server's health."""
        self._calls += 1
        status, body = await self._post(request, headers)
        if status in _REFUSED:
            self._record(Outcome.SUCCESS)
            raise RefusedError(f"HTTP {status}: {_shown(body)}")
        if status in _MISCONFIGURED:
            raise _MisconfiguredError(f"{self._name}: HTTP {status}: {_shown(body)}; check base_url, model and api_key")
        if status != _OK:
            raise _TransientError(f"HTTP {status}: {_shown(body)}")
        try:
            reply = read_reply(body)
        except MalformedReplyError as error:
            raise _TransientError(f"HTTP 200, but {error}") from None
        if reply.finish_reason == "abort":
            raise _TransientError("the server is shutting down and sent half an answer (finish_reason abort)")
        self._record(Outcome.SUCCESS)
        return reply

    async def _post(self, request: ModelRequest, headers: Mapping[str, str] | None) -> tuple[int, bytes]:
        if self._session is None:
            raise RuntimeError("start() comes before call()")
        url = self._endpoint.base_url.rstrip("/") + request.path
        try:
            async with self._session.post(url, data=request.body, headers=headers) as response:
                body = await response.content.read(MAX_REPLY_BYTES)
                while chunk := await response.content.read(MAX_REPLY_BYTES):
                    body += chunk
                    if len(body) > MAX_REPLY_BYTES:
                        raise _TransientError(f"the reply is longer than {MAX_REPLY_BYTES} bytes")
                return response.status, body
        except TimeoutError:
            raise _TransientError(f"no answer within {self._endpoint.timeout_s:g} s") from None
        except (aiohttp.ClientError, ConnectionError) as error:
            raise _TransientError(f"{type(error).__name__}: {error}") from None

    def _count_failure(self, reason: str) -> None:
        self._failures += 1
        self._record(Outcome.FAILURE, reason)

    def _take_down(self, reason: str) -> None:
        """Count failures until the breaker opens: what was learnt leaves no doubt."""
        while self._breaker.health is Health.UP:
            self._record(Outcome.FAILURE, reason)

    def _record(self, outcome: Outcome, reason: str = "") -> None:
        before = self._breaker.health
        after = self._breaker.advance(outcome)
        if before is Health.UP and after is Health.DOWN:
            _log.warning("model server down", server=self._name, reason=reason)
            self._up.clear()
            self._probing = asyncio.get_running_loop().create_task(self._probe_until_up())
        elif after is Health.UP and before is not Health.UP:
            _log.info("model server up", server=self._name)
            self._up.set()

    async def _probe_until_up(self) -> None:
        pause = _PROBE_FIRST_S
        while not self._breaker.lets_through:
            await asyncio.sleep(pause)
            pause = min(_PROBE_MAX_S, pause * 1.6)
            self._record(Outcome.PROBE_DUE)
            try:
                async with asyncio.timeout(self._endpoint.timeout_s):
                    await self._attempt(self._probe_request, None)
            except RefusedError:
                return
            except (CallError, TimeoutError) as error:
                self._record(Outcome.FAILURE, str(error))


_QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


def _shown(body: bytes) -> str:
    text = body[:_SHOWN_CHARS].decode(errors="replace")
    return " ".join(text.split()) or "empty body"
