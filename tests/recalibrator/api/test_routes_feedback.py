"""Feedback over HTTP: what is taken, what is refused and how, and that nothing is answered with a 5xx."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from typing import Any

import pytest

from recalibrator.api import http_requests as bodies
from recalibrator.api import routes_feedback
from schemas.event import MAX_RECORD_BYTES, rfc3339
from schemas.feedback import MAX_REVISION, FeedbackEvent
from tests.support.api import KEY, START, WORKLOAD, Api, make_api
from tests.support.recalibrator_events import label_request

EVENT = {"query_id": "q-1", "entities": {"camera": "canon 5d"}, "labeler": "ann"}


@pytest.fixture
def api() -> Api:
    return make_api()


BATCH = "/v1/feedback:batch"


def _post(api: Api, body: bytes, path: str = "/v1/feedback", **headers: str) -> Any:
    kind = "application/jsonl" if path == BATCH else "application/json"
    return api.client.post(path, content=body, headers={"content-type": kind, **headers})


def _event(**changes: Any) -> bytes:
    return json.dumps(EVENT | changes).encode()


def _batch(api: Api, lines: list[bytes], **headers: str) -> Any:
    return _post(api, b"\n".join(lines), BATCH, **headers)


def _taken(api: Api, query_id: str = "q-1") -> FeedbackEvent:
    """Return the one event that is in the topic, under its query's id."""
    [(topic, key, value)] = api.producer.records
    assert (topic, key) == ("ucci.feedback", query_id.encode())
    return FeedbackEvent.from_json(value)


def test_an_event_is_taken_under_its_query_id(api: Api) -> None:
    answer = _post(api, _event())

    assert answer.status_code == 202
    taken = _taken(api)
    assert taken.model_copy(update={"revision": 1}) == FeedbackEvent.model_validate(EVENT)
    assert answer.json()["feedback_id"] == taken.identity()


def test_a_verdict_is_taken_instead_of_entities(api: Api) -> None:
    """Of a query that nobody asks a label for, without a warning."""
    _open_request(api)
    answer = _post(api, json.dumps({"query_id": "judged", "verdict": "wrong", "labeler": "ann"}).encode())

    assert (answer.status_code, "warnings" in answer.text) == (202, False)
    taken = _taken(api, "judged")
    assert (taken.verdict, taken.entities, taken.labeler) == ("wrong", None, "ann")


def test_a_batch_that_is_sent_again_is_taken_again(api: Api) -> None:
    assert [_batch(api, [_event(revision=number) for number in (1, 2)]).status_code for _ in range(2)] == [202, 202]
    refused = _batch(api, [_event(entities=None, revision=1)])
    assert (refused.status_code, json.loads(refused.text)["status"]) == (207, 409)


def test_a_batch_of_which_the_broker_took_nothing_is_503(api: Api) -> None:
    api.producer.is_away = True
    refused = _batch(api, [_event(), _event(query_id="q-2")])
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "broker_away")
    assert int(refused.headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"", 400, None),
        (b"\xff\xfe", 400, None),
        (b'{"query_id": NaN, "entities": null}', 422, "query_id"),
        (b'{"query_id": "q"}', 422, "entities"),
        (b'{"query_id": "q", "entities": {}, "verdict": "right"}', 422, "verdict"),
        (b'{"query_id": "q", "entities": {}, "revision": 0}', 422, "revision"),
        (b'{"query_id": "q", "entities": {}, "revision": %d}' % (MAX_REVISION + 1), 422, "revision"),
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


def test_another_media_type_or_a_coding_is_refused(api: Api) -> None:
    """Whether the body is compressed or not."""
    for header, value in (("content-type", "application/xml"), ("content-encoding", "gzip")):
        for body in (_event(), gzip.compress(_event(), mtime=0)):
            answer = _post(api, body, **{header: value})
            assert (answer.status_code, answer.json()["error"]["field"].lower()) == (415, header)


