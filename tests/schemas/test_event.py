"""What every event promises: one JSON form that reads back equal, and one clear line for what could hurt later."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from schemas import (
    CalibrationVersion,
    Command,
    DecodeError,
    FeedbackEvent,
    LabelledExample,
    QueryEvent,
    RoutedEvent,
    TrafficSummary,
    WorkloadStatus,
)
from schemas.calibration import Evidence
from schemas.event import (
    MAX_DEPTH,
    MAX_RECORD_BYTES,
    Event,
    Timestamp,
    decode_error,
    readable,
    rfc3339,
)
from tests.support import recalibrator_events, strategies
from tests.support.versions import sealed_version

MOMENT = "2026-01-31T12:00:00Z"
quick = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.mark.parametrize("name", sorted(strategies.EVENTS))
def test_an_event_reads_back_equal_and_writes_the_same_bytes(name: str) -> None:
    @quick
    @given(event=strategies.EVENTS[name])
    def holds(event: Event) -> None:
        written = event.to_json()
        read = type(event).from_json(written)
        assert read == event
        assert read.to_json() == written
        # The serializer that is called directly writes the bytes of the public method, which its defaults could change.
        omitted = {"entities"} if isinstance(event, FeedbackEvent) and event.verdict else None
        assert written == event.model_dump_json(exclude=omitted).encode()

    holds()


@given(
    # Not the first and last day: in another zone they lie in years that are refused.
    moment=st.datetimes(
        datetime.fromisoformat("1970-01-02"),
        datetime.fromisoformat("2999-12-30"),
        timezones=st.timezones() | st.just(UTC),
    )
)
@example(moment=datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC))
@example(moment=datetime(2026, 1, 31, 12, 0, 0, 100_000, tzinfo=UTC))
@example(moment=datetime(2026, 1, 31, 12, 0, tzinfo=timezone(timedelta(hours=-11, minutes=-30))))
def test_times_are_written_as_in_every_release(moment: datetime) -> None:
    """Whatever the zone: in UTC, with a final Z, microseconds all six or none."""
    times = TypeAdapter(Timestamp)
    taken = times.validate_python(moment)
    assert times.dump_json(taken).decode() == f'"{rfc3339(moment)}"'
    assert times.dump_python(taken, mode="json") == rfc3339(moment)
    assert times.validate_json(times.dump_json(taken)) == taken


@pytest.mark.parametrize("name", sorted(strategies.EVENTS))
def test_fields_of_a_later_contract_are_ignored(name: str) -> None:
    @settings(quick, max_examples=5)
    @given(event=strategies.EVENTS[name])
    def holds(event: Event) -> None:
        document = json.loads(event.to_json()) | {"added_later": {"deep": [1, None]}}
        document["digest"] = "" if name == "CalibrationVersion" else document.get("digest")
        read = type(event).from_json(json.dumps(document))
        assert read.model_dump(exclude={"digest"}) == event.model_dump(exclude={"digest"})

    holds()


def query(**fields: Any) -> dict[str, Any]:
    return {"query_id": "q-1", "text": "a photo", **fields}


def feedback(**fields: Any) -> dict[str, Any]:
    return {"query_id": "q-1", "entities": {"iso": "100"}, **fields}


def labelled(**fields: Any) -> dict[str, Any]:
    label = LabelledExample.from_events(recalibrator_events.routed(1), recalibrator_events.feedback(1))
    return label.model_dump(mode="json") | fields


def version(**fields: Any) -> dict[str, Any]:
    return sealed_version().model_dump(mode="json", exclude={"digest"}) | fields


def knots(uncertainty: list[Any], error_probability: list[Any]) -> dict[str, Any]:
    return version(map={"uncertainty": uncertainty, "error_probability": error_probability})


def traffic(**fields: Any) -> dict[str, Any]:
    return {
        "workload": "w",
        "first_routed_at": MOMENT,
        "last_routed_at": MOMENT,
        "grid": {"cells": 8},
        "versions": [
            {"calibration_version": 1, "queries": 3, "cell": [2], "count": [3], "pairs": [2], "agreeing": [1]}
            | {"pairs_explored": [1]}
            | fields
        ],
    }


SERVED_BY_NOBODY = {
    **query(workload="w", entities={}, answered_by="large", small=None, large=None, routed_at=MOMENT),
    "routed_by": "r",
    "decision": {"escalated": True, "reason": "threshold", "large_probability": 1.0},
    "cost": {"sequential": 1, "paper": 1},
    "label": {"requested": False, "probability": 0.1},
}
ACT = {"workload": "w", "action": "activate", "issued_by": "a", "issued_at": MOMENT}
UNHASHABLE = version(evidence={"trigger": "a", "details": {"x": 2**60}}, digest="0" * 64)
#: The field is None where an event contradicts itself.
REFUSED: list[tuple[type[Event], dict[str, Any], str | None, str]] = [
    (QueryEvent, {"text": "a"}, "query_id", "required and missing"),
    (QueryEvent, query(query_id="q" * 513), "query_id", "at most 512"),
    (QueryEvent, query(metadata={"x": float("nan")}), "metadata", "send null"),
    (QueryEvent, query(metadata={"x": 2**64}), "metadata", "send it as text"),
    (QueryEvent, query(metadata={"x": "a" * 65_536}), "metadata", "pass a reference"),
    (QueryEvent, query(created_at="2026-01-31T12:00:00"), "created_at", "final Z"),
    (QueryEvent, query(created_at=1767225600), "created_at", "RFC 3339"),
    (QueryEvent, query(created_at="9999-12-31T23:59:59-14:00"), "created_at", "1970 to 2999"),
    (FeedbackEvent, {"query_id": "q-1"}, "entities", "required and missing"),
    (FeedbackEvent, feedback(entities={"iso": 100}), "entities.iso", "must be null, text"),
    (FeedbackEvent, feedback(entities={"k" * 100_000: 5}), f"entities.{'k' * 60}.[key]", "at most 255 characters"),
    (FeedbackEvent, feedback(entities={"iso": ["a", None]}), "entities.iso", "must be null, text"),
    (FeedbackEvent, feedback(revision=True), "revision", "valid integer"),
    (FeedbackEvent, feedback(revision=2**31 + 1), "revision", "above 2147483648: count a labeler's corrections"),
    (FeedbackEvent, feedback(retracted=1), "retracted", "valid boolean"),
    # Their year in UTC is out of range: what is written could not be read back.
    (FeedbackEvent, feedback(labelled_at="1970-01-01T00:00:00+23:00"), "labelled_at", "must lie in the years"),
    (LabelledExample, labelled(kind="traffic"), "kind", "labelled"),
    (LabelledExample, labelled(uncertainty=True), "uncertainty", "valid number"),
    (LabelledExample, labelled(gold_count=10**400), "gold_count", "less than or equal to"),
    (LabelledExample, labelled(small={"true_positives": 2, "predicted": 1}), "small", "exceeds predicted"),
    (CalibrationVersion, version(exploration_probability="0.01"), "exploration_probability", "valid number"),
    (CalibrationVersion, knots([0.1, 0.1], [0.1, 0.2]), "map", "increase strictly"),
    (CalibrationVersion, knots([0.1, 0.2], [0.2, 0.1]), "map", "must not decrease"),
    (CalibrationVersion, knots([0.1, 0.2], [0.2]), "map", "2 uncertainty knots but 1"),
    (CalibrationVersion, knots([0.1, float("nan")], [0.1, 0.2]), "map.uncertainty.1", "number"),
    (TrafficSummary, traffic() | {"grid": {"low": 5e-324}}, "grid.low", "greater than or equal to 0.000"),
    (TrafficSummary, traffic() | {"grid": {"high": 1.0}}, "grid.high", "less than 1"),
    (TrafficSummary, traffic(cell=[2, 2]), "versions.0", "strictly increasing|equal lengths"),
    (TrafficSummary, traffic(pairs=[4]), "versions.0", "does not hold"),
    (TrafficSummary, traffic(small_latency_s=float("inf")), "versions.0.small_latency_s", "finite"),
    (CalibrationVersion, knots([], []), None, "at least one knot"),
    (CalibrationVersion, version(exploration_probability=0.2), None, "must not exceed the label probabilities"),
    (CalibrationVersion, version(digest="0" * 64), "digest", "does not fit the content"),
    (CalibrationVersion, UNHASHABLE, None, "canonical"),
    (RoutedEvent, SERVED_BY_NOBODY, None, "did not give a valid answer"),
    (Command, ACT, None, "is required to activate"),
]


@pytest.mark.parametrize(("event", "document", "field", "remedy"), REFUSED)
def test_harmful_value_is_refused_with_a_remedy(
    event: type[Event], document: dict[str, Any], field: str | None, remedy: str
) -> None:
    with pytest.raises(DecodeError, match=remedy) as caught:
        event.from_json(json.dumps(document))
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field or 'record'}: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "not_json"),
        (b"{", "not_json"),
        (b'{"query_id":"a","text":"t"} x', "not_json"),
        (b"[]", "invalid_field"),
        (b'\xef\xbb\xbf{"query_id":"a","text":"t"}', "not_json"),
        (b'{"query_id":"a\xff","text":"t"}', "not_json"),
        (b'{"query_id":"a\\ud800","text":"t"}', "not_json"),
        (b'{"query_id":"a\nb","text":"t"}', "not_json"),
        (b'{"query_id":"a","text":"t","metadata":{"x":1e400}}', "invalid_field"),
        (b'{"query_id":"a","text":"t","later":' + b"1" + b"0" * 5_000 + b"}", "not_json"),
        (b'{"query_id":"a","text":"t","metadata":{"x":' + b"[" * 100 + b"]" * 100 + b"}}", "invalid_field"),
        (b'{"query_id":"a","text":"t","later":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not_json"),
        (b'{"query_id":"a","query_id":"b","text":"t"}', "duplicate_key"),
        (b'{"query_id":"a","query\\u005fid":"b","text":"t"}', "duplicate_key"),
        (b'{"query_id":"a","text":"t","metadata":{"x":{"y":1,"y":2}}}', "duplicate_key"),
        (b'{"query_id":"a","text":"' + b"t" * MAX_RECORD_BYTES + b'"}', "too_large"),
        ("é" * (MAX_RECORD_BYTES // 2 + 1), "too_large"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else "",
)
def test_bytes_that_readers_would_take_differently_are_refused(raw: bytes | str, reason: str) -> None:
    with pytest.raises(DecodeError) as caught:
        QueryEvent.from_json(raw)
    assert caught.value.reason == reason
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("faulty", "words"),
    [
        (float("inf"), "holds inf, not a finite number"),
        (2**70, "holds an integer of 71 bits"),
        (-(2**70), "holds an integer of 71 bits"),
        ("half \ud800", "holds a lone surrogate at character 5"),
        ({"half \udc00": 1}, "holds a lone surrogate at character 5"),
        ({7: 1}, "holds a key that is a int"),
        ({1, 2}, "holds a set, which JSON does not know"),
        ((1.0,), "holds a tuple"),
        (b"x", "holds a bytes"),
        ([[object()]], "holds a object"),
        ({"a": {2.5: 1}}, "holds a key that is a float"),
        ([[float("nan")]], "holds nan, not a finite number"),
    ],
)
@pytest.mark.parametrize("others", [0, 40])
def test_a_value_that_json_lacks_is_named_among_many(faulty: object, words: str, others: int) -> None:
    """Many values are checked at once, a few one by one; both take what is valid and name what is not."""
    good: list[object] = [1, -(2**64) + 1, 0.5, "é", None, True, [], {}, {"a": [1, "b"]}, ["c", {"d": {}}]]
    value = {"deep": {"list": good * others, **{f"k{n}": good for n in range(others)}}}
    assert readable(value) is value
    with pytest.raises(ValueError, match=words):
        Evidence(trigger="t", details={"deep": {"list": [*good * others, faulty]}})


def test_nesting_among_many_values_is_counted() -> None:
    deep: object = 1
    for _ in range(MAX_DEPTH + 1):
        deep = [deep, *[None] * 100]
    with pytest.raises(ValueError, match="nested more than"):
        readable({"a": deep})


@pytest.mark.parametrize(
    "value",
    [
        [["x"] * 20] * 20,
        {"k" * 70: 1},
        [1] * 20,
        ["a" * 70, {"b": ["c" * 70]}],
    ],
)
def test_the_beginning_of_a_value_is_shown_as_it_is(value: object) -> None:
    """A value is cut before it is written out, at any depth: 60 characters are what they were without the cut."""
    with pytest.raises(DecodeError) as caught:
        QueryEvent.from_json(json.dumps({"query_id": value, "text": "t"}))
    written = repr(value)
    assert str(caught.value).endswith(f"(got {written if len(written) <= 60 else written[:60] + '…'})")


def test_a_nested_megabyte_was_written_out_to_show_its_beginning() -> None:
    written = []

    class Item:
        def __repr__(self) -> str:
            written.append(self)
            return "item"

    with pytest.raises(ValidationError) as caught:
        QueryEvent.model_validate({"query_id": {"a": [Item()] * 10_000}, "text": "t"})
    assert "(got {'a': [item, item," in str(decode_error(caught.value))
    assert len(written) <= 60


@pytest.mark.parametrize(
    ("event", "faulty"),
    [
        (TrafficSummary, {"versions": ["x"] * 10_000}),
        (TrafficSummary, {"versions": [{"cell": ["x"] * 10_000}]}),
        (CalibrationVersion, {"map": {"uncertainty": ["x"] * 10_000}}),
        (WorkloadStatus, {"routers": ["x"] * 10_000}),
        (FeedbackEvent, {"entities": {"camera": [1] * 10_000}}),
    ],
)
def test_a_list_of_faults_took_seconds_a_megabyte(event: type[Event], faulty: dict[str, object]) -> None:
    """The first faulty item of a list ends its validation: what is found does not grow with what is sent."""
    with pytest.raises(ValidationError) as caught:
        event.model_validate_json(json.dumps(faulty))
    # Further findings are of other fields, which are missing.
    assert caught.value.error_count() < 50
