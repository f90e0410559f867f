"""What trusted answers say of labels that are under suspicion: a likelihood ratio (Wald, 1945).

Two hypotheses are compared, one answer after another: that errors are as frequent as before the suspicion, and that
their odds are multiplied by a factor that the suspected labels suggest. The labels know this factor only up to a
posterior distribution, so the ratio is averaged over it.
"""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np

from recalibrator.fit.arrays import Floats
from recalibrator.fit.estimate.agreement import Chances

_SIZES = np.linspace(log(1.25), log(8.0), 16)
"""Logs of the factors on the odds that are considered: less is not suspected, and a few labels cannot show more."""
_PRIOR = -0.5 * ((_SIZES - log(2.0)) / 0.5) ** 2
_PRIOR -= np.logaddexp.reduce(_PRIOR)
"""Ln of each factor's prior probability: twice the odds, give or take a factor of 1.6."""

SUPPORT = 2.0
"""Ln of the likelihood ratio from which labels count as right by themselves: wrong ones come to look so in one case of
seven at most (Ville)."""


class OddsPosterior(NamedTuple):
    """Posterior distribution of the factor on the odds, given suspected labels."""

    #: Shape (factors,): logs of factors.
    log_odds: Floats
    #: Shape (factors,): Ln of each factor's posterior probability, given that there is one.
    log_probability: Floats
    #: Ln of P(labels | some factor) over P(labels | none).
    support: float

    @property
    def mean(self) -> float:
        """Posterior mean of the log of the factor."""
        return float(self.log_odds @ np.exp(self.log_probability))


def log_likelihood_ratios(chances: Chances, errors: Floats, log_odds: Floats) -> Floats:
    """Return ln of P(errors | odds multiplied) over P(errors | as before) for each of some factors.

    Parameters
    ----------
    chances : Chances
    errors : ndarray, shape (labels,)
        0 or 1.
    log_odds : ndarray, shape (factors,)

    Examples
    --------
    >>> known = Chances(np.zeros(2), np.ones(2), np.full(2, 0.1))
    >>> log_likelihood_ratios(known, np.array([0.0, 1.0]), np.log([1.0, 9.0])).round(4).tolist()
    [0.0, 1.0217]
    """
    before, after = chances.at(0.0), chances.at(log_odds[:, None])
    right, wrong = np.log((1.0 - after) / (1.0 - before)), np.log(after / before)
    found: Floats = np.where(errors > 0.0, wrong, right).sum(axis=1)
    return found


def odds_posterior(chances: Chances, errors: Floats, *, rising: bool) -> OddsPosterior:
    """Return the posterior of the factor on the odds, by Bayes' rule.

    The labels that raised an alarm are the worst of a while and overstate the factor: without the prior, answers that
    support a smaller factor would count as supporting none.

    Parameters
    ----------
    chances : Chances
    errors : ndarray, shape (labels,)
    rising : bool
        Whether errors are suspected to be too many, rather than too few.

    Examples
    --------
    >>> few = Chances(np.zeros(3), np.ones(3), np.full(3, 0.1))
    >>> round(float(np.exp(odds_posterior(few, np.ones(3), rising=True).mean)), 2)
    3.38
    """
    log_odds = _SIZES if rising else -_SIZES
    joint = log_likelihood_ratios(chances, errors, log_odds) + _PRIOR
    support = float(np.logaddexp.reduce(joint))
    return OddsPosterior(log_odds, joint - support, support)


def mixed_ratio(chances: Chances, errors: Floats, posterior: OddsPosterior) -> float:
    """Return ln of P(errors | odds multiplied) over P(errors | as before), the factor averaged over its posterior."""
    ratios = log_likelihood_ratios(chances, errors, posterior.log_odds)
    return float(np.logaddexp.reduce(posterior.log_probability + ratios))
