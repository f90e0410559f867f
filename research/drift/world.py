"""What two models answer at each uncertainty: conditions flow in, draws and their exact expectations flow out.

The shape is that of 12,000 recorded queries (``deploy/ucci_stream/recorded``): quantiles of logit(u), and by u the
number of gold pairs and the chances of three kinds of error. Every answer predicts as many pairs as there are gold
ones, so that micro-F1 is the share of gold pairs found. Nothing here depends on any policy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GOLD_MOST = 4
SMALL_SPILL, LARGE_SPILL = 0.12, 0.02
"""Chance that a wrong answer is wrong in a further pair as well (recorded: 1.0 to 1.5 wrong pairs an error)."""
SAME_MISTAKE = 0.05
NOVEL_SMALL, NOVEL_LARGE = 0.2, 0.6
"""Chance that a model finds a pair of a type that it has never seen."""
_SMALL_BASE = -0.55
"""Log-odds put on the recorded small model's errors, which lifts its micro-F1 from .848 to about .875."""
_SHARE_STEPS = 4_096

_LOGIT_U = np.array(
    [
        -8.53,
        -8.23,
        -6.78,
        -6.1,
        -5.67,
        -5.29,
        -4.94,
        -4.62,
        -4.34,
        -4.08,
        -3.88,
        -3.7,
        -3.52,
        -3.31,
        -3.11,
        -2.84,
        -1.21,
    ]
)
"""Quantiles of logit(u), 16 parts of equal mass."""
_AT = np.array(
    [-8.31, -8.04, -6.4, -5.87, -5.47, -5.11, -4.78, -4.48, -4.21, -3.98, -3.79, -3.62, -3.41, -3.22, -2.99, -2.63]
)
"""Medians of those parts, where the following are tabulated."""
_GOLD = np.array([0.02, 0.31, 1.31, 1.67, 1.95, 2.06, 2.26, 2.33, 2.47, 2.48, 2.56, 2.67, 2.81, 2.85, 2.91, 3.06])
_ALIKE = np.array(
    [0.0, 0.004, 0.011, 0.026, 0.027, 0.027, 0.033, 0.036, 0.052, 0.051, 0.062, 0.051, 0.052, 0.056, 0.054, 0.024]
)
"""P(both wrong with the same answer | u, something to find)."""
_SMALL = np.array(
    [0.001, 0.001, 0.001, 0.002, 0.006, 0.022, 0.039, 0.06, 0.139, 0.252, 0.314, 0.432, 0.504, 0.662, 0.783, 0.931]
)
_LARGE = np.array(
    [0.001, 0.001, 0.001, 0.003, 0.004, 0.015, 0.029, 0.038, 0.077, 0.085, 0.103, 0.125, 0.162, 0.229, 0.298, 0.376]
)
"""P(the small, the large answer is wrong in its own way | u, something to find, not wrong alike)."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The state of the world for each query, shape (queries,) each; all zero is the recorded one.

    ``small``, ``large``, ``alike``: log-odds added to the chances of errors of one model and of the same error of both.
    ``prior``: log-odds added to the share of queries that the small model gets wrong, P(u | wrong) staying as it is.
    ``hard``: covariate shift: quantile v of difficulty becomes 1 - (1 - v)^exp(hard). ``lost``: share of queries whose
    u says nothing, in [0, 1]. ``stretch``, ``offset``: u's logit x is seen as x·exp(stretch) + offset. ``blunder``:
    chance of a further error of the small model, alike at each u. ``cut``: chance that the small answer ends half way,
    alike at each u: of its pairs the second half is missing. ``novel``: chance that a query holds one pair more, of a
    type that is new to both models, alike at each u. ``misled``: log-odds added to the chance of errors of the large
    model where the small one errs: agreement hardly tells. ``mute``: share of queries whose server reports that it is
    certain, whatever it answers: u is 0. ``burst``: share of runs of 200 queries that are alike in difficulty.
    """

    small: Floats
    large: Floats
    alike: Floats
    prior: Floats
    hard: Floats
    lost: Floats
    stretch: Floats
    offset: Floats
    blunder: Floats
    cut: Floats
    novel: Floats
    misled: Floats
    mute: Floats
    burst: Floats

    @classmethod
    def of(cls, queries: int, **changed: Floats) -> Conditions:
        """Return the recorded conditions with some of them changed."""
        zero = np.zeros(queries)
        return cls(**{one.name: np.broadcast_to(changed.get(one.name, zero), (queries,)) for one in fields(cls)})


@dataclass(frozen=True, slots=True)
class Chances:
    """Behind one query each, shape (queries,): mean number of gold pairs, and chances of errors where there is one.

    ``misled`` is the large model's chance where the small one errs, ``large`` where it does not.
    """

    gold: Floats
    alike: Floats
    small: Floats
    large: Floats
    misled: Floats
    cut: Floats
    novel: Floats

    def expected(self) -> Floats:
        """Return E of gold pairs, small hits, large hits, and P(small wrong), shape (4, queries).

        A wrong answer misses 1 + Binomial(gold - 1, spill) pairs, hence E[missed; gold ≥ 1] of one error is
        (1 - spill)·P(gold ≥ 1) + spill·E[gold]; an error alike misses one, an answer cut short half, rounded up.
        """
        share = self.gold / GOLD_MOST
        some, odd = 1.0 - (1.0 - share) ** GOLD_MOST, 0.5 * (1.0 - (1.0 - 2.0 * share) ** GOLD_MOST)
        large = self.large + self.small * (self.misled - self.large)
        missed = [
            self.alike * some + (1.0 - self.alike) * chance * ((1.0 - spill) * some + spill * self.gold)
            for chance, spill in ((self.small, SMALL_SPILL), (large, LARGE_SPILL))
        ]
        missed[0] += self.cut * (0.5 * (self.gold + odd) - missed[0])
        wrong = some * (self.cut + (1.0 - self.cut) * (self.alike + (1.0 - self.alike) * self.small))
        wrong += (1.0 - wrong) * self.novel * (1.0 - NOVEL_SMALL)
        hits = [
            self.gold - one + self.novel * found for one, found in zip(missed, (NOVEL_SMALL, NOVEL_LARGE), strict=True)
        ]
        return np.stack((self.gold + self.novel, *hits, wrong))