def test_a_quoted_end_of_a_line_split_the_answer(api: Api) -> None:
    """Text has more ends of a line than JSON Lines, and clients split by all of them."""
    for end in ("\u2028", "\u2029", "\u0085"):
        answer = _batch(api, [_event(entities={f"a{end}b": "x", "camera": "canon"})] * 2)
        found = [json.loads(line) for line in answer.text.splitlines()]
        assert [(one["status"], one["warnings"][0]["field"]) for one in found] == [(202, f"entities.a{end}b")] * 2


def test_a_batch_takes_the_good_lines_and_names_the_bad_ones(api: Api) -> None:
    answer = _batch(api, [_event(), b"", b"{}", b"nonsense", b"", b""])

    assert answer.status_code == 207
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [(line["line"], line["status"]) for line in lines] == [(1, 202), (3, 422), (4, 400)]
    assert (lines[0]["error"], lines[1]["error"]["field"]) == (None, "query_id")
    assert _taken(api)


def test_a_key_given_twice_is_refused_by_its_name(api: Api) -> None:
    for path, body, field in (
        ("/v1/feedback", b'{"query_id": "q", "entities": null, "entities": {}}', "entities"),
        ("/v1/calibrations/photo-search:pause", b'{"reason": "one", "reason": "two"}', "reason"),
    ):
        error = _post(api, body, path).json()["error"]
        assert (error["code"], error["field"]) == ("duplicate_key", field)
    assert api.producer.records == []


@pytest.mark.parametrize(("ahead_s", "status"), [(299, 202), (301, 422)])
def test_a_label_of_the_future_is_refused(api: Api, ahead_s: int, status: int) -> None:
    """But for a clock that is a little fast."""
    answer = _post(api, _event(labelled_at=rfc3339(START + timedelta(seconds=ahead_s))))

    assert (answer.status_code, len(api.producer.records)) == (status, status == 202)
    assert status == 202 or answer.json()["error"]["field"] == "labelled_at"


def _events_of_size(size: int) -> bytes:
    """Return an event whose JSON is so long and leaves out what has a default."""
    lists = {f"f{n}": ["x" * 4_000] * 62 for n in range(4)}

    def event(*rest: str) -> bytes:
        return json.dumps({"query_id": "q", "entities": {**lists, "rest": rest}}, separators=(",", ":")).encode()

    # A full entry takes its text, two quotes and a comma.
    full, left = divmod(size - len(event()) - 10, 3_003)
    return event(*["y" * 3_000] * full, "z" * left)


def test_an_event_too_large_for_a_record_is_413(api: Api) -> None:
    """An event that would outgrow a record once written out is refused rather than set aside later."""
    body = _events_of_size(MAX_RECORD_BYTES - 10)
    assert MAX_RECORD_BYTES - 30 < len(body) <= MAX_RECORD_BYTES
    assert len(FeedbackEvent.from_json(body).to_json()) > MAX_RECORD_BYTES

    assert _post(api, body).status_code == 413
    assert api.producer.records == []


def test_an_idempotency_key_names_what_has_no_id(api: Api) -> None:
    """An event, and the lines of a batch by their number."""
    lines = [{"query_id": "a", "entities": None}, {"query_id": "b", "entities": None, "feedback_id": "own"}, EVENT]
    for _ in range(2):
        _batch(api, [json.dumps(line).encode() for line in lines], **{"Idempotency-Key": "once"})

    _post(api, _event(), **{"Idempotency-Key": "once"})
    ids = [FeedbackEvent.from_json(value).feedback_id for _, _, value in api.producer.records]
    assert ids == [*["once:1", "own", "once:3"] * 2, "once"]
    refused = _post(api, _event(), **{"Idempotency-Key": "k" * 513})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "Idempotency-Key")


