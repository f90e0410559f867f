"""A workload drawn to the paper's summary statistics: a seed flows in, answers of two imagined models flow out.

Each query has 0 to 4 fields of 6 and one latent difficulty. A model gets a field right with a chance that falls with
the difficulty on the logit scale; a wrong field carries a wrong value. u is the logit of the small model's true error
probability plus noise, scaled and shifted. What is fitted, and to which figure of the paper: the mix of fields (both
overall micro-F1), each field's level (table 4), the noise of u and of the entropy (their costs at the target, table 2),
how much the large model feels the difficulty (its micro-F1 on escalated queries), the shift of u (ECE of the raw u).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import expit, logit

from research.paper import published
from research.paper.measures import calibration_error
from research.paper.workloads import FIELDS, Answers, Floats, Integers, Mask, Workload

DIFFICULTY = 1.2
"""Logits that one standard deviation of difficulty costs the small model: an assumption, no figure tells it."""
OTHER_DIFFICULTIES = (0.8, 2.0)
"""Tried as well, to see what hangs on it."""
_ERROR_FLOOR = 0.005
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Knobs:
    """What was fitted to the paper's figures.

    ``difficulty``: assumed, not fitted: see :data:`DIFFICULTY`. ``field_share``: share of each field among all pairs.
    ``large_difficulty``: logits that one standard deviation of difficulty costs the large model. ``margin_noise``,
    ``entropy_noise``: standard deviation of the signals about the logit of the true error probability, in logits.
    ``shift``: logits by which u understates the error.
    """

    difficulty: float
    field_share: tuple[float, ...]
    large_difficulty: float
    margin_noise: float
    entropy_noise: float
    shift: float


@dataclass(frozen=True, slots=True)
class Draws:
    """All chance, drawn once, so that every fit below is a smooth function of the knobs."""

    present: Mask
    difficulty: Floats
    noise: Floats
    more_noise: Floats


def synthetic_workload(
    queries: int = published.QUERIES, seed: int = 0, difficulty: float = DIFFICULTY
) -> tuple[Workload, Knobs]:
    """Draw a workload.

    ``difficulty``: logits that one standard deviation of difficulty costs the small model.

    Returns with signals ``margin``, ``entropy`` and ``max_probability``; of the last the paper gives no figure, its
    noise lies half-way between the two others.
    """
    rng = np.random.default_rng(seed)
    share = _field_share()
    draws = Draws(_fields(queries, share, rng), *rng.normal(size=(3, queries)))
    knobs, small, large = _fit(draws, share, difficulty)
    right_small = rng.uniform(size=small.shape) < small
    right_large = rng.uniform(size=large.shape) < large
    present = draws.present.astype(np.int64)
    error = (draws.present & ~right_small).any(axis=1)
    knobs, signals = _signals(draws, small, error, knobs)
    workload = Workload(
        "synthetic",
        Answers((draws.present & right_small).astype(np.int64), present),
        Answers((draws.present & right_large).astype(np.int64), present),
        gold=present,
        error=error,
        signals=signals,
        target=published.TARGET,
    )
    return workload, knobs


def _field_share() -> Floats:
    """Return the mix of fields nearest to an even one under which table 4 adds up to both overall figures."""
    small, large = np.array([published.FIELD_F1[field] for field in FIELDS]).T
    even = np.full(len(FIELDS), 1.0 / len(FIELDS))
    found = minimize(
        lambda share: float(((share - even) ** 2).sum()),
        even,
        bounds=[(0.02, 0.4)] * len(FIELDS),
        constraints=[
            {"type": "eq", "fun": lambda share: share.sum() - 1.0},
            {"type": "eq", "fun": lambda share: share @ small - published.SMALL_F1},
            {"type": "eq", "fun": lambda share: share @ large - published.LARGE_F1},
        ],
    )
    return np.asarray(found.x)


def _fields(queries: int, share: Floats, rng: np.random.Generator) -> Mask:
    """Draw which fields each query has: the mix as given, no field twice in a query."""
    count = rng.choice(len(published.ENTITIES_SHARE), size=queries, p=published.ENTITIES_SHARE)
    keys = rng.gumbel(size=(queries, len(FIELDS)))
    log_weight = np.log(share)
    for _ in range(12):
        # Drawing without replacement flattens the mix; the weights lean against it.
        rank = np.argsort(np.argsort(-(keys + log_weight), axis=1), axis=1)
        present = rank < count[:, None]
        log_weight += np.log(share / (present.sum(axis=0) / present.sum()))
    return np.asarray(present)


def _chances(draws: Draws, level: int, slope: float) -> Floats:
    """Return the chance of a right value, shape (queries, fields), at the levels of table 4's column."""
    chances = np.empty(draws.present.shape)
    for column, field in enumerate(FIELDS):
        goal, at = published.FIELD_F1[field][level], draws.present[:, column]
        offset = brentq(lambda a, at=at, goal=goal: expit(a - slope * draws.difficulty[at]).mean() - goal, -20.0, 20.0)
        chances[:, column] = expit(offset - slope * draws.difficulty)
    return chances


