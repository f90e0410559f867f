"""What answers say by closed form: the same as independent arithmetic, whatever the answers.

What each piece of evidence makes of a suspicion, and what it has the fold do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import binom

from recalibrator.fit.codec import Floats, Ints
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.data.slips import Flips
from recalibrator.fit.estimate.agreement import Chances
from recalibrator.fit.label_quality.crowd import (
    Audit,
    Conclusion,
    Effects,
    Expected,
    LabelQuality,
    LabelSeen,
    RecentPairs,
    Suspicion,
    judge_again,
    log_likelihood_ratios,
    odds_posterior,
    suspect,
    take_label,
)
from recalibrator.fit.method_constants import DEFAULT
from tests.support.cores import present


def known(expected: list[float] | Floats) -> Chances:
    error = np.array(expected)
    return Chances(np.zeros(len(error)), np.ones(len(error)), error)


def raised(chance: float, odds: float) -> float:
    return odds * chance / (1.0 - chance + odds * chance)


@given(
    answers=st.integers(0, 60), share=st.floats(0.0, 1.0), chance=st.floats(0.01, 0.9), log_odds=st.floats(-2.0, 2.0)
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
    told = odds_posterior(known(np.repeat(chance, labels)), each.astype(float), rising=rising)
    beforehand = odds_posterior(known([]), np.zeros(0), rising=rising)
    after = np.array([[raised(one, exp(factor)) for one in chance] for factor in told.log_odds])
    belief = beforehand.log_probability + binom.logpmf(errors, labels, after).sum(axis=1)
    np.testing.assert_allclose(told.log_probability, belief - logsumexp(belief), atol=1e-8)
    assert np.exp(told.log_probability).sum() == pytest.approx(1.0)
    assert (told.mean > 0.0) is rising


EXPECTED = Expected(np.array([0.9]), np.array([[0.5], [0.05]]))
NEVER_CORRECTED = Flips()
RECENT = RecentPairs(queries=1_000.0, pairs=200.0, agreeing=160.0)
BEGAN_US, OPENED_US, NOW_US = 10, 20, 30

ASKED = LabelQuality(Suspicion(True, BEGAN_US, EXPECTED, 1.0, audit=Audit(OPENED_US, 0.25)))
REFUTED = LabelQuality(
    Suspicion(True, BEGAN_US, EXPECTED, 1.0, carried=-2.0, evidence=-2.0, answers=40), Conclusion("refuted", 40, 1, 25)
)


@dataclass(frozen=True)
class Labels:
    """Labels of pairs whose answers agree: errors among ordinary ones, and among trusted answers."""

    ordinary: tuple[int, ...] = ()
    answers: tuple[int, ...] = ()
    flips: Flips = NEVER_CORRECTED
    slipped: float = 0.0

    def errors_since(
        self, since_us: int, *, audited: bool, suspected_us: int | None = None
    ) -> tuple[Ints, Ints, Floats]:
        errors = np.array(self.answers if audited else self.ordinary, dtype=float)
        return np.full(len(errors), 2), np.zeros(len(errors), dtype=np.intp), errors


def label(labels: Labels, *, audited: bool, cell: int | None = None, error: float = 0.0) -> LabelSeen:
    return LabelSeen(NOW_US, NOW_US, audited, cell, cell is not None or None, error, cast(LabelTable, labels), RECENT)


LIES = (1,) * 20 + (0,) * 20
TRUE = (0,) * 40
UNSURE = (1,) * 6 + (0,) * 34
UNANSWERED = Effects("labels_unanswered", BEGAN_US, changed=True)
ASKED_AGAIN = LabelQuality(replace(present(REFUTED.suspicion), audit=Audit(OPENED_US, 0.25)), REFUTED.conclusion)


def overdue(quality: LabelQuality) -> LabelQuality:
    """Return the state just before the last label that an audit waits for."""
    return replace(quality, suspicion=replace(present(quality.suspicion), ordinary=DEFAULT.audit_again_labels - 1))


@pytest.mark.parametrize(
    ("before", "seen", "expected", "is_over"),
    [
        (ASKED, label(Labels(LIES, TRUE), audited=True), Effects("labels_refuted", BEGAN_US), False),
        (ASKED, label(Labels(LIES, LIES), audited=True), Effects("labels_confirmed", BEGAN_US, changed=True), True),
        (ASKED, label(Labels(LIES, (1,) * 9), audited=True), Effects(), False),
        (overdue(ASKED), label(Labels(LIES), audited=False), UNANSWERED, True),
        (overdue(ASKED_AGAIN), label(Labels(LIES), audited=False), UNANSWERED, True),
        (overdue(ASKED), label(Labels(LIES, UNSURE), audited=False), Effects(), False),
        (ASKED, None, Effects(from_us=BEGAN_US, retract=True), True),
        (REFUTED, None, Effects(from_us=BEGAN_US, retract=True), True),
        (REFUTED, label(Labels(LIES, LIES), audited=True), Effects(), False),
    ],
    ids=[
        "answers refute labels",
        "answers confirm labels",
        "nine answers decide nothing",
        "nobody answered",
        "nobody answered again",
        "answers leave it open",
        "people judged while asking",
        "people judged later",
        "an answer to no audit",
    ],
)
def test_each_decision_has_its_effects(
    before: LabelQuality, seen: LabelSeen | None, expected: Effects, *, is_over: bool
) -> None:
    after, effects = judge_again(before) if seen is None else take_label(before, seen, DEFAULT)
    assert effects == expected
    assert after.is_trusting is is_over


def test_an_alarm_asks_and_people_are_asked_again_later() -> None:
    alarm, labels = Suspicion(True, BEGAN_US, EXPECTED), cast(LabelTable, Labels(LIES))
    assert suspect(alarm, labels, RECENT, NOW_US, DEFAULT).audit is not None
    again, _ = take_label(overdue(REFUTED), label(Labels(LIES), audited=False), DEFAULT)
    assert again.audit is not None


@pytest.mark.parametrize(
    ("labels", "released"),
    [(Labels(TRUE * 4), True), (Labels(LIES), False), (Labels(LIES, flips=Flips(to_right=0.6)), True)],
    ids=["corrected", "never corrected", "corrected as often as wrong"],
)
@pytest.mark.parametrize("quality", [ASKED, REFUTED], ids=["asked", "refuted"])
def test_corrected_labels_stayed_suspected(quality: LabelQuality, labels: Labels, *, released: bool) -> None:
    """Labels count again from the suspicion's beginning once they no longer contradict what was known."""
    for _ in range(50):
        quality, effects = take_label(quality, label(labels, audited=False, cell=0, error=1.0), DEFAULT)
        if effects.news is not None:
            break
    assert quality.is_trusting is released
    assert effects == (Effects("labels_released", BEGAN_US) if released else Effects())


def test_labels_count_again_from_when_they_were_right() -> None:
    nearly = replace(present(REFUTED.suspicion), release=DEFAULT.audit_release_bound - 0.01, release_since_us=28)
    quality, effects = take_label(LabelQuality(nearly), label(Labels(LIES), audited=False, cell=0), DEFAULT)
    assert (quality.is_trusting, effects) == (True, Effects("labels_released", 28))
