"""What 1, 2 and 4 routers carry on this machine, and what that makes of a rate that no such machine carries.

Routers run as processes of one group on one broker, over the same records, and answer by a function that returns at
once: what is measured is everything but the models. A run's rate is taken while all of its routers work. On a machine
with fewer cores than processes the curve is that of the cores: from the CPU time a query of router and broker when one
router runs, ``cores / (router + broker)`` is the most that any number of routers can reach there, and ``n`` times one
router's rate the most that n can. The lesser of the two is the prediction that each run is held against.

``--plan RATE`` needs no broker: it prints what a rate of queries a second takes, by the costs measured here.

    python -m research.scale --json scale.json --quick
    python -m research.scale --plan 100000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, Self

import structlog

from research.results_json import tell
from research.router import InstantAnswerer, cpu_s, fill, router_settings
from stream_router.service import Service
from ucci_runtime.broker.kafka_broker import kafka_connect
from ucci_stream.local.kafka_node import LocalBroker

ROUTERS = (1, 2, 4)
FULL = 100_000
QUICK = 30_000
_SAMPLE_S = 0.1
_WAIT_S = 150.0
_END_S = 20.0
_DRAINED = 0.9
"""Share of the records up to which all routers count as busy."""

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Sample(NamedTuple):
    """What one process has done by one moment: results committed and seconds of CPU."""

    at_s: float
    results: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """What a group of routers does while all of them work.

    ``per_s``: results a second of all. ``router_us``, ``broker_us``: CPU time a result, in microseconds, of the routers
    and of the broker.
    """

    per_s: float
    router_us: float
    broker_us: float


def load(routers: Sequence[Sequence[Sample]], broker: Sequence[Sample], records: int) -> Load:
    """Return what was done between the first results of the last router and nine tenths of the records.

    ``routers``: increasing in time, of each router. ``broker``: of the broker, whose results do not count.

    Raises ValueError if the last router began when the others were all but done: more records are needed.
    """
    began_s = max(next((sample.at_s for sample in samples if sample.results), math.inf) for samples in routers)
    moments = sorted({sample.at_s for samples in routers for sample in samples if sample.at_s >= began_s})
    busy = [at_s for at_s in moments if sum(_at(samples, at_s).results for samples in routers) <= _DRAINED * records]
    if len(busy) < 2:
        raise ValueError(f"{records} records are too few for {len(routers)} routers: the last came too late")
    first_s, last_s = busy[0], busy[-1]

    def grown(samples: Sequence[Sample]) -> tuple[int, float]:
        first, last = _at(samples, first_s), _at(samples, last_s)
        return last.results - first.results, last.cpu_s - first.cpu_s

    each = [grown(samples) for samples in routers]
    results = sum(count for count, _ in each)
    used_s = sum(seconds for _, seconds in each)
    return Load(results / (last_s - first_s), used_s / results * 1e6, grown(broker)[1] / results * 1e6)


def _at(samples: Sequence[Sample], at_s: float) -> Sample:
    """Return the last sample by a moment; nothing is done before the first."""
    return next((one for one in reversed(samples) if one.at_s <= at_s), samples[0])


def predicted(one: Load, routers: int, cores: int) -> float:
    """Return the most results a second that so many routers reach, by what one does alone.

    Examples
    --------
    >>> one = Load(per_s=10_000.0, router_us=60.0, broker_us=20.0)
    >>> predicted(one, 2, cores=2), predicted(one, 4, cores=2), predicted(one, 4, cores=16)
    (20000.0, 25000.0, 40000.0)
    """
    return min(routers * one.per_s, cores / (one.router_us + one.broker_us) * 1e6)


@dataclass(frozen=True, slots=True)
class Costs:
    """What one query costs each part; measured on 2 virtual cores, each by the command named.

    ``router_us``: CPU of the router beside its model calls: ``python -m research.router``. ``call_us``: CPU of the
    router a model call: ``python -m research.model_calls``. ``broker_us``: CPU of the broker a query, read and
    answered: this benchmark. ``join_per_s``: results a second that one join stores: ``python -m research.join_rows``.
    ``fit_label_us``: CPU of the fit a label: 25 to fold it in, refits included (``observe_labels_alone`` of ``python -m
    research.core``), and 15 to decode its record. ``query_bytes``, ``result_bytes``: of one record.
    """

    router_us: float = 37.5
    call_us: float = 180.0
    broker_us: float = 25.0
    join_per_s: float = 4_700.0
    fit_label_us: float = 40.0
    query_bytes: float = 300.0
    result_bytes: float = 1_100.0


def plan(
    per_s: float,
    costs: Costs,
    *,
    escalated: float = 0.3,
    labelled: float = 0.05,
    utilisation: float = 0.6,
    replicas: int = 3,
    workloads: int = 1,
) -> Mapping[str, float]:
    """Return what a rate of queries takes, on paper.

    ``per_s``: queries a second of all workloads together. ``escalated``, ``labelled``: shares of queries that call the
    large model as well, and that are labelled. ``utilisation``: share of a core that is planned with: the rest is for
    rebalances, restarts and peaks. ``replicas``: copies that the brokers keep of each record. ``workloads``: A fit
    takes all of a workload, and no less.

    Returns ``routers`` of one core each; ``partitions`` of the queries topic, a quarter more than routers, in steps of
    8; ``broker_cores`` for records and their copies (a copy counts half); ``in_mb_per_s`` and ``out_mb_per_s`` of all
    brokers; ``joins``; ``fit_load``, the share of one core that the busiest workload's labels take.
    """
    routers = math.ceil(per_s * (costs.router_us + costs.call_us * (1.0 + escalated)) / 1e6 / utilisation)
    record_bytes = costs.query_bytes + costs.result_bytes
    # Results are read twice: by the pipeline's owner and by the join.
    out_bytes = costs.query_bytes + 2.0 * costs.result_bytes + (replicas - 1) * record_bytes
    return {
        "routers": routers,
        "partitions": 8 * math.ceil(1.25 * routers / 8),
        "broker_cores": math.ceil(per_s * costs.broker_us / 1e6 * (1.0 + (replicas - 1) / 2.0) / utilisation),
        "in_mb_per_s": round(per_s * record_bytes * replicas / 1e6, 1),
        "out_mb_per_s": round(per_s * out_bytes / 1e6, 1),
        "joins": math.ceil(per_s / costs.join_per_s / utilisation),
        "fit_load": round(per_s / workloads * labelled * costs.fit_label_us / 1e6, 3),
    }


async def route(bootstrap: str, prefix: str, number: int) -> None:
    """Be one router until standard input ends; print what is done by then, again and again."""
    settings = router_settings(bootstrap, prefix, f"router-{number}")
    service = Service(settings, kafka_connect(settings, "router"), InstantAnswerer)
    task = asyncio.create_task(service.run())
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    while not task.done() and not ended.done():
        print(json.dumps([time.monotonic(), service.metrics.totals().get("results", 0), cpu_s()]), flush=True)
        await asyncio.sleep(_SAMPLE_S)
    service.end()
    await task


class RouterProcess:
    """One router as a child process, and what it has said; a context manager."""

    def __init__(self, bootstrap: str, prefix: str, number: int) -> None:
        argv = [sys.executable, "-m", "research.scale", "--router", bootstrap, prefix, str(number)]
        self.samples: list[Sample] = []
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the router in good order, or kill it where that takes too long."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_S)
        self._reader.join(_END_S)

    @property
    def results(self) -> int:
        """Committed by now."""
        if self._process.poll() is not None:
            raise RuntimeError(f"a router ended with exit code {self._process.returncode}")
        return self.samples[-1].results if self.samples else 0

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.samples.append(Sample(*json.loads(line)))


def process_cpu_s(pid: int) -> float:
    """Return the CPU time of a process, in seconds (Linux: fields 14 and 15 of ``/proc/PID/stat``)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def run(broker: LocalBroker, routers: int, records: int) -> Load:
    """Have so many routers answer the records."""
    prefix = f"bench-{uuid.uuid4().hex[:8]}"
    fill(broker.bootstrap, prefix, records, [])
    of_broker: list[Sample] = []
    deadline_s = time.monotonic() + _WAIT_S
    with ExitStack() as stack:
        group = [stack.enter_context(RouterProcess(broker.bootstrap, prefix, n)) for n in range(routers)]
        while sum(router.results for router in group) < records:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{routers} routers did not answer {records} records within {_WAIT_S:g} s")
            of_broker.append(Sample(time.monotonic(), 0, process_cpu_s(broker.pid)))
            time.sleep(_SAMPLE_S)
        of_broker.append(Sample(time.monotonic(), 0, process_cpu_s(broker.pid)))
    return load([router.samples for router in group], of_broker, records)