@dataclass(frozen=True, slots=True)
class Answers:
    """Drawn counts, shape (queries,) each: gold pairs, hits of both answers, and whether the answers are equal."""

    gold: NDArray[np.int64]
    small: NDArray[np.int64]
    large: NDArray[np.int64]
    agree: NDArray[np.bool_]


def difficulty(rng: np.random.Generator, conditions: Conditions) -> Floats:
    """Draw what logit(u) would be under the recorded signal, shape (queries,)."""
    share = rng.uniform(size=len(conditions.hard))
    share = 1.0 - (1.0 - share) ** np.exp(conditions.hard)
    for prior in np.unique(conditions.prior[conditions.prior != 0.0]):
        moved = conditions.prior == prior
        share[moved] = np.interp(share[moved], *_prior_quantiles(float(prior)))
    return np.interp(share, np.linspace(0.0, 1.0, len(_LOGIT_U)), _LOGIT_U)


def _prior_quantiles(prior: float) -> tuple[Floats, Floats]:
    """Return the shifted distribution of the recorded quantile level: cumulated mass, and the level it stands for."""
    level = (np.arange(_SHARE_STEPS) + 0.5) / _SHARE_STEPS
    place = np.interp(level, np.linspace(0.0, 1.0, len(_LOGIT_U)), _LOGIT_U)
    mass = np.cumsum(_prior_weight(place, np.full(len(place), prior)))
    return np.concatenate(([0.0], mass / mass[-1])), np.linspace(0.0, 1.0, _SHARE_STEPS + 1)


def _prior_weight(place: Floats, prior: Floats) -> Floats:
    """Return by how much queries of one difficulty become more frequent (Bayes)."""
    alike, small = np.interp(place, _AT, _ALIKE), _moved(np.interp(place, _AT, _SMALL), _SMALL_BASE)
    gold = np.interp(place, _AT, _GOLD)
    some = 1.0 - (1.0 - gold / GOLD_MOST) ** GOLD_MOST
    return 1.0 + some * (1.0 - alike) * small * (np.exp(prior) - 1.0)


def chances(place: Floats, conditions: Conditions) -> Chances:
    """Return the chances behind queries of given difficulty, shape (queries,)."""
    alike = _moved(np.interp(place, _AT, _ALIKE), conditions.alike)
    small = _moved(np.interp(place, _AT, _SMALL), _SMALL_BASE + conditions.small + conditions.prior)
    large = np.interp(place, _AT, _LARGE)
    return Chances(
        gold=np.interp(place, _AT, _GOLD),
        alike=alike,
        small=small + (1.0 - small) * conditions.blunder,
        large=_moved(large, conditions.large),
        misled=_moved(large, conditions.large + conditions.misled),
        cut=conditions.cut,
        novel=conditions.novel,
    )


def _moved(chance: Floats, log_odds: Floats | float) -> Floats:
    odds = chance * np.exp(log_odds)
    return np.asarray(odds / (1.0 - chance + odds))


def draw(rng: np.random.Generator, behind: Chances) -> Answers:
    """Draw both models' answers to each query."""
    queries = len(behind.gold)
    gold = rng.binomial(GOLD_MOST, np.clip(behind.gold / GOLD_MOST, 0.0, 1.0))
    alike, small, large, same = rng.uniform(size=(4, queries))
    both = (gold > 0) & (alike < behind.alike)
    small_wrong = (gold > 0) & ~both & (small < behind.small)
    large_wrong = (gold > 0) & ~both & (large < np.where(small_wrong, behind.misled, behind.large))
    others = np.maximum(gold - 1, 0)
    small_missed = np.where(small_wrong, 1 + rng.binomial(others, SMALL_SPILL), both)
    large_missed = np.where(large_wrong, 1 + rng.binomial(others, LARGE_SPILL), both)
    alike_by_chance = small_wrong & large_wrong & (small_missed == large_missed) & (same < SAME_MISTAKE)
    agree = (~small_wrong & ~large_wrong) | alike_by_chance
    answers = Answers(gold, gold - small_missed, gold - large_missed, agree)
    # What other streams never draw leaves their chance as it was.
    return _further(rng, behind, answers) if behind.cut.any() or behind.novel.any() else answers


def _further(rng: np.random.Generator, behind: Chances, answers: Answers) -> Answers:
    """Cut small answers short, and add pairs of a new type, which neither model may find."""
    cut, novel, small, large = rng.uniform(size=(4, len(behind.gold)))
    ends = (answers.gold > 0) & (cut < behind.cut)
    more = novel < behind.novel
    found_small, found_large = more & (small < NOVEL_SMALL), more & (large < NOVEL_LARGE)
    return Answers(
        answers.gold + more,
        np.where(ends, answers.gold // 2, answers.small) + found_small,
        answers.large + found_large,
        answers.agree & ~ends & (found_small == found_large),
    )
