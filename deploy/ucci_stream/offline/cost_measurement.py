"""``ucci-stream measure-costs``: a workload's own prompts at both model servers, timed for a ratio of costs.

The models take turns, block by block, small and large first in alternation: a machine that slows down or speeds up does
so for both. While a block is measured, always the same number of calls is in flight; calls that fill the places before
the first measured one and after the last are not counted, and neither is the warm-up. No query is measured twice at a
server, whose prefix cache would know all of it the second time.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from schemas.errors import ConfigError, UcciError
from schemas.routed import ModelRole
from schemas.settings import ModelEndpoint, WorkloadSettings
from stream_router.errors import CallError, MisconfiguredError, UnreachableError
from stream_router.model_client.http_call import ModelConnection
from stream_router.model_client.http_probe import probe_workload
from stream_router.model_client.request import ModelRequest, build_request
from stream_router.ports import Reply
from ucci_stream.offline.cost_estimate import ROLES, CostEstimate, Kind, TimedCall, estimate_costs

BLOCKS = 20
#: Fewer say too little of how much the machine drifts.
LEAST_BLOCKS = 8

_WARM_UP_ROUNDS = 4
_MOST_FAILED = 0.05
_FEW = 5


class MeasurementStopped(UcciError):
    """A server failed too often for its times to mean anything."""

    exit_code = 1


class Server(Protocol):
    """What answers one call."""

    async def attempt(self, request: ModelRequest) -> Reply:
        """Make one call, without retries."""
        ...


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """How much is asked, and how."""

    #: Whole answers to measure of each model.
    queries: int
    #: Calls in flight at the server whose turn it is.
    concurrency: int
    #: Give each call a ``cache_salt`` of its own, with which vLLM reuses nothing that it has read before.
    no_prefix_cache: bool
    #: What each server costs for as long as it is up.
    server_prices: Mapping[ModelRole, float]

    @property
    def block(self) -> int:
        """Whole answers of a block: at least as many as are in flight, so that most of a block is measured."""
        return max(self.concurrency, -(-self.queries // BLOCKS))

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return self.queries // self.block

    @property
    def readings(self) -> int:
        """Calls for one token in a block."""
        return max(1, self.block // 2)

    @property
    def warm_up(self) -> int:
        """Calls of each model before anything is measured; their queries fill places later on."""
        return _WARM_UP_ROUNDS * self.concurrency

    @property
    def texts(self) -> int:
        """Queries that it takes, each different from the others."""
        return self.warm_up + self.blocks * (self.block + self.readings)

    @property
    def least_texts(self) -> int:
        """Queries that the smallest measurement at this concurrency takes."""
        return replace(self, queries=LEAST_BLOCKS * self.concurrency).texts

    def within(self, texts: int) -> MeasurementPlan:
        """Return the largest plan, up to this one, that so many different queries are enough for.

        Raises ConfigError when they are too few at this concurrency.
        """
        if texts < self.least_texts:
            line = (
                f"--concurrency: at {self.concurrency} a measurement needs {self.least_texts} different queries, and "
                f"there are {texts}: give more, or lower it"
            )
            raise ConfigError([line])
        if self.blocks < LEAST_BLOCKS:
            line = (
                f"--queries: is {self.queries}; {LEAST_BLOCKS} times --concurrency ({self.concurrency}) are the least"
            )
            raise ConfigError([line])
        possible = range(self.queries, LEAST_BLOCKS * self.concurrency - 1, -1)
        return next(plan for queries in possible if (plan := replace(self, queries=queries)).texts <= texts)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured, and how."""

    plan: MeasurementPlan
    estimate: CostEstimate
    failed: Counter[ModelRole]


def measure_costs(
    workload: WorkloadSettings, texts: Sequence[str], plan: MeasurementPlan, console: Console
) -> Measured:
    """Send a workload's prompts to both model servers and compare what their answers cost.

    ``texts``: queries; repeated ones are used once. ``plan``: what is wanted; less is measured where the queries are
    too few. Raises ConfigError when the queries are too few, a server gets more calls than a router would open, or it
    cannot serve the model; raises MeasurementStopped when a server fails.
    """
    distinct = list(dict.fromkeys(texts))
    _check_places(workload, plan.concurrency)
    possible = plan.within(len(distinct))
    if possible.queries < plan.queries:
        warning = f"{len(distinct)} different queries are enough for {possible.queries} answers of each model, not more"
        _warn(console, warning)
    return asyncio.run(_measure(workload, distinct, possible, console))


async def _measure(
    workload: WorkloadSettings, texts: Sequence[str], plan: MeasurementPlan, console: Console
) -> Measured:
    counts_prompts = await _probed(workload, texts[0], console)
    connections = {role: _connection(workload, role, plan.concurrency) for role in ROLES}
    try:
        with _progress(plan, console, readings=counts_prompts) as advance:
            turns = Turns(workload, connections, texts, plan, advance=advance)
            calls = await turns.measure(readings=counts_prompts)
    finally:
        for connection in connections.values():
            await connection.close()
    return Measured(plan, estimate_costs(calls, plan.concurrency, plan.server_prices), turns.failed)