def test_the_time_that_the_broker_takes_is_not_the_senders(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is as slow as the broker; only the body's own coming is timed."""
    monkeypatch.setattr(bodies, "BODY_TIMEOUT_S", 0.5)
    monkeypatch.setattr(routes_feedback, "MAX_UNSETTLED", 1)
    api.producer.takes_s = 0.2

    assert _batch(api, [_event()] * 3).status_code == 202


def test_made_up_sources_share_one_metric_label(api: Api) -> None:
    """Sources that senders make up do not each become a metric."""
    _batch(api, [_event(source=f"s-{n}") for n in range(200)])

    lines = [line for line in api.client.get("/metrics").text.splitlines() if "feedback_total{" in line]
    assert len(lines) == 65
    assert 'ucci_recalibrator_feedback_total{source="other"} 136.0' in lines


def test_ten_megabytes_of_empty_lines_cost_seconds_and_no_quota() -> None:
    """Empty lines count like others, towards the bound of a batch and towards the quota."""
    api = make_api(api_keys={"tool": {"key": KEY, "scopes": ["feedback"], "quota_per_minute": 1_000}})
    answers = [_post(api, b"\n" * lines, BATCH, **{"X-Api-Key": KEY}) for lines in (10_000_000, 1_000, 1)]

    assert [answer.status_code for answer in answers] == [413, 202, 429]
    assert "lines" in answers[0].json()["error"]["message"]


def _open_request(api: Api) -> None:
    api.tell(label_request(1, workload=WORKLOAD))


def test_an_unknown_field_name_is_202_without_a_word(api: Api) -> None:
    """The join ignores fields that the workload does not have: a misspelt one would look like an absent value."""
    answer = _post(api, _event(entities={"camra": "canon 5d", "lens": None}))

    assert answer.status_code == 202
    (warning,) = answer.json()["warnings"]
    assert (warning["code"], warning["field"]) == ("unknown_field", "entities.camra")
    assert "is camera meant?" in warning["message"]
    first, second = map(json.loads, _batch(api, [_event(), _event(entities={"camra": "a"})]).text.splitlines())
    assert first == {"line": 1, "status": 202, "error": None}
    assert [one["code"] for one in second["warnings"]] == ["unknown_field"]


def test_a_spelt_null_is_taken_and_warned_of() -> None:
    """One event and each line of a batch; a text that the workload names as null is not warned of."""
    said = {"camera": "None", "lens": ["50 mm", "n\u2060/a"]}
    api = make_api()
    answer = _post(api, _event(entities=said))
    assert answer.status_code == 202
    warnings = answer.json()["warnings"]
    assert [(one["code"], one["field"]) for one in warnings] == [
        ("spelt_null", "entities.camera"),
        ("spelt_null", "entities.lens"),
    ]
    assert "null_texts" in warnings[0]["message"]
    first, second = map(json.loads, _batch(api, [_event(), _event(entities=said)]).text.splitlines())
    assert ("warnings" in first, len(second["warnings"])) == (False, 2)
    quiet = _post(make_api(workload={"null_texts": ["none", "N/A"]}), _event(entities=said))
    assert "warnings" not in quiet.json()


@pytest.mark.parametrize(
    ("missing", "change", "warned"),
    [
        ((), {}, True),
        ((), {"query_id": "q-1"}, False),
        # A correction needs no open request, and an API that is still reading knows of none.
        ((), {"revision": 2}, False),
        ((), {"retracted": True, "entities": None}, False),
        (("api",), {}, False),
    ],
)
def test_an_unknown_query_id_is_202_without_a_word(
    missing: tuple[str, ...], change: dict[str, Any], warned: bool
) -> None:
    api = make_api(missing=missing)
    _open_request(api)
    answer = _post(api, _event(**{"query_id": "q-l"} | change))

    assert answer.status_code == 202
    told = [(one["code"], one["field"]) for one in answer.json().get("warnings", ())]
    assert told == [("no_open_request", "query_id")] * warned
