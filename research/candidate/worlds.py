"""What changed, and when: sums by block → weighed hypotheses, each with a Gaussian over the world's deviation η.

Each hypothesis says that the latest s blocks belong to a world that differs from the one before in one of a few ways:
a little, much, in what both models get wrong, with another mix of queries, or since a known world has come back. All
are compared with "nothing changed" by the marginal likelihood of those blocks, in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from research.candidate.curves import DIMENSIONS, Floats

_NEWTON_STEPS = 3


@dataclass(frozen=True, slots=True)
class World:
    """A Gaussian over η in information form, and how queries spread over u.

    ``info``: ndarray, shape (DIMENSIONS, DIMENSIONS). ``vec``: ndarray, shape (DIMENSIONS,); info times the mean.
    ``mix``: ndarray, shape (bins,); queries by bin of u. ``cells``: ndarray, shape (cells,); the same by cell.
    """

    info: Floats
    vec: Floats
    mix: Floats
    cells: Floats

    @property
    def mean(self) -> Floats:
        """Of η."""
        return np.linalg.solve(self.info, self.vec)


@dataclass(frozen=True, slots=True)
class Kind:
    """One way in which worlds change.

    ``hazard``: chance a block. ``spread``: ndarray, shape (DIMENSIONS,); standard deviations of the change of η.
    ``mean``: ndarray, shape (DIMENSIONS,); of the change of η. ``mixed``: whether the mix of queries changes too.
    ``along``: ndarray, shape (DIMENSIONS,), optional; a direction in which η may change besides, by a standard normal
    amount.
    """

    name: str
    hazard: float
    spread: Floats
    mean: Floats
    mixed: bool = False
    along: Floats | None = None

    @property
    def covariance(self) -> Floats:
        """Of the change of η."""
        along = np.zeros(DIMENSIONS) if self.along is None else self.along
        return np.diag(self.spread**2) + np.outer(along, along)


class Since(NamedTuple):
    """Sums of the latest s blocks, and of the world's blocks before; first axis: s.

    ``ages``, ``widths``: s in blocks, and how many ages each stands for. ``info``, ``vec``: of the latest s blocks.
    ``before_info``, ``before_vec``: of the world as the blocks before tell it. ``mix``, ``before_mix``: ndarray, shape
    (ages, bins).
    """

    ages: Floats
    widths: Floats
    info: Floats
    vec: Floats
    before_info: Floats
    before_vec: Floats
    mix: Floats
    before_mix: Floats


class Weighed(NamedTuple):
    """All hypotheses, "nothing changed" first; first axis: hypotheses.

    ``weight``: posterior probabilities, summing to 1. ``mean``: ndarray, shape (hypotheses, DIMENSIONS).
    ``covariance``: ndarray, shape (hypotheses, DIMENSIONS, DIMENSIONS). ``age``: blocks since the change; 0: none.
    ``kind``: index into the kinds, or their number plus that of the known world; -1: none.
    """

    weight: Floats
    mean: Floats
    covariance: Floats
    age: Floats
    kind: Floats

    def take(self, rows: Floats) -> Weighed:
        """Return some of them, weights summing to 1 again."""
        some = Weighed(*(column[rows] for column in self))
        return some._replace(weight=some.weight / some.weight.sum())


def agreement_info(logit: Floats, place: Floats, pairs: Floats, agreeing: Floats, at: Floats) -> tuple[Floats, Floats]:
    """Return what pairs say about level and slope of logit A, expanded at some values of both.

    ``logit``, ``place``: ndarray, shape (bins,). ``pairs``, ``agreeing``: ndarray, shape (rows, bins). ``at``: ndarray,
    shape (rows, 2) or (2,).

    Returns info, of shape (rows, 2, 2), and vec, of shape (rows, 2).
    """
    line = np.stack((np.ones(len(place)), place))
    chance = 1.0 / (1.0 + np.exp(-(logit + at @ line)))
    moments = (pairs * chance * (1.0 - chance)) @ np.stack((line[0], place, place**2), axis=1)
    info = moments[:, [0, 1, 1, 2]].reshape(-1, 2, 2)
    vec = (agreeing - pairs * chance) @ line.T + (info @ np.broadcast_to(at, (len(info), 2))[:, :, None])[:, :, 0]
    return info, vec


def agreement_modes(
    logit: Floats, place: Floats, pairs: Floats, agreeing: Floats, start: Floats, ridge: float
) -> Floats:
    """Return the most probable level and slope for each row of counts, held to ``start`` by a ridge; (rows, 2)."""
    at = np.tile(start, (len(pairs), 1))
    hold = ridge * np.eye(2)
    for _ in range(_NEWTON_STEPS):
        info, vec = agreement_info(logit, place, pairs, agreeing, at)
        at = np.clip(np.linalg.solve(info + hold, (vec + ridge * start)[:, :, None])[:, :, 0], -4.0, 4.0)
    return at


def log_mix(counts: Floats, prior: Floats) -> Floats:
    """Return the log likelihood of counts by bin under a Dirichlet prior (less what depends on the counts alone)."""
    total = gammaln(prior.sum(axis=-1)) - gammaln((prior + counts).sum(axis=-1))
    return np.asarray(total + (gammaln(prior + counts) - gammaln(prior)).sum(axis=-1))


def log_evidence(since: Since, mean: Floats, covariance: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the log evidence of each row's latest blocks under a Gaussian prior on η, and the posterior.

    ``mean``, ``covariance``: ndarray, broadcast to (..., ages, DIMENSIONS[, DIMENSIONS]).
    """
    away = since.vec - (since.info @ mean[..., None])[..., 0]
    whole = np.eye(DIMENSIONS) + covariance @ since.info
    posterior = np.linalg.solve(whole, covariance)
    posterior = 0.5 * (posterior + np.swapaxes(posterior, -1, -2))
    step = (posterior @ away[..., None])[..., 0]
    at_mean = (mean * (since.vec - 0.5 * (since.info @ mean[..., None])[..., 0])).sum(axis=-1)
    evidence = at_mean + 0.5 * (away * step).sum(axis=-1) - 0.5 * np.linalg.slogdet(whole)[1]
    return evidence, mean + step, posterior


