"""A result and its label become one example with all that the fit needs; what people are asked says what and why."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest

from schemas import Decision, FeedbackEvent, LabelledExample, LabelRequest, ModelRun, QueryCost, RoutedEvent
from schemas.entities import count_pairs, equal
from schemas.errors import DecodeError
from schemas.label_requested import LabelRequested
from schemas.routed import DecisionReason, LabelReason
from tests.support import recalibrator_events

ROUTED_AT = datetime(2026, 1, 1, tzinfo=UTC)
GOLD = {"iso": "100", "lens": "50 mm"}
RIGHT, WRONG = {"iso": " 100", "lens": "50 MM"}, {"iso": "200", "lens": "50 mm", "camera": "X"}

# reason → (u, small, large, served, large_probability); None: not run, "failed": ran without a valid answer.
CASES: dict[str, tuple[float | None, Any, Any, str, float]] = {
    "kept": (0.1, WRONG, None, "small", 0.03),
    "threshold": (0.9, WRONG, RIGHT, "large", 1.0),
    "exploration": (0.1, RIGHT, RIGHT, "large", 0.03),
    "cold_start": (0.4, RIGHT, WRONG, "large", 1.0),
    "infeasible": (0.9, WRONG, RIGHT, "large", 1.0),
    "small_failed": (None, "failed", RIGHT, "large", 1.0),
    "large_only": (None, None, RIGHT, "large", 1.0),
    "degraded": (0.9, WRONG, "failed", "small", 1.0),
}


def run(entities: Any) -> ModelRun | None:
    if entities is None:
        return None
    return ModelRun(model="m", entities=None if entities == "failed" else entities, valid=entities != "failed")


def routed(reason: Any, **changed: Any) -> RoutedEvent:
    u, small, large, served, propensity = CASES[reason]
    content: dict[str, Any] = {
        "query_id": "q",
        "workload": "w",
        "text": "t",
        "entities": small if served == "small" else large,
        "answered_by": served,
        "decision": Decision(
            escalated=large is not None,
            reason=reason,
            uncertainty=u,
            error_probability=None if u is None else 0.2,
            calibration_version=4,
            large_probability=propensity,
        ),
        "small": run(small),
        "large": run(large),
        "cost": QueryCost(sequential=1.0, paper=1.0),
        "label": LabelRequest(requested=True, probability=0.05, reason="random"),
        "routed_at": ROUTED_AT,
        "routed_by": "router-0",
    }
    return RoutedEvent(**content | changed)


def labelled(result: RoutedEvent, said: dict[str, Any] | None = None, **how: Any) -> LabelledExample:
    """Join a result with what was said of it, by default the gold entities."""
    return LabelledExample.from_events(result, FeedbackEvent(query_id="q", **(said or {"entities": GOLD})), **how)


def test_the_cases_cover_every_reason() -> None:
    assert set(CASES) == set(get_args(DecisionReason))


@pytest.mark.parametrize("reason", sorted(CASES))
def test_an_example_holds_counts_propensities_and_agreement(reason: str) -> None:
    u, small, large, served, propensity = CASES[reason]
    example = labelled(routed(reason), disputed=2)
    found = {name: {} if answer == "failed" else answer for name, answer in (("small", small), ("large", large))}
    assert (example.uncertainty, example.reason, example.calibration_version) == (u, reason, 4)
    assert (example.large_probability, example.label_probability, example.label_requested) == (propensity, 0.05, True)
    assert (example.label_reason, example.disputed) == ("random", 2)
    expected = count_pairs(found["small"], GOLD)
    assert example.small is not None
    assert (example.small.true_positives, example.small.predicted) == expected[:2]
    assert example.gold_count == expected.gold == 2
    assert example.small_exact is (small != "failed" and equal(small, GOLD))
    assert (example.large is None) is (large is None)
    answered = None not in (small, large) and "failed" not in (small, large)
    assert example.agree is (equal(small, large) if answered else None)
    if example.large is not None:
        counted = count_pairs(found["large"], GOLD)
        assert (example.large.true_positives, example.large.predicted) == counted[:2]
    assert example.per_field is not None
    totals = count_pairs(found[served], GOLD)
    assert sum(field.true_positives for field in example.per_field.values()) == totals.true_positives
    assert sum(field.predicted for field in example.per_field.values()) == totals.predicted


def test_failed_answer_is_never_exact() -> None:
    assert not labelled(routed("small_failed"), {"entities": {}}).small_exact


@pytest.mark.parametrize("said", [{"entities": None}, {"entities": GOLD, "retracted": True}])
def test_skipped_or_withdrawn_feedback_takes_the_example_out(said: dict[str, Any]) -> None:
    assert labelled(routed("kept"), said).retracted


@pytest.mark.parametrize("reason", CASES)
def test_a_verdict_stands_in_for_no_count(reason: str) -> None:
    example = labelled(routed(reason), {"verdict": "right"})
    counts = (example.small_exact, example.small, example.large, example.gold_count, example.per_field)
    assert counts == (None,) * 5
    assert (example.verdict, example.retracted) == ("right", False)
    assert LabelledExample.from_json(example.to_json()) == example
    for faulty in ({"gold_count": 0}, {"verdict": None}, {"large": {"true_positives": 0, "predicted": 0}}):
        with pytest.raises(DecodeError, match="small_exact, small and gold_count"):
            LabelledExample.from_json(json.dumps(example.model_dump(mode="json") | faulty))


def test_fields_that_the_workload_does_not_have_do_not_count() -> None:
    example = labelled(routed("exploration"), {"entities": {**GOLD, "mood": "calm"}}, fields=["iso"])
    assert example.small is not None
    assert (example.gold_count, example.small.predicted, example.small_exact) == (1, 1, True)
    assert example.per_field is not None
    assert set(example.per_field) == {"iso"}


def test_label_time_falls_back_to_arrival_then_routing() -> None:
    later, latest = ROUTED_AT + timedelta(hours=1), ROUTED_AT + timedelta(hours=2)
    stamped = {"entities": GOLD, "labelled_at": later}
    assert labelled(routed("kept")).labelled_at == ROUTED_AT
    assert labelled(routed("kept"), arrived_at=latest).labelled_at == latest
    assert labelled(routed("kept"), stamped, arrived_at=latest).labelled_at == later


def test_equal_words_have_one_identity_and_a_withdrawal_another() -> None:
    first = FeedbackEvent(query_id="q", entities={"iso": "1", "lens": None}, labeler="a")
    same = FeedbackEvent(query_id="q", entities={"lens": None, "iso": "1"}, labeler="a", source="tool")
    assert first.identity() == same.identity()
    others = [
        first.model_copy(update=change)
        for change in ({"retracted": True}, {"revision": 2}, {"labeler": None}, {"query_id": "p"}, {"entities": None})
    ]
    assert len({first.identity(), *(other.identity() for other in others)}) == 6
    assert FeedbackEvent(query_id="q", entities={}, feedback_id="mine").identity() == "mine"


def test_a_label_names_the_signal_that_measured_u() -> None:
    """Where a record names none, it is the token margin."""
    assert labelled(routed("kept", signal="entropy")).signal == "entropy"
    earlier = json.loads(routed("kept").to_json())
    del earlier["signal"]
    assert RoutedEvent.from_json(json.dumps(earlier)).signal == "token_margin"


@pytest.mark.parametrize(
    ("handoff", "expected"),
    [
        (None, None),
        ({"name": "field@0.9"}, None),
        ({"name": "field@0.9", "guarded": True}, 2),
        ({"name": "field@0.9", "guarded": True, "alone": run(WRONG)}, 1),
        ({"name": "field@0.9", "guarded": True, "alone": run("failed")}, None),
    ],
)
def test_a_label_says_what_the_large_model_got_alone(handoff: Any, expected: int | None) -> None:
    """Where nothing was handed over, what was served is what the large model says alone; a failure says nothing."""
    example = labelled(routed("threshold", handoff=handoff), fields=GOLD)
    assert example.handoff == (handoff and handoff["name"])
    assert (example.large_alone and example.large_alone.true_positives) == expected


@pytest.mark.parametrize("reason", CASES)
def test_counts_of_the_small_answer_are_noted_by_field(reason: str) -> None:
    """Where the large answer was served, the small one's counts in fields with targets are said beside it."""
    result = routed(reason)
    label = FeedbackEvent(query_id="q", entities=GOLD, labelled_at=ROUTED_AT)
    plain = LabelledExample.from_events(result, label, fields=("iso", "lens"))
    noted = plain.with_small_counts(result, label, ("iso",))
    _, small, _, served, _ = CASES[reason]
    assert plain.with_small_counts(result, label, ()) == plain
    assert b"small_per_field" not in plain.to_json()
    if served == "small":
        assert noted == plain
        return
    assert noted.small_per_field is not None
    counts = count_pairs(None if small == "failed" else small, GOLD, ("iso",))
    found = noted.small_per_field["iso"]
    assert (found.true_positives, found.predicted) == (counts.true_positives, counts.predicted)
    assert list(noted.small_per_field) == ["iso"]
    assert LabelledExample.from_json(noted.to_json()) == noted


