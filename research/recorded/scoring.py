"""What was routed → scores: realised and expected micro-F1 by block, both costs, against an oracle by phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.recorded.simulate import BATCH, Routed
from research.recorded.stream import Floats, Outcomes, Stream
from research.recorded.tokens import small_call, under_handoff

BLOCK = 2_000
TOLERANCE = 0.005
SMALL_COST, LARGE_COST = 1.0, 3.02


@dataclass(frozen=True, slots=True)
class Oracle:
    """The cheapest threshold of one phase, all its outcomes known.

    ``threshold``: largest one that reaches ``goal``. ``goal``: the target, or the best micro-F1 that any threshold
    reaches where the target is out of reach. ``escalated``: share of the phase's queries.
    """

    threshold: float
    goal: float
    feasible: bool
    escalated: float


@dataclass(frozen=True, slots=True)
class Blocks:
    """One policy's scores, a number a block of 2,000 queries.

    ``realised``, ``expected``: micro-F1 of the served answers, and what it would be over all draws from the recordings.
    ``sequential``, ``paper``: mean cost of a query, by calls. ``sequential_tokens``, ``paper_tokens``: the same by the
    tokens that were generated, in mean small answers of the offline set. ``escalated``: share for which the large model
    ran, exploration included.
    """

    phase: Floats
    realised: Floats
    expected: Floats
    goal: Floats
    sequential: Floats
    paper: Floats
    sequential_tokens: Floats
    paper_tokens: Floats
    escalated: Floats

    @property
    def on_target(self) -> Floats:
        """1 where the realised micro-F1 reaches the goal, up to the tolerance."""
        return (self.realised >= self.goal - TOLERANCE).astype(np.float64)

    @property
    def expected_on_target(self) -> Floats:
        """1 where the expected micro-F1 does."""
        return (self.expected >= self.goal - TOLERANCE).astype(np.float64)


class Curve:
    """micro-F1's parts over all thresholds on one set of queries, per query."""

    def __init__(self, outcomes: Outcomes) -> None:
        u = np.where(np.isnan(outcomes.uncertainty), np.inf, outcomes.uncertainty)
        order = np.argsort(u, kind="stable")
        self.ranked = u[order]
        small = np.column_stack((2 * outcomes.small_hits, outcomes.small_named + outcomes.gold))
        large = np.column_stack((2 * outcomes.large_hits, outcomes.large_named + outcomes.gold))
        self._gain = np.vstack(([0, 0], np.cumsum((small - large)[order], axis=0))) / len(u)
        self._large = large.sum(axis=0) / len(u)

    def parts(self, threshold: Floats, explored: Floats | float) -> Floats:
        """Return numerator and denominator, shape (thresholds, 2); explored queries get the large answer."""
        kept = np.searchsorted(self.ranked, threshold, side="right")
        return np.asarray(self._large + (1.0 - np.atleast_1d(explored))[:, None] * self._gain[kept])


def oracles(stream: Stream, target: float) -> list[Oracle]:
    """Return the oracle of each phase."""
    found = []
    for number in range(len(stream.phases)):
        outcomes = stream.outcomes.take(np.flatnonzero(stream.phase == number))
        curve = Curve(outcomes)
        finite = np.isfinite(curve.ranked)
        thresholds = np.concatenate(([-1.0], np.unique(curve.ranked[finite])))
        parts = curve.parts(thresholds, 0.0)
        f1 = parts[:, 0] / parts[:, 1]
        feasible = bool((f1 >= target).any())
        goal = target if feasible else float(f1.max())
        threshold = float(thresholds[np.flatnonzero(f1 >= goal)[-1]])
        found.append(Oracle(threshold, goal, feasible, float(outcomes.above(threshold).mean())))
    return found


def score(routed: Routed, stream: Stream, known: list[Oracle], *, alone: bool = False) -> Blocks:
    """Score what a policy did.

    ``known``: by phase. ``alone``: the large model alone: no small call is paid.
    """
    ran, generated = routed.ran, routed.generated
    outcomes = routed.outcomes
    top = 2.0 * np.where(ran, outcomes.large_hits, outcomes.small_hits)
    bottom = np.where(ran, outcomes.large_named, outcomes.small_named) + outcomes.gold
    phase = _by_block(stream.phase.astype(np.float64))
    rate = _by_block(ran.astype(np.float64))
    paper = SMALL_COST + rate * (LARGE_COST - SMALL_COST)
    return Blocks(
        phase=phase,
        realised=_by_block(top) / _by_block(bottom),
        expected=_expected(routed, stream),
        goal=np.array([known[int(one)].goal for one in phase]),
        sequential=paper if alone else SMALL_COST + _by_block(generated.large_calls) * LARGE_COST,
        paper=paper,
        sequential_tokens=_by_block(generated.paper if alone else generated.sequential) / small_call(),
        paper_tokens=_by_block(generated.paper) / small_call(),
        escalated=rate,
    )


def _by_block(values: NDArray[Any]) -> Floats:
    return np.asarray(values.reshape(-1, BLOCK).mean(axis=1))


def _expected(routed: Routed, stream: Stream) -> Floats:
    """Return each block's micro-F1 over all draws, given what was in force in its batches."""
    batches = routed.take(slice(None, None, BATCH))
    phase = stream.phase[::BATCH]
    parts = np.empty((len(batches.rows), 2))
    for number, (about, (clean, shifted)) in enumerate(zip(stream.phases, stream.pools, strict=True)):
        for handed in (False, True):
            at = np.flatnonzero((phase == number) & (batches.handed == handed))
            if len(at):
                mixed = (1.0 - about.share) * _served(clean, batches.take(at))
                parts[at] = mixed + about.share * _served(shifted, batches.take(at))
    summed = parts.reshape(-1, BLOCK // BATCH, 2).sum(axis=1)
    return np.asarray(summed[:, 0] / summed[:, 1])


def _served(pool: Outcomes, batches: Routed) -> Floats:
    """Return micro-F1's parts over all draws from a pool, shape (batches, 2); all or none have a handoff."""
    pool = under_handoff(pool) if batches.handed[0] else pool
    return Curve(pool).parts(batches.threshold, batches.exploration)
