"""What the plan of labels promises beside what is found: the error of the estimate, the cost, and how late a fall is.

The plan is that of the core's own status, read as the page and the command show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from research.drift.oracle import LARGE_COST
from research.drift.policies.ours import Ours
from research.drift.simulate import Traffic, walk
from research.drift.streams import Stream, offline, stream

Row = dict[str, Any]

BUDGETS = (0.08, 0.02, 0.005, 0.002)
QUERIES, LOOK_QUERIES = 120_000, 2_000
SETTLED = 40_000
"""Queries after which the labels of the start are no longer recent: the plan speaks of what comes to be."""
FALL_QUERIES = 200_000


class Watched(Ours):
    """The core, which is asked every so many queries what it estimates, and what its plan says.

    ``looks``: queries so far, the threshold in force, and its estimated micro-F1. ``plans``: at the same times.
    ``fixed``: the estimate for the threshold that was in force at ``fixed_at`` queries.
    """

    def __init__(self, budget: float, fixed_at: int) -> None:
        super().__init__(labels=budget)
        self.looks: list[tuple[int, float, float]] = []
        self.plans: list[tuple[int, Any]] = []
        self.fixed: list[float] = []
        self.fixed_at, self.threshold_then = fixed_at, np.nan

    def on_traffic(self, traffic: Traffic) -> None:
        """Hand a chunk over, and look."""
        super().on_traffic(traffic)
        if self._seen % LOOK_QUERIES:
            return
        threshold, candidate = self._current().uncertainty_threshold, self.core.evaluate()
        quality = candidate.policies.micro_f1
        if self._seen == self.fixed_at:
            self.threshold_then = threshold
        self.looks.append((self._seen, threshold, float(quality[candidate.policies.index(threshold)])))
        if self._seen >= self.fixed_at:
            self.fixed.append(float(quality[candidate.policies.index(self.threshold_then)]))
        if self._seen >= min(self.fixed_at, SETTLED) and self._seen % (5 * LOOK_QUERIES) == 0:
            self.plans.append((self._seen, self.core.status().label_plan))


def truth(drawn: Stream, threshold: float, rows: slice) -> float:
    """Return the expected micro-F1 of what a threshold serves over some queries, nothing explored."""
    gold, small, large = drawn.expected[:3, rows]
    return float(np.where(drawn.u[rows] > threshold, large, small).sum() / gold.sum())


def at_rest(seed: int, queries: int = QUERIES) -> Iterator[Row]:
    """Walk a stream on which nothing changes at each budget: errors of the estimate, costs, and what was promised."""
    with threadpool_limits(1):
        drawn, start = stream("stationary", seed, queries), offline(seed)
        everything, settled = slice(0, queries), min(SETTLED, queries // 2)
        for budget in BUDGETS:
            policy = Watched(budget, settled)
            routed = walk(drawn, start, policy)
            errors = [said - truth(drawn, t, everything) for seen, t, said in policy.looks if seen > settled]
            plans = [plan for _, plan in policy.plans if plan is not None]
            now = [plan.outlooks[plan.now] for plan in plans]
            yield {
                "budget": budget,
                "seed": seed,
                "errors": errors,
                "cost": 1.0 + LARGE_COST * float(routed.large_ran[settled:].mean()),
                "half_width": float(np.mean([one.half_width for one in now])),
                "promised_cost": {str(rate): _cost(plans, rate) for rate in BUDGETS},
            }


def _cost(plans: list[Any], rate: float) -> float:
    """Return the cost at the rate of the plan that lies nearest, as a ratio of that at the present one; mean."""
    found = []
    for plan in plans:
        nearest = min(plan.outlooks, key=lambda one: abs(np.log(max(one.per_query, 1e-6) / rate)))
        found.append(nearest.cost / plan.outlooks[plan.now].cost)
    return float(np.mean(found))


def after_a_fall(seed: int, queries: int = FALL_QUERIES) -> Iterator[Row]:
    """Walk a stream in whose middle quality falls by 2 points that labels alone show, at each budget."""
    with threadpool_limits(1):
        drawn, start, change = stream("labels_alone", seed, queries), offline(seed), queries // 2
        for budget in BUDGETS:
            policy = Watched(budget, change)
            walk(drawn, start, policy)
            fall = truth(drawn, policy.threshold_then, slice(0, change))
            fall -= truth(drawn, policy.threshold_then, slice(change, queries))
            halved = np.flatnonzero(policy.fixed[0] - np.array(policy.fixed) >= 0.5 * fall)
            plan = next(plan for seen, plan in policy.plans if seen >= change)
            yield {
                "budget": budget,
                "seed": seed,
                "fall": fall,
                "promised": plan.outlooks[plan.now].found_after,
                "found": int(halved[0]) * LOOK_QUERIES if len(halved) else None,
            }
