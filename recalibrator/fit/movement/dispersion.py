"""By how much counts of blocks differ more than by chance, and how well that is known.

Queries come in bursts: a user's come one after another, from one source and in one language, so that a block holds
fewer independent choices than queries. By how much depends on the category: a rare language may come in bursts of eight
while the lengths of the same texts are as good as independent. Hence a factor for each category of each series, from
neighbouring blocks. A rare category is seen in few blocks, so that its own estimate may be anything: it is drawn
towards the workload's, as variances of many small groups are (Smyth, 2004, "Linear Models and Empirical Bayes Methods
for Assessing Differential Expression"), and evidence takes into account that it remains an estimate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recalibrator.fit.arrays import Floats

_LEAST_FREEDOM, _MOST_FREEDOM = 1.0, 10.0
"""Degrees of freedom that what is usual for the workload's categories may be worth to a single one."""

_WELL_KNOWN = 4.0
"""Degrees of freedom of factors from which the workload's is taken."""

_CORRELATED = 1.5
"""Neighbouring pairs share a block: their mean has the variance of that of 2/3 as many independent pairs."""


class Scatter(NamedTuple):
    """Sums over pairs of neighbouring blocks, by category: add up, and can be taken apart.

    Parameters
    ----------
    observed, expected : ndarray, shape (..., categories)
        Squared differences of counts, and what they are on average where all queries are independent; in queries.
    pairs : ndarray, shape (...)
        In which both blocks hold queries.
    """

    observed: Floats
    expected: Floats
    pairs: Floats


class Dispersion(NamedTuple):
    """The factor by which variances exceed those of independent queries, at least 1, and its degrees of freedom."""

    factor: Floats
    freedom: Floats


def pair_scatter(blocks: Floats) -> Scatter:
    """Return the scatter of each pair of neighbouring blocks.

    Parameters
    ----------
    blocks : ndarray, shape (series, blocks, categories)

    Returns
    -------
    Scatter
        Of shape (series, blocks - 1, categories).

    Examples
    --------
    >>> scatter = pair_scatter(np.array([[[90.0, 10.0], [110.0, 10.0]]]))
    >>> scatter.observed.round(2).tolist(), scatter.expected.round(2).tolist()
    ([[[3.33, 3.33]]], [[[18.18, 18.18]]])
    """
    one, other = blocks[:, :-1], blocks[:, 1:]
    first, second = one.sum(axis=-1, keepdims=True), other.sum(axis=-1, keepdims=True)
    both = (first > 0.0) & (second > 0.0)
    seen = np.where(both, one + other, 0.0)
    observed = np.where(both, (one * second - other * first) ** 2, 0.0) / np.where(both, first * second, 1.0)
    expected = seen * (1.0 - seen / np.where(both, first + second, 1.0))
    return Scatter(observed, expected, both[..., 0].astype(np.float64))


def dispersion(known: Scatter, spared: Scatter) -> Dispersion:
    """Return the dispersion of each category for each possible beginning of a change.

    Parameters
    ----------
    known : Scatter
        Of all pairs; shape (series, categories).
    spared : Scatter
        Of the pair between whose blocks the change would have begun, which says nothing of the dispersion; shape
        (series, beginnings, categories).

    Returns
    -------
    Dispersion
        Of shape (series, beginnings, categories).
    """
    usual = usual_dispersion(known)
    observed = known.observed[:, None] - spared.observed
    expected = known.expected[:, None] - spared.expected
    pairs = (known.pairs[:, None] - spared.pairs)[..., None]
    own = _own(Scatter(observed, expected, pairs), usual.factor)
    freedom = own.freedom + usual.freedom
    factor = (own.freedom * own.factor + usual.freedom * usual.factor) / freedom
    return Dispersion(np.maximum(1.0, factor), freedom)


