"""What each piece of evidence makes of a suspicion, and what it has the fold do."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pytest

from recalibrator.fit.codec import Floats, Ints, Kept, dump, load
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.data.slips import Flips
from recalibrator.fit.label_quality.crowd import (
    Audit,
    AuditsDrawn,
    Conclusion,
    Effects,
    Evidence,
    Expected,
    LabelQuality,
    LabelSeen,
    PeopleJudged,
    RecentPairs,
    Suspected,
    Suspicion,
    step,
)
from recalibrator.fit.method_constants import DEFAULT
from schemas import TrafficSummary, VersionTraffic
from tests.support.cascade_stream import START

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


def overdue(quality: LabelQuality) -> LabelQuality:
    """Return the state just before the last label that an audit waits for."""
    assert quality.suspicion is not None
    return replace(quality, suspicion=replace(quality.suspicion, ordinary=DEFAULT.audit_again_labels - 1))


@pytest.mark.parametrize(
    ("before", "evidence", "expected", "is_over"),
    [
        (ASKED, label(Labels(LIES, TRUE), audited=True), Effects("labels_refuted", BEGAN_US), False),
        (ASKED, label(Labels(LIES, LIES), audited=True), Effects("labels_confirmed", BEGAN_US, changed=True), True),
        (ASKED, label(Labels(LIES, (1,) * 9), audited=True), Effects(), False),
        (
            overdue(ASKED),
            label(Labels(LIES), audited=False),
            Effects("labels_unanswered", BEGAN_US, changed=True),
            True,
        ),
        (overdue(ASKED), label(Labels(LIES, UNSURE), audited=False), Effects(), False),
        (ASKED, PeopleJudged(), Effects(from_us=BEGAN_US, retract=True), True),
        (REFUTED, PeopleJudged(), Effects(from_us=BEGAN_US, retract=True), True),
        (REFUTED, label(Labels(LIES, LIES), audited=True), Effects(), False),
    ],
    ids=[
        "answers refute labels",
        "answers confirm labels",
        "nine answers decide nothing",
        "nobody answered",
        "answers leave it open",
        "people judged while asking",
        "people judged later",
        "an answer to no audit",
    ],
)
def test_each_decision_has_its_effects(
    before: LabelQuality, evidence: Evidence, expected: Effects, *, is_over: bool
) -> None:
    after, effects = step(before, evidence, DEFAULT)
    assert effects == expected
    assert after.is_trusting is is_over


def test_answers_move_what_labels_count_for() -> None:
    """Ten answers are needed; then slips are the likelier, the fewer errors trusted people find."""

    def slipping(answers: tuple[int, ...]) -> float:
        quality, _ = step(ASKED, label(Labels(LIES, answers), audited=True), DEFAULT)
        assert quality.suspicion is not None
        return quality.suspicion.slipping

    assert slipping(TRUE[:9]) == 0.0
    assert slipping((1, 1, *TRUE[:8])) < slipping((1, 1, *TRUE[:10])) < 0.5 < slipping(TRUE[:10])


def test_an_alarm_asks_and_people_are_asked_again_later() -> None:
    alarm = Suspected(BEGAN_US, True, EXPECTED, cast(LabelTable, Labels(LIES)), RECENT, NOW_US)
    asked, effects = step(LabelQuality(), alarm, DEFAULT)
    assert effects == Effects()
    assert asked.audit is not None
    assert step(asked, alarm, DEFAULT)[0] is asked
    again, _ = step(overdue(REFUTED), label(Labels(LIES), audited=False), DEFAULT)
    assert again.audit is not None


def test_an_undecided_audit_asks_on_at_once() -> None:
    quality, _ = step(overdue(ASKED), label(Labels(LIES, UNSURE), audited=False), DEFAULT)
    assert quality.audit is None
    quality, _ = step(quality, label(Labels(LIES, UNSURE), audited=False), DEFAULT)
    assert quality.audit is not None


@pytest.mark.parametrize(
    ("labels", "released"),
    [(Labels(TRUE * 4), True), (Labels(LIES), False), (Labels(LIES, flips=Flips(to_right=0.6)), True)],
    ids=["corrected", "never corrected", "corrected as often as wrong"],
)
@pytest.mark.parametrize("quality", [ASKED, REFUTED], ids=["asked", "refuted"])
def test_corrected_labels_stayed_suspected(quality: LabelQuality, labels: Labels, *, released: bool) -> None:
    """Labels count again from the suspicion's beginning once they no longer contradict what was known."""
    for _ in range(50):
        quality, effects = step(quality, label(labels, audited=False, cell=0, error=1.0), DEFAULT)
        if effects.news is not None:
            break
    assert quality.is_trusting is released
    assert effects == (Effects("labels_released", BEGAN_US) if released else Effects())


def test_labels_count_again_from_when_they_were_right() -> None:
    assert REFUTED.suspicion is not None
    nearly = replace(REFUTED.suspicion, release=DEFAULT.audit_release_bound - 0.01, release_since_us=28)
    quality, effects = step(LabelQuality(nearly), label(Labels(LIES), audited=False, cell=0), DEFAULT)
    assert (quality.is_trusting, effects) == (True, Effects("labels_released", 28))


@pytest.mark.parametrize("agreeing", [True, False], ids=["too many errors", "too few"])
def test_slips_are_what_labels_report_beyond_the_truth(*, agreeing: bool) -> None:
    odds = 1.0 if agreeing else -1.0
    suspicion = Suspicion(agreeing, BEGAN_US, EXPECTED, odds, evidence=-50.0, answers=40)
    kind = 2 if agreeing else 1
    before = EXPECTED.error_given[int(agreeing)]
    said = suspicion.slips().reported[kind]
    np.testing.assert_allclose(said / (1.0 - said), np.exp(odds) * before / (1.0 - before))
    believed = replace(suspicion, answers=9).slips()
    np.testing.assert_allclose(believed.reported[kind], before)


def test_audits_drawn_are_counted_until_enough_are_asked_for() -> None:
    part = VersionTraffic(
        calibration_version=7, queries=800, cell=(3,), count=(800,), pairs=(800,), agreeing=(720,), pairs_explored=(0,)
    )
    traffic = TrafficSummary(
        workload="w", first_routed_at=START, last_routed_at=START, grid=DEFAULT.grid, versions=(part,)
    )
    assert ASKED.audit_probability(DEFAULT) == 0.25
    quality, _ = step(ASKED, AuditsDrawn(traffic, {7: 0.125}), DEFAULT)
    assert quality.audit is not None
    assert quality.audit.asked == pytest.approx(90.0)
    quality, _ = step(quality, AuditsDrawn(traffic, {7: 0.125}), DEFAULT)
    assert quality.audit_probability(DEFAULT) == 0.0
    assert step(REFUTED, AuditsDrawn(traffic, {7: 0.125}), DEFAULT)[0].audit is None


@dataclass
class Held:
    quality: Kept[LabelQuality]


@pytest.mark.parametrize("quality", [LabelQuality(), ASKED, REFUTED], ids=["trusting", "asked", "refuted"])
def test_a_stored_state_is_read_back_exactly(quality: LabelQuality) -> None:
    held, restored = Held(quality), Held(LabelQuality())
    load(restored, json.loads(json.dumps(dump(held))))
    assert dump(restored) == dump(held)
    assert (restored.quality.is_trusting, restored.quality.audit is None) == (
        quality.is_trusting,
        quality.audit is None,
    )