def weigh(
    since: Since,
    now: World,
    kinds: tuple[Kind, ...],
    known: tuple[World, ...],
    back: Kind,
    *,
    mix_spread: float,
    mix_scale: float,
    mix_most: float,
) -> Weighed:
    """Weigh all hypotheses.

    ``now``: as all its blocks tell it. ``known``: those that may have come back. ``back``: how a known world differs
    from what it was; its hazard is shared by all. ``mix_spread``: queries that the former mix is worth as a prior for a
    new one. ``mix_scale``: by which counts of queries are divided. ``mix_most``: queries that a known mix is worth at
    most.
    """
    before_cov = np.linalg.inv(since.before_info)
    before_mean = (before_cov @ since.before_vec[..., None])[..., 0]
    stay, _, _ = log_evidence(since, before_mean, before_cov)
    counts = since.mix / mix_scale
    same = log_mix(counts, _prior_mix(since.before_mix, mix_most) / mix_scale)
    other = log_mix(counts, _prior_mix(since.before_mix, mix_spread, least=True))
    found = []
    for number, kind in enumerate(kinds):
        evidence, mean, cov = log_evidence(since, before_mean + kind.mean, before_cov + kind.covariance)
        news = (other - same) if kind.mixed else 0.0
        found.append((evidence - stay + news + np.log(kind.hazard * since.widths), mean, cov, number))
    for number, world in enumerate(known, start=len(kinds)):
        cov = np.linalg.inv(world.info) + back.covariance
        evidence, mean, cov = log_evidence(since, world.mean, cov)
        news = log_mix(counts, _prior_mix(world.mix, mix_most) / mix_scale) - same
        found.append((evidence - stay + news + np.log(back.hazard / len(known) * since.widths), mean, cov, number))
    log = np.concatenate([[0.0], *(part[0] for part in found)])
    weight = np.exp(log - log.max())
    covariance = np.linalg.inv(now.info)
    return Weighed(
        weight / weight.sum(),
        np.concatenate([[covariance @ now.vec], *(part[1] for part in found)]),
        np.concatenate([[covariance], *(part[2] for part in found)]),
        np.concatenate([[0], *(since.ages for _ in found)]).astype(np.int64),
        np.concatenate([[-1], *(np.full(len(since.ages), part[3]) for part in found)]).astype(np.int64),
    )


def _prior_mix(mix: Floats, most: float, *, least: bool = False) -> Floats:
    """Return counts, one in each bin added, that are worth at most (with ``least``: exactly) so many queries."""
    counts = mix + 1.0
    total = counts.sum(axis=-1, keepdims=True)
    return np.asarray(counts * (most / total if least else np.minimum(1.0, most / total)))