class Turns:
    """Asks both servers in turn. ``texts``: as many as the plan needs; those at the begin warm the servers up."""

    def __init__(
        self,
        workload: WorkloadSettings,
        servers: Mapping[ModelRole, Server],
        texts: Sequence[str],
        plan: MeasurementPlan,
        *,
        advance: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failed: Counter[ModelRole] = Counter()
        self._workloads: dict[Kind, WorkloadSettings] = {
            "answer": workload,
            "reading": workload.model_copy(update={"max_tokens": 1}),
        }
        self._servers = servers
        self._plan = plan
        self._advance = advance
        self._clock = clock
        self._salts = itertools.count(1)
        self._warm = list(texts[: plan.warm_up])
        self._filling = {role: itertools.cycle(self._warm) for role in ROLES}
        self._fresh = list(texts[plan.warm_up : plan.texts])
        self._calls: list[TimedCall] = []

    async def measure(self, *, readings: bool) -> list[TimedCall]:
        """Warm both servers up and measure all blocks.

        ``readings``: whether calls for one token are measured as well. Raises MeasurementStopped.
        """
        for role in ROLES:
            await self._turn(role, "answer", 0, self._warm, counts=False)
        left = iter(self._fresh)
        for block in range(self._plan.blocks):
            answers = list(itertools.islice(left, self._plan.block))
            firsts = list(itertools.islice(left, self._plan.readings))
            turns: list[tuple[ModelRole, Kind]] = [("small", "answer"), ("large", "answer")]
            turns += [("large", "reading"), ("small", "reading")] if readings else []
            for role, kind in reversed(turns) if block % 2 else turns:
                await self._turn(role, kind, block, answers if kind == "answer" else firsts)
        return self._calls

    async def _turn(
        self, role: ModelRole, kind: Kind, block: int, texts: Sequence[str], *, counts: bool = True
    ) -> None:
        """Ask one server these queries, with all places taken throughout."""
        turn = _Turn(iter(texts), len(texts))
        try:
            async with asyncio.TaskGroup() as places:
                for _ in range(self._plan.concurrency):
                    places.create_task(self._fill_place(role, kind, block, turn, counts=counts))
        except* UcciError as errors:
            raise errors.exceptions[0] from None

    async def _fill_place(self, role: ModelRole, kind: Kind, block: int, turn: _Turn, *, counts: bool) -> None:
        if counts:
            await self._call(role, kind, next(self._filling[role]))
        while turn.unanswered:
            text = next(turn.left, None)
            if text is None:
                if not counts:
                    return
                await self._call(role, kind, next(self._filling[role]))
                continue
            began_s = self._clock()
            reply = await self._call(role, kind, text)
            took_s = self._clock() - began_s
            turn.unanswered -= 1
            if counts and reply is not None:
                self._calls.append(TimedCall(role, kind, block, took_s, reply.prompt_tokens, reply.completion_tokens))
                self._advance()

    async def _call(self, role: ModelRole, kind: Kind, text: str) -> Reply | None:
        """Make one call; None where it failed."""
        workload = self._workloads[kind]
        request = build_request(workload, _endpoint(workload, role), text)
        if self._plan.no_prefix_cache:
            request = _salted(request, next(self._salts))
        try:
            return await self._servers[role].attempt(request)
        except (MisconfiguredError, UnreachableError) as error:
            raise MeasurementStopped(f"{workload.name}/{role}: {error}") from None
        except CallError as error:
            self.failed[role] += 1
            if self.failed[role] > max(_FEW, _MOST_FAILED * self._plan.texts):
                raise MeasurementStopped(
                    f"{workload.name}/{role}: {self.failed[role]} calls failed, the last because of: {error}; times of "
                    "the others would mean little"
                ) from None
            return None


@dataclass(slots=True)
class _Turn:
    """The queries of one turn that wait, and how many are without an answer."""

    left: Iterator[str]
    unanswered: int


def _salted(request: ModelRequest, salt: int) -> ModelRequest:
    body = json.loads(request.body) | {"cache_salt": f"measure-costs-{time.time_ns()}-{salt}"}
    return replace(request, body=json.dumps(body).encode())


def _check_places(workload: WorkloadSettings, concurrency: int) -> None:
    faults = [
        f"--concurrency: is {concurrency}, and workloads.{workload.name}.{role}.max_concurrency is {most}: a router "
        "never opens more; lower the one or raise the other"
        for role in ROLES
        if (most := _endpoint(workload, role).max_concurrency) < concurrency
    ]
    if faults:
        raise ConfigError(faults)


async def _probed(workload: WorkloadSettings, text: str, console: Console) -> bool:
    """Look at both servers before thousands of calls; returns whether both count the tokens of prompts."""
    probed = await probe_workload(workload, dict.fromkeys(ROLES, text))
    faults = [finding.line for one in probed for finding in one.findings if finding.kind == "fault"]
    if faults:
        raise ConfigError(faults)
    for one in probed:
        for finding in one.findings:
            _warn(console, finding.line)
    if any(one.reply is None for one in probed):
        raise MeasurementStopped("nothing was measured: both servers must answer")
    return all(one.reply is not None and one.reply.prompt_tokens > 0 for one in probed)


def _connection(workload: WorkloadSettings, role: ModelRole, concurrency: int) -> ModelConnection:
    return ModelConnection(_endpoint(workload, role), concurrency, workload.max_tokens)


def _endpoint(workload: WorkloadSettings, role: ModelRole) -> ModelEndpoint:
    endpoint: ModelEndpoint | None = getattr(workload, role)
    assert endpoint is not None, "require_models() comes first"
    return endpoint


def _warn(console: Console, line: str) -> None:
    console.print(f"warning: {line}", style="yellow", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _progress(plan: MeasurementPlan, console: Console, *, readings: bool) -> Iterator[Callable[[], None]]:
    """Show how many calls are measured; one line alone where nobody watches."""
    total = len(ROLES) * plan.blocks * (plan.block + (plan.readings if readings else 0))
    console.print(f"measuring {total} calls at concurrency {plan.concurrency}, after a warm-up", highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("measured", total=total)
        yield lambda: progress.advance(task)
