"""The label queue: newest first, paged without gaps or repetitions, bounded; and what it answers over HTTP."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.labelling.queue import LabelQueue
from schemas.calibration import Interval
from schemas.label_requested import LabelRequested, RequestReason
from schemas.status import DelayQuantiles, LabelStatus
from tests.support.api import START, WORKLOAD, Api, make_api, plain_status
from tests.support.recalibrator_events import label_request

TOPIC = "ucci.label-requests"
PATH = f"/v1/label-requests/{WORKLOAD}"
REASONS: tuple[RequestReason, ...] = ("exploration", "monitoring", "audit")


def request(number: int, second: int | None = None, workload: str = WORKLOAD, text: str = "") -> LabelRequested:
    at = START + timedelta(seconds=number if second is None else second)
    changes = {"text": text} if text else {}
    return label_request(number, workload=workload, reason=REASONS[number % 3], requested_at=at, **changes)


def put(queue: LabelQueue, *requests: LabelRequested) -> None:
    for one in requests:
        assert queue.take(TOPIC, one.query_id.encode(), one.to_json())


def make_queue(*requests: LabelRequested, most: int = 1_000, **bounds: int) -> LabelQueue:
    queue = LabelQueue([WORKLOAD, "other"], "ucci", most=most, **{"retention_s": 10**6, "max_bytes": 10**6} | bounds)
    put(queue, *requests)
    return queue


def ids(queue: LabelQueue) -> list[str]:
    return [one.query_id for one in queue.page(WORKLOAD, START, 100).requests]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4), st.sampled_from([WORKLOAD, "other", None])), max_size=40),
    st.integers(1, 4),
)
def test_pages_hold_what_is_open_newest_first_each_once(changes: list[tuple[int, int, str | None]], limit: int) -> None:
    queue, model = make_queue(), dict[str, LabelRequested]()
    for number, second, workload in changes:
        if workload is None:
            queue.take(TOPIC, f"q-{number}".encode(), None)
            model.pop(f"q-{number}", None)
        else:
            model[f"q-{number}"] = request(number, second, workload)
            put(queue, model[f"q-{number}"])
    for workload in (WORKLOAD, "other"):
        expected = [one for one in model.values() if one.workload == workload]
        expected.sort(key=lambda one: (one.requested_at, one.query_id), reverse=True)
        found: list[LabelRequested] = []
        cursor: str | None = None
        while True:
            page = queue.page(workload, START, limit, cursor=cursor)
            found += page.requests
            assert page.open == len(expected)
            if (cursor := page.next) is None:
                break
        assert found == expected


def test_what_comes_while_somebody_turns_the_page_moves_nothing() -> None:
    queue = make_queue(*map(request, range(4)))
    first = queue.page(WORKLOAD, START, 2)
    put(queue, request(9))
    queue.take(TOPIC, b"q-2", None)
    second = queue.page(WORKLOAD, START, 2, cursor=first.next)
    assert [one.query_id for one in (*first.requests, *second.requests)] == ["q-3", "q-2", "q-1", "q-0"]


def test_only_the_newest_are_held_by_number_and_by_bytes() -> None:
    assert ids(make_queue(*map(request, range(9)), most=3)) == ["q-8", "q-7", "q-6"]
    small = make_queue(*(request(number, text="x" * 3_000) for number in range(9)), max_bytes=10_000)
    assert ids(small) == ["q-8", "q-7", "q-6"]
    put(small, request(0, text="short"))
    assert "q-8" in ids(small)


def test_what_is_too_old_is_not_shown_though_nobody_ended_it() -> None:
    page = make_queue(request(0), request(50), retention_s=60).page(WORKLOAD, START + timedelta(seconds=100), 10)
    assert ([one.query_id for one in page.requests], page.open) == (["q-50"], 1)


def test_a_record_that_is_none_of_ours_is_left() -> None:
    queue, whole = make_queue(), request(1).to_json()
    for key, value in ((None, whole), (b"\xff", whole), (b"q-2", whole), (b"q-1", b"{")):
        assert not queue.take(TOPIC, key, value)
    assert not queue.take("ucci.status", b"q-1", whole)
    assert ids(queue) == []


# --- over HTTP ---


@pytest.fixture
def api() -> Api:
    api = make_api()
    put(api.queue, *map(request, range(120)))
    known = {"requested": 400, "received": 100, "pending": 100, "delay_s": DelayQuantiles(p50=60.0)}
    labels = LabelStatus(since=START - timedelta(days=2), **known)
    api.tell(plain_status(micro_f1=Interval(estimate=0.91, lower=0.9, upper=0.92), labels=labels))
    return api


def test_the_answer_lists_requests_with_reason_and_the_budget(api: Api) -> None:
    """A page of them, and where the next one begins."""
    document = api.client.get(PATH, params={"limit": 2}).json()
    assert document["requests"] == [json.loads(request(number).to_json()) for number in (119, 118)]
    following = api.client.get(PATH, params={"limit": 2, "cursor": document["next"], "reason": "monitoring"}).json()
    assert [one["query_id"] for one in following["requests"]] == ["q-115", "q-112"]
    assert (document["open"], document["by_reason"]) == (120, {"audit": 40, "exploration": 40, "monitoring": 40})
    budget = document["budget"]
    assert (budget["requested_per_day"], budget["received_share"], budget["pending"]) == (200.0, 0.75, 100)
    assert budget["delay_p50_s"] == 60.0
    assert budget["interval_width"] == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("trusted", "words"),
    [((), ("none of the suspected labels", "trusted_labelers")), (("ada", "bob"), ("only ada, bob", "leave"))],
)
def test_the_answer_says_who_should_answer_audits(trusted: tuple[str, ...], words: tuple[str, ...]) -> None:
    api = make_api(workload={"trusted_labelers": trusted})
    put(api.queue, *map(request, range(6)))
    audits = api.client.get(PATH).json()["audits"]
    assert (audits["open"], audits["trusted_labelers"]) == (2, list(trusted))
    assert all(word in audits["note"] for word in words)


def test_an_unchanged_queue_is_not_modified(api: Api) -> None:
    """An unchanged queue is not sent twice and a changed one is."""
    first = api.client.get(PATH)
    again = api.client.get(PATH, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    api.queue.take(TOPIC, b"q-119", None)
    assert api.client.get(PATH, headers={"If-None-Match": first.headers["etag"]}).status_code == 200


def test_a_wrong_parameter_is_refused_with_its_name(api: Api) -> None:
    for query in ("limit=0", "limit=501", "limit=x", "reason=random", "cursor=abc", "cursor=1:" + "x" * 900):
        answer = api.client.get(f"{PATH}?{query}")
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, query.partition("=")[0])
