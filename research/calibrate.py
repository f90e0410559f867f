"""What `ucci-stream calibrate` costs beside its model calls, and how many calls a killed run repeats.

One server in a process of its own answers every completion after a fixed time and counts what it is asked. A bare loop
posts the same bodies with as many calls in flight and parses the replies; the command does so from its start to its
outcome, fit and examples included. Then the command is killed half-way (SIGKILL) and run again.

    python -m research.calibrate --lines 2000 --concurrency 32 --service-ms 100 --seed 5
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from research.results_json import tell
from schemas.settings import WorkloadSettings
from schemas.settings_text import load_settings
from stream_router.model_client.http_probe import ROLES
from ucci_stream.offline.model_answers import call_of

_WORKLOAD = "photo"
_CONFIG = """
[workloads.photo]
prompt = "find {{text}}"
fields = ["camera", "lens"]
small = {{ base_url = "{url}", model = "small" }}
large = {{ base_url = "{url}", model = "large" }}
target = {{ micro_f1 = 0.9 }}
cost = {{ small = 1.0, large = 3.0 }}
"""
_EXACT = {"small": 200, "large": 245}
"""Of 256 answers of each model, how many are right."""


class CountingModels:
    """Both models behind one server; an answer depends on the request alone.

    ``service_s``: from the request to the answer.
    """

    def __init__(self, service_s: float) -> None:
        self._service_s = service_s
        self._seen: Counter[bytes] = Counter()

    async def complete(self, request: web.Request) -> web.Response:
        """Answer ``POST /v1/completions``."""
        body = await request.read()
        self._seen[sha256(body).digest()] += 1
        asked = json.loads(body)
        text, drawn = asked["prompt"].removeprefix("find "), sha256(body).digest()
        is_right = drawn[0] < _EXACT[asked["model"]]
        first = -0.001 - (drawn[1] / 2_000 if is_right else drawn[1] / 400)
        entities = {"camera": text if is_right else "other", "lens": None}
        token = {
            "tokens": ["t"],
            "token_logprobs": [first],
            "top_logprobs": [{"t": first, "u": -3.0 - drawn[2] / 50}],
        }
        await asyncio.sleep(self._service_s)
        choice = {"text": json.dumps(entities), "finish_reason": "stop", "logprobs": token}
        return web.json_response({"choices": [choice], "usage": {"completion_tokens": 1}})

    async def models(self, _request: web.Request) -> web.Response:
        """Answer ``GET /v1/models``."""
        return web.json_response({"data": [{"id": role} for role in ROLES]})

    async def count(self, _request: web.Request) -> web.Response:
        """Answer ``GET /count``, and count anew."""
        calls, distinct = self._seen.total(), len(self._seen)
        self._seen.clear()
        return web.json_response({"calls": calls, "repeated": calls - distinct})


def serve(service_ms: float) -> None:
    """Serve on a free port, which is printed, until killed."""
    models, app = CountingModels(service_ms / 1_000.0), web.Application()
    app.add_routes(
        [
            web.post("/v1/completions", models.complete),
            web.get("/v1/models", models.models),
            web.get("/count", models.count),
        ]
    )

    async def run() -> None:
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


@contextmanager
def server(service_ms: float) -> Iterator[str]:
    """Run the server in a process of its own; yields its root."""
    argv = [sys.executable, "-m", "research.calibrate", "--serve", str(service_ms)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def counted(root: str) -> dict[str, int]:
    """Return what was asked since the last call."""
    with urllib.request.urlopen(f"{root}/count", timeout=30) as answer:
        return dict(json.load(answer))


async def bare_loop(workload: WorkloadSettings, texts: list[str], root: str, concurrency: int) -> float:
    """Ask both models about all texts, so many calls of each in flight; returns the seconds that it took."""
    connector = aiohttp.TCPConnector(limit=2 * concurrency)
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def work(left: Iterator[tuple[str, bytes]]) -> None:
            for path, body in left:
                async with session.post(f"{root}/v1{path}", data=body) as response:
                    json.loads(await response.read())

        began_s = time.perf_counter()
        async with asyncio.TaskGroup() as workers:
            for role in ROLES:
                requests = [call_of(workload, role, text).request for text in texts]
                left = iter([(request.path, request.body) for request in requests])
                for _ in range(concurrency):
                    workers.create_task(work(left))
        return time.perf_counter() - began_s


def command(concurrency: int) -> list[str]:
    """Return the command, which publishes nothing."""
    words = ["calibrate", "gold.jsonl", "--workload", _WORKLOAD, "--config", "ucci.toml", "--no-publish", "--json"]
    return [sys.executable, "-m", "ucci_stream", *words, "--concurrency", str(concurrency)]


def run_command(folder: Path, concurrency: int, *, kill_at: int | None = None) -> float:
    """Run the command, killed once so many answers are kept; returns the seconds that it took."""
    answers, began_s = folder / f"gold.{_WORKLOAD}.answers.jsonl", time.perf_counter()
    with subprocess.Popen(command(concurrency), cwd=folder, stdout=subprocess.DEVNULL) as process:
        while kill_at is not None and process.poll() is None:
            if answers.exists() and answers.read_bytes().count(b"\n") >= kill_at:
                process.kill()
            time.sleep(0.01)
    if kill_at is None and process.returncode:
        raise SystemExit(process.returncode)
    return time.perf_counter() - began_s


def measure(lines: int, concurrency: int, service_ms: float, seed: int) -> dict[str, Any]:
    """Measure the bare loop, the command, and the command killed and run again."""
    rng = random.Random(seed)
    texts = [f"camera {rng.getrandbits(48):012x}" for _ in range(lines)]
    with tempfile.TemporaryDirectory() as made, server(service_ms) as root:
        folder = Path(made)
        gold = (json.dumps({"text": text, "entities": {"camera": text}}) for text in texts)
        (folder / "gold.jsonl").write_text("\n".join(gold), encoding="utf-8")
        (folder / "ucci.toml").write_text(_CONFIG.format(url=f"{root}/v1"), encoding="utf-8")
        workload = load_settings(folder / "ucci.toml", {}).workloads[_WORKLOAD]
        bare_s = asyncio.run(bare_loop(workload, texts, root, concurrency))
        counted(root)
        whole_s = run_command(folder, concurrency)
        asked = counted(root)
        again_s = run_command(folder, concurrency)
        asked_again = counted(root)
        (folder / f"gold.{_WORKLOAD}.answers.jsonl").unlink()
        killed_s = run_command(folder, concurrency, kill_at=lines)
        resumed_s = run_command(folder, concurrency)
        resumed = counted(root)
    return {
        "lines": lines,
        "concurrency": concurrency,
        "service_ms": service_ms,
        "bare_loop_s": bare_s,
        "calibrate_s": whole_s,
        "ratio": whole_s / bare_s,
        "calls": asked,
        "all_known_s": again_s,
        "calls_all_known": asked_again,
        "killed_and_resumed_s": killed_s + resumed_s,
        "calls_killed_and_resumed": resumed,
    }


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(description="`calibrate` against a bare loop of the same model calls.")
    parser.add_argument("--lines", type=int, default=2_000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--service-ms", type=float, default=100.0)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--serve", type=float, metavar="SERVICE_MS", help="be the server instead")
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve)
        return
    tell(measure(options.lines, options.concurrency, options.service_ms, options.seed), options.json)


if __name__ == "__main__":
    main()
