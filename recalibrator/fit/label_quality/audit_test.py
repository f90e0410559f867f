"""What trusted answers say of suspected labels: errors and what was expected of them flow in, a verdict flows out.

Two hypotheses are compared by their likelihood ratio, one answer after another (Wald's sequential test, 1945): that
errors are as frequent as before the suspicion, and that their odds are multiplied by what the labels say. How much that
is, labels know no better than their number allows: the ratio is averaged over what remains possible.
"""

from __future__ import annotations

from math import log
from typing import Literal, NamedTuple

import numpy as np

from recalibrator.fit.arrays import Floats
from recalibrator.fit.estimate.agreement import Chances

Verdict = Literal["refuted", "confirmed", "unanswered", "unfounded"]

_SIZES = np.linspace(log(1.25), log(8.0), 16)
"""Logs of the factors on the odds that are thought possible: one suspects no less, and a few labels tell no more."""
_BELIEVED = -0.5 * ((_SIZES - log(2.0)) / 0.5) ** 2
_BELIEVED -= np.logaddexp.reduce(_BELIEVED)
"""Ln of how probable each is before any label is seen: suspected are twice the odds, give or take a factor of 1.6."""

_SUPPORT = 2.0
"""Ln of the odds at which labels since an alarm contradict by themselves. While they do not, a value so large comes up
in one of seven false alarms at most (Ville), and then true labels would be set aside."""


class AuditRules(NamedTuple):
    """When an audit ends.

    Parameters
    ----------
    bound : float
        Of the log likelihood ratio, either way.
    answers : int
        Most answers that are waited for; the likelier hypothesis is then taken.
    least : int
        Answers below which an audit that ran out of time says nothing.
    """

    bound: float
    answers: int
    least: int


class Told(NamedTuple):
    """What labels say of the factor on the odds.

    Parameters
    ----------
    log_odds : ndarray, shape (factors,)
        Logs of factors.
    log_probability : ndarray, shape (factors,)
        Ln of how probable each is, if labels speak for one at all.
    support : float
        Ln of P(labels | some factor) over P(labels | none): whether they do.
    """

    log_odds: Floats
    log_probability: Floats
    support: float

    @property
    def mean(self) -> float:
        """Of the log of the factor."""
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


def told_by(chances: Chances, errors: Floats, *, rising: bool) -> Told:
    """Return what labels say of the factor on the odds, by Bayes' rule.

    The labels that raised an alarm were the worst of a while and overstate the factor: without what was thought of it
    beforehand, answers that speak for a smaller one would count as speaking for none.

    Parameters
    ----------
    chances : Chances
    errors : ndarray, shape (labels,)
    rising : bool
        Whether errors are suspected to be too many, rather than too few.

    Examples
    --------
    >>> few = Chances(np.zeros(3), np.ones(3), np.full(3, 0.1))
    >>> round(float(np.exp(told_by(few, np.ones(3), rising=True).mean)), 2)
    3.38
    """
    log_odds = _SIZES if rising else -_SIZES
    belief = log_likelihood_ratios(chances, errors, log_odds) + _BELIEVED
    support = float(np.logaddexp.reduce(belief))
    return Told(log_odds, belief - support, support)


def mixed_ratio(chances: Chances, errors: Floats, told: Told) -> float:
    """Return ln of P(errors | odds multiplied by what is told) over P(errors | as before), the factor averaged out."""
    return float(np.logaddexp.reduce(told.log_probability + log_likelihood_ratios(chances, errors, told.log_odds)))


def verdict(
    chances: Chances, errors: Floats, told: Told, rules: AuditRules, *, ended: bool, carried: float = 0.0
) -> tuple[Verdict | None, float]:
    """Return what the answers so far say, and the log likelihood ratio behind it.

    Parameters
    ----------
    chances : Chances
    errors : ndarray, shape (answers,)
        What trusted people found.
    told : Told
        What the suspected labels say.
    rules : AuditRules
    ended : bool
        Whether no more answers are waited for.
    carried : float
        Log odds that labels are right before the first answer: by judgement, or by earlier audits of the suspicion.

    Returns
    -------
    verdict : str or None
        ``refuted``: errors are as before, so that the labels are wrong. ``confirmed``: the labels are right.
        ``unanswered``: waited for in vain. ``unfounded``: errors are as before, and so they are by labels since the
        alarm, which was a false one. None: more answers, or more labels, are needed.
    ratio : float
        Within the bound unless it is conclusive.

    Examples
    --------
    >>> rules, known = AuditRules(bound=3.0, answers=40, least=10), Chances(np.zeros(5), np.ones(5), np.full(5, 0.1))
    >>> told = told_by(known, np.ones(5), rising=True)
    >>> verdict(known, np.ones(5), told, rules, ended=False)[0]
    'confirmed'
    >>> verdict(known, np.zeros(5), told, rules, ended=False)[0] is None
    True
    """
    answers = len(errors)
    ratio = mixed_ratio(chances, errors, told) + carried
    if not (abs(ratio) >= rules.bound or answers >= rules.answers or (ended and answers >= rules.least)):
        return ("unanswered" if ended else None), ratio
    if ratio > 0.0:
        return "confirmed", ratio
    # An alarm selects its labels. Only later ones can show that labels are wrong rather than the alarm.
    if told.support >= _SUPPORT:
        return "refuted", ratio
    return ("unfounded" if ended else None), ratio
