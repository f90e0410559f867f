"""The client of one model server: retries, places for calls in flight, and probes while the server is in doubt.

Three questions are kept apart, since each has another answer:

- Is the server *there*? :mod:`.server_health` decides by whether it answers anybody. While it is absent, calls fail at
  once, and a probe, a real completion of one token, is sent until one is answered.
- Is it *overloaded*? :mod:`.concurrency_limit` sets how many calls are in flight; the others queue in turn. A caller
  that can do without the answer says how long it is ready to queue, and has its retries counted. A caller that cannot
  queues for as long as the server is there: its retries queue like any call, so that they add nothing to what the
  server has to do at a time.
- Is the *query* at fault? It is once its attempts or its time are used up and the server then answers others, a probe
  if need be. What it answered while the query was in flight says nothing: it may have gone since. Attempts that end by
  overload, or find no connection, are nobody's fault, and a query has ``MAX_ROUNDS`` times as many of them.

A *refused* query is at fault only if another call is answered after it was sent. Where none is, a probe of the same
shape asks: one that is refused too shows a server that refuses everybody as configured, which is an outage.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Self

import structlog

from schemas.errors import one_line
from schemas.routed import ModelRole
from schemas.settings import WorkloadSettings
from schemas.settings_workload import ModelEndpoint
from schemas.status import ModelHealth
from stream_router.errors import (
    BusyError,
    CallError,
    FailedError,
    MisconfiguredError,
    OverloadedError,
    RefusedError,
    ServerDownError,
    TimedOutError,
    TransientError,
    UnreachableError,
)
from stream_router.model_client.concurrency_limit import CallSlots, ConcurrencyLimit, QueryTime, RetryBudget
from stream_router.model_client.http_call import ModelConnection
from stream_router.model_client.model_names import may_serve
from stream_router.model_client.request import SAMPLE_TEXT, ModelRequest, build_probe, build_request
from stream_router.model_client.server_health import Breaker, HealthEvent, HealthState, LatencyWindow
from stream_router.ports import Answered, CascadeMetrics, Reply, ServerName
from ucci_runtime.clock import Clock
from ucci_runtime.process import affordable_connections

_log = structlog.get_logger()

#: For one query, the first included.
MAX_ATTEMPTS = 3

#: Outages at which a query may have been in flight before it counts as their cause. Also, how many times as many
#: attempts may be nobody's fault as may be the query's: where half of all are, 1 query in 512 is wrongly blamed.
MAX_ROUNDS = 3

#: Probes in flight. They overlap, since what a hung server was sent may stay unanswered for good.
MAX_PROBES = 32

#: How long a server stays overloaded once a call found no place: until the next one mostly does, too.
_CROWDED_S = 5.0

_SHOWN_MODELS = 8
_MAX_REASON_CHARS = 500
_REFUSES_ALL = "probes are refused too: correct the workload's settings or the server, and calls go on by themselves"
_FULL_PAUSE_S = 1.0
_BACKOFF_S = 0.1
_MAX_BACKOFF_S = 2.0


@dataclass(slots=True)
class _Attempts:
    """One query's attempts: what they may take, and how they ended."""

    began_s: float
    #: See :meth:`ModelClient.call`.
    earlier_rounds: int
    patience_s: float | None
    #: What the query may still spend here.
    time_s: float
    #: Attempts that may be the query's fault, and those that are nobody's.
    failed: int = 0
    excused: int = 0
    #: Whether the server saw any of them.
    delivered: bool = False

    last: TransientError | None = None
    #: Time of the attempts and of the pauses between them; neither the queue nor an outage is the query's.
    at_server_s: float = 0.0

    def add(self, error: TransientError, *, is_excused: bool) -> None:
        self.last = error
        self.failed += not is_excused
        self.excused += is_excused
        self.delivered |= not isinstance(error, UnreachableError)