def measure(records: int, rounds: int) -> dict[str, Any]:
    """Run every number of routers in turn, in rounds; each is held against the single router of its round."""
    cores = len(os.sched_getaffinity(0))
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory, LocalBroker(Path(directory)) as broker:
        run(broker, 1, records)  # the broker's first records are its slowest
        for _ in range(rounds):
            loads = {routers: run(broker, routers, records * routers) for routers in ROUTERS}
            for routers, one in loads.items():
                by_paper = predicted(loads[1], routers, cores)
                found.append({"routers": routers, **asdict(one), "predicted_per_s": by_paper})
                found[-1] |= {"to_one": one.per_s / loads[1].per_s, "to_predicted": one.per_s / by_paper}
                print(json.dumps(found[-1]), file=sys.stderr)
    return {"cores": cores, "records_a_router": records, "runs": found}


def main() -> None:
    """Measure or plan, and write JSON."""
    parser = argparse.ArgumentParser(prog="python -m research.scale", description="Routers, from 1 to 4.")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--quick", action="store_true", help="fewer records and rounds")
    parser.add_argument("--plan", type=float, metavar="RATE", help="print what so many queries a second take")
    parser.add_argument("--router", nargs=3, metavar=("BOOTSTRAP", "PREFIX", "NUMBER"), help="be one router instead")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    if options.router is not None:
        bootstrap, prefix, number = options.router
        asyncio.run(route(bootstrap, prefix, int(number)))
    elif options.plan is not None:
        tell({"per_s": options.plan, "costs": asdict(Costs()), "needs": plan(options.plan, Costs())}, options.json)
    else:
        tell(measure(QUICK if options.quick else FULL, 1 if options.quick else 3), options.json)


if __name__ == "__main__":
    main()
