"""Percentile bootstrap over queries: routings and sweeps flow in, replicates of their figures flow out. Seeded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from research.paper.thresholds import Sweep
from research.paper.workloads import Floats, Integers, Mask, Workload

LEVEL = 0.95
Interval = tuple[float, float]


def interval(replicates: Floats) -> Interval:
    """Return the central 95 % of some replicates."""
    low, high = np.quantile(replicates, ((1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0))
    return float(low), float(high)


def resamplings(queries: int, rounds: int, seed: int) -> Iterator[Floats]:
    """Yield how often each query is drawn, shape (queries,), a round each."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        yield np.bincount(rng.integers(queries, size=queries), minlength=queries).astype(np.float64)


def routings(workload: Workload, masks: dict[str, Mask], rounds: int, seed: int) -> dict[str, Floats]:
    """Resample queries under routings that stay as they are.

    Returns dict of str to ndarray, shape (rounds, 2): micro-F1 and escalation rate of each routing; all routings see
    the same draws.
    """
    (small_top, small_bottom), (large_top, large_bottom) = workload.pairs("small"), workload.pairs("large")
    columns = np.stack(
        [
            part
            for mask in masks.values()
            for part in (np.where(mask, large_top, small_top), np.where(mask, large_bottom, small_bottom), mask)
        ]
    )
    sums = np.array([columns @ weights for weights in resamplings(len(workload), rounds, seed)])
    found = sums.reshape(rounds, len(masks), 3)
    rates = np.stack((found[..., 0] / found[..., 1], found[..., 2] / len(workload)), axis=-1)
    return {name: rates[:, place] for place, name in enumerate(masks)}


def rates_at(sweeps: dict[str, Sweep], queries: int, target: float, rounds: int, seed: int) -> dict[str, Floats]:
    """Resample queries and choose each threshold anew, so that every method meets the target on every resample.

    Returns dict of str to ndarray, shape (rounds,): Escalation rates.
    """
    found: dict[str, list[float]] = {name: [] for name in sweeps}
    for weights in resamplings(queries, rounds, seed):
        for name, sweep in sweeps.items():
            curve = sweep.curve(weights)
            found[name].append(float(curve.escalated[curve.cheapest(target)]))
    return {name: np.array(values) for name, values in found.items()}


def of_statistic(statistic: Callable[[Integers], float], queries: int, rounds: int, seed: int) -> Interval:
    """Return the interval of a statistic of row numbers drawn with replacement."""
    rng = np.random.default_rng(seed)
    return interval(np.array([statistic(rng.integers(queries, size=queries)) for _ in range(rounds)]))