class ModelClient:
    """The client of one model server of a workload; an asynchronous context manager."""

    def __init__(
        self,
        workload: WorkloadSettings,
        role: ModelRole,
        endpoint: ModelEndpoint,
        *,
        clock: Clock,
        metrics: CascadeMetrics | None = None,
        limit: ConcurrencyLimit | None = None,
    ) -> None:
        self._name = ServerName(workload.name, role)
        self._endpoint = endpoint
        self._described = {"server": str(self._name), "url": endpoint.public_url}
        self._workload = workload
        self._probe_request = build_probe(workload, endpoint)
        #: A query that was refused while nobody else was answered, until somebody is.
        self._refused: ModelRequest | None = None
        #: The last query that was answered: a server that refuses it now refuses everybody.
        self._answered: ModelRequest | None = None
        self._is_misconfigured = False
        self._max_tokens = workload.max_tokens
        self._clock = clock
        self._metrics = metrics
        # Silence takes the limit back to 1 when a call has timed out. A time-out later the calls sent before that are
        # gone from the server, and another one later a probe has had its time at a server without load.
        self._breaker = Breaker(patience_s=2.0 * endpoint.timeout_s)
        self._limit = limit or ConcurrencyLimit(affordable_connections(endpoint.max_concurrency), endpoint.timeout_s)
        self._slots = CallSlots(self._limit.current)
        self._retries = RetryBudget()
        self._connection: ModelConnection | None = None
        self._prober: asyncio.Task[None] | None = None
        self._last_failure = "no answer"
        self._is_up, self._is_settled = asyncio.Event(), asyncio.Event()
        self._is_sure, self._is_in_doubt = asyncio.Event(), asyncio.Event()
        self._announce()
        #: Of the attempts that were answered, without queue and retries.
        self.latencies = LatencyWindow()
        self._calls = self._failures = 0
        self._up_since = clock.now()
        self._crowded_s = -inf
        self._has_complained = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Open the connections and see whether somebody listens; blocks for 2 s at most."""
        connections = self._endpoint.max_concurrency + MAX_PROBES
        self._connection = ModelConnection(self._endpoint, connections, self._max_tokens)
        self._prober = asyncio.create_task(self._keep_probing())
        try:
            served = await self._connection.models(greets=True)
            if served and not any(may_serve(name, self._endpoint.model) for name in served):
                shown = sorted(served)[:_SHOWN_MODELS]
                _log.warning("model not listed", **self._described, model=self._endpoint.model, served=shown)
        except UnreachableError as error:
            self._advance(HealthEvent.OUTAGE, str(error))
        except TransientError as error:
            self._advance(HealthEvent.FAILURE, str(error))

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
        return self._breaker.lets_through

    def health(self) -> ModelHealth:
        """Return what is known of the server; counts and latencies are of attempts, probes included in the counts."""
        is_crowded = self._slots.queued > 0 or self._clock.monotonic() - self._crowded_s < _CROWDED_S
        return ModelHealth(
            state=self._breaker.health,
            calls=self._calls,
            failures=self._failures,
            latency_s=self.latencies.quantiles_s(),
            overloaded=self.is_up and self._limit.is_lowered and is_crowded,
            concurrency_limit=self._limit.current,
            in_flight=self._slots.taken,
            queued=self._slots.queued,
            up_since=self._up_since if self.is_up else None,
            reason=None if self.is_up else one_line(self._last_failure, _MAX_REASON_CHARS),
            misconfigured=not self.is_up and self._is_misconfigured,
        )

    async def wait_up(self) -> None:
        """Wait until the server is up."""
        await self._is_up.wait()

    async def call(
        self,
        request: ModelRequest,
        headers: Mapping[str, str] | None = None,
        *,
        earlier_rounds: int = 0,
        patience_s: float | None = None,
        time: QueryTime | None = None,
    ) -> Answered:
        """Ask the model.

        ``earlier_rounds``: outages at which the query was in flight here. ``patience_s``: how long each attempt may
        queue for a place; for callers that can do without the answer. By default a call queues while the server is up.
        ``time``: what the query may still spend here; what it spent is taken from it, unless the server went down. The
        first attempt is made in any case, another one only where all its time-out is left.

        Raises RefusedError; FailedError when the attempts or the time are used up, and the server answers others;
        ServerDownError, known from others or from this query's own attempts; BusyError when the server is overloaded,
        and patience or the budget of retries is used up.
        """
        time = time or QueryTime()
        attempts = _Attempts(self._clock.monotonic(), earlier_rounds, patience_s, time.left_s)
        try:
            reply = await self._call(request, headers, attempts)
        except CallError as error:
            if not isinstance(error, ServerDownError):
                time.spend(attempts.at_server_s)
            raise
        time.spend(attempts.at_server_s)
        self._retries.earn()
        return Answered(reply, self._clock.monotonic() - attempts.began_s)

    async def _call(self, request: ModelRequest, headers: Mapping[str, str] | None, attempts: _Attempts) -> Reply:
        while True:
            if attempts.last is not None:
                await self._prepare_retry(attempts, attempts.last)
            await self._take_place(attempts)
            answered = self._breaker.successes
            began_s = self._clock.monotonic()
            refusal = None
            try:
                return await self._attempt(request, headers)
            except RefusedError as error:
                refusal = error
            except TransientError as error:
                attempts.add(error, is_excused=self._is_excused(error, answered))
            except MisconfiguredError as error:
                raise ServerDownError(f"{self._name} is down: {error}") from None
            finally:
                attempts.at_server_s += self._clock.monotonic() - began_s
                self._slots.release()
            if refusal is not None:
                raise await self._blame(refusal, request, answered)

    async def _blame(self, refusal: RefusedError, request: ModelRequest, answered: int) -> CallError:
        """Return the end of a refused query: its own fault, if somebody was answered since the attempt began.

        ``answered``: the successes at that time. Where nobody was, the server is in doubt until somebody is, or until
        the probes show that it refuses everybody.
        """
        if self._breaker.successes == answered:
            self._refused = request
            self._advance(HealthEvent.FAILURE, str(refusal))
            await self._is_settled.wait()
        if self.is_up:
            return refusal
        return ServerDownError(f"{self._name} is down: {self._last_failure}")

    def _is_excused(self, error: TransientError, answered: int) -> bool:
        """Return whether an attempt ended by no fault of its query; ``answered`` are the successes at its begin.

        A time-out ended by overload if nobody was answered meanwhile, or others are slow too. A call that times out at
        a limit of 1 while a probe is answered, or while others are answered promptly, has only itself to blame.
        """
        if isinstance(error, TimedOutError):
            if self._limit.is_own(self._clock.monotonic()):
                return False
            return self._breaker.successes == answered or (self._limit.is_congested and self._limit.current > 1)
        return isinstance(error, OverloadedError | UnreachableError)

    async def _take_place(self, attempts: _Attempts) -> None:
        """Take a place at the server, which the caller gives back."""
        try:
            has_place = self.is_up and await self._slots.acquire(attempts.patience_s)
        except TimeoutError:
            self._crowded_s = self._clock.monotonic()
            line = f"{self._name} is overloaded: no place for a call within {attempts.patience_s:g} s"
            raise BusyError(line) from None
        if has_place and not self.is_up:
            self._slots.release()
        if not (has_place and self.is_up):
            raise self._down(attempts)

    async def _prepare_retry(self, attempts: _Attempts, last: TransientError) -> None:
        pause_s = self._pause_s(attempts, last)
        if pause_s is not None:
            if attempts.patience_s is None or self._retries.take():
                attempts.at_server_s += pause_s
                await asyncio.sleep(pause_s)
                return
            if isinstance(last, OverloadedError | TimedOutError):
                raise BusyError(f"{self._name} is overloaded: {last}")
        # The last failure has put the server in doubt: another answer, or a probe's, settles who is to blame.
        await self._is_settled.wait()
        raise FailedError(str(last)) if self.is_up else self._down(attempts)

    def _pause_s(self, attempts: _Attempts, last: TransientError) -> float | None:
        """Return how long to wait before another attempt; None where attempts or time are used up."""
        if attempts.failed >= MAX_ATTEMPTS or attempts.excused >= MAX_ROUNDS * MAX_ATTEMPTS:
            return None
        longest_s = _MAX_BACKOFF_S
        if not isinstance(last, OverloadedError):
            longest_s = min(_MAX_BACKOFF_S, _BACKOFF_S * 2.0 ** (attempts.failed + attempts.excused))
        # Drawn, so that callers spread.
        pause_s = random.uniform(0.0, longest_s)
        return pause_s if attempts.at_server_s + pause_s + self._endpoint.timeout_s <= attempts.time_s else None

    def _down(self, attempts: _Attempts) -> CallError:
        """Return the end of a query that meets an outage: one that was in flight at several takes the blame."""
        if attempts.delivered and attempts.earlier_rounds + 1 >= MAX_ROUNDS:
            return FailedError(str(attempts.last))
        return ServerDownError(f"{self._name} is down: {self._last_failure}", after_attempts=attempts.delivered)

    async def _attempt(
        self,
        request: ModelRequest,
        headers: Mapping[str, str] | None,
        *,
        is_probe: bool = False,
        is_last_probe: bool = False,
    ) -> Reply:
        """Make one attempt, count it, and record what it says of the server."""
        self._calls += 1
        began_s, answered = self._clock.monotonic(), self._breaker.successes
        try:
            reply = await self._exchange(request, headers, is_last_probe=is_last_probe)
        except CallError as error:
            self._failures += 1
            self._count(error.outcome, self._clock.monotonic() - began_s)
            if not (isinstance(error, TimedOutError) and self._limit.is_own(self._clock.monotonic())):
                if isinstance(error, OverloadedError | TimedOutError) and not is_probe:
                    self._limit_by(began_s, overloaded=True)
                if isinstance(error, TimedOutError) and self._breaker.successes == answered:
                    self._restart_limit()
            self._suspect(error, is_probe=is_probe)
            raise
        seconds = self._clock.monotonic() - began_s
        self._count("answered", seconds)
        if not is_probe:
            self._expect_probabilities(reply)
            self.latencies.add(seconds)
            self._limit_by(began_s, overloaded=False)
            self._answered = request
        self._refused = None
        self._advance(HealthEvent.SUCCESS)
        return reply

    async def _exchange(
        self, request: ModelRequest, headers: Mapping[str, str] | None, *, is_last_probe: bool
    ) -> Reply:
        """Ask the server; where the last of a probe's requests is refused, nobody can be answered as configured."""
        assert self._connection is not None, "start() comes before call()"
        try:
            return await self._connection.attempt(request, headers)
        except RefusedError as error:
            if not is_last_probe:
                raise
            raise MisconfiguredError(f"{error}; {_REFUSES_ALL}") from None

    def _expect_probabilities(self, reply: Reply) -> None:
        """Say once that a server's are missing or none: such answers count as failed, and nothing else shows why."""
        if reply.uncertainty is None and reply.text and not self._has_complained:
            self._has_complained = True
            line = "model server returns no log-probabilities; none of its answers can be used"
            if reply.defect is not None:
                line = "model server returns log-probabilities that cannot be used, and so its answers cannot either"
            _log.warning(line, **self._described, model=self._endpoint.model, defect=reply.defect)

    def _suspect(self, error: CallError, *, is_probe: bool) -> None:
        self._is_misconfigured = isinstance(error, MisconfiguredError)
        if self._is_misconfigured:
            self._advance(HealthEvent.OUTAGE, str(error))
        elif isinstance(error, RefusedError):
            # Whose fault it is shows in what else the server answers: see _blame and _probe.
            pass
        elif is_probe:
            delayed = isinstance(error, OverloadedError | TimedOutError)
            self._advance(HealthEvent.PROBE_DELAYED if delayed else HealthEvent.PROBE_FAILED, str(error))
        else:
            is_gone = isinstance(error, UnreachableError)
            self._advance(HealthEvent.UNREACHABLE if is_gone else HealthEvent.FAILURE, str(error))

    def _limit_by(self, began_s: float, *, overloaded: bool) -> None:
        now_s, in_flight = self._clock.monotonic(), self._slots.taken
        self._limit.ended(began_s=began_s, now_s=now_s, overloaded=overloaded, in_flight=in_flight)
        self._slots.resize(self._limit.current)

    def _restart_limit(self) -> None:
        self._limit.restart(self._clock.monotonic())
        self._slots.resize(self._limit.current)

    def _count(self, outcome: str, seconds: float) -> None:
        if self._metrics is not None:
            labels = self._name._asdict()
            self._metrics.count("model_calls", outcome=outcome, **labels)
            if outcome == "answered":
                self._metrics.count("model_call_seconds", seconds, **labels)

    def _advance(self, event: HealthEvent, failure: str | None = None) -> None:
        state, was_up = self._breaker.state, self.is_up
        after = self._breaker.advance(event, self._clock.monotonic())
        if failure is not None:
            self._last_failure = failure
        if after is state:
            return
        self._announce()
        if was_up and not self.is_up:
            _log.warning("model server down", **self._described, reason=self._last_failure)
            self._slots.turn_away()
        elif self.is_up and not was_up:
            self._up_since = self._clock.now()
            _log.info("model server up", server=str(self._name))
            self._restart_limit()
        if self._metrics is not None and self.is_up != was_up:
            self._metrics.gauge("model_up", self.is_up, **self._name._asdict())

    def _announce(self) -> None:
        is_sure = self._breaker.is_closed
        for event, holds in (
            (self._is_up, self.is_up),
            (self._is_settled, self._breaker.state is not HealthState.SUSPECT),
            (self._is_sure, is_sure),
            (self._is_in_doubt, not is_sure),
        ):
            if holds:
                event.set()
            else:
                event.clear()

    async def _keep_probing(self) -> None:
        while True:
            await self._is_in_doubt.wait()
            async with asyncio.TaskGroup() as probes:
                running = await self._probe_until_answered(probes)
                for probe in running:
                    probe.cancel()

    async def _probe_until_answered(self, probes: asyncio.TaskGroup) -> set[asyncio.Task[None]]:
        """Send a probe whenever one is due; return those still unanswered once there is no doubt."""
        running: set[asyncio.Task[None]] = set()
        while not self._breaker.is_closed:
            if due_in_s := self._breaker.probe_in_s(self._clock.monotonic()):
                with suppress(TimeoutError):
                    async with asyncio.timeout(due_in_s):
                        await self._is_sure.wait()
            elif len(running) >= MAX_PROBES:
                await asyncio.wait(running, timeout=_FULL_PAUSE_S, return_when=asyncio.FIRST_COMPLETED)
            else:
                self._advance(HealthEvent.PROBE_SENT)
                probe = probes.create_task(self._probe())
                running.add(probe)
                probe.add_done_callback(running.discard)
        return running

    async def _probe(self) -> None:
        """Ask until one request is answered, or the server fails otherwise than by refusing it."""
        requests = self._probe_requests()
        try:
            for number, request in enumerate(requests, start=1):
                with suppress(RefusedError):
                    await self._attempt(request, None, is_probe=True, is_last_probe=number == len(requests))
                    return
        except CallError:
            pass
        except Exception:  # noqa: BLE001 whatever breaks one probe, the next must follow, or the server stays down
            _log.exception("a probe broke; the next one follows", server=str(self._name))
            self._advance(HealthEvent.PROBE_FAILED)

    def _probe_requests(self) -> list[ModelRequest]:
        """Return what a probe asks, in turn, the cheapest first.

        The smallest completion shows a server that answers. Where it or a query is refused: the workload's own prompt
        and parameters with a sample query, and a query that was answered before, since a server may refuse a sample for
        what it says.
        """
        endpoint = self._endpoint
        marked = self._refused is not None and self._refused.streams
        sample = build_request(self._workload, endpoint, SAMPLE_TEXT, marked=marked)
        smallest = [self._probe_request] if self._refused is None else []
        before = [] if self._answered is None else [self._answered]
        return [*smallest, sample, *before]
