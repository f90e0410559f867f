"""One model server as the router sees it: a request goes in, a reply or the reason why there is none comes out.

Every call has a deadline, a bounded number of attempts with jitter between them, and one of a bounded number of
places. What its answers say of the server's health is :mod:`stream_router.core.breaker`'s to tell; while the server
is down, calls fail at once, and a probe, a real completion, is sent until one is answered.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import structlog

from runtime.clock import Clock
from schemas.routed import ModelRole
from schemas.settings import ModelEndpoint
from schemas.status import ModelHealth
from stream_router.core.breaker import Breaker, Event, State
from stream_router.core.latency import LatencyWindow
from stream_router.core.margin import Reply
from stream_router.core.request import ModelRequest
from stream_router.shell.call_slots import CallSlots
from stream_router.shell.model_http import (
    CallError,
    MisconfiguredError,
    ModelConnection,
    OverloadedError,
    RefusedError,
    TransientError,
)

_log = structlog.get_logger()

MAX_ROUNDS = 3
"""Rounds of attempts that one query may fail, the server answering probes between them, before it takes the blame."""

MAX_PROBES = 32
"""Probes in flight. They overlap, since what a hung server was sent may stay unanswered for good."""

_FULL_PAUSE_S = 1.0
_BACKOFF_S = 0.1
_MAX_BACKOFF_S = 2.0


class FailedError(CallError):
    """Out of attempts on this query, while the server answers others."""


class ServerDownError(CallError):
    """The server is down; nothing is said about the query.

    Parameters
    ----------
    after_attempts : bool
        Whether it was found out by all of this query's own attempts.
    """

    def __init__(self, message: str, *, after_attempts: bool = False) -> None:
        self.after_attempts = after_attempts
        super().__init__(message)


class ModelCallMetrics(Protocol):
    """What is counted of the calls; called in the event loop, and must not block."""

    def model_call(self, workload: str, role: ModelRole, outcome: str, seconds: float) -> None:
        """Count one attempt: ``answered``, ``refused``, ``misconfigured``, ``overloaded`` or ``failed``."""
        ...

    def model_health(self, workload: str, role: ModelRole, health: str) -> None:
        """Take a change of health: ``up``, ``probing`` or ``down``."""
        ...


@dataclass(frozen=True, slots=True)
class ServerName:
    """Whose server it is."""

    workload: str
    role: ModelRole

    def __str__(self) -> str:
        return f"{self.workload}/{self.role}"


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply, and how long it took: from the first attempt on, retries and the queue for a place included."""

    reply: Reply
    latency_s: float


def _longest_pause_s(attempt: int, failure: TransientError) -> float:
    """Return the most that may be waited before an attempt; the pause is drawn below it, so that callers spread."""
    if isinstance(failure, OverloadedError):
        return _MAX_BACKOFF_S
    return min(_MAX_BACKOFF_S, _BACKOFF_S * 2.0**attempt)


_OUTCOMES: dict[type[CallError], str] = {
    RefusedError: "refused",
    MisconfiguredError: "misconfigured",
    OverloadedError: "overloaded",
    TransientError: "failed",
}


