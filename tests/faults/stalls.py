"""Brokers that stand still: how long each service takes to come back, and what `/healthz` says meanwhile.

The broker of a whole service under steady traffic is stopped (SIGSTOP) for seconds to a minute, with the time-outs that
the product has by default. Several services run at once, each with a broker of its own: a pause costs no CPU.

Example: python -m tests.faults.stalls --pauses 200 --parallel 4
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from tests.faults.arena import SESSION_S, Arena, arena
from tests.faults.report import machine_class
from tests.faults.worker import Worker
from tests.support.broker import add_properties
from tests.support.checkout import ROOT
from tests.support.probes import asked
from tests.support.replicated_broker import three_brokers
from ucci_stream.local.kafka_node import LocalBroker, pick_port

SESSION_DEFAULT_S = 20.0
RATE = 5.0
#: After which a service counts as one that does not come back.
BACK_S = 90.0

#: Lengths of pauses; half of them are of those after which services were seen to stay away or to end: around the
#: broker's session of 9 s, and as a member rejoins after its own of 20 s.
BOUNDS_S = (5.0, 60.0)
TROUBLE_S = ((9.0, 14.0), (26.0, 30.0))

_SAMPLE_S = 1.0
_BETWEEN_S = 6.0

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class StalledBroker(LocalBroker):
    """A node that the controller gives up after 9 s without a sign of life, as clusters do by default."""

    def _choose_ports(self) -> None:
        super()._choose_ports()
        add_properties(self, {"broker.session.timeout.ms": "9000"})


class Probes(Worker):
    """Asks every process of an arena for its health once a second."""

    def __init__(self, stage: Arena, ports: Mapping[str, int]) -> None:
        super().__init__("probes")
        self._stage = stage
        self._ports = ports
        self.alive_s: dict[str, float] = defaultdict(float)
        """The longest time in which a process called itself alive and committed nothing."""
        self.said: Counter[str] = Counter()

    def work(self) -> None:
        """Ask until the end; queries come all the time, so a process that works commits."""
        since_s: dict[str, float] = {}
        commits_ms: dict[str, int] = {}
        while not self.closing.wait(_SAMPLE_S):
            for name, port in self._ports.items():
                code, body = asked(f"http://127.0.0.1:{port}/healthz", timeout_s=_SAMPLE_S)
                said = str(json.loads(body)["status"]) if code else "no answer"
                latest_ms, now_s = self._stage.latest_ms(name), time.monotonic()
                self.said[said] += 1
                if said != "alive" or latest_ms != commits_ms.get(name):
                    since_s[name] = now_s
                commits_ms[name] = latest_ms
                self.alive_s[name] = max(self.alive_s[name], now_s - since_s.setdefault(name, now_s))


@contextmanager
def served(directory: Path, seed: int, brokers: int) -> Iterator[tuple[Arena, list[LocalBroker]]]:
    """Run a whole service with the product's own time-outs on one broker or three."""
    with ExitStack() as held:
        if brokers == 1:
            nodes: list[LocalBroker] = [held.enter_context(StalledBroker(directory / "kafka"))]
        else:
            nodes = [*held.enter_context(three_brokers(directory / "kafka")).nodes]
        yield held.enter_context(arena(nodes[0], directory, seed, rate=RATE)), nodes


def with_own_time_outs(stage: Arena) -> dict[str, int]:
    """Give the processes the default session and a port for probes each; return the ports."""
    text = stage.config.read_text().replace(f"= {int(SESSION_S * 1_000)}\n", f"= {int(SESSION_DEFAULT_S * 1_000)}\n")
    stage.config.write_text(text)
    ports = {}
    for name, child in stage.children.items():
        key = "UCCI_ROUTER__HTTP_PORT" if name.startswith("router") else "UCCI_RECALIBRATOR__PROBE_PORT"
        ports[name] = pick_port()
        child.orders = replace(child.orders, environment={**child.orders.environment, key: str(ports[name])})
    return ports


def pause(stage: Arena, broker: LocalBroker, seconds: float, *, kills: bool) -> dict[str, Any]:
    """Stop the broker for a while, or kill and restart it; return when each process committed again, and who ended."""
    ended_before = len(stage.ended)
    if kills:
        broker.kill()
        broker.start()
    else:
        broker.freeze()
        time.sleep(seconds)
        broker.thaw()
    thawed_s = time.monotonic()
    with ThreadPoolExecutor(len(stage.children)) as waiting:
        found = {name: waiting.submit(stage.recovery_s, name, thawed_s, BACK_S) for name in stage.children}
    back = {name: None if one.exception() else round(one.result(), 2) for name, one in found.items()}
    ended = [one.how for one in stage.ended[ended_before:]]
    return {"pause_s": 0.0 if kills else round(seconds, 1), "kill": kills, "back_s": back, "ended": ended}


