"""Confluent's wire format: passed over where it stands, refused where something else than JSON follows."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.decoding import decode_feedback, decode_result
from schemas import DecodeError, QueryEvent
from schemas.json_bytes import MAX_SCHEMA_ID, framed, unframed
from stream_router.intake_thread import decode_query
from tests.support.recalibrator_events import feedback, routed

QUERY = QueryEvent(query_id="q", text="canon 5d")


@given(st.integers(0, MAX_SCHEMA_ID), st.binary())
def test_frame_is_that_of_confluents_serializers(schema_id: int, rest: bytes) -> None:
    value = framed(schema_id, b"{" + rest)
    assert value[:5] == struct.pack(">bI", 0, schema_id)
    assert unframed(value) == b"{" + rest


@given(st.binary().filter(lambda value: not value.startswith(b"\0")))
def test_value_without_a_frame_stays_as_it_is(value: bytes) -> None:
    assert unframed(value) == value


@pytest.mark.parametrize("rest", [b"", b"\0\0\0\7", b"\0\0\0\7\x02\x06abc", b"\0\0\0\7[]", b"\0\0\0\7\0\0\0\0\7{}"])
def test_frame_without_a_json_object_is_refused(rest: bytes) -> None:
    """Cut off, of Avro, of another JSON value, or twice."""
    with pytest.raises(DecodeError) as refused:
        decode_query(b"\0" + rest, ["w"])
    assert refused.value.reason == "not_json"
    assert "Confluent's wire format" in str(refused.value)


def test_faults_behind_a_frame_keep_their_reasons() -> None:
    for rest, reason in ((b'{"text": "x"}', "missing_field"), (b'{"text": "\xff"}', "not_utf8"), (b"{", "not_json")):
        with pytest.raises(DecodeError) as refused:
            decode_query(framed(7, rest), ["w"])
        assert refused.value.reason == reason


def test_every_reader_of_events_of_others_takes_a_frame() -> None:
    result, label = routed(1, workload="w"), feedback(1)
    assert decode_query(framed(7, QUERY.to_json()), ["w"]) == (QUERY, "w")
    assert decode_result(framed(7, result.to_json()), ["w"]) == result
    assert decode_feedback(framed(7, label.to_json())) == label
