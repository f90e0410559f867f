"""What streaming costs the router: CPU time a query with whole replies, and with streams.

One fake server, in a process of its own, gives every answer in half a second: whole at its end, or a token at a time,
as servers do. The router keeps all queries; the ratio is within a round, and the median of rounds counts.

    python -m benchmarks.streamed_calls --json streamed_calls.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import structlog

from benchmarks.model_calls import TOKENS, FakeModel, KeepAll, cpu_s, reply_body
from benchmarks.results_json import tell
from schemas.query import QueryEvent
from schemas.settings import Settings
from stream_router.cascade.answerer import CascadeAnswerer
from ucci_runtime.process import SystemClock

IN_FLIGHT = 50
SERVICE_S = 0.5
ROUNDS, QUERIES = 5, 500
_TEXT = "canon 5d mark iv with the 70-200 at f2.8 and 1/250, iso 400, shot in the evening"
_STREAMS = b'"stream":true'


WAYS = {"whole": False, "streamed": True}


def events() -> list[bytes]:
    """Return a streamed answer as the chunks of an HTTP body, a token each, as vLLM sends them."""
    whole = json.loads(reply_body())
    (choice,) = whole.pop("choices")
    text, logprobs = choice["text"], choice["logprobs"]
    size = -(-len(text) // TOKENS)
    chunks = []
    for place in range(TOKENS):
        part = {name: values[place : place + 1] for name, values in logprobs.items()}
        reason = "stop" if place == TOKENS - 1 else None
        new = {"index": 0, "text": text[place * size : (place + 1) * size], "logprobs": part, "finish_reason": reason}
        chunks.append(b"data: " + json.dumps(whole | {"choices": [new], "usage": None}).encode() + b"\n\n")
    chunks.append(b"data: " + json.dumps(whole | {"choices": []}).encode() + b"\n\ndata: [DONE]\n\n")
    return [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks]


class StreamingModel(FakeModel):
    """One connection of the fake server, which streams where that is asked for.

    Parameters
    ----------
    answer : bytes
        Head and body of a whole answer.
    chunks : list of bytes
        Of a streamed one.
    """

    def __init__(self, answer: bytes, chunks: list[bytes]) -> None:
        super().__init__(SERVICE_S, answer)
        self._chunks = chunks
        self._is_streamed = False

    def data_received(self, data: bytes) -> None:
        """Answer once the whole request is there."""
        self._is_streamed = _STREAMS in self._received + data
        self._service_s = 0.0 if self._is_streamed else SERVICE_S
        super().data_received(data)

    def _reply(self) -> None:
        if not self._is_streamed:
            super()._reply()
        elif self._transport is not None and not self._transport.is_closing():
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            self._transport.write(head + self._chunks[0])
            self._stream(1)

    def _stream(self, place: int) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if place == len(self._chunks):
            self._transport.write(b"0\r\n\r\n")
            return
        self._transport.write(self._chunks[place])
        asyncio.get_running_loop().call_later(SERVICE_S / len(self._chunks), self._stream, place + 1)


async def serve() -> None:
    """Serve on a free port, which is printed, until killed."""
    body, chunks = reply_body(), events()
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: StreamingModel(answer, chunks), "127.0.0.1", 0, backlog=2 * IN_FLIGHT)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def settings_for(base_url: str, *, streams: bool) -> Settings:
    """Return settings with one workload whose models are both at this URL."""
    endpoint = {"base_url": base_url, "timeout_s": 60.0, "max_concurrency": 2 * IN_FLIGHT}
    fields = ["camera", "lens", "aperture", "shutter_speed", "iso", "focal_length"]
    photo = {"prompt": "Query: {text}", "fields": fields, "target": {"micro_f1": 0.9}, "field_margins": streams}
    models = {"small": endpoint | {"model": "small"}, "large": endpoint | {"model": "large"}}
    return Settings.model_validate({"workloads": {"photo": photo | models | {"cost": {"small": 1.0, "large": 3.0}}}})


async def cpu_us(base_url: str, *, streams: bool) -> float:
    """Return the router's CPU microseconds a query; its connections are open and its limits learnt before."""
    answerer = CascadeAnswerer(settings_for(base_url, streams=streams), KeepAll(), SystemClock(), "bench")
    await answerer.start()
    ids = map("q-{}".format, count())

    async def worker(queries: int) -> None:
        for _ in range(queries):
            await answerer.answer(QueryEvent(query_id=next(ids), text=_TEXT), "photo")

    try:
        await asyncio.gather(*(worker(3) for _ in range(IN_FLIGHT)))
        began_s = cpu_s()
        await asyncio.gather(*(worker(QUERIES // IN_FLIGHT) for _ in range(IN_FLIGHT)))
        return (cpu_s() - began_s) / QUERIES * 1e6
    finally:
        await answerer.close()


def measure() -> dict[str, Any]:
    """Run all ways in turn against one server."""
    argv = [sys.executable, "-m", "benchmarks.streamed_calls", "--serve"]
    rounds: list[dict[str, float]] = []
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            base_url = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
            for _ in range(ROUNDS):
                rounds.append({name: asyncio.run(cpu_us(base_url, streams=streams)) for name, streams in WAYS.items()})
                print(json.dumps(rounds[-1]), file=sys.stderr)
        finally:
            server.kill()
    ratio = statistics.median(one["streamed"] / one["whole"] for one in rounds)
    medians = {name: statistics.median(one[name] for one in rounds) for name in WAYS}
    return {"in_flight": IN_FLIGHT, "tokens": TOKENS, "rounds": rounds, "median_cpu_us": medians, "ratio": ratio}


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description="What streaming costs the router.")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--serve", action="store_true", help="be the fake server instead")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    tell([measure()], options.json)


if __name__ == "__main__":
    main()
