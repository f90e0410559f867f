"""The run: families, seeds and policies flow in, one row a walk flows out, in parallel and reproducibly."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits

from research.drift.mess_score import mess_score
from research.drift.oracle import oracle
from research.drift.policies import POLICIES
from research.drift.policies.clairvoyant import Clairvoyant
from research.drift.score import score
from research.drift.simulate import Policy, Routed, walk
from research.drift.streams import Stream, offline, stream

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """One stream and the policies to lead through it."""

    family: str
    seed: int
    queries: int
    policies: tuple[str, ...]


def work(task: Task) -> list[Row]:
    """Walk one stream with each policy; the rows hold the fields of :class:`~research.drift.score.Score`."""
    rows: list[Row] = []
    # Matrices here are tiny: threads of BLAS only wait for each other, and several processes stand in each other's way.
    with threadpool_limits(1):
        drawn, start = stream(task.family, task.seed, task.queries), offline(task.seed)
        best = oracle(drawn)
        for name in task.policies:
            began_s = time.perf_counter()
            routed = walk(drawn, start, _policy(name, drawn))
            took_s = time.perf_counter() - began_s
            key = {"family": task.family, "seed": task.seed, "policy": name}
            found = asdict(score(drawn, routed, best)) | _of_mess(drawn, start, routed, name)
            rows.append({**key, **found, "seconds": round(took_s, 2)})
    return rows


def _policy(name: str, drawn: Stream) -> Policy:
    policy = POLICIES[name]()
    if isinstance(policy, Clairvoyant):
        policy.foresee(drawn)
    return policy


def _of_mess(drawn: Stream, start: Stream, routed: Routed, name: str) -> Row:
    mess = drawn.family.mess
    if mess is None:
        return {}
    calm = drawn.calm()
    twin = walk(calm, start, _policy(name, calm)) if calm.family.mess != mess else None
    return asdict(mess_score(drawn, routed, twin))


def rows_of(
    tasks: Sequence[Task], jobs: int, budget_s: float = math.inf, walked: Callable[[Task], list[Row]] = work
) -> Iterator[list[Row]]:
    """Yield the rows of each task as it ends.

    ``jobs``: processes; with 1 all runs in this one. ``budget_s``: after so long no further stream is begun; those
    under way are finished. ``walked``: from a task to its rows.
    """
    ends_s = time.monotonic() + budget_s
    if jobs <= 1:
        for task in tasks:
            if time.monotonic() < ends_s:
                yield walked(task)
        return
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        futures = [pool.submit(walked, task) for task in tasks]
        for done in as_completed(futures):
            if done.cancelled():
                continue
            if time.monotonic() >= ends_s:
                for future in futures:
                    future.cancel()
            yield done.result()


def rows_shown(tasks: list[Task], jobs: int, budget_s: float, walked: Callable[[Task], list[Row]] = work) -> list[Row]:
    """Return the rows of all tasks in order, and show meanwhile how far they are; see :func:`rows_of`."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    rows: list[Row] = []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("streams", total=len(tasks))
        for done in rows_of(tasks, jobs, budget_s, walked):
            rows.extend(done)
            progress.advance(bar)
    return sorted(rows, key=lambda row: (row["policy"], row["family"], row["seed"]))
