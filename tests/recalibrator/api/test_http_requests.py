"""Malformed bodies against every route that takes one: refused with the field, or taken whole; never a 5xx.

`make test` sends 300 of them, `make test-thorough` 3,000; research/malformed.py sends any number.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas.event import MAX_RECORD_BYTES
from schemas.feedback import FeedbackEvent
from tests.support.api import START, WORKLOAD, make_api
from tests.support.malformed_bodies import MAX_BODY_BYTES, malformed_requests
from tests.support.versions import sealed_version

AT_ONCE = 15
LONGEST_MESSAGE = 1_000
#: The page's form answers a person, in HTML, and stands in no document.
OF_THE_FORM = {303, 403, 404, 413, 415, 422}


API = make_api(max_body_bytes=MAX_BODY_BYTES)
API.tell(sealed_version(workload=WORKLOAD, version=1, created_at=START))
PATHS: dict[str, Any] = API.client.get("/openapi.json").json()["paths"]


def _documented(path: str) -> set[int]:
    route = path.replace(WORKLOAD, "{workload}").replace("/1:", "/{version}:")
    return {int(status) for status in PATHS[route]["post"]["responses"]} if route in PATHS else OF_THE_FORM


def _assert_one_shape(error: Any, status: int) -> None:
    assert set(error) == {"code", "message", "field"}
    assert 0 < len(error["message"]) < LONGEST_MESSAGE
    assert status != 422 or error["field"] or error["message"].startswith("record: ")


@given(st.integers(0, 2**32 - 1))
def test_a_malformed_body_is_refused_or_taken_whole(of: int) -> None:
    """What was acknowledged is in the topic, in a form that is read again."""
    for request in malformed_requests(of, AT_ONCE):
        API.producer.records.clear()
        content = request.body if isinstance(request.body, bytes) else iter(request.body)
        headers = {name.encode("ascii"): value.encode("latin-1") for name, value in request.headers.items()}
        answer = API.client.post(request.path, content=content, headers=headers, follow_redirects=False)
        status, records = answer.status_code, API.producer.records

        assert status in _documented(request.path), (request, answer.text[:300])
        if status < 400 and request.path.startswith("/v1/feedback"):
            lines = [json.loads(line) for line in answer.content.splitlines()]
            assert len(records) == sum(line.get("status", 202) == 202 for line in lines)
            for _, key, value in records:
                assert len(key) + len(value) <= MAX_RECORD_BYTES
                assert FeedbackEvent.from_json(value).to_json() == value
            for line in lines if status == 207 else ():
                assert (line["error"] is None) is (line["status"] == 202)
                if line["error"] is not None:
                    _assert_one_shape(line["error"], line["status"])
        elif status >= 400:
            assert records == [] or status == 413
            if request.path == "/confirm" and answer.headers["content-type"] != "application/json":
                continue
            _assert_one_shape(answer.json()["error"], status)
