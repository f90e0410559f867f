"""Are model servers kept busy? The router's answering path against a bare aiohttp loop with as many calls in flight.

Both run in this process, in turns, against one fake server in a process of its own that answers every completion after
its service time, whatever the load. The bare loop posts the same body, reads the reply and parses it, nothing else;
the router builds the request, bounds, times and judges the call, computes u, decides and makes the result. Speed is
their ratio within a round; the median of rounds counts. While the client's core has time to spare the ratio says
whether the servers wait for the router; once it has none, it says what the router's own work costs, which the CPU time
a call tells better.

    python -m research.model_calls --json model_calls.json --quick
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import structlog

from research.results_json import tell
from research.router_process import as_in_a_router
from schemas.calibration import CalibrationMap, CalibrationVersion, Evidence, Signal, Target
from schemas.routed import QueryEvent
from schemas.settings import Settings
from stream_router.cascade.answerer import CascadeAnswerer
from stream_router.model_client.request import build_request
from ucci_runtime.process import SystemClock

IN_FLIGHT = 1_000
SERVICE_MS = (100, 1_000)
"""At 100 ms a thousand calls in flight are 10,000 a second, more than one Python process makes; at 1 s, as a language
model on a busy GPU takes, they are 1,000."""

TOKENS = 50
FULL = (7, 8.0)
QUICK = (3, 4.0)
_TIMEOUT_S = 120.0
"""Long enough for a machine that others keep busy: a call that fails would be no measurement."""
_FIELDS = ("camera", "lens", "aperture", "shutter_speed", "iso", "focal_length")
_TEXT = "canon 5d mark iv with the 70-200 at f2.8 and 1/250, iso 400, shot in the evening"
_END_OF_HEAD = b"\r\n\r\n"


def reply_body() -> bytes:
    """Return a whole answer of ordinary size, in the shape that vLLM sends."""
    tops = [{f"token_id:{2 * n}": math.log(0.97), f"token_id:{2 * n + 1}": math.log(0.02)} for n in range(TOKENS)]
    logprobs = {
        "tokens": [next(iter(top)) for top in tops],
        "token_logprobs": [next(iter(top.values())) for top in tops],
        "top_logprobs": tops,
        "text_offset": list(range(0, 3 * TOKENS, 3)),
    }
    text = json.dumps(dict.fromkeys(_FIELDS, "canon"))
    choice = {"index": 0, "text": text, "finish_reason": "stop", "stop_reason": None, "logprobs": logprobs}
    usage = {"prompt_tokens": 60, "completion_tokens": TOKENS, "total_tokens": 60 + TOKENS}
    return json.dumps({"id": "cmpl-1", "object": "text_completion", "choices": [choice], "usage": usage}).encode()


class FakeModel(asyncio.Protocol):
    """One connection of the fake server; one request at a time, as HTTP/1.1 clients send them.

    ``service_s``: from the whole request to the answer. ``answer``: head and body.
    """

    def __init__(self, service_s: float, answer: bytes) -> None:
        self._service_s = service_s
        self._answer = answer
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer once the whole request is there."""
        self._received += data
        head, found, body = self._received.partition(_END_OF_HEAD)
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if found and len(body) >= int(length or 0):
            self._received = b""
            asyncio.get_running_loop().call_later(self._service_s, self._reply)

    def _reply(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._answer)


async def serve(service_ms: float) -> None:
    """Serve on a free port, which is printed, until killed."""
    body = reply_body()
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: FakeModel(service_ms / 1_000.0, answer), "127.0.0.1", 0, backlog=2 * IN_FLIGHT
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class KeepAll:
    """A calibration under which no query is escalated: one call a query, as in the bare loop."""

    def __init__(self) -> None:
        self._version = CalibrationVersion.sealed(
            workload="photo",
            version=1,
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
            map=CalibrationMap(uncertainty=(0.0, 1.0), error_probability=(0.0, 0.8)),
            uncertainty_threshold=1.0,
            threshold=0.8,
            exploration_probability=0.0,
            label_probability_kept=0.05,
            label_probability_escalated=0.1,
            target=Target(micro_f1=0.9),
            state="active",
            signal=Signal(small_model="small"),
            evidence=Evidence(trigger="bootstrap"),
        )

    def in_force(self, _workload: str) -> CalibrationVersion | None:
        """Return the version."""
        return self._version

    def trial(self, _workload: str) -> None:
        """Return no trial."""