def one_service(pauses: int, restarts: int, seed: int, brokers: int) -> Iterator[dict[str, Any]]:
    """Run one service through its share of pauses; yield each, and at last what the probes and the judge say."""
    draw = random.Random(seed)
    turns = [False] * pauses + [True] * restarts
    # The first pause comes soon after the start, where clients know least.
    turns[1:] = draw.sample(turns[1:], len(turns) - 1)
    directory = Path(tempfile.mkdtemp(prefix="ucci-stalls-"))
    with served(directory, seed, brokers) as (stage, nodes):
        probes = Probes(stage, with_own_time_outs(stage))
        stage.start()
        probes.start()
        for kills in turns:
            node, bounds_s = draw.choice(nodes), draw.choice((*TROUBLE_S, BOUNDS_S, BOUNDS_S))
            yield pause(stage, node, draw.uniform(*bounds_s), kills=kills)
            time.sleep(draw.uniform(0.0, _BETWEEN_S))
        probes.end()
        _, findings = stage.judge()
        yield {
            "alive_without_commit_s": {name: round(found, 1) for name, found in probes.alive_s.items()},
            "health": dict(probes.said),
            # The senders' small world sets off a drift alarm now and then, faults or not: see docs/results/chaos.md.
            "findings": [f"{one.harm}: {one.what}" for one in findings if not one.what.startswith("drift is")],
            "queries": len(stage.senders.queries),
            "logs": str(directory),
        }


@app.command()
def stalls(
    pauses: Annotated[int, typer.Option(help="How often to stop a broker.")] = 40,
    restarts: Annotated[int, typer.Option(help="How often to kill a broker and start it again, in between.")] = 0,
    brokers: Annotated[int, typer.Option(help="1, or 3 of which one is stopped.")] = 1,
    parallel: Annotated[int, typer.Option(help="Services at once, each with brokers of its own.")] = 4,
    seed: Annotated[int, typer.Option()] = 7,
    is_part: Annotated[bool, typer.Option("--part", hidden=True)] = False,
) -> None:
    """Stop brokers for a while, and report when each service came back; exit code 1 where one did not.

    Example: python -m tests.faults.stalls --pauses 200 --restarts 100
    """
    if is_part:
        for line in one_service(pauses, restarts, seed, brokers):
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
        return
    parts = [
        [
            *(sys.executable, "-m", "tests.faults.stalls", "--part", "--seed", str(seed * 1_000 + number)),
            *("--pauses", str(len(range(number, pauses, parallel))), "--brokers", str(brokers)),
            *("--restarts", str(len(range(number, restarts, parallel)))),
        ]
        for number in range(min(parallel, pauses))
    ]
    found: list[dict[str, Any]] = []
    with ThreadPoolExecutor(len(parts)) as running:
        for done in [running.submit(_follow, argv, found) for argv in parts]:
            done.result()
    turns, ends = [one for one in found if "back_s" in one], [one for one in found if "findings" in one]
    Console(width=None if sys.stdout.isatty() else 110).print(_table(turns, ends))
    ended = [f"after {one['pause_s']} s: {how}" for one in turns for how in one["ended"]]
    away = [
        f"after {one['pause_s']} s: {name} is away" for one in turns for name, s in one["back_s"].items() if s is None
    ]
    broken = away + [finding for end in ends for finding in end["findings"]]
    sys.stdout.write("".join(f"{line}\n" for line in (*ended, *broken)))
    raise typer.Exit(bool(broken))


def _follow(argv: list[str], found: list[dict[str, Any]]) -> None:
    """Take one part's lines as they come, and pass them on."""
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as part:
        assert part.stdout is not None
        for line in part.stdout:
            found.append(json.loads(line))
            sys.stderr.write(f"{len(found)}: {line}")
    if part.returncode:
        found.append({"findings": [f"a part ended with {part.returncode}"], "queries": 0, "alive_without_commit_s": {}})


def _table(turns: list[dict[str, Any]], ends: list[dict[str, Any]]) -> Table:
    table = Table(title=f"{sum(end['queries'] for end in ends)} queries, {machine_class()}")
    for column in ("", "n", "back p50 s", "p95", "max", "never", "ended", "alive without a commit s"):
        table.add_column(column, justify="right" if column else "left")
    for name in next(iter(turns))["back_s"]:
        alive_s = max((end["alive_without_commit_s"].get(name, 0.0) for end in ends), default=0.0)
        for kind, kills in (("pauses", False), ("restarts", True)):
            ours = [one for one in turns if one["kill"] is kills]
            back = [one["back_s"][name] for one in ours if one["back_s"][name] is not None]
            if back:
                p50, p95 = np.percentile(back, (50, 95))
                ended = sum(how.startswith(f"{name} ended") for one in ours for how in one["ended"])
                figures = (f"{p50:.1f}", f"{p95:.1f}", f"{max(back):.1f}", str(len(ours) - len(back)), str(ended))
                table.add_row(f"{name}, {kind}", str(len(ours)), *figures, str(alive_s))
    return table


if __name__ == "__main__":
    app()
