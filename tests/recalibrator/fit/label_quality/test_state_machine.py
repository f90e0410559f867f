"""The label quality machine: every pair of state and event, and what each transition has the fold do."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest

from recalibrator.fit.arrays import Floats, Ints
from recalibrator.fit.codec import Kept, dump, load
from recalibrator.fit.data.revisions import Flips
from recalibrator.fit.label_quality.state_machine import (
    TRANSITIONS,
    Audit,
    AuditsDrawn,
    Conclusion,
    Effects,
    Evidence,
    Expected,
    LabelEvent,
    LabelQuality,
    LabelSeen,
    LabelState,
    PeopleJudged,
    Quarantine,
    RecentPairs,
    Suspected,
    Suspicion,
    step,
)
from recalibrator.fit.method_constants import DEFAULT as METHOD
from schemas import TrafficSummary, VersionTraffic
from tests.support.cascade_stream import START

DEFAULT = METHOD.audit
EXPECTED = Expected(np.array([0.9]), np.array([[0.5], [0.05]]))
NOBODY: Floats = np.zeros(0)
NEVER_CORRECTED = Flips()
RECENT = RecentPairs(queries=1_000.0, pairs=200.0, agreeing=160.0)
BEGAN_US, OPENED_US, NOW_US = 10, 20, 30
LAST = Conclusion("refuted", 40, 1, 25)

QUALITIES = {
    LabelState.TRUSTING: LabelQuality(),
    LabelState.AUDITING: LabelQuality(
        LabelState.AUDITING, Suspicion(True, BEGAN_US, EXPECTED, 1.0), Audit(OPENED_US, 0.25)
    ),
    LabelState.QUARANTINED: LabelQuality(
        LabelState.QUARANTINED, Suspicion(True, BEGAN_US, EXPECTED, 1.0), None, Quarantine(25), LAST
    ),
    LabelState.REAUDITING: LabelQuality(
        LabelState.REAUDITING,
        Suspicion(True, BEGAN_US, EXPECTED, 1.0),
        Audit(OPENED_US, 0.25),
        Quarantine(25, ordinary=1_000),
        LAST,
    ),
}


@dataclass(frozen=True)
class Labels:
    """Labels of pairs whose answers agree: errors among ordinary ones, and among trusted answers."""

    ordinary: tuple[int, ...] = ()
    answers: tuple[int, ...] = ()
    flips: Flips = NEVER_CORRECTED

    def errors_since(self, since_us: int, *, audited: bool, suspects: Floats = NOBODY) -> tuple[Ints, Ints, Floats]:
        errors = np.array(self.answers if audited else self.ordinary, dtype=float)
        return np.full(len(errors), 2), np.zeros(len(errors), dtype=np.intp), errors

    def labelers_since(self, instant_us: int) -> Floats:
        return np.zeros(0)

    def set_aside_since(self, instant_us: int) -> int:
        return len(self.ordinary)


def label(labels: Labels, *, audited: bool, cell: int | None = None, error: float = 0.0) -> LabelSeen:
    return LabelSeen(NOW_US, NOW_US, audited, cell, cell is not None or None, error, labels, RECENT)


LIES = (1,) * 20 + (0,) * 20
TRUE = (0,) * 40
EVIDENCE: dict[LabelEvent, Evidence] = {
    LabelEvent.SUSPECTED: Suspected(BEGAN_US, True, EXPECTED, Labels(LIES), RECENT, NOW_US),
    LabelEvent.REFUTED: label(Labels(LIES, TRUE), audited=True),
    LabelEvent.CONFIRMED: label(Labels(LIES, LIES), audited=True),
    LabelEvent.UNANSWERED: label(Labels(LIES), audited=False),
    LabelEvent.UNFOUNDED: label(Labels(TRUE, TRUE), audited=False),
    LabelEvent.RELEASED: label(Labels(TRUE), audited=False, cell=0),
    LabelEvent.AUDIT_DUE: label(Labels(LIES), audited=False),
    LabelEvent.PEOPLE_JUDGED: PeopleJudged(),
}


def about_to(quality: LabelQuality, event: LabelEvent) -> LabelQuality:
    """Return the state just before the label that brings the event about, by its counters."""
    audit, quarantine = quality.audit, quality.quarantine
    if audit is not None and event in (LabelEvent.UNANSWERED, LabelEvent.UNFOUNDED):
        audit = replace(audit, ordinary=DEFAULT.audit_patience - 1)
    if quarantine is not None and event is LabelEvent.AUDIT_DUE:
        quarantine = replace(quarantine, ordinary=DEFAULT.audit_again_labels - 1)
    if quarantine is not None and event is LabelEvent.RELEASED:
        quarantine = replace(quarantine, release=DEFAULT.audit_release_bound - 0.01, release_since_us=28)
    return replace(quality, audit=audit, quarantine=quarantine)


@pytest.mark.parametrize("state", LabelState)
@pytest.mark.parametrize("event", LabelEvent)
def test_each_pair_follows_the_transition_table(state: LabelState, event: LabelEvent) -> None:
    """Evidence of an event leads to the table's state; where the table has none, the state stays as it is."""
    before = about_to(QUALITIES[state], event)
    after, effects = step(before, EVIDENCE[event], DEFAULT)
    following = TRANSITIONS[state].get(event)
    assert after.state is (following or state)
    assert (after.suspicion is None) is (after.state is LabelState.TRUSTING)
    assert (after.audit is None) is (after.state in (LabelState.TRUSTING, LabelState.QUARANTINED))
    assert (after.quarantine is None) is (after.state in (LabelState.TRUSTING, LabelState.AUDITING))
    decided = following is not None and event not in (
        LabelEvent.SUSPECTED,
        LabelEvent.AUDIT_DUE,
        LabelEvent.PEOPLE_JUDGED,
    )
    assert effects.news == (f"labels_{event.value}" if decided else None)
    if following is None:
        assert effects == Effects()