def settings_for(base_url: str) -> Settings:
    """Return settings with one workload whose models are both at this URL."""
    endpoint = {"base_url": base_url, "timeout_s": _TIMEOUT_S, "max_concurrency": IN_FLIGHT}
    photo = {"prompt": "Query: {text}", "fields": list(_FIELDS), "target": {"micro_f1": 0.9}}
    models = {"small": endpoint | {"model": "small"}, "large": endpoint | {"model": "large"}}
    return Settings.model_validate({"workloads": {"photo": photo | models | {"cost": {"small": 1.0, "large": 3.0}}}})


async def closed_loop(call: Callable[[int], Awaitable[None]], seconds: float) -> tuple[float, float]:
    """Keep ``IN_FLIGHT`` calls going; return calls a second and CPU microseconds a call.

    Counts from when every connection is open and has answered twice: opening a thousand is no part of the question.
    """
    done, going = 0, True
    warm = asyncio.Barrier(IN_FLIGHT + 1)

    async def worker(number: int) -> None:
        nonlocal done
        await call(number)
        await warm.wait()
        while going:
            await call(number)
            done += 1

    workers = [asyncio.create_task(worker(number)) for number in range(IN_FLIGHT)]
    await warm.wait()
    while done < IN_FLIGHT:  # noqa: ASYNC110 a count has no event, and one would slow what is measured
        await asyncio.sleep(0.01)
    before, began_s, began_cpu_s = done, time.perf_counter(), cpu_s()
    await asyncio.sleep(seconds)
    calls, took_s, took_cpu_s = done - before, time.perf_counter() - began_s, cpu_s() - began_cpu_s
    going = False
    await asyncio.gather(*workers)
    return calls / took_s, took_cpu_s / calls * 1e6


async def router_round(settings: Settings, seconds: float) -> tuple[float, float]:
    """Measure the router's path."""
    answerer = CascadeAnswerer(settings, KeepAll(), SystemClock(), "bench")
    await answerer.start()

    async def call(number: int) -> None:
        event = await answerer.answer(QueryEvent(query_id=f"q-{number}", text=_TEXT), "photo")
        assert event.answered_by == "small"

    try:
        with as_in_a_router():
            return await closed_loop(call, seconds)
    finally:
        await answerer.close()


async def bare_round(settings: Settings, seconds: float) -> tuple[float, float]:
    """Measure the bare loop."""
    workload = settings.workloads["photo"]
    assert workload.small is not None
    request = build_request(workload, workload.small, _TEXT)
    url = workload.small.base_url + request.path
    headers = {"Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT, keepalive_timeout=4.0)
    async with aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S), headers=headers
    ) as session:

        async def call(_number: int) -> None:
            async with session.post(url, data=request.body) as response:
                document = json.loads(await response.read())
            assert document["choices"][0]["finish_reason"] == "stop"

        return await closed_loop(call, seconds)


def cpu_s() -> float:
    """Return this process's CPU time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(service_ms: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Run both in turn against one server; every second round begins with the bare loop."""
    argv = [sys.executable, "-m", "research.model_calls", "--serve", str(service_ms)]
    found: list[dict[str, float]] = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            settings = settings_for(f"http://127.0.0.1:{int(server.stdout.readline())}/v1")
            for number in range(rounds):
                took: dict[str, tuple[float, float]] = {}
                for which in ("router", "bare") if number % 2 == 0 else ("bare", "router"):
                    run = router_round if which == "router" else bare_round
                    took[which] = asyncio.run(run(settings, seconds))
                router, bare = took["router"], took["bare"]
                found.append(
                    {
                        "router_per_s": router[0],
                        "bare_per_s": bare[0],
                        "speed_ratio": router[0] / bare[0],
                        "router_cpu_us": router[1],
                        "bare_cpu_us": bare[1],
                    }
                )
                print(json.dumps({"service_ms": service_ms, **found[-1]}), file=sys.stderr)
        finally:
            server.kill()
    medians = {key: statistics.median(each[key] for each in found) for key in found[0]}
    busy = medians["router_per_s"] / (IN_FLIGHT / (service_ms / 1_000.0))
    return {"service_ms": service_ms, "in_flight": IN_FLIGHT, "rounds": found, "median": medians, "busy_share": busy}


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description="The router's answering path against a bare aiohttp loop.")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--serve", type=float, metavar="SERVICE_MS", help="be the fake server instead")
    options = parser.parse_args()
    if options.serve is not None:
        asyncio.run(serve(options.serve))
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    rounds, seconds = QUICK if options.quick else FULL
    tell([measure(service_ms, rounds, seconds) for service_ms in SERVICE_MS], options.json)


if __name__ == "__main__":
    main()