def _error_probability(draws: Draws, small: Floats) -> Floats:
    right = np.where(draws.present, small, 1.0).prod(axis=1)
    return np.clip(1.0 - right, _ERROR_FLOOR, 1.0 - _ERROR_FLOOR)


def _rate_at_target(order: Integers, draws: Draws, small: Floats, large: Floats) -> float:
    """Return the least escalation rate that meets the target in expectation, most uncertain first."""
    gain = np.where(draws.present, large - small, 0.0).sum(axis=1)[order]
    hits = np.where(draws.present, small, 0.0).sum() + np.concatenate(([0.0], np.cumsum(gain)))
    return float(np.argmax(hits >= published.TARGET * draws.present.sum()) / len(order))


def _fit(draws: Draws, share: Floats, difficulty: float) -> tuple[Knobs, Floats, Floats]:
    """Fit the noises and the large model's slope in turn."""
    small = _chances(draws, 0, difficulty)
    risk = logit(_error_probability(draws, small))
    knobs = Knobs(difficulty, tuple(share.tolist()), 0.05, 1.0, 2.0, 0.0)
    wanted = {"ucci": 0.0, "entropy": 0.0}
    wanted = {name: published.escalation_rate(published.AT_TARGET[name]) for name in wanted}
    large = _chances(draws, 1, knobs.large_difficulty)
    for _ in range(_ROUNDS):

        def excess(noise: float, rate: float, large: Floats = large) -> float:
            return _rate_at_target(np.argsort(-(risk + noise * draws.noise)), draws, small, large) - rate

        margin = brentq(excess, 0.0, 30.0, args=(wanted["ucci"],), xtol=1e-3)
        entropy = brentq(excess, 0.0, 60.0, args=(wanted["entropy"],), xtol=1e-3)
        score = risk + margin * draws.noise
        escalated = score > np.quantile(score, 1.0 - wanted["ucci"])

        def short(slope: float, escalated: Mask = escalated) -> float:
            chances = _chances(draws, 1, slope)[escalated]
            return float(chances[draws.present[escalated]].mean()) - published.LARGE_ON_ESCALATED

        slope = brentq(short, -1.0, 2.0, xtol=1e-3)
        large = _chances(draws, 1, slope)
        knobs = replace(knobs, large_difficulty=slope, margin_noise=margin, entropy_noise=entropy)
    return knobs, small, large


def _signals(draws: Draws, small: Floats, error: Mask, knobs: Knobs) -> tuple[Knobs, dict[str, Floats]]:
    """Return the signals; the worse ones are the margin with further noise, so that they add nothing to it."""
    risk = logit(_error_probability(draws, small))
    margin = risk + knobs.margin_noise * draws.noise
    further = np.sqrt(max(0.0, knobs.entropy_noise**2 - knobs.margin_noise**2))
    scale = float(np.var(risk) / np.var(margin))
    centred = np.mean(risk) + scale * (margin - np.mean(margin))

    def excess(shift: float) -> float:
        return calibration_error(expit(centred - shift), error) - published.CALIBRATION_ERROR["none"]

    shift = brentq(excess, 0.0, 8.0, xtol=1e-4) if excess(0.0) < 0.0 < excess(8.0) else 0.0
    signals = {
        "margin": expit(centred - shift),
        "entropy": expit(scale * (margin + further * draws.more_noise)),
        "max_probability": expit(scale * (margin + 0.5 * further * draws.more_noise)),
    }
    return replace(knobs, shift=float(shift)), signals
