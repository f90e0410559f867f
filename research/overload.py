"""What is a limit that adapts worth? One scripted model server of limited capacity, asked for twice as much and more.

The router's client of a server asks in a closed loop, as the large model is asked: each call queues for at most its
time-out. Once with the limit of ``stream_router/model_client/concurrency_limit.py``, once with the configured
``max_concurrency`` alone. The server serves 8 calls at a time and queues the others without bound; it either forgets
calls that their client has abandoned, as vLLM does, or serves them to the end.

- ``steady``: all callers at once, for 20 time-outs. Goodput is the share of the server's capacity that comes back as
  answers.
- ``brown_out``: a quarter of the callers; the server is 8 times slower for 6 time-outs, then as before. How long until
  goodput is back at 90 % of what it was; 30 means never.
- ``hang``: no call is answered any more. How long until the server is down, and until it is up after it answers again.

Times are in time-outs of a call, so that they hold for any. Runs with a limit and without take turns on the same
machine.

    python -m research.overload --json overload.json --quick
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from research.results_json import tell
from schemas.settings import WorkloadSettings
from schemas.settings_workload import ModelEndpoint
from stream_router.errors import CallError, ServerDownError
from stream_router.model_client.concurrency_limit import ConcurrencyLimit
from stream_router.model_client.http_client import ModelClient
from stream_router.model_client.request import build_request
from tests.support.model_clients import workload
from tests.support.scripted_model_server import Fault, ScriptedModelServer
from ucci_runtime.process import SystemClock

PLACES = 8
SERVICE_S = 0.05
CAPACITY = PLACES / SERVICE_S
TIMEOUT_S = 0.8
"""16 service times: a queue of 128 in the server takes as long."""

CALLERS = 256
"""The router's default of queries in flight. Twice what the server can answer in a time-out."""

STEADY_TIMEOUTS = 20.0
BROWN_OUT_TIMES = 8.0
BROWN_OUT_TIMEOUTS = 6.0
BACK_AT = 0.9
"""Of the goodput before."""

MOST_TIMEOUTS = 30.0
"""A recovery that takes longer is given up."""


class FixedLimit(ConcurrencyLimit):
    """As many calls at a time as are configured, whatever becomes of them."""

    @property
    def current(self) -> int:
        """The configured number."""
        return self._highest


@dataclass
class Load:
    """What became of the callers' calls and of the server's health."""

    ends: Counter[str] = field(default_factory=Counter)
    attempts: Counter[str] = field(default_factory=Counter)
    health: list[str] = field(default_factory=list)

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:  # noqa: ARG002
        """Count an attempt."""
        if "outcome" in labels:
            self.attempts[labels["outcome"]] += 1

    def gauge(self, name: str, value: float, **labels: str) -> None:  # noqa: ARG002
        """Take note of a change of the server's health."""
        self.health.append("up" if value else "down")


@dataclass
class Bench:
    """The server, the client under test and what its callers got."""

    fake: ScriptedModelServer
    server: ModelClient
    settings: WorkloadSettings
    endpoint: ModelEndpoint
    load: Load

    async def ask(self, number: int) -> None:
        """Keep asking, as one query after the other would."""
        while True:
            request = build_request(self.settings, self.endpoint, f"query {number}")
            try:
                await self.server.call(request, patience_s=TIMEOUT_S)
                self.load.ends["answered"] += 1
            except ServerDownError:
                self.load.ends["ServerDownError"] += 1
                await self.server.wait_up()
            except CallError as error:
                self.load.ends[type(error).__name__] += 1

    async def goodput(self, seconds: float) -> float:
        """Return the share of the capacity that is answered within the next seconds."""
        before, began_s = self.load.ends["answered"], now_s()
        await asyncio.sleep(seconds)
        return (self.load.ends["answered"] - before) / (now_s() - began_s) / CAPACITY


@asynccontextmanager
async def bench(*, adaptive: bool, drops: bool, callers: int = CALLERS) -> AsyncIterator[Bench]:
    """Let callers ask a server."""
    async with ScriptedModelServer(latency_s=SERVICE_S, places=PLACES, drops_abandoned=drops, record=False) as fake:
        settings = workload(fake.base_url, small_timeout_s=TIMEOUT_S)
        endpoint = settings.small
        assert endpoint is not None
        load = Load()
        limit = None if adaptive else FixedLimit(endpoint.max_concurrency, TIMEOUT_S)
        server = ModelClient(settings, "small", endpoint, clock=SystemClock(), metrics=load, limit=limit)
        await server.start()
        found = Bench(fake, server, settings, endpoint, load)
        asking = [asyncio.create_task(found.ask(number)) for number in range(callers)]
        try:
            yield found
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            await server.close()


