"""What 10,000 malformed requests, and bodies of 100 MB, do to the memory of a serving process.

A local Kafka broker and ``recalibrator run --stage api`` as a process; every route that takes a body is sent what a
broken, careless or hostile sender may put into it (``tests/support/malformed_bodies.py``), then bodies of 100 MB with
and without a declared length. Told are the answers by status and the resident memory before, after and at its peak.

    python -m research.malformed --seed 7 --json malformed.json
"""

from __future__ import annotations

import argparse
import http.client
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from research.feedback import serving
from research.results_json import tell
from schemas.settings import Settings
from tests.support.malformed_bodies import MalformedRequest, malformed_requests
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.topics.admin import create_topics

FULL, QUICK = 10_000, 1_000
PARTS = 4
"""Memory is told after each, so that a leak would show as a slope."""

HUGE_BYTES = 100_000_000
HUGE_REQUESTS = 5
_WARM_UP = 300
_PIECE = b"x" * 65_536
_PATIENCE_S = 60.0


def memory_mb(pid: int) -> dict[str, float]:
    """Return the resident memory of a process and its peak, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    found = {line.split()[0]: int(line.split()[1]) / 1_000 for line in lines if line.startswith("Vm")}
    return {"resident": round(found["VmRSS:"], 1), "peak": round(found["VmHWM:"], 1)}


def send(connection: http.client.HTTPConnection, request: MalformedRequest) -> int:
    """Return the status of the answer."""
    whole = isinstance(request.body, bytes)
    headers = {name: value.encode("latin-1") for name, value in request.headers.items()}
    body: Any = request.body if whole else iter(request.body)
    connection.request("POST", request.path, body, headers, encode_chunked=not whole)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def huge(path: str, media_type: str, *, declared: bool) -> MalformedRequest:
    """Return a request with a body of 100 MB."""
    pieces = tuple(_PIECE for _ in range(HUGE_BYTES // len(_PIECE)))
    return MalformedRequest(path, {"Content-Type": media_type}, b"".join(pieces) if declared else pieces, "huge")


def huge_requests() -> Iterator[MalformedRequest]:
    """Yield them for one event and for batches."""
    for path, media_type in (("/v1/feedback", "application/json"), ("/v1/feedback:batch", "application/jsonl")):
        for number in range(2 * HUGE_REQUESTS):
            yield huge(path, media_type, declared=number % 2 == 0)


def measure(seed: int, requests: int) -> dict[str, Any]:
    """Return answers by status, and memory before, after and at its peak."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with LocalBroker(directory / "kafka") as broker:
            create_topics(Settings.model_validate({"kafka": {"bootstrap.servers": broker.bootstrap}}))
            with serving(directory, broker.bootstrap) as (port, pid):
                # What is made once, such as the first answer of each route, is no growth.
                answered(port, malformed_requests(seed + 1, _WARM_UP))
                before = memory_mb(pid)
                malformed: Counter[str] = Counter()
                after = []
                for part in range(PARTS):
                    malformed.update(answered(port, malformed_requests(seed + 2 + part, requests // PARTS)))
                    after.append(memory_mb(pid))
                oversized = answered(port, huge_requests())
                return {
                    "requests": requests,
                    "answers": dict(sorted(malformed.items())),
                    "answers_to_100_mb": oversized,
                    "memory_mb": {"before": before, "after_each_quarter": after, "after_100_mb": memory_mb(pid)},
                }


def answered(port: int, requests: Iterator[MalformedRequest]) -> dict[str, int]:
    """Send all, one after another, and return the answers by status."""
    statuses: Counter[int] = Counter()
    for request in requests:
        # Of its own: after a refusal the rest of the body still lies in the old one.
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
        statuses[send(connection, request)] += 1
        connection.close()
    return {str(status): times for status, times in sorted(statuses.items())}


def main() -> int:
    """Measure and write JSON; exit code 1 when one was answered with a 5xx."""
    parser = argparse.ArgumentParser(
        prog="python -m research.malformed",
        description="What 10,000 malformed requests, and bodies of 100 MB, do to the memory of a serving process.",
        epilog="Example: python -m research.malformed --seed 7 --json malformed.json",
    )
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK:,} requests rather than {FULL:,}")
    parser.add_argument("--seed", type=int, default=7, help="of the requests; 7 by default")
    options = parser.parse_args()
    numbers = measure(options.seed, QUICK if options.quick else FULL)
    tell(numbers, options.json)
    return 1 if any(status.startswith("5") for status in numbers["answers"] | numbers["answers_to_100_mb"]) else 0


if __name__ == "__main__":
    raise SystemExit(main())
