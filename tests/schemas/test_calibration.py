"""How a version decides: thresholds, draws and the map, the same in every process."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from schemas import CalibrationMap, CalibrationVersion, Decision
from schemas.calibration import Atom
from schemas.canonical import digest
from schemas.draws import uniform
from tests.support import strategies
from tests.support.versions import sealed_version

quick = settings(max_examples=30)
#: Versions that cut no queries of one u, and ask for no audit.
WITHOUT_ATOM = strategies.calibration_versions(atom=None, audit_probability=0.0)
EXPLORATION, KEPT, ESCALATED = 0.03, 0.05, 0.10
IDS = [f"q-{number}" for number in range(20_000)]


def sealed(**changed: Any) -> CalibrationVersion:
    content: dict[str, Any] = {
        "workload": "w",
        "version": 3,
        "map": CalibrationMap(uncertainty=(0.1, 0.5, 0.9), error_probability=(0.0, 0.4, 0.4)),
        "uncertainty_threshold": 0.5,
        "threshold": 0.4,
        "exploration_probability": EXPLORATION,
        "label_probability_kept": KEPT,
        "label_probability_escalated": ESCALATED,
    }
    return sealed_version(**content | changed)


def is_as_often(drawn: Iterable[bool], probability: float) -> bool:
    """Whether a share lies within five standard errors of its probability."""
    found = list(drawn)
    error = math.sqrt(probability * (1 - probability) / len(found))
    return abs(sum(found) / len(found) - probability) < 5 * error


@quick
@given(version=strategies.calibration_versions(state="active"), u=st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_the_map_is_read_as_numpy_interpolates(version: CalibrationVersion, u: list[float]) -> None:
    """Also where NumPy cannot, between subnormal knots, it gives shares and does not fall."""
    rising = [version.error_probability(one) for one in sorted(u)]
    assert 0.0 <= min(rising) <= max(rising) <= 1.0
    assert (np.diff(rising) >= -1e-12).all()
    expected = np.interp(u, version.map.uncertainty, version.map.error_probability)
    assume(np.isfinite(expected).all())  # NumPy's slope between subnormal knots, which no u is
    np.testing.assert_allclose(version.error_probability(np.asarray(u)), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose([version.error_probability(one) for one in u], expected, rtol=0, atol=1e-12)
    knots = [version.error_probability(knot) for knot in version.map.uncertainty]
    np.testing.assert_allclose(knots, version.map.error_probability, rtol=0, atol=1e-12)


@quick
@given(version=WITHOUT_ATOM, u=st.none() | st.floats(0, 1), query_id=strategies.names)
@example(version=sealed(), u=0.5, query_id="q").via("escalated above the threshold, not at it")
def test_a_decision_is_valid_and_follows_the_threshold(
    version: CalibrationVersion, u: float | None, query_id: str
) -> None:
    decision = version.decide(u, query_id)
    assert decision == Decision(**decision.model_dump()), "as if it had been validated"
    assert decision == version.decide(u, query_id)
    above = u is None or u > version.uncertainty_threshold
    if version.state == "cold_start":
        assert (decision.reason, decision.escalated, decision.large_probability) == ("cold_start", True, 1.0)
        assert decision.calibration_version is decision.error_probability is decision.threshold is None
    elif above:
        expected = "small_failed" if u is None else {"active": "threshold"}.get(version.state, "infeasible")
        assert (decision.reason, decision.escalated, decision.large_probability) == (expected, True, 1.0)
    else:
        explored = uniform(query_id, version.workload) < version.exploration_probability
        assert decision.reason == ("exploration" if explored else "kept")
        assert decision.escalated is explored
        assert decision.large_probability == version.exploration_probability


@quick
@given(
    version=WITHOUT_ATOM,
    queries=st.lists(st.tuples(st.none() | st.floats(0, 1), strategies.names), max_size=9),
)
def test_many_queries_are_decided_as_each_by_itself(
    version: CalibrationVersion, queries: list[tuple[float | None, str]]
) -> None:
    u = np.array([math.nan if u is None else u for u, _ in queries], dtype=float)
    draws = np.array([uniform(query_id, version.workload) for _, query_id in queries])
    many, unexplored = version.decide_many(u, draws), version.decide_many(u)
    for place, (one, query_id) in enumerate(queries):
        decision = version.decide(one, query_id)
        assert many.escalated[place] == decision.escalated
        assert many.explored[place] == (decision.reason == "exploration")
        assert unexplored.escalated[place] == (decision.escalated and not many.explored[place])
        assert many.large_probability[place] == decision.large_probability
        expected = math.nan if decision.error_probability is None else decision.error_probability
        np.testing.assert_allclose(many.error_probability[place], expected, rtol=0, atol=1e-12)


def test_an_atom_is_cut_as_often_as_its_propensity_says() -> None:
    """Beside it, and in what is labelled, nothing changes; many at once are decided as each by itself."""
    version, keep = sealed(atom=Atom(above=-1.0, most=0.1, keep_probability=0.4)), 0.4
    cut = [version.decide(0.0, query_id) for query_id in IDS]
    (propensity,) = {decision.large_probability for decision in cut}
    assert propensity == pytest.approx(1.0 - (1.0 - EXPLORATION) * keep)
    unlabelled = (one for one, q in zip(cut, IDS, strict=True) if not version.request_label(one, q).requested)
    assert is_as_often((one.escalated for one in cut), propensity)
    assert is_as_often((one.escalated for one in unlabelled), 1.0 - keep)
    assert {one.reason for one in cut} == {"kept", "exploration"}
    draws = np.array([uniform(query_id, version.workload) for query_id in IDS])
    many = version.decide_many(np.zeros(len(IDS)), draws)
    assert many.escalated.tolist() == [one.escalated for one in cut]
    assert set(many.large_probability.tolist()) == {propensity}
    for u in (0.2, 0.7, None):
        assert version.decide(u, "q") == sealed().decide(u, "q")


def test_audit_adds_labels_above_the_threshold_only() -> None:
    audited, plain = sealed(audit_probability=0.2), sealed()
    escalated = audited.decide(0.7, "q")
    requests = [audited.request_label(escalated, query_id) for query_id in IDS]
    (probability,) = {request.probability for request in requests}
    assert probability == pytest.approx(1.0 - (1.0 - ESCALATED) * (1.0 - 0.2))
    assert is_as_often((request.requested for request in requests), probability)
    assert is_as_often((request.reason == "audit" for request in requests), 0.2)
    for query_id in IDS[:2_000]:
        decision = audited.decide(0.2, query_id)
        request, without = audited.request_label(decision, query_id), plain.request_label(decision, query_id)
        assert (request.requested, request.probability) == (without.requested, without.probability)
        assert request.reason == ("audit" if decision.reason == "exploration" else without.reason)
        failed = audited.decide(None, query_id)
        assert audited.request_label(failed, query_id) == plain.request_label(failed, query_id)


def test_version_before_audits_keeps_its_digest() -> None:
    unsealed = json.loads(sealed().to_json())
    unsealed.pop("audit_probability", None)
    old = {**unsealed, "digest": digest(unsealed)}
    version = CalibrationVersion.from_json(json.dumps(old))
    assert version.audit_probability == 0.0
    assert CalibrationVersion.from_json(version.to_json()) == version


@pytest.mark.parametrize("u", [float("nan"), -0.1, 1.1, float("inf")])
def test_an_uncertainty_that_is_no_share_is_refused(u: float) -> None:
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        sealed().decide(u, "q")
    # Of many, one that is not a number is an answer that failed.
    many = np.array([0.2, math.nan, -0.1 if math.isnan(u) else u])
    with pytest.raises(ValueError, match=r"must lie in \[0, 1\]"):
        sealed().decide_many(many)