async def steady(*, adaptive: bool, drops: bool, timeouts: float) -> dict[str, float]:
    """Ask for more than the server can do."""
    async with bench(adaptive=adaptive, drops=drops) as b:
        await asyncio.sleep(timeouts / 4 * TIMEOUT_S)
        calls, attempts = b.load.ends.total(), b.load.attempts.total()
        goodput = await b.goodput(timeouts * TIMEOUT_S)
        return {
            "goodput": goodput,
            "attempts_per_call": (b.load.attempts.total() - attempts) / max(1, b.load.ends.total() - calls),
            "times_down": b.load.health.count("down"),
            "limit_at_the_end": b.server.health().concurrency_limit or 0,
        }


async def brown_out(*, adaptive: bool, drops: bool) -> dict[str, float]:
    """Slow the server down for a while, under a load that it keeps up with otherwise."""
    async with bench(adaptive=adaptive, drops=drops, callers=CALLERS // 4) as b:
        await asyncio.sleep(3 * TIMEOUT_S)
        before = await b.goodput(2 * TIMEOUT_S)
        attempts = b.load.attempts.total()
        b.fake.latency_s *= BROWN_OUT_TIMES
        ends = b.load.ends.total()
        await asyncio.sleep(BROWN_OUT_TIMEOUTS * TIMEOUT_S)
        storm = (b.load.attempts.total() - attempts) / max(1, b.load.ends.total() - ends)
        b.fake.latency_s = SERVICE_S
        began_s = now_s()
        while await b.goodput(TIMEOUT_S / 2) < BACK_AT * before and now_s() - began_s < MOST_TIMEOUTS * TIMEOUT_S:
            pass
        return {
            "back_after_timeouts": (now_s() - began_s) / TIMEOUT_S,
            "attempts_per_call_within": storm,
            "times_down": b.load.health.count("down"),
        }


async def hang() -> dict[str, float]:
    """Hang the server, then let it answer again."""
    async with bench(adaptive=True, drops=True, callers=CALLERS // 4) as b:
        await asyncio.sleep(5 * TIMEOUT_S)
        b.fake.play(Fault("hang"))
        began_s = now_s()
        while b.server.is_up:  # noqa: ASYNC110 an outage has no event
            await asyncio.sleep(0.01)
        down_s = now_s() - began_s
        b.fake.recover()
        began_s = now_s()
        await b.server.wait_up()
        return {"down_after_timeouts": down_s / TIMEOUT_S, "up_after_s": now_s() - began_s}


def now_s() -> float:
    """Return the loop's clock."""
    return asyncio.get_running_loop().time()


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure."""
    return {name: round(statistics.median(one[name] for one in rounds), 3) for name in rounds[0]}


async def measure(rounds: int, timeouts: float, kinds: tuple[bool, ...]) -> dict[str, Any]:
    """Run everything, with a limit and without by turns; a kind of server is whether it drops abandoned calls."""
    found: dict[str, Any] = {}
    for drops in kinds:
        kind = "drops_abandoned" if drops else "serves_abandoned"
        runs: dict[str, dict[str, list[dict[str, float]]]] = {"steady": {}, "brown_out": {}}
        for _ in range(rounds):
            for adaptive in (True, False):
                name = "adaptive" if adaptive else "fixed"
                one = await steady(adaptive=adaptive, drops=drops, timeouts=timeouts)
                runs["steady"].setdefault(name, []).append(one)
                two = await brown_out(adaptive=adaptive, drops=drops)
                runs["brown_out"].setdefault(name, []).append(two)
        found[kind] = {
            scene: {name: medians(each) for name, each in by_name.items()} for scene, by_name in runs.items()
        }
        both = found[kind]["steady"]
        both["goodput_ratio"] = round(both["adaptive"]["goodput"] / max(1e-3, both["fixed"]["goodput"]), 2)
    found["hang"] = medians([await hang() for _ in range(rounds)])
    return found


def main(arguments: list[str] | None = None) -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description="What a concurrency limit that adapts is worth under overload.")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--quick", action="store_true", help="one short round, of a server that drops abandoned calls")
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    rounds, timeouts, kinds = (
        (1, STEADY_TIMEOUTS / 4, (True,)) if options.quick else (3, STEADY_TIMEOUTS, (True, False))
    )
    tell(asyncio.run(measure(rounds, timeouts, kinds)), options.json)


if __name__ == "__main__":
    main()
