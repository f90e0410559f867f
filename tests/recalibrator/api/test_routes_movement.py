"""What moved, over HTTP: the cause of a change from the end of the results, and why a question is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from threading import Event, Thread
from typing import Any

import pytest

from recalibrator.api import routes_movement
from schemas.event import rfc3339
from schemas.status import DriftStatus
from tests.support.api import START, WORKLOAD, Api, make_api, plain_status
from tests.support.recalibrator_events import routed
from tests.support.workload_statuses import DRIFTED
from ucci_runtime.broker.errors import AccessDenied
from ucci_runtime.broker.records import Record

PATH = f"/v1/workloads/{WORKLOAD}/what-moved"
ENGLISH = "a fast portrait lens for weddings in dark churches, number"
GERMAN = "ein lichtstarkes Objektiv für Hochzeiten in dunklen Kirchen, Nummer"


def send(api: Api, first: int, texts: str = ENGLISH, size: int = 150, workload: str = WORKLOAD) -> datetime:
    """Append results, one a second from now on; return when that began."""
    began = api.clock.now()
    for number in range(first, first + size):
        one = routed(number, workload=workload, text=f"{texts} {number % 10}")
        key = one.query_id.encode()
        api.cluster.append(api.cluster.place("ucci.results", key), key, one.to_json())
        api.clock.advance(1.0)
    return began


def ask(api: Api, since: datetime, **parameters: str) -> Any:
    return api.client.get(PATH, params={"since": rfc3339(since)} | parameters)


def refused(answer: Any, status: int = 422) -> str:
    error = answer.json()["error"]
    message = str(error["message"])
    assert (answer.status_code, "\n" in message) == (status, False)
    assert status != 422 or error["field"] in {"since", "until"}
    return message


def test_another_language_is_named_first() -> None:
    """Of the workload alone, until then alone: what came long before, after or of others does not count."""
    api = make_api()
    send(api, 0, GERMAN)
    send(api, 1_000)
    since = send(api, 2_000, GERMAN)
    until = send(api, 3_000)
    send(api, 4_000, workload="other")
    answer = ask(api, since, until=rfc3339(until))
    found = answer.json()

    assert [found[side] for side in ("before", "after")] == [
        {"since": rfc3339(START + timedelta(seconds=150)), "results": 150, "compared": 150},
        {"since": rfc3339(since), "results": 150, "compared": 150},
    ]
    assert (found["workload"], found["until"]) == (WORKLOAD, rfc3339(until))
    first = found["moved"][0]
    assert (first["what"], first["follows"], first["after"]["de"]) == ("language", None, 1.0)
    assert first["examples"]
    assert api.client.get(str(answer.url), headers={"If-None-Match": answer.headers["etag"]}).status_code == 304


def test_an_alarm_leads_to_a_page_that_says_what_moved() -> None:
    """A button on the workload's page; where too few queries came, the page says so in the same words as the API."""
    api = make_api()
    send(api, 0)
    alarm = DRIFTED.detectors[0].model_copy(update={"name": "agreement", "since": api.clock.now()})
    api.tell(plain_status(state="cold_start", updated_at=None, drift=DriftStatus(state="drifted", detectors=(alarm,))))
    address, _ = re.findall(r'href="([^"]+)">What moved\?', api.client.get(f"/workloads/{WORKLOAD}").text)
    api.clock.advance(1.0)

    early = api.client.get(address)
    assert (early.status_code, "100 of each are needed" in early.text) == (422, True)
    send(api, 1_000, GERMAN)
    page = api.client.get(address)
    assert page.status_code == 200
    assert re.search(r"<li>\s*100%  language: ", page.text)


