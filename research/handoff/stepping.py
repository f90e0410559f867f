"""A margin that steps by what the guard shows: what it costs, and how long it takes, in streams whose texts change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from recalibrator.fit.publish.handoff_watch import LOSS_MOST, HandoffWatch
from research.handoff.at_target import FIXED, NAMES, hold, ladder, loss, weights_of
from research.handoff.experiment import LARGE_TOKEN, Floats
from research.handoff.pool import OFF, Pool
from research.paper.intervals import interval
from schemas import LabelledExample, OutcomeCounts
from schemas.basis import Granularity
from schemas.settings_workload import HandoffSettings

CHUNK = 2_000
"""Queries between two looks at the guard's labels."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When a stepping choice moves.

    ``guard_share``: of escalated queries, each of which is labelled. ``by_bounds``: bolder where the upper end of the
    loss's confidence sequence lies below half of what it may be, more cautious where the lower end lies above that.
    Else by the estimates alone.
    """

    guard_share: float
    by_bounds: bool

    def moves(self, watch: HandoffWatch) -> int:
        """Return 1 for a bolder margin, -1 for a more cautious one, 0 to stay."""
        known = watch.loss
        if known is None:
            return 0
        upper, lower = (known.upper, known.lower) if self.by_bounds else (known.estimate, known.estimate)
        return 1 if upper < LOSS_MOST / 2.0 else -1 if lower > LOSS_MOST else 0


RULES = {
    "bounds": Rule(HandoffSettings().guard_share, by_bounds=True),
    "estimates": Rule(HandoffSettings().guard_share, by_bounds=False),
}


@dataclass(slots=True)
class Walk:
    """What became of one stream.

    ``cost``: of all queries, guarded ones included. ``too_lossy``: escalated queries under a margin whose loss on all
    queries of that mix is above the limit. ``steps``: queries before each step. ``spent``: queries under each handoff.
    """

    cost: float = 0.0
    escalated: int = 0
    too_lossy: int = 0
    steps: list[int] = field(default_factory=list)
    spent: dict[str, int] = field(default_factory=dict)


class Stage:
    """A pool in one mix of texts, with the target held under each handoff of a granularity."""

    def __init__(self, pool: Pool, mix: Sequence[float], granularity: Granularity) -> None:
        self._pool, self._weights = pool, weights_of(pool, mix)
        self.names = ladder(granularity)
        self._held = {name: hold(pool, name, self._weights) for name in self.names}
        self._loss = {name: loss(pool, name, self._weights * held.above) for name, held in self._held.items()}

    def add(self, walk: Walk, name: str, guard_share: float, queries: int) -> None:
        """Count queries; their costs are expectations, so that no draw adds noise."""
        held = self._held[name]
        weights = self._weights * held.above
        alone = 0.0 if name == OFF else guard_share * LARGE_TOKEN * float(weights @ np.nan_to_num(self._alone))
        walk.cost += queries * (held.cost + alone)
        walk.escalated += round(queries * held.escalated)
        walk.too_lossy += round(queries * held.escalated) if self._loss[name] > LOSS_MOST else 0
        walk.spent[name] = walk.spent.get(name, 0) + queries

    @property
    def _alone(self) -> Floats:
        return self._pool.large[NAMES.index(OFF), :, 2]

    def guarded(self, name: str, guard_share: float, rng: np.random.Generator, queries: int) -> list[Floats]:
        """Draw the guard's labelled queries: 2·TP and size of the large model alone, and of it with the handoff."""
        held = self._held[name]
        weights = self._weights * held.above
        drawn = rng.choice(len(weights), rng.binomial(queries, held.escalated * guard_share), p=weights / weights.sum())
        both = (self._pool.large[NAMES.index(one)][drawn, :2] for one in (OFF, name))
        return list(np.concatenate(list(both), axis=1))


