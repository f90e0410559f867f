"""``ucci-stream measure-costs``: a workload's own prompts at both model servers, timed for a ratio of costs.

The models take turns, block by block, small and large first in alternation: a machine that slows down or speeds up does
so for both. While a block is measured, always the same number of calls is in flight; calls that fill the places before
the first measured one and after the last are not counted, and neither is the warm-up. No query is measured twice at a
server, whose prefix cache would know all of it the second time. What was found is said to people, to scripts, and as
the line that ``ucci.toml`` takes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from rich.console import RenderableType
from rich.progress import MofNCompleteColumn, TimeRemainingColumn
from rich.table import Table

from schemas.errors import ConfigError, UcciError
from schemas.routed import ModelRole
from schemas.settings import TEXT_PLACEHOLDER, WorkloadSettings
from stream_router.errors import CallError, MisconfiguredError, UnreachableError
from stream_router.model_client.http_call import ModelConnection
from stream_router.model_client.http_probe import ROLES
from stream_router.model_client.request import ModelRequest, build_request
from stream_router.ports import Reply
from ucci_stream.offline.cost_estimate import CostEstimate, Interval, Kind, ServerFigures, TimedCall, estimate_costs
from ucci_stream.offline.model_answers import endpoint_of, probe_usable
from ucci_stream.options import Outcome, err, progress, warn

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


def measure_costs(workload: WorkloadSettings, texts: Sequence[str], plan: MeasurementPlan) -> Measured:
    """Send a workload's prompts to both model servers and compare what their answers cost.

    ``texts``: queries; repeated ones are used once. ``plan``: what is wanted; less is measured where the queries are
    too few. Raises ConfigError when the queries are too few, a server gets more calls than a router would open, or it
    cannot serve the model; raises MeasurementStopped when a server fails.
    """
    distinct = list(dict.fromkeys(texts))
    _check_places(workload, plan.concurrency)
    possible = plan.within(len(distinct))
    if possible.queries < plan.queries:
        enough = f"{len(distinct)} different queries are enough for {possible.queries}"
        warn(f"warning: {enough} answers of each model, not more")
    return asyncio.run(_measure(workload, distinct, possible))


async def _measure(workload: WorkloadSettings, texts: Sequence[str], plan: MeasurementPlan) -> Measured:
    probed = await probe_usable(workload, dict.fromkeys(ROLES, texts[0]))
    if any(one.reply is None for one in probed):
        raise MeasurementStopped("nothing was measured: both servers must answer")
    counts_prompts = all(one.reply is not None and one.reply.prompt_tokens > 0 for one in probed)
    connections = {
        role: ModelConnection(endpoint_of(workload, role), plan.concurrency, workload.max_tokens) for role in ROLES
    }
    try:
        with _progress(plan, readings=counts_prompts) as advance:
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
        workload = self._workloads[kind]
        request = build_request(workload, endpoint_of(workload, role), text)
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
        if (most := endpoint_of(workload, role).max_concurrency) < concurrency
    ]
    if faults:
        raise ConfigError(faults)


@contextmanager
def _progress(plan: MeasurementPlan, *, readings: bool) -> Iterator[Callable[[], None]]:
    """Show how many calls are measured; one line alone where nobody watches."""
    total = len(ROLES) * plan.blocks * (plan.block + (plan.readings if readings else 0))
    err.print(f"measuring {total} calls at concurrency {plan.concurrency}, after a warm-up", highlight=False)
    with progress(MofNCompleteColumn(), TimeRemainingColumn()) as bars:
        task = bars.add_task("measured", total=total)
        yield lambda: bars.advance(task)


def _by_query(estimate: CostEstimate) -> str:
    return f"cost = {{ small = 1.0, large = {_number(estimate.large)} }}"


def _by_token(estimate: CostEstimate) -> str:
    tokens = estimate.tokens
    parts = ['unit = "token"', "small = 1.0", f"large = {_number(tokens.large)}"]
    for name, price in (("prompt_small", tokens.prompt_small), ("prompt_large", tokens.prompt_large)):
        if price is not None and price.estimate > 0.0:
            parts.append(f"{name} = {_number(price)}")
    return f"cost = {{ {', '.join(parts)} }}"


def _remarks(workload: WorkloadSettings, measured: Measured) -> list[str]:
    found = []
    if measured.estimate.tokens.prompt_small is None:
        found.append("a server does not count the tokens of prompts: those generated bear the whole cost by token")
    if workload.offered_handoff is not None:
        found.append(
            "handoff is on, and large calls were measured alone: use the line by token, which also prices calls that "
            "go on from a small answer"
        )
    if not measured.plan.no_prefix_cache and not workload.prompt.startswith(TEXT_PLACEHOLDER):
        found.append(
            "what all prompts begin with is in the servers' prefix caches, as in production; --no-prefix-cache "
            "measures without them"
        )
    found += [f"{measured.failed[role]} calls of the {role} model failed and were left out" for role in measured.failed]
    return found


def _report(workload: WorkloadSettings, measured: Measured) -> dict[str, Any]:
    estimate, plan = measured.estimate, measured.plan
    return {
        "workload": workload.name,
        "concurrency": plan.concurrency,
        "blocks": plan.blocks,
        "warm_up": plan.warm_up,
        "no_prefix_cache": plan.no_prefix_cache,
        "server_prices": dict(plan.server_prices),
        "servers": {
            role: {"model": getattr(workload, role).model, "failed": measured.failed[role], **asdict(figures)}
            for role, figures in estimate.servers.items()
        },
        "large": estimate.large._asdict(),
        "tokens": {
            name: None if price is None else price._asdict()
            for name in ("large", "prompt_small", "prompt_large")
            for price in [getattr(estimate.tokens, name)]
        },
        "settings": {"by_query": _by_query(estimate), "by_token": _by_token(estimate)},
        "remarks": _remarks(workload, measured),
    }


def outcome(workload: WorkloadSettings, measured: Measured) -> Outcome:
    """Return all of it."""
    estimate, plan = measured.estimate, measured.plan
    small, large = (estimate.servers[role] for role in ROLES)
    table = Table("", *(f"{role}: {getattr(workload, role).model}" for role in ROLES))
    for name, left, right in zip(_ROWS, _row_cells(small), _row_cells(large), strict=True):
        table.add_row(name, left, right)
    ratios = Table("cost, small = 1", "estimate", "95% interval")
    ratios.add_row("a large call", *_cells(estimate.large))
    ratios.add_row("a token that the large model generates", *_cells(estimate.tokens.large))
    for role in ROLES:
        price: Interval | None = getattr(estimate.tokens, f"prompt_{role}")
        if price is not None:
            ratios.add_row(f"a token that the {role} model reads", *_cells(price))
    lines: list[RenderableType] = [
        f"{small.calls} and {large.calls} answers in {plan.blocks} blocks, {plan.concurrency} calls in flight",
        table,
        ratios,
        *(f"note: {line}" for line in _remarks(workload, measured)),
        f"\nfor [workloads.{workload.name}], by query or by token:",
        _by_query(estimate),
        _by_token(estimate),
    ]
    return Outcome(_report(workload, measured), lines)


_ROWS = (
    "latency p50, p99",
    "calls a second",
    "tokens generated a second",
    "prompt tokens read a second",
    "tokens of a prompt, of an answer",
)


def _row_cells(figures: ServerFigures) -> tuple[str, ...]:
    return (
        f"{figures.p50_s * 1000:.0f} ms, {figures.p99_s * 1000:.0f} ms",
        f"{figures.calls_per_s:.1f}",
        f"{figures.generated_per_s:.0f}",
        "–" if figures.read_per_s is None else f"{figures.read_per_s:.0f}",
        f"{figures.prompt_tokens:.0f}, {figures.completion_tokens:.0f}",
    )


def _cells(price: Interval) -> tuple[str, str]:
    return f"{price.estimate:.3g}", f"{price.lower:.3g} to {price.upper:.3g}"


def _number(price: Interval) -> str:
    """Return three digits of a price as TOML's float."""
    return repr(float(f"{price.estimate:.3g}"))
