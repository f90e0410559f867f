"""``python -m research.drift.budget``: how near to a budget queries really cost, under drift.

The core holds ``target = { cost = … }`` on the streams of :mod:`research.drift`. Scored are the mean cost of every
10,000 queries against the budget, exploration and audits included, and the expected micro-F1 that it buys against that
of the best threshold of each block of queries for the same money. Traffic is summarised every 250 queries; with
``--late`` summaries come so many later, as they do where answers take seconds and queries come fast.

Examples
--------
python -m research.drift.budget --families covariate --seeds 101 --queries 40000
python -m research.drift.budget --out docs/results/budget
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from research.drift.families import BY_NAME
from research.drift.mess import CHUNK
from research.drift.oracle import LARGE_COST, expected_micro_f1, sequential_cost
from research.drift.policies.ours import Ours
from research.drift.report import provenance
from research.drift.simulate import Traffic, walk
from research.drift.streams import BLOCK, Stream, offline, stream
from schemas import TrafficSummary

WINDOW = 10_000
BUDGET, QUERIES, SEEDS = 1.7, 100_000, (101, 102, 103)
FAMILIES = (
    *("stationary", "covariate", "prior", "small_abrupt", "large_gradual", "recurring"),
    *("slow_trend", "new_model", "signal_lost", "volume_swing"),
)


class Paced(Ours):
    """The core on a budget, whose traffic is summarised late.

    ``late``: summaries of 250 queries that lie between a query and the core's knowledge of it.
    """

    def __init__(self, budget: float, late: int = 0) -> None:
        super().__init__(budget=budget)
        self._late, self._waiting = late, deque[TrafficSummary]()

    def on_traffic(self, traffic: Traffic) -> None:
        """Summarise one chunk, under the version that routed it, and hand over what is due."""
        self._seen += len(traffic.u)
        self._waiting.append(self._summary(traffic))
        if len(self._waiting) > self._late:
            self._observe(self._waiting.popleft())


@dataclass(frozen=True, slots=True)
class Row:
    """One walk.

    ``windows``: mean cost of each 10,000 queries over the budget, less 1. ``worst_anywhere``: the largest such error,
    in size, of any 10,000 queries in a row. ``whole``: the same of the whole stream. ``micro_f1``, ``best_micro_f1``:
    expected of what was served, and of the best threshold of each block that keeps to the budget in it.
    """

    family: str
    seed: int
    late: int
    windows: list[float]
    worst_anywhere: float
    whole: float
    micro_f1: float
    best_micro_f1: float
    versions: int


def best_micro_f1(drawn: Stream, budget: float) -> float:
    """Return the expected micro-F1 of the best threshold of each block within the budget, without exploration."""
    most = int((budget - 1.0) / LARGE_COST * BLOCK)
    order = np.argsort(drawn.u.reshape(-1, BLOCK), axis=1)
    gold, small, large = (np.take_along_axis(one.reshape(-1, BLOCK), order, axis=1) for one in drawn.expected[:3])
    gains = np.cumsum((large - small)[:, ::-1], axis=1)[:, :most]
    return float(np.mean((small.sum(axis=1) + np.maximum(gains.max(axis=1), 0.0)) / gold.sum(axis=1)))


def work(family: str, seed: int, queries: int, budget: float, late: int) -> Row:
    """Walk one stream."""
    # Matrices here are tiny: threads of BLAS only wait for each other.
    with threadpool_limits(1):
        drawn = stream(family, seed, queries)
        routed = walk(drawn, offline(seed), Paced(budget, late))
    relative: NDArray[np.float64] = sequential_cost(routed.large_ran.astype(np.float64)) / budget - 1.0
    summed = np.concatenate(([0.0], np.cumsum(relative)))
    return Row(
        family=family,
        seed=seed,
        late=late,
        windows=relative.reshape(-1, WINDOW).mean(axis=1).round(6).tolist(),
        worst_anywhere=float(np.abs(summed[WINDOW:] - summed[:-WINDOW]).max() / WINDOW),
        whole=float(relative.mean()),
        micro_f1=float(expected_micro_f1(drawn, routed.served_by_large).mean()),
        best_micro_f1=best_micro_f1(drawn, budget),
        versions=len(np.unique(routed.version)),
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown, a line for each family and delay."""
    lines = [
        "| family | late by | error | worst | within .5 % | any 10,000 | whole | micro-F1 | below best | version per |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (late, family), group in groupby(sorted(rows, key=_place), lambda row: (row.late, row.family)):
        some = list(group)
        size = np.abs([error for row in some for error in row.windows])
        queries = sum(len(row.windows) for row in some) * WINDOW
        lines.append(
            f"| {family} | {late * CHUNK:,} | {size.mean():.2%} | {size.max():.2%} | {(size <= 0.005).mean():.0%} "
            f"| {max(row.worst_anywhere for row in some):.2%} | {np.mean([row.whole for row in some]):+.2%} "
            f"| {np.mean([row.micro_f1 for row in some]):.4f} "
            f"| {np.mean([row.best_micro_f1 - row.micro_f1 for row in some]):.4f} "
            f"| {queries // sum(row.versions for row in some):,} |"
        )
    return "\n".join(lines)


def _place(row: Row) -> tuple[int, int, int]:
    return row.late, list(BY_NAME).index(row.family), row.seed


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m research.drift.budget", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    made.add_argument("--families", nargs="+", choices=sorted(BY_NAME), metavar="FAMILY", default=list(FAMILIES))
    made.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    made.add_argument("--queries", type=int, default=QUERIES, help=f"in a stream, a multiple of {WINDOW}")
    made.add_argument("--budget", type=float, default=BUDGET, help=f"of a query, in small calls; large = {LARGE_COST}")
    made.add_argument("--late", type=int, nargs="+", default=[0], help=f"summaries of {CHUNK} queries; several: each")
    made.add_argument("--jobs", type=int, default=2)
    made.add_argument("--out", type=Path, help="folder of README.md and rows.json")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run, write and print; returns the exit code."""
    given = _parser().parse_args(argv)
    if given.queries <= 0 or given.queries % WINDOW:
        sys.stderr.write(f"--queries: must be a positive multiple of {WINDOW}, got {given.queries}\n")
        return 2
    made = provenance()
    tasks = [
        (family, seed, given.queries, given.budget, late)
        for late in given.late
        for family in given.families
        for seed in given.seeds
    ]
    if given.jobs <= 1:
        rows = [work(*task) for task in tasks]
    else:
        with ProcessPoolExecutor(given.jobs) as pool:
            rows = list(pool.map(work, *zip(*tasks, strict=True)))
    shown = table(rows)
    print(shown)
    if given.out is not None:
        command = " ".join(["python -m research.drift.budget", *(sys.argv[1:] if argv is None else argv)])
        given.out.mkdir(parents=True, exist_ok=True)
        document = {"command": command, **made, "rows": [asdict(row) for row in rows]}
        (given.out / "rows.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        page = _PAGE.format(command=command, machine=made, budget=given.budget, table=shown, large=LARGE_COST)
        (given.out / "README.md").write_text(page, encoding="utf-8")
    return 0


_PAGE = """\
# A budget under drift

`{command}`; {machine[machine]}, Python {machine[python]}, commit {machine[commit]}, {machine[day]}.

`target = {{ cost = {budget:g} }}` on the streams of [the drift report](../drift-current/README.md), one large call at
{large:g} small ones, exploration and audits included. *Error*: the mean sequential cost of 10,000 queries against the
budget, over all such windows of a stream and over its seeds; the next columns are the worst of them, the share within
.5 %, the worst of *any* 10,000 queries in a row, and the error of whole streams. *Below best*: by how much expected
micro-F1 lies below that of the best threshold of each 2,000 queries for the same money without exploration. *Late by*:
queries that are routed before the core knows of one.

{table}
"""


if __name__ == "__main__":
    raise SystemExit(main())