@pytest.mark.parametrize(
    ("state", "event", "expected"),
    [
        (LabelState.AUDITING, LabelEvent.REFUTED, {"from_us": BEGAN_US, "set_aside": True, "retract": True}),
        (LabelState.AUDITING, LabelEvent.CONFIRMED, {"from_us": BEGAN_US, "changed": True, "settled": True}),
        (LabelState.AUDITING, LabelEvent.UNANSWERED, {"from_us": BEGAN_US, "changed": True, "settled": True}),
        (LabelState.AUDITING, LabelEvent.UNFOUNDED, {"from_us": BEGAN_US, "retract": True}),
        (LabelState.AUDITING, LabelEvent.PEOPLE_JUDGED, {"from_us": BEGAN_US, "retract": True}),
        (LabelState.QUARANTINED, LabelEvent.RELEASED, {"from_us": 28, "believe": True}),
        (LabelState.REAUDITING, LabelEvent.REFUTED, {"from_us": BEGAN_US, "retract": True}),
        (
            LabelState.REAUDITING,
            LabelEvent.CONFIRMED,
            {"from_us": OPENED_US, "believe": True, "changed": True, "settled": True},
        ),
        (LabelState.REAUDITING, LabelEvent.UNANSWERED, {"from_us": OPENED_US, "believe": True, "settled": True}),
        (LabelState.REAUDITING, LabelEvent.UNFOUNDED, {"from_us": OPENED_US, "believe": True, "retract": True}),
        (LabelState.REAUDITING, LabelEvent.RELEASED, {"from_us": 28, "believe": True}),
        (LabelState.REAUDITING, LabelEvent.PEOPLE_JUDGED, {"from_us": BEGAN_US, "believe": True, "retract": True}),
    ],
)
def test_each_decision_has_its_effects(state: LabelState, event: LabelEvent, expected: dict[str, object]) -> None:
    _, effects = step(about_to(QUALITIES[state], event), EVIDENCE[event], DEFAULT)
    assert effects == Effects(news=effects.news, **expected)  # type: ignore[arg-type]


def test_an_undecided_audit_asks_for_another_round() -> None:
    """Twenty answers in doubt exhaust a round of twenty; the audit stays open and asks for as many again."""
    tuning = replace(DEFAULT, audit_answers=20)
    doubtful = Labels((1, 1, 1) + (0,) * 37, (1, 1) + (0,) * 18)
    quality, effects = step(QUALITIES[LabelState.AUDITING], label(doubtful, audited=True), tuning)
    assert quality.audit is not None
    assert (quality.audit.rounds, effects) == (2, Effects())


@pytest.mark.parametrize(
    ("labels", "released"),
    [(Labels(TRUE * 4), True), (Labels(LIES), False), (Labels(LIES, flips=Flips(to_right=0.6)), True)],
    ids=["corrected", "never corrected", "corrected as often as wrong"],
)
@pytest.mark.parametrize("state", [LabelState.QUARANTINED, LabelState.REAUDITING])
def test_corrected_labels_stayed_in_quarantine(state: LabelState, labels: Labels, *, released: bool) -> None:
    """What was set aside counts again from the suspicion's beginning once it no longer contradicts what was known."""
    quality = QUALITIES[state]
    for _ in range(50):
        quality, effects = step(quality, label(labels, audited=False, cell=0, error=1.0), DEFAULT)
        if effects.news is not None:
            break
    assert (quality.state is LabelState.TRUSTING) is released
    assert effects == (Effects("labels_released", BEGAN_US, believe=True) if released else Effects())


def test_audits_drawn_are_counted_until_enough_are_asked_for() -> None:
    part = VersionTraffic(
        calibration_version=7, queries=400, cell=(3,), count=(400,), pairs=(400,), agreeing=(240,), pairs_explored=(0,)
    )
    traffic = TrafficSummary(
        workload="w", first_routed_at=START, last_routed_at=START, grid=METHOD.grid, versions=(part,)
    )
    quality = QUALITIES[LabelState.AUDITING]
    assert quality.audit_probability(DEFAULT) == 0.25
    quality, _ = step(quality, AuditsDrawn(traffic, {7: 0.125}), DEFAULT)
    assert quality.audit is not None
    assert quality.audit.asked == pytest.approx(30.0)
    quality, _ = step(quality, AuditsDrawn(traffic, {7: 0.125}), DEFAULT)
    assert quality.audit_probability(DEFAULT) == 0.0
    assert step(QUALITIES[LabelState.QUARANTINED], AuditsDrawn(traffic, {7: 0.125}), DEFAULT)[0].audit is None


def test_fewer_errors_than_expected_start_from_doubt() -> None:
    """The prior favours believing labels that report more errors, and doubting those that report fewer."""
    for agreeing in (True, False):
        alarm = Suspected(BEGAN_US, agreeing, EXPECTED, Labels(LIES), RECENT, NOW_US)
        quality, _ = step(LabelQuality(), alarm, DEFAULT)
        assert quality.suspicion is not None
        assert quality.suspicion.evidence == (DEFAULT.audit_caution if agreeing else -DEFAULT.audit_caution)


@dataclass
class Held:
    quality: Kept[LabelQuality]


@pytest.mark.parametrize("state", LabelState)
def test_a_stored_state_is_read_back_exactly(state: LabelState) -> None:
    held, restored = Held(QUALITIES[state]), Held(LabelQuality())
    load(restored, json.loads(json.dumps(dump(held))))
    assert dump(restored) == dump(held)
    assert restored.quality.state is state