def test_languages_are_left_out_without_their_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most so many of either side are compared."""
    monkeypatch.setattr(routes_movement, "find_spec", lambda name: None if name == "py3langid" else name)
    monkeypatch.setattr(routes_movement, "MOST_COMPARED", 120)
    api = make_api()
    send(api, 0)
    found = ask(api, send(api, 1_000, GERMAN)).json()
    assert {(found[side]["results"], found[side]["compared"]) for side in ("before", "after")} == {(150, 120)}
    names = [one["what"] for one in found["moved"]]
    assert "language" not in names
    assert "words" in names


def test_without_scipy_the_refusal_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_movement, "find_spec", lambda _: None)
    assert 'pip install "ucci-stream[what-moved]"' in refused(ask(make_api(), START - timedelta(days=1)), 409)


@pytest.mark.parametrize(
    ("since", "until", "words"),
    [
        ("yesterday", None, "since: 'yesterday' is not an RFC 3339 time"),
        (rfc3339(START), "2026-13-01", "until: '2026-13-01'"),
        (None, None, "since: Field required"),
        (rfc3339(START), rfc3339(START - timedelta(hours=1)), "since: must lie before"),
        ("2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z", "since: must lie before"),
        ("9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59-14:00", "since: must lie before"),
        ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00+14:00", "since: must lie before"),
    ],
)
def test_a_span_that_is_none_is_refused(since: str | None, until: str | None, words: str) -> None:
    """An end to come is now, and no time is too early or too late for an answer."""
    given = {name: value for name, value in (("since", since), ("until", until)) if value is not None}
    assert words in refused(make_api().client.get(PATH, params=given))


def test_a_time_before_what_is_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the time itself is read, what came before it is counted from where all partitions are."""
    api = make_api(workloads=(WORKLOAD, "other"))
    send(api, 0)
    first = send(api, 1_000, size=150)
    since = send(api, 2_000, size=200)
    monkeypatch.setattr("tests.support.api.MOST_READ", 340)
    assert "lies before" in (said := refused(ask(api, first)))
    assert "give a later time, or run `ucci-stream what-moved`" in said
    found = ask(api, since).json()
    assert found["before"]["since"] > rfc3339(first)
    assert 100 <= found["before"]["results"] < 150
    assert found["after"]["results"] == 200


class Stalled:
    """A reader that waits until it is let go, and is then refused."""

    has_reached_ends = False

    def __init__(self) -> None:
        self.reads, self.goes, self.is_closed = Event(), Event(), False

    def poll(self, timeout_s: float) -> Iterator[Record]:
        self.reads.set()
        assert self.goes.wait(30.0)
        raise AccessDenied("not allowed to read ucci.results")
        yield

    def close(self) -> None:
        self.is_closed = True


def test_one_question_at_a_time_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second question gets 429 while the first runs, other routes go on, and a broker that refuses gives 503."""
    api, reader, answers = make_api(), Stalled(), list[Any]()
    monkeypatch.setattr("tests.support.memory_broker.broker.MemoryBroker.topic_reader", lambda *_, **__: reader)
    since = START - timedelta(hours=1)
    with api.client:
        asking = Thread(target=lambda: answers.append(ask(api, since)))
        asking.start()
        assert reader.reads.wait(30.0)
        busy = ask(api, since)
        assert "try again in" in refused(busy, 429)
        assert int(busy.headers["retry-after"]) > 0
        assert api.client.get(f"/v1/status/{WORKLOAD}").status_code == 200
        reader.goes.set()
        asking.join(30.0)
        assert "not allowed to read ucci.results" in refused(answers[0], 503)
        assert reader.is_closed
        assert ask(api, since).status_code == 503


def test_a_topic_that_is_not_read_in_time_is_503(monkeypatch: pytest.MonkeyPatch) -> None:
    api = make_api()
    monkeypatch.setattr("tests.support.memory_broker.broker.MemoryTopicReader.has_reached_ends", False)
    assert "not read to their end within 30 s" in refused(ask(api, START - timedelta(hours=1)), 503)
    assert ask(make_api(missing=("closing",)), START - timedelta(hours=1)).status_code == 503
