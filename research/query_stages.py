"""Where the router's time goes for one query: each stage alone, in the fastest of many short rounds.

A round is short enough to fall between two moments in which a busy machine runs something else, so that these figures
hold on a shared one; their sum is what the event loop and the ledger take, without Kafka's client.

    python -m research.query_stages --json query_stages.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

from research.model_calls import TOKENS, KeepAll, reply_body, settings_for
from research.results_json import tell
from research.router import _ROUTED_AT, _TEXT
from schemas.event import refuse_duplicate_keys
from schemas.query import QueryEvent
from stream_router.cascade.lever import Asked, RunEnd
from stream_router.cascade.query_cascade import QueryCascade
from stream_router.commit.done_offsets import CommittedOffsets
from stream_router.commit.outcome import Outcome, OutputTopics
from stream_router.commit.shared_ledger import SharedLedger
from stream_router.intake_thread import decode_query
from stream_router.model_client.answer import field_margins, parse_answer
from stream_router.model_client.reply import read_reply
from stream_router.model_client.request import build_request
from stream_router.model_client.uncertainty import TOKEN_MARGIN
from stream_router.ports import TokenMark
from ucci_runtime.broker.records import Input, Record

CALLS = 5
FULL, QUICK = 5_000, 500


def microseconds(call: Callable[[], object], rounds: int) -> float:
    """Return the time of one call in the fastest of so many rounds."""
    least = float("inf")
    for _ in range(rounds):
        began_s = time.perf_counter()
        for _ in range(CALLS):
            call()
        least = min(least, time.perf_counter() - began_s)
    return round(least / CALLS * 1e6, 2)


def task_us(rounds: int) -> float:
    """Return what a task of the event loop costs that ends at once."""

    async def nothing() -> None:
        pass

    async def fastest() -> float:
        least = float("inf")
        for _ in range(rounds):
            began_s = time.perf_counter()
            tasks = [asyncio.create_task(nothing()) for _ in range(CALLS)]
            await asyncio.sleep(0)
            least = min(least, time.perf_counter() - began_s)
            assert tasks[-1].done()
        return round(least / CALLS * 1e6, 2)

    return asyncio.run(fastest())


def ledger_us(outcome: Outcome, rounds: int) -> float:
    """Return what the ledger takes for a query, from delivery to commit, in batches of ``CALLS``."""
    outcomes = [outcome._replace(source=outcome.source._replace(offset=offset)) for offset in range(CALLS)]
    least = float("inf")
    for _ in range(rounds):
        ledger = SharedLedger(2 * CALLS)
        ledger.assigned({0: CommittedOffsets(0)}, None)
        began_s = time.perf_counter()
        ledger.delivered([one.source for one in outcomes], None)
        for one in outcomes:
            ledger.finished(one)
        taken = ledger.take()
        assert taken is not None
        taken.committed()
        least = min(least, time.perf_counter() - began_s)
    return round(least / CALLS * 1e6, 2)


def measure(rounds: int) -> dict[str, float]:
    """Measure each stage."""
    workload = settings_for("http://127.0.0.1:9/v1").workloads["photo"]
    small, costs = workload.small, workload.cost
    assert small is not None
    assert costs is not None
    version = KeepAll().in_force("photo")
    value, body = json.dumps({"query_id": "q-1", "text": _TEXT}).encode(), reply_body()
    query, record = QueryEvent.from_json(value), Record(Input("queries", 0), 0, b"q-1", value)
    reply = read_reply(body, TOKEN_MARGIN)
    run = parse_answer("small", reply, workload.fields, 0.1)
    marks = [TokenMark(at * len(reply.text) // TOKENS, 0.97) for at in range(TOKENS)]
    outputs = OutputTopics("results", "dead-letters")

    def cascade() -> QueryCascade:
        decided = QueryCascade(query, workload)
        decided.small_ended(Asked(run, RunEnd.VALID), version, _ROUTED_AT)
        return decided

    routed = cascade().result("small", costs, "router-0")
    outcome = Outcome(record, outputs.result(record, routed), ("photo", "small", "kept"))
    stages: dict[str, Callable[[], object]] = {
        "decode the query": lambda: decode_query(value, ("photo",)),
        "of it, look for doubled keys": lambda: refuse_duplicate_keys(value),
        "build the request": lambda: build_request(workload, small, _TEXT),
        "read the reply, 50 tokens": lambda: read_reply(body, TOKEN_MARGIN),
        "the bare loop's json.loads of it": lambda: json.loads(body),
        "parse the answer": lambda: parse_answer("small", reply, workload.fields, 0.1),
        "of a streamed answer, its fields' margins": lambda: field_margins(reply.text, marks, workload.fields),
        "decide, and make the result": lambda: cascade().result("small", costs, "router-0"),
        "write the result": lambda: outputs.result(record, routed),
        "of it, as model_dump_json().encode()": lambda: routed.model_dump_json().encode(),
        "of it, to_json()": routed.to_json,
    }
    found = {name: microseconds(stage, rounds) for name, stage in stages.items()}
    return found | {"a task of the loop": task_us(rounds), "the ledger": ledger_us(outcome, rounds)}


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m research.query_stages", description="One query, by stages.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, for a first look")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    tell({"microseconds": measure(QUICK if options.quick else FULL)}, options.json)


if __name__ == "__main__":
    main()
