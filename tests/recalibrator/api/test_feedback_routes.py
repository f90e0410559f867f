"""Feedback over HTTP: what is taken, what is refused and how, and that nothing is answered with a 5xx."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.feedback import FeedbackEvent
from tests.support.api import Api, make_api

EVENT = {"query_id": "q-1", "entities": {"camera": "canon 5d"}, "labeler": "ann"}


@pytest.fixture
def api() -> Api:
    return make_api()


def _post(api: Api, body: bytes, path: str = "/v1/feedback", **headers: str) -> Any:
    return api.client.post(path, content=body, headers={"content-type": "application/json", **headers})


def test_an_event_is_taken_under_its_query_id(api: Api) -> None:
    answer = _post(api, json.dumps(EVENT).encode())

    assert answer.status_code == 202
    [(topic, key, value)] = api.producer.records
    assert (topic, key) == ("ucci.feedback", b"q-1")
    assert FeedbackEvent.from_json(value) == FeedbackEvent.model_validate(EVENT)
    assert answer.json()["feedback_id"] == FeedbackEvent.model_validate(EVENT).identity()


def test_the_idempotency_key_names_an_event_without_id(api: Api) -> None:
    _post(api, json.dumps(EVENT).encode(), **{"Idempotency-Key": "once"})

    assert FeedbackEvent.from_json(api.producer.records[0][2]).feedback_id == "once"


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"", 400, None),
        (b"{", 400, None),
        (b"\xff\xfe", 400, None),
        (b'{"query_id": NaN, "entities": null}', 422, "query_id"),
        (b"[" * 100_000, 400, None),
        (b"[]", 422, None),
        (b'{"entities": null}', 422, "query_id"),
        (b'{"query_id": "", "entities": null}', 422, "query_id"),
        (b'{"query_id": "q"}', 422, "entities"),
        (b'{"query_id": "q", "entities": {"camera": 5}}', 422, "entities"),
        (b'{"query_id": "q", "entities": {}, "labelled_at": 5}', 422, "labelled_at"),
        (b'{"query_id": "q", "entities": {}, "revision": 0}', 422, "revision"),
        (b'{"query_id": "\\ud800", "entities": {}}', 422, None),
    ],
)
def test_a_faulty_event_is_refused_with_its_field(api: Api, body: bytes, status: int, field: str | None) -> None:
    answer = _post(api, body)

    # Where JSON ends and a bad field begins is the parser's matter for a lone surrogate.
    assert answer.status_code == status or (status == 422 and answer.status_code == 400 and field is None)
    error = answer.json()["error"]
    assert error["message"]
    assert field is None or error["field"].startswith(field)
    assert api.producer.records == []


_SHARED = make_api()


@settings(max_examples=40)
@given(st.binary(max_size=400) | st.text(max_size=200).map(lambda text: json.dumps({"query_id": text}).encode()))
def test_no_body_leads_to_a_5xx(body: bytes) -> None:
    api = _SHARED
    for path in ("/v1/feedback", "/v1/hooks/label-studio"):
        answer = _post(api, body, path)
        assert answer.status_code < 500
        assert answer.status_code == 202 or set(answer.json()["error"]) == {"code", "message", "field"}


def test_a_body_above_the_limit_is_refused_before_it_is_read() -> None:
    api = make_api(max_body_bytes=1_000)

    assert _post(api, b" " * 1_001).status_code == 413


def test_another_media_type_is_refused(api: Api) -> None:
    assert _post(api, b"{}", **{"content-type": "application/xml"}).status_code == 415


def test_a_broker_that_is_away_is_503_with_retry_after(api: Api) -> None:
    api.producer.is_away = True

    answer = _post(api, json.dumps(EVENT).encode())

    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json()["error"]["code"] == "broker_away"


def _batch(api: Api, lines: list[bytes]) -> Any:
    return api.client.post(
        "/v1/feedback:batch", content=b"\n".join(lines), headers={"content-type": "application/jsonl"}
    )


def test_a_good_batch_is_202_with_a_line_each(api: Api) -> None:
    answer = _batch(api, [json.dumps({**EVENT, "query_id": f"q-{i}"}).encode() for i in range(3)])

    assert answer.status_code == 202
    assert [json.loads(line)["status"] for line in answer.text.splitlines()] == [202, 202, 202]
    assert len(api.producer.records) == 3


def test_a_batch_takes_the_good_lines_and_names_the_bad_ones(api: Api) -> None:
    answer = _batch(api, [json.dumps(EVENT).encode(), b"", b"{}", b"nonsense"])

    assert answer.status_code == 207
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [(line["line"], line["status"]) for line in lines] == [(1, 202), (3, 422), (4, 400)]
    assert lines[0]["error"] is None
    assert lines[1]["error"]["field"] == "query_id"
    assert len(api.producer.records) == 1


def test_a_batch_that_reached_no_broker_is_503(api: Api) -> None:
    api.producer.is_away = True

    assert _batch(api, [json.dumps(EVENT).encode()] * 2).status_code == 503


def test_a_keyed_caller_is_the_labeler_of_what_names_nobody() -> None:
    api = make_api(api_keys={"back-office": {"key": "s3cret", "scopes": ["feedback"]}})
    event = {"query_id": "q", "entities": {}}

    assert _post(api, json.dumps(event).encode(), Authorization="Bearer s3cret").status_code == 202
    assert FeedbackEvent.from_json(api.producer.records[0][2]).labeler == "back-office"