_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _label(number: int, pair: Floats) -> LabelledExample:
    """Return a label whose counts have the sums that the watch looks at; how a size is split does not matter to it."""
    alone, large = (int(pair[0]) // 2, int(pair[1])), (int(pair[2]) // 2, int(pair[3]))
    gold = max(alone[0], large[0])
    return LabelledExample(
        query_id=f"q-{number}",
        workload="w",
        uncertainty=1.0,
        small_exact=False,
        small=OutcomeCounts(true_positives=0, predicted=0),
        large=OutcomeCounts(true_positives=large[0], predicted=large[1] - gold),
        large_alone=OutcomeCounts(true_positives=alone[0], predicted=alone[1] - gold),
        gold_count=gold,
        large_probability=1.0,
        label_probability=1.0,
        label_requested=True,
        reason="threshold",
        routed_at=_NOW,
        labelled_at=_NOW,
    )


def stepping(stages: Sequence[Stage], rule: Rule, queries: int, seed: int) -> Walk:
    """Walk through the stages, equally long, with a margin that steps; one that was left as too costly stays left."""
    rng, walk, names = np.random.default_rng(seed), Walk(), stages[0].names
    place = next(place for place, name in enumerate(names) if name.endswith(f"@{FIXED:g}"))
    boldest, watch, number = len(names) - 1, _fresh(), 0
    for chunk in range(queries // CHUNK):
        stage = stages[chunk * CHUNK * len(stages) // queries]
        stage.add(walk, names[place], rule.guard_share, CHUNK)
        if names[place] == OFF:
            continue
        for pair in stage.guarded(names[place], rule.guard_share, rng, CHUNK):
            number += 1
            watch.take_label(_label(number, pair), "added")
        step = rule.moves(watch)
        boldest = place - 1 if step < 0 else boldest
        if step and place + step <= boldest:
            place, watch = place + step, _fresh()
            walk.steps.append((chunk + 1) * CHUNK)
    return walk


def _fresh() -> HandoffWatch:
    return HandoffWatch(HandoffSettings())


def fixed(stages: Sequence[Stage], name: str, queries: int) -> Walk:
    """Return the same with one handoff for all."""
    walk = Walk()
    for stage in stages:
        stage.add(walk, name, HandoffSettings().guard_share, queries // len(stages))
    return walk


def _median(queries: Sequence[float]) -> float | None:
    """Return the median, None where it is infinite."""
    found = float(np.median(queries))
    return found if math.isfinite(found) else None


def streams(
    pool: Pool, mixes: Sequence[Sequence[float]], granularities: Sequence[Granularity], queries: int, seeds: int
) -> list[dict[str, Any]]:
    """Walk through mixes of texts by each rule, and with every margin; compare with that fixed at .9."""
    rows = []
    for granularity in granularities:
        stages = [Stage(pool, mix, granularity) for mix in mixes]
        today = fixed(stages, f"{granularity}@{FIXED:g}", queries)
        for name, rule in RULES.items():
            walks = [stepping(stages, rule, queries, seed) for seed in range(seeds)]
            over = np.array([walk.cost / today.cost - 1.0 for walk in walks])
            rows.append(
                {
                    "granularity": granularity,
                    "rule": name,
                    "over_fixed": float(over.mean()),
                    "over_fixed_interval": interval(over),
                    "too_lossy": float(np.mean([walk.too_lossy / walk.escalated for walk in walks])),
                    "steps": float(np.mean([len(walk.steps) for walk in walks])),
                    "first_step": _median([walk.steps[0] if walk.steps else math.inf for walk in walks]),
                    "spent": {
                        one: float(np.mean([walk.spent.get(one, 0) / queries for walk in walks]))
                        for one in stages[0].names
                    },
                }
            )
        for name in stages[0].names:
            one = fixed(stages, name, queries)
            rows.append(
                {
                    "granularity": granularity,
                    "rule": f"always {name}",
                    "over_fixed": one.cost / today.cost - 1.0,
                    "too_lossy": one.too_lossy / one.escalated,
                }
            )
    return rows
