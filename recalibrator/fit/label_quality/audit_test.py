"""Wald's sequential test on trusted answers: whether they refute or confirm the labels that are under suspicion.

Two hypotheses are compared by their likelihood ratio, one answer after another (Wald, 1945): that errors are as
frequent as before the suspicion, and that their odds are multiplied by a factor that the suspected labels suggest. The
labels know this factor only up to a posterior distribution, so the ratio is averaged over it.
"""

from __future__ import annotations

from math import log
from typing import Literal, NamedTuple

import numpy as np

from recalibrator.fit.arrays import Floats
from recalibrator.fit.estimate.agreement import Chances

Verdict = Literal["refuted", "confirmed", "unanswered", "unfounded"]

_SIZES = np.linspace(log(1.25), log(8.0), 16)
"""Logs of the factors on the odds that are considered: less is not suspected, and a few labels cannot show more."""
_PRIOR = -0.5 * ((_SIZES - log(2.0)) / 0.5) ** 2
_PRIOR -= np.logaddexp.reduce(_PRIOR)
"""Ln of each factor's prior probability: twice the odds, give or take a factor of 1.6."""

SUPPORT = 2.0
"""Ln of the likelihood ratio from which labels since an alarm count as contradicting by themselves. Where they do not
contradict, a value so large comes up in one of seven false alarms at most (Ville); true labels are then set aside."""


class AuditRules(NamedTuple):
    """When an audit ends.

    Parameters
    ----------
    bound : float
        Of the log likelihood ratio, either way.
    answers : int
        Most answers to wait for; the likelier hypothesis is then taken.
    least : int
        Answers below which an audit that ran out of time decides nothing.
    """

    bound: float
    answers: int
    least: int


class OddsPosterior(NamedTuple):
    """Posterior distribution of the factor on the odds, given suspected labels.

    Parameters
    ----------
    log_odds : ndarray, shape (factors,)
        Logs of factors.
    log_probability : ndarray, shape (factors,)
        Ln of each factor's posterior probability, given that there is one.
    support : float
        Ln of P(labels | some factor) over P(labels | none).
    """

    log_odds: Floats
    log_probability: Floats
    support: float

    @property
    def mean(self) -> float:
        """Posterior mean of the log of the factor."""
        return float(self.log_odds @ np.exp(self.log_probability))


def log_likelihood_ratios(chances: Chances, errors: Floats, log_odds: Floats) -> Floats:
    """Return ln of P(errors | odds multiplied) over P(errors | as before) for each of some factors.

    Parameters
    ----------
    errors : ndarray, shape (labels,)
        0 or 1.

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


def verdict(
    chances: Chances, errors: Floats, posterior: OddsPosterior, rules: AuditRules, *, ended: bool, carried: float = 0.0
) -> tuple[Verdict | None, float]:
    """Return the verdict of the answers so far, and the log likelihood ratio behind it.

    Parameters
    ----------
    errors : ndarray, shape (answers,)
        By trusted answers.
    posterior : OddsPosterior
        Of the factor, given the suspected labels.
    ended : bool
        Whether to wait for no more answers.
    carried : float
        Log odds that labels are right before the first answer: the prior, or the result of earlier audits.

    Returns
    -------
    verdict : str or None
        ``refuted``: errors are as before, so the labels are wrong. ``confirmed``: the labels are right.
        ``unanswered``: too few answers came. ``unfounded``: errors are as before, also by the labels since the alarm,
        which was a false one. None: more answers, or more labels, are needed.
    ratio : float
        Within the bound unless it is conclusive.

    Examples
    --------
    >>> rules, known = AuditRules(bound=3.0, answers=40, least=10), Chances(np.zeros(5), np.ones(5), np.full(5, 0.1))
    >>> posterior = odds_posterior(known, np.ones(5), rising=True)
    >>> verdict(known, np.ones(5), posterior, rules, ended=False)[0]
    'confirmed'
    >>> verdict(known, np.zeros(5), posterior, rules, ended=False)[0] is None
    True
    """
    answers = len(errors)
    ratio = mixed_ratio(chances, errors, posterior) + carried
    if not (abs(ratio) >= rules.bound or answers >= rules.answers or (ended and answers >= rules.least)):
        return ("unanswered" if ended else None), ratio
    if ratio > 0.0:
        return "confirmed", ratio
    # The labels that raised the alarm are a biased sample. Only later ones can show that the labels are wrong rather
    # than the alarm.
    if posterior.support >= SUPPORT:
        return "refuted", ratio
    return ("unfounded" if ended else None), ratio
