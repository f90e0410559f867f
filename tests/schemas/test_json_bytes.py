"""Long JSON is taken as short JSON is, in time that grows with its bytes; Confluent's wire format is passed over."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recalibrator.decoding import decode_feedback, decode_result
from schemas import DecodeError, QueryEvent
from schemas.event import Event, refuse_duplicate_keys
from schemas.json_bytes import LONG_BYTES, framed, parsed
from stream_router.intake_thread import decode_query
from tests.support import strategies
from tests.support.hostile_values import HOSTILE_VALUES, places
from tests.support.recalibrator_events import feedback, routed

#: Makes any record a long one that says the same.
PADDING = b" " * LONG_BYTES

MANY = 50_000

#: But for numbers of thousands of digits, and two faulty values of one key: which of them is named may differ.
HOSTILE = [value for value in HOSTILE_VALUES if len(value) < 200 and '"a":1,"a":2' not in value]

quick = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.fixture
def searches() -> Iterator[list[int]]:
    """Return the generations that Python's collector of cycles searches, one entry for each search; it is on."""
    found: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            found.append(info["generation"])

    gc.callbacks.append(note)
    gc.enable()
    try:
        yield found
    finally:
        gc.disable()
        gc.callbacks.remove(note)


@pytest.mark.parametrize("value", ["[]", "{}", '{"a":1}'])
def test_the_collector_ran_again_and_again_within_a_record(searches: list[int], value: str) -> None:
    """No more than one search follows the parsing, rather than one for each 700 objects."""
    raw = b'{"query_id":"q","text":"t","other":[' + ",".join([value] * MANY).encode() + b"]}"
    parsed(raw)
    assert len(searches) <= 2
    QueryEvent.from_json(raw)
    assert len(searches) <= 6
    assert gc.isenabled()


def test_the_collector_goes_on_after_a_fault(searches: list[int]) -> None:
    with pytest.raises(ValueError, match="EOF"):
        parsed(b"[" * 100 + PADDING)
    assert gc.isenabled()
    assert len(searches) <= 1


@pytest.mark.parametrize("name", sorted(strategies.EVENTS))
def test_a_long_record_is_taken_as_a_short_one(name: str) -> None:
    """What is valid gives the same event, and what is not the same line, but where text ends too early."""

    @quick
    @given(event=strategies.EVENTS[name], draw=st.data())
    def holds(event: Event, draw: st.DataObject) -> None:
        document = json.loads(event.to_json())
        holder, key = draw.draw(st.sampled_from(list(places(document))))
        holder[key] = "HERE"
        hostile = draw.draw(st.sampled_from(HOSTILE))
        for raw in (event.to_json(), json.dumps(document).replace('"HERE"', hostile).encode("utf-8", "surrogatepass")):
            assert _outcome(type(event), raw) == _outcome(type(event), PADDING + raw)

    holds()


def _outcome(event: type[Event], raw: bytes) -> Any:
    try:
        return event.from_json(raw)
    except DecodeError as error:
        return error.reason if error.reason == "not_json" else (error.reason, error.field, str(error))


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (b'{"a":1,"b":2,"a":3}', "a"),
        (b' \t\r\n{"a":1,"a":3} \n', "a"),
        (b'{"x":{"b":1,"b":2},"a":1,"a":2}', "b"),
        (b'{"x":[{"a":1},{"c":[{}],"c":1}]}', "c"),
        (b'{"a":{"b":1},"b":{"a":1},"c":[{"a":1},{"a":1}]}', None),
    ],
)
def test_a_key_given_twice_in_long_json_is_named(raw: bytes, named: str | None) -> None:
    """The first, as in short JSON, and keys of different objects are no such keys."""
    found: list[str | None] = []
    for one in (raw, PADDING + raw):
        try:
            refuse_duplicate_keys(one)
            found.append(None)
        except DecodeError as error:
            found.append(error.field)
    assert found == [named, named]


# --- Confluent's wire format ---

QUERY = QueryEvent(query_id="q", text="canon 5d")


@pytest.mark.parametrize("rest", [b"", b"\0\0\0\7", b"\0\0\0\7\x02\x06abc", b"\0\0\0\7[]", b"\0\0\0\7\0\0\0\0\7{}"])
def test_frame_without_a_json_object_is_refused(rest: bytes) -> None:
    """Cut off, of Avro, of another JSON value, or twice."""
    with pytest.raises(DecodeError) as refused:
        decode_query(b"\0" + rest, ["w"])
    assert refused.value.reason == "not_json"
    assert "Confluent's wire format" in str(refused.value)


def test_every_reader_of_events_of_others_takes_a_frame() -> None:
    result, label = routed(1, workload="w"), feedback(1)
    assert decode_query(framed(7, QUERY.to_json()), ["w"]) == (QUERY, "w")
    assert decode_result(framed(7, result.to_json()), ["w"]) == result
    assert decode_feedback(framed(7, label.to_json())) == label
