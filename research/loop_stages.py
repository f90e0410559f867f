"""Where the event loop's CPU goes for a query without model calls, in batches as they come from Kafka, all of it.

40,000 records run through the router's own loop and ledger, 500 at a time, and are taken for a commit 4,000 at a time.
One step after the other is replaced by what does nothing, and the difference is its cost: where thousands of queries
are alive at once, a step takes up to twice what it takes alone. Kafka's client and the
threads beside the loop are not in it: ``research.router`` tells their CPU by thread.

    python -m research.loop_stages --json loop_stages.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from research.results_json import tell
from research.router import _TEXT, InstantAnswerer, router_settings
from research.router_process import as_in_a_router
from schemas.routed import QueryEvent, RoutedEvent
from stream_router import query_loop
from stream_router.commit.done_offsets import CommittedOffsets
from stream_router.commit.outcome import OutputTopics
from stream_router.commit.shared_ledger import SharedLedger
from stream_router.otel_tracing import Tracing
from stream_router.prometheus_metrics import Metrics
from stream_router.query_loop import QueryLoop
from ucci_runtime.broker.records import Header, Input, OutputRecord, Record
from ucci_runtime.process import SystemClock

RECORDS, BATCH, TICK = 40_000, 500, 4_000
PARTITIONS = 4
FULL, QUICK = 7, 3
_OUTPUTS = OutputTopics("results", "dead-letters")
_SOURCES = [Input("queries", partition) for partition in range(PARTITIONS)]


class _NoAnswer(InstantAnswerer):
    """Returns one result for all queries."""

    same: RoutedEvent

    async def answer(self, query: QueryEvent, workload: str, headers: Mapping[str, str] | None = None) -> RoutedEvent:  # noqa: ARG002 part of the protocol
        """Return it."""
        return self.same


class _NoWriting(OutputTopics):
    """Returns one record for all results."""

    def result(self, source: Record, routed: RoutedEvent, trace: tuple[Header, ...] = ()) -> OutputRecord:  # noqa: ARG002 part of the protocol
        """Return it."""
        return _SAME_RECORD


_SAME_RECORD = OutputRecord("results", b"q", b"{}")


async def run(
    values: list[bytes], answerer: InstantAnswerer, outputs: OutputTopics, *, with_ledger: bool
) -> dict[str, float]:
    """Return the CPU microseconds a record of the loop and of the ledger's steps in other threads."""
    ledger, sink = SharedLedger(RECORDS), list[object]()
    ledger.assigned({partition: CommittedOffsets(0) for partition in range(PARTITIONS)}, None)
    finished = ledger.finished if with_ledger else sink.append
    loop = QueryLoop(answerer, ["photo"], outputs=outputs, finished=finished, tracing=Tracing())
    used = dict.fromkeys(("loop", "delivered", "take", "committed"), 0.0)

    def spent(name: str, since_s: float) -> None:
        used[name] += (time.thread_time() - since_s) / len(values) * 1e6

    for first in range(0, len(values), BATCH):
        numbers = range(first, first + BATCH)
        records = [
            Record(_SOURCES[n % PARTITIONS], n // PARTITIONS, b"q%d" % n, values[n], 1_700_000_000_000) for n in numbers
        ]
        began_s = time.thread_time()
        if with_ledger:
            records = ledger.delivered(records, None)
        spent("delivered", began_s)
        began_s = time.thread_time()
        loop.take(records)
        while loop._tasks:  # noqa: ASYNC110, SLF001 the loop says nowhere that it has nothing to do
            await asyncio.sleep(0)
        spent("loop", began_s)
        if (first + BATCH) % TICK == 0 and with_ledger:
            began_s = time.thread_time()
            taken = ledger.take()
            spent("take", began_s)
            assert taken is not None
            began_s = time.thread_time()
            ledger.ended(taken.batch)
            spent("committed", began_s)
        elif (first + BATCH) % TICK == 0:
            sink.clear()
    return used


def measure(rounds: int) -> dict[str, float]:
    """Measure each step by what its absence saves, in the round that took least."""
    values = [json.dumps({"query_id": f"q{n}", "text": _TEXT}).encode() for n in range(RECORDS)]
    settings = router_settings("127.0.0.1:9", "bench")
    made: tuple[Any, ...] = (settings, None, SystemClock(), Metrics())
    answerer, same = InstantAnswerer(*made), _NoAnswer(*made)
    query = query_loop.decode_query(values[0], ("photo",))
    same.same = asyncio.run(answerer.answer(*query))

    def least(answerer: InstantAnswerer, outputs: OutputTopics, *, with_ledger: bool = False) -> dict[str, float]:
        with as_in_a_router():
            found = [asyncio.run(run(values, answerer, outputs, with_ledger=with_ledger)) for _ in range(rounds)]
        return min(found, key=lambda used: used["loop"])

    whole = least(answerer, _OUTPUTS, with_ledger=True)
    no_ledger = least(answerer, _OUTPUTS)["loop"]
    no_answer = least(same, _OUTPUTS)["loop"]
    no_writing = least(same, _NoWriting(*_OUTPUTS))["loop"]
    with patch.object(query_loop, "decode_query", lambda *_: query):
        no_decoding = least(same, _NoWriting(*_OUTPUTS))["loop"]
    steps = {
        "decode the query": no_writing - no_decoding,
        "a task, its place in the table, the trace context": no_decoding,
        "make the result: five pydantic models": no_ledger - no_answer,
        "write it: JSON and a record": no_answer - no_writing,
        "the ledger: finished": whole["loop"] - no_ledger,
        "the whole in the loop": whole["loop"],
        "the ledger: delivered (intake's thread)": whole["delivered"],
        "the ledger: taken and committed (commit's thread)": whole["take"] + whole["committed"],
    }
    return {name: round(us, 2) for name, us in steps.items()}


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m research.loop_stages", description="The loop, step by step.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, for a first look")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    tell({"microseconds": measure(QUICK if options.quick else FULL)}, options.json)


if __name__ == "__main__":
    main()
