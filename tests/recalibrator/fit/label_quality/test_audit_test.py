"""What answers say by closed form: the same as independent arithmetic, whatever the answers."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import binom

from recalibrator.fit.estimate.agreement import Chances
from recalibrator.fit.label_quality.crowd import (
    OddsPosterior,
    log_likelihood_ratios,
    mixed_ratio,
    odds_posterior,
)


def known(expected: list[float]) -> Chances:
    error = np.array(expected)
    return Chances(np.zeros(len(error)), np.ones(len(error)), error)


def certain(log_odds: float, support: float = np.inf) -> OddsPosterior:
    """Labels that leave no doubt of the factor, nor, by default, that there is one."""
    return OddsPosterior(np.array([log_odds]), np.zeros(1), support)


def raised(chance: float, odds: float) -> float:
    return odds * chance / (1.0 - chance + odds * chance)


@given(
    answers=st.integers(0, 60),
    share=st.floats(0.0, 1.0),
    chance=st.floats(0.01, 0.9),
    log_odds=st.floats(-2.0, 2.0),
)
def test_the_ratio_of_equal_queries_is_that_of_two_binomials(
    answers: int, share: float, chance: float, log_odds: float
) -> None:
    errors = round(share * answers)
    wrong = (np.arange(answers) < errors).astype(np.float64)
    found = log_likelihood_ratios(known([chance] * answers), wrong, np.array([log_odds]))[0]
    after = raised(chance, exp(log_odds))
    expected = binom.logpmf(errors, answers, after) - binom.logpmf(errors, answers, chance)
    assert found == pytest.approx(expected, abs=1e-8)


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_labels_tell_the_factor_by_bayes_rule(seed: int, rising: bool) -> None:
    """Against binomials in two cells, with the prior read off labels that tell nothing."""
    rng = np.random.default_rng(seed)
    chance, labels = rng.uniform(0.02, 0.6, 2), rng.integers(0, 40, 2)
    errors = rng.binomial(labels, rng.uniform(size=2))
    each = np.concatenate([np.arange(count) < wrong for count, wrong in zip(labels, errors, strict=True)])
    told = odds_posterior(known(np.repeat(chance, labels).tolist()), each.astype(float), rising=rising)
    beforehand = odds_posterior(known([]), np.zeros(0), rising=rising)
    after = np.array([[raised(one, exp(factor)) for one in chance] for factor in told.log_odds])
    belief = beforehand.log_probability + binom.logpmf(errors, labels, after).sum(axis=1)
    np.testing.assert_allclose(told.log_probability, belief - logsumexp(belief), atol=1e-8)
    assert np.exp(told.log_probability).sum() == pytest.approx(1.0)
    assert (told.mean > 0.0) is rising


@given(st.integers(0, 2**32 - 1))
def test_answers_are_weighed_with_what_labels_leave_open(seed: int) -> None:
    """Labels and answers of one kind tell together what they tell one after the other."""
    rng = np.random.default_rng(seed)
    expected, errors = rng.uniform(0.02, 0.6, 30), rng.uniform(size=30) < rng.uniform()
    beforehand = odds_posterior(known([]), np.zeros(0), rising=True)
    first = odds_posterior(known(expected[:20].tolist()), errors[:20].astype(float), rising=True)

    def ratio(part: slice, told: OddsPosterior) -> float:
        return mixed_ratio(known(expected[part].tolist()), errors[part].astype(float), told)

    together = ratio(slice(0, 20), beforehand) + ratio(slice(20, 30), first)
    assert together == pytest.approx(ratio(slice(0, 30), beforehand), abs=1e-9)


def test_twice_the_odds_confirm_labels_that_looked_much_worse() -> None:
    """The labels that raise an alarm overstate the factor; the posterior allows for a smaller one."""
    unlucky = odds_posterior(known([0.08] * 10), np.repeat([1.0, 0.0], [4, 6]), rising=True)
    answers = np.repeat([1.0, 0.0], [6, 34])
    assert raised(0.08, 2.0) == pytest.approx(answers.mean(), abs=0.003)
    assert mixed_ratio(known([0.08] * 40), answers, unlucky) > 0.0
    likeliest = log(4 / 6) - log(0.08 / 0.92)
    assert mixed_ratio(known([0.08] * 40), answers, certain(likeliest)) < 0.0
