"""A version on trial: it is computed beside the one in force, and acted on for its share of queries alone."""

from __future__ import annotations

from collections import Counter
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.calibration import CalibrationVersion
from schemas.costs import ModelCosts
from schemas.draws import uniform
from schemas.routed import ModelRun, QueryEvent, RoutedEvent
from schemas.trial import CalibrationTrial
from stream_router.cascade.lever import Asked, RunEnd, TrialLever, trial_labels
from stream_router.cascade.query_cascade import Ask, QueryCascade, Serve
from tests.stream_router.calibration.test_active_versions import BASE, NOW, PHOTO, TRIED, trial
from tests.support.cascades import InForce
from tests.support.versions import sealed_version

IDS = [f"q-{n}" for n in range(20_000)]
SIGMAS = 4.0


class OnTrial(InForce):
    def __init__(self, tried: CalibrationTrial | None) -> None:
        super().__init__(BASE)
        self.tried = tried

    def trial(self, workload: str) -> CalibrationTrial | None:
        return self.tried


def routed(
    base: CalibrationVersion | None, tried: CalibrationTrial | None, u: float | None, query_id: str = "q-1"
) -> RoutedEvent:
    """Return the result of a query whose small answer is this uncertain, or failed."""
    lever = TrialLever(query_id, "photo", OnTrial(tried))
    cascade = QueryCascade(QueryEvent(query_id=query_id, text="t"), PHOTO, [lever])
    run = ModelRun(model="m", entities={}, valid=u is not None, uncertainty=u)
    cascade.small_ended(Asked(run, RunEnd.FAILED if u is None else RunEnd.VALID), base, NOW)
    if cascade.next_step() == Ask("large"):
        cascade.large_ended(Asked(ModelRun(model="m", entities={}, valid=True), RunEnd.VALID))
    step = cascade.next_step()
    assert isinstance(step, Serve)
    return cascade.result(step.role, ModelCosts(large=3.0), "router-0")


@pytest.mark.parametrize("share", [None, 0.01, 0.1, 0.5, 1.0])
def test_a_canary_acts_on_its_share_of_queries(share: float | None) -> None:
    """A shadow acts on none."""
    acted, expected = sum(trial(share).acts_on(query_id) for query_id in IDS), share or 0.0
    assert abs(acted - expected * len(IDS)) <= SIGMAS * sqrt(len(IDS) * expected * (1.0 - expected))


@pytest.mark.parametrize("other", ["photo", f"{'photo' * 20}"])
def test_canary_draw_is_independent(other: str) -> None:
    canaries = [trial(0.5, sealed_version(version=number, workload=other)) for number in (8, 9)]
    acted, later = ([canary.acts_on(query_id) for query_id in IDS] for canary in canaries)
    labelled = [uniform(query_id, other) < 0.5 for query_id in IDS]
    for beside in (labelled, later):
        both = sum(a and b for a, b in zip(acted, beside, strict=True))
        assert abs(both - len(IDS) / 4) <= SIGMAS * sqrt(len(IDS) * 3 / 16)


@given(st.floats(0.0, 1.0), st.text(min_size=1, max_size=8), st.sampled_from([None, 0.5]))
def test_trial_decision_is_one_versions_and_reports_both(u: float, query_id: str, share: float | None) -> None:
    tried = trial(share, TRIED.altered(label_probability_kept=0.5))
    result = routed(BASE, tried, u, query_id)
    decision, acted = result.decision, tried.acts_on(query_id)
    by = tried.version if acted else BASE
    assert decision.model_copy(update={"trial": None}) == by.decide(u, query_id)
    assert result.label == by.request_label(decision, query_id)
    told = decision.trial
    assert told is not None
    escalated, base_escalated = (one.decide(u, query_id).escalated for one in (TRIED, BASE))
    assert (told.acted, told.escalated, told.base_escalated) == (acted, escalated, base_escalated)
    assert RoutedEvent.from_json(result.to_json()) == result


@pytest.mark.parametrize(
    ("base", "tried", "decided"), [(BASE, None, ("kept", 7)), (None, trial(1.0), ("cold_start", None))]
)
def test_without_both_versions_nothing_is_tried(
    base: CalibrationVersion | None, tried: CalibrationTrial | None, decided: tuple[str, int | None]
) -> None:
    decision = routed(base, tried, 0.3).decision
    assert (decision.reason, decision.calibration_version, decision.trial) == (*decided, None)


def test_a_failed_small_answer_escalates_by_either_version() -> None:
    decision = routed(BASE, trial(), None).decision
    assert decision.trial is not None
    assert (decision.reason, decision.trial.escalated, decision.trial.base_escalated) == ("small_failed", True, True)


def test_results_are_counted_by_how_both_decisions_compare() -> None:
    words = {(True, False): "trial_escalates", (False, True): "base_escalates"}
    told = [routed(BASE, trial(0.5), u, query_id).decision.trial for query_id in IDS[:200] for u in (0.1, 0.4, 0.9)]
    counted = Counter(trial_labels("photo", one) for one in told)
    assert counted == Counter(
        ("photo", one.mode, "trial" if one.acted else "base", words.get((one.escalated, one.base_escalated), "same"))
        for one in told
        if one is not None
    )
    assert len({labels[2:] for labels in counted if labels is not None}) == 6, "every case came"
    assert trial_labels("photo", None) is None
