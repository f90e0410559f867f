"""Whether the categories of a series have other shares than before: Bayes factors of counts, and how many to believe.

Two hypotheses of the counts before and after a possible change: one distribution of the categories, or two, each with
Jeffreys' prior (Gunel and Dickey, 1974). Their ratio is an e-value in the Bayesian sense: under one distribution its
mean is 1. Summed over all possible beginnings it is a Shiryaev-Roberts e-detector (Shin, Ramdas and Rinaldo, 2024).
Many series are looked at after every block and stay dependent in unknown ways, so that Benjamini and Hochberg's rule on
p-values holds neither over time nor over series; its form for e-detectors, e-d-BH, bounds the false share of what is
found by alpha times the blocks seen, under any dependence (Dandapanthula and Ramdas, 2025, arXiv:2501.04130).
"""

from __future__ import annotations

import numpy as np

from recalibrator.fit.arrays import Bools, Floats

_PRIOR = 0.5
_LOG_GAMMA_PRIOR = 0.5 * float(np.log(np.pi))


def log_bayes_factor(before: Floats, after: Floats) -> Floats:
    """Return the log of the evidence that two rows of counts come from different distributions.

    Parameters
    ----------
    before, after : ndarray, shape (..., categories)
        Categories without any count in both take no part.

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> before, after = np.array([[900.0, 100.0], [900.0, 100.0]]), np.array([[90.0, 10.0], [60.0, 40.0]])
    >>> log_bayes_factor(before, after).round(1).tolist()
    [-2.5, 24.4]
    """
    pooled = before + after
    known = pooled > 0.0
    first, second, together = _log_marginal(np.array((before, after, pooled)), known, np.where(known, _PRIOR, 0.0))
    found: Floats = first + second - together
    return found


def _log_marginal(counts: Floats, known: Bools, prior: Floats) -> Floats:
    """Return the log probability of counts in their order, under Jeffreys' prior over the known categories."""
    from scipy.special import gammaln

    total = prior.sum(axis=-1)
    # One category alone is certain; gammaln(0) of none at all is kept out as well.
    whole = np.where(total > 0.0, total, 1.0)
    terms = np.where(known, gammaln(np.where(known, counts + prior, 1.0)) - _LOG_GAMMA_PRIOR, 0.0)
    found: Floats = terms.sum(axis=-1) + gammaln(whole) - gammaln(counts.sum(axis=-1) + whole)
    return found


def detector(log_factors: Floats, allowed: Bools) -> Floats:
    """Return the log of the Shiryaev-Roberts sum over possible beginnings, shape (series,).

    Parameters
    ----------
    log_factors, allowed : ndarray, shape (series, beginnings)
        Where enough is known from before.
    """
    from scipy.special import logsumexp

    if not log_factors.shape[1]:
        return np.full(len(log_factors), -np.inf)
    masked = np.where(allowed, log_factors, -np.inf)
    some: Bools = np.asarray(allowed.any(axis=1))
    found: Floats = np.where(some, logsumexp(np.where(some[:, None], masked, 0.0), axis=1), -np.inf)
    return found


def discoveries(log_evidence: Floats, alpha: float) -> Bools:
    """Return which series e-d-BH calls changed: the k largest, for the last k with a k-th of series / (alpha k).

    Parameters
    ----------
    log_evidence : ndarray, shape (series,)
        Of e-detectors.
    alpha : float
        Bound of the false share of discoveries, by block seen.

    Examples
    --------
    >>> discoveries(np.log([1e6, 2e4, 10.0, 1.0]), alpha=1e-4).tolist()
    [True, True, False, False]
    """
    count = len(log_evidence)
    order = np.argsort(-log_evidence, kind="stable")
    bounds = np.log(count / alpha / np.arange(1, count + 1)) if count else np.zeros(0)
    passing = np.flatnonzero(log_evidence[order] >= bounds)
    found = np.zeros(count, dtype=np.bool_)
    found[order[: passing[-1] + 1 if len(passing) else 0]] = True
    return found
