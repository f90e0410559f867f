"""What trusted answers say of suspected labels: errors and what was expected of them flow in, a verdict flows out.

Two hypotheses are compared by their likelihood ratio, one answer after another (Wald's sequential test, 1945): that
errors are as frequent as before the suspicion, and that their odds are multiplied by what the labels say.
"""

from __future__ import annotations

from math import log
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Verdict = Literal["refuted", "confirmed", "unanswered"]

_BISECTIONS = 50
_LEAST_LOG_ODDS, _MOST_LOG_ODDS = log(1.5), log(10.0)


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


class Chances(NamedTuple):
    """P(error) of each label when the odds of some errors are multiplied: rest + weight · that of these errors.

    Parameters
    ----------
    rest : ndarray
        P(an error of the kind that is not suspected).
    weight : ndarray
        P(the query is of the suspected kind): 1 where it is known to be, else by what is known of agreement.
    error : ndarray
        P(error | the suspected kind), as before the suspicion, inside (0, 1).
    """

    rest: Floats
    weight: Floats
    error: Floats

    def at(self, log_odds: float | Floats) -> tuple[Floats, Floats]:
        """Return P(error), and its derivative by the log of the factor."""
        odds = self.error * np.exp(log_odds)
        moved = odds / (1.0 - self.error + odds)
        return self.rest + self.weight * moved, self.weight * moved * (1.0 - moved)


def chances_of(agreement: Floats, error_given: Floats, cell: Any, agree: bool | None, *, agreeing: bool) -> Chances:
    """Return the chances of labels of queries in some cells, all with the same known or unknown agreement.

    Parameters
    ----------
    agreement : ndarray, shape (cells,)
        P(agree | u).
    error_given : ndarray, shape (2, cells)
        P(error | u, the answers differ), and where they are equal.
    cell : int or ndarray of int
    agree : bool or None
        None: one model alone has answered.
    agreeing : bool
        Whether errors of equal answers are suspected, rather than of different ones.
    """
    error = error_given[int(agreeing)][cell]
    if agree is not None:
        return Chances(np.zeros_like(error), np.ones_like(error), error)
    equal = agreement[cell]
    weight = equal if agreeing else 1.0 - equal
    return Chances((1.0 - weight) * error_given[int(not agreeing)][cell], weight, error)


def log_likelihood_ratio(chances: Chances, errors: Floats, log_odds: float) -> float:
    """Return ln of P(errors | odds multiplied) over P(errors | as before).

    Parameters
    ----------
    chances : Chances
    errors : ndarray, shape (labels,)
        0 or 1.
    log_odds : float

    Examples
    --------
    >>> known = Chances(np.zeros(2), np.ones(2), np.full(2, 0.1))
    >>> round(log_likelihood_ratio(known, np.array([0.0, 1.0]), log(9.0)), 4)
    1.0217
    """
    before, after = chances.at(0.0)[0], chances.at(log_odds)[0]
    right, wrong = np.log((1.0 - after) / (1.0 - before)), np.log(after / before)
    return float(np.where(errors > 0.0, wrong, right).sum())


def fitted_log_odds(chances: Chances, errors: Floats, *, rising: bool) -> float:
    """Return the log of the factor on the odds under which the errors are likeliest.

    It lies between ln 1.5 and ln 10 in size: one suspects no less, and a few labels tell no more.

    Parameters
    ----------
    chances : Chances
    errors : ndarray, shape (labels,)
    rising : bool
        Whether errors are suspected to be too many, rather than too few.

    Examples
    --------
    Expected are 2 errors of 10, and 5 were seen, which is four times the odds:

    >>> known = Chances(np.zeros(10), np.ones(10), np.full(10, 0.2))
    >>> round(float(np.exp(fitted_log_odds(known, np.repeat([0.0, 1.0], 5), rising=True))), 3)
    4.0
    """
    low, high = _LEAST_LOG_ODDS, _MOST_LOG_ODDS
    if not rising:
        low, high = -high, -low
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        chance, slope = chances.at(middle)
        if float(((errors - chance) * slope / (chance * (1.0 - chance))).sum()) > 0.0:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def verdict(
    chances: Chances, errors: Floats, log_odds: float, rules: AuditRules, *, ended: bool, carried: float = 0.0
) -> tuple[Verdict | None, float]:
    """Return what the answers so far say, and the log likelihood ratio behind it.

    Parameters
    ----------
    chances : Chances
    errors : ndarray, shape (answers,)
        What trusted people found.
    log_odds : float
        Of the factor on the odds that the suspected labels speak for.
    rules : AuditRules
    ended : bool
        Whether no more answers are waited for.
    carried : float
        Log likelihood ratio of earlier audits of the same suspicion.

    Returns
    -------
    verdict : str or None
        ``refuted``: errors are as before, so that the labels are wrong. ``confirmed``: the labels are right.
        ``unanswered``: waited for in vain. None: more answers are needed.
    ratio : float
        Within the bound unless it is conclusive.

    Examples
    --------
    >>> rules, known = AuditRules(bound=3.0, answers=40, least=10), Chances(np.zeros(5), np.ones(5), np.full(5, 0.1))
    >>> verdict(known, np.ones(5), log(4.0), rules, ended=False)[0]
    'confirmed'
    >>> verdict(known, np.zeros(5), log(4.0), rules, ended=False)[0] is None
    True
    """
    answers = len(errors)
    ratio = log_likelihood_ratio(chances, errors, log_odds) + carried
    if abs(ratio) >= rules.bound or answers >= rules.answers or (ended and answers >= rules.least):
        return ("confirmed" if ratio > 0.0 else "refuted"), ratio
    return ("unanswered" if ended else None), ratio