def _own(scatter: Scatter, usual: Floats) -> Dispersion:
    """Return each category's own factor, and by how many degrees of freedom it is known.

    The variance of a mean of squared differences comes from their number and, where bursts of a category are rare, from
    the number of bursts: 1 / freedom = 1.5 / pairs + 1 / (4 bursts).
    """
    is_seen = (scatter.expected > 0.0) & (scatter.pairs > 0.0)
    own = np.where(is_seen, scatter.observed / np.where(is_seen, scatter.expected, 1.0), 1.0)
    # Each query is part of two pairs.
    bursts = scatter.expected / (2.0 * np.maximum(own, usual))
    unknown = _CORRELATED / np.where(is_seen, scatter.pairs, 1.0) + 0.25 / np.where(is_seen, bursts, 1.0)
    return Dispersion(own, np.where(is_seen, 1.0 / unknown, 0.0))


def usual_dispersion(known: Scatter) -> Dispersion:
    """Return what is usual for the workload's categories, and what that is worth to a category, shape () each.

    Where factors differ by no more than their estimates do, the mean says more than any single one; where they differ
    by more, it says little. By Smyth's moments of the logarithm, with trigamma(ν / 2) = 2 / ν + 2 / ν² nearly.
    """
    own = _own(Scatter(known.observed, known.expected, known.pairs[..., None]), np.ones(()))
    well = own.freedom >= _WELL_KNOWN
    if not well.any():
        return Dispersion(np.ones(()), np.full((), _LEAST_FREEDOM))
    logs, freedom = np.log(np.maximum(1.0, own.factor[well])), own.freedom[well]
    excess = float(logs.var() - (2.0 / freedom + 2.0 / freedom**2).mean())
    worth = _MOST_FREEDOM if excess <= 0.0 else (1.0 + np.sqrt(1.0 + 2.0 * excess)) / excess
    return Dispersion(np.exp(logs.mean()), np.clip(worth, _LEAST_FREEDOM, _MOST_FREEDOM))


def log_evidence(log_factors: Floats, before: Floats, after: Floats, spread: Dispersion) -> Floats:
    """Return the log of the evidence of Bayes factors of counts, dispersion taken into account.

    A log likelihood ratio is divided by the factor of those categories that differ. Were the factor known, that would
    be all; an estimate with ν degrees of freedom makes of exp(L / φ) what Student's distribution makes of the normal:
    (1 + 2 L / (φ ν)) to the power of (ν + 1) / 2.

    Parameters
    ----------
    log_factors : ndarray, shape (...)
    before, after : ndarray, shape (..., categories)
    spread : Dispersion

    Examples
    --------
    >>> before, after = np.array([900.0, 100.0]), np.array([60.0, 40.0])
    >>> known, guessed = (Dispersion(np.array([2.0, 2.0]), np.full(2, freedom)) for freedom in (1e9, 10.0))
    >>> [round(float(log_evidence(np.array(24.4), before, after, one)), 1) for one in (known, guessed)]
    [12.2, 6.8]
    """
    sizes = [counts.sum(axis=-1, keepdims=True) for counts in (before, after)]
    share_before, share_after = (
        counts / np.maximum(size, 1.0) for counts, size in zip((before, after), sizes, strict=True)
    )
    pooled = before + after
    weight = (share_after - share_before) ** 2 / np.where(pooled > 0.0, pooled, 1.0)
    whole = weight.sum(axis=-1)
    weight = np.where(whole[..., None] > 0.0, weight / np.where(whole > 0.0, whole, 1.0)[..., None], 0.0)
    factor = np.maximum(1.0, (weight * spread.factor).sum(axis=-1))
    freedom = np.maximum(1.0, (weight * spread.freedom).sum(axis=-1))
    ratio = log_factors / factor
    gain = 0.5 * (freedom + 1.0) * np.log1p(2.0 * np.maximum(ratio, 0.0) / freedom)
    found: Floats = np.where(ratio > 0.0, gain, ratio)
    return found