class ModelServer:
    """A client of one model server.

    Parameters
    ----------
    name : ServerName
    endpoint : ModelEndpoint
    probe : ModelRequest
        The smallest completion.
    max_tokens : int
        Of a reply; bounds its size.
    clock : Clock
    metrics : ModelCallMetrics, optional
    """

    def __init__(
        self,
        name: ServerName,
        endpoint: ModelEndpoint,
        probe: ModelRequest,
        *,
        max_tokens: int,
        clock: Clock,
        metrics: ModelCallMetrics | None = None,
    ) -> None:
        self._name = name
        self._endpoint = endpoint
        self._probe_request = probe
        self._max_tokens = max_tokens
        self._clock = clock
        self._metrics = metrics
        self._breaker = Breaker()
        self._slots = CallSlots(endpoint.max_concurrency)
        self._connection: ModelConnection | None = None
        self._prober: asyncio.Task[None] | None = None
        self._is_up, self._is_down = asyncio.Event(), asyncio.Event()
        self._is_up.set()
        self._why_down: str | None = None
        self._latencies = LatencyWindow()
        self._calls = self._failures = 0

    async def start(self) -> None:
        """Open the connections and see whether somebody listens; blocks for 2 s at most."""
        connections = self._endpoint.max_concurrency + MAX_PROBES
        self._connection = ModelConnection(self._endpoint, connections, self._max_tokens)
        self._prober = asyncio.create_task(self._keep_probing())
        reason = await self._connection.greet()
        if reason is not None:
            self._advance(Event.OUTAGE, reason)

    async def close(self) -> None:
        """End the probes and close all connections."""
        if self._prober is not None:
            self._prober.cancel()
            with suppress(asyncio.CancelledError):
                await self._prober
        if self._connection is not None:
            await self._connection.close()

    @property
    def is_up(self) -> bool:
        """Whether calls are let through."""
        return self._breaker.is_closed

    @property
    def why_down(self) -> str | None:
        """One line for people while the server is down."""
        return self._why_down

    @property
    def mean_latency_s(self) -> float | None:
        """Mean of the recent attempts that were answered, without queue and retries; None before the first."""
        return self._latencies.mean_s

    def health(self) -> ModelHealth:
        """Return what is known of the server; counts and latencies are of attempts, probes included in the counts."""
        return ModelHealth(
            state=self._breaker.health,
            calls=self._calls,
            failures=self._failures,
            latency_s=self._latencies.quantiles_s(),
        )

    async def wait_up(self) -> None:
        """Wait until the server is up."""
        await self._is_up.wait()

    async def call(
        self, request: ModelRequest, headers: Mapping[str, str] | None = None, *, earlier_rounds: int = 0
    ) -> Answered:
        """Ask the model: one round of attempts.

        Parameters
        ----------
        request : ModelRequest
        headers : mapping, optional
            Trace context to pass on.
        earlier_rounds : int
            Rounds that ended for this query with ``after_attempts``.

        Raises
        ------
        RefusedError
            The server refused this request.
        FailedError
            Every attempt failed while the server answered others; after overload alone, only in the last round.
        ServerDownError
            The server is down or overloaded, known from others or from this query's own attempts.
        """
        began_s = self._clock.monotonic()
        successes: int | None = None
        last: TransientError | None = None
        for attempt in range(self._endpoint.max_attempts):
            if last is not None:
                await asyncio.sleep(random.uniform(0.0, _longest_pause_s(attempt, last)))
            if not (self._breaker.is_closed and await self._slots.acquire()):
                raise ServerDownError(f"{self._name} is down: {self._why_down}")
            try:
                if not self._breaker.is_closed:
                    raise ServerDownError(f"{self._name} is down: {self._why_down}")
                if successes is None:
                    successes = self._breaker.successes
                reply = await self._attempt(request, headers)
            except TransientError as error:
                last = error
            except MisconfiguredError as error:
                raise ServerDownError(f"{self._name} is down: {error}") from None
            else:
                return Answered(reply, self._clock.monotonic() - began_s)
            finally:
                self._slots.release()
        assert last is not None
        raise self._given_up(last, earlier_rounds, answers_others=self._breaker.successes != successes)

    def _given_up(self, last: TransientError, earlier_rounds: int, *, answers_others: bool) -> CallError:
        """Say whose fault a round without an answer is; an outage is told to the breaker."""
        # Too much to do is the fault of no query while there are rounds left.
        if earlier_rounds + 1 >= MAX_ROUNDS or (answers_others and not isinstance(last, OverloadedError)):
            return FailedError(str(last))
        if not answers_others:
            # Nothing was answered since this round began: the server, not the query, is to blame.
            self._advance(Event.OUTAGE, str(last))
        return ServerDownError(f"{self._name} does not answer: {last}", after_attempts=True)

    async def _attempt(self, request: ModelRequest, headers: Mapping[str, str] | None) -> Reply:
        """Make one attempt, count it, and record what it says of the server's health."""
        assert self._connection is not None, "start() comes before call()"
        self._calls += 1
        began_s = self._clock.monotonic()
        try:
            reply = await self._connection.attempt(request, headers)
        except CallError as error:
            self._failures += 1
            self._count(_OUTCOMES[type(error)], self._clock.monotonic() - began_s)
            # A refusal says nothing of health: the server's front may refuse while the engine behind it hangs.
            if isinstance(error, MisconfiguredError):
                self._advance(Event.OUTAGE, str(error))
            elif not isinstance(error, RefusedError | OverloadedError):
                self._advance(Event.FAILURE, str(error))
            raise
        seconds = self._clock.monotonic() - began_s
        self._count("answered", seconds)
        if request is not self._probe_request:
            self._latencies.add(seconds)
        self._advance(Event.SUCCESS)
        return reply

    def _count(self, outcome: str, seconds: float) -> None:
        if self._metrics is not None:
            self._metrics.model_call(self._name.workload, self._name.role, outcome, seconds)

    def _advance(self, event: Event, reason: str | None = None) -> None:
        """Tell the breaker what happened, and everybody who waits what came of it."""
        before = self._breaker.state
        after = self._breaker.advance(event, self._clock.monotonic())
        if after is State.CLOSED:
            self._why_down = None
        elif reason is not None and reason != self._why_down:
            self._why_down = reason
            _log.warning("model server down", server=str(self._name), url=self._endpoint.base_url, reason=reason)
        if after is before:
            return
        if after is State.CLOSED:
            _log.info("model server up", server=str(self._name))
            self._is_down.clear()
            self._is_up.set()
        elif before is State.CLOSED:
            self._is_up.clear()
            self._is_down.set()
            self._slots.turn_away()
        if self._metrics is not None:
            self._metrics.model_health(self._name.workload, self._name.role, self._breaker.health)

    async def _keep_probing(self) -> None:
        while True:
            await self._is_down.wait()
            async with asyncio.TaskGroup() as probes:
                running = await self._probe_until_up(probes)
                for probe in running:
                    probe.cancel()

    async def _probe_until_up(self, probes: asyncio.TaskGroup) -> set[asyncio.Task[None]]:
        """Send a probe whenever one is due; return those still unanswered once the server is up."""
        running: set[asyncio.Task[None]] = set()
        while not self._breaker.is_closed:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._breaker.probe_in_s(self._clock.monotonic())):
                    await self._is_up.wait()
            if self._breaker.is_closed:
                break
            if len(running) >= MAX_PROBES:
                await asyncio.wait(running, timeout=_FULL_PAUSE_S, return_when=asyncio.FIRST_COMPLETED)
            else:
                self._advance(Event.PROBE_SENT)
                probe = probes.create_task(self._probe())
                running.add(probe)
                probe.add_done_callback(running.discard)
        return running

    async def _probe(self) -> None:
        """Send one probe; whatever comes back but silence and errors means that the server is up."""
        try:
            await self._attempt(self._probe_request, None)
        except RefusedError:
            self._advance(Event.SUCCESS)
        except OverloadedError as error:
            self._advance(Event.FAILURE, str(error))
        except CallError:
            pass  # recorded by the attempt
        except Exception:  # noqa: BLE001 whatever breaks one probe, the next must follow, or the server stays down
            _log.exception("a probe broke; the next one follows", server=str(self._name))
            self._advance(Event.FAILURE)