# --- what people are asked ---


@pytest.mark.parametrize(
    ("drawn", "shown"), [("random", "monitoring"), ("exploration", "exploration"), ("audit", "audit")]
)
def test_a_request_says_what_to_label_and_why(drawn: LabelReason, shown: str) -> None:
    result = recalibrator_events.routed(1, label=LabelRequest(requested=True, probability=0.1, reason=drawn))
    request = LabelRequested.from_result(result)
    assert (request.query_id, request.text, request.entities) == (result.query_id, result.text, result.entities)
    assert (request.reason, request.probability, request.requested_at) == (shown, 0.1, result.routed_at)
    assert set(get_args(LabelReason)) == {"random", "exploration", "audit"}


def test_both_answers_stand_in_a_request_where_they_differ() -> None:
    """Where they are alike, nothing tells whether one model ran or both."""
    both = recalibrator_events.routed(1)
    small = both.small.model_copy(update={"entities": {"camera": "Leica M6"}}) if both.small else None
    differing = LabelRequested.from_result(both.model_copy(update={"small": small}))
    alike = both.model_copy(update={"small": both.large})
    failed = both.model_copy(update={"small": ModelRun(model="small", entities={"camera": "M6"}, valid=False)})
    alone = both.model_copy(update={"answered_by": "small", "large": None})

    assert differing.other_entities == {"camera": "Leica M6"}
    for result in (alike, failed, alone):
        assert b"other_entities" not in LabelRequested.from_result(result).to_json()
