"""Status, history, versions, commands and the page, from what the topics hold."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest

from schemas.calibration import CalibrationVersion, Evidence, Interval
from schemas.event import rfc3339
from schemas.status import CalibrationError, CommandOutcome, HandoffStatus, ReliabilityBin, WorkloadStatus
from tests.support.api import KEY, START, WORKLOAD, Api, make_api, plain_router, plain_status
from tests.support.versions import sealed_version


def _version(number: int) -> CalibrationVersion:
    evidence = Evidence(trigger="threshold_moved", labels=500)
    return sealed_version(workload=WORKLOAD, version=number, created_at=START, evidence=evidence)


def _status(second: int = 0, **changes: Any) -> WorkloadStatus:
    content = {
        "calibration_version": 1 + second // 10,
        "micro_f1": Interval(estimate=0.91, lower=0.9, upper=0.92),
        "escalation_rate": 0.4,
        "calibration_error": CalibrationError(bins=(ReliabilityBin(predicted=0.2, observed=0.25, count=40),)),
        "updated_at": START + timedelta(seconds=second),
    }
    return plain_status(**content | changes)


@pytest.fixture
def api() -> Api:
    api = make_api()
    api.tell(*(_status(second) for second in range(0, 30, 5)), _version(1), _version(2))
    api.tell(plain_router(version=2))
    return api


def test_status_shows_workloads_and_routers(api: Api) -> None:
    document, latest = api.client.get("/v1/status").json(), rfc3339(START + timedelta(seconds=25))

    assert [(w["workload"], w["updated_at"]) for w in document["workloads"]] == [(WORKLOAD, latest)]
    assert [r["instance_id"] for r in document["routers"]] == ["router-0"]


def test_a_workload_without_traffic_has_a_status_too() -> None:
    document = make_api().client.get(f"/v1/status/{WORKLOAD}").json()

    assert document["state"] == "cold_start"
    assert WorkloadStatus.model_validate(document)


def test_an_entity_tag_saves_sending_it_again(api: Api) -> None:
    first = api.client.get("/v1/status")
    assert api.client.get("/v1/status", headers={"If-None-Match": first.headers["etag"]}).status_code == 304

    api.tell(_status(60))
    assert api.client.get("/v1/status", headers={"If-None-Match": first.headers["etag"]}).status_code == 200


def test_history_begins_at_since(api: Api) -> None:
    path, since = f"/v1/status/{WORKLOAD}/history", rfc3339(START + timedelta(seconds=15))
    points = api.client.get(path, params={"since": since}).json()["points"]

    assert len(api.client.get(path).json()["points"]) == 6
    assert [one["calibration_version"] for one in points] == [2, 3, 3]
    assert api.client.get(path, params={"since": "yesterday"}).json()["error"]["field"] == "since"


def test_versions_are_listed_newest_first_and_shown_as_published(api: Api) -> None:
    listed = api.client.get(f"/v1/calibrations/{WORKLOAD}").json()["versions"]
    shown = api.client.get(f"/v1/calibrations/{WORKLOAD}/1")

    assert [line["version"] for line in listed] == [2, 1]
    assert CalibrationVersion.from_json(shown.content) == _version(1)


def test_what_is_not_there_is_404_in_the_one_shape(api: Api) -> None:
    """As is a version once a tombstone has taken it out."""
    api.cache.take("ucci.calibration-history", f"{WORKLOAD}:1".encode(), None)
    versions = f"/v1/calibrations/{WORKLOAD}"
    for path in ("/v1/status/other", "/v1/calibrations/other", f"{versions}/1", f"{versions}/99", "/x"):
        answer = api.client.get(path)
        assert (answer.status_code, set(answer.json()["error"])) == (404, {"code", "message", "field"}), path


def test_readiness_names_what_is_missing() -> None:
    answer = make_api(missing=("join",)).client.get("/readyz")

    assert (answer.status_code, answer.json()["missing"]) == (503, ["join"])


@pytest.mark.parametrize("state", ["active", "infeasible"])
def test_the_page_says_the_state_and_loads_nothing_foreign(api: Api, state: str) -> None:
    """The page says who holds a workload, takes no name for markup and loads nothing from elsewhere."""
    pause = CommandOutcome(action="pause", note="so", issued_by="<ann>", issued_at=START)
    for given in (_status(89, state="paused", commands=[pause]), _status(90, state=state)):
        api.tell(given)
        assert ("by &lt;ann&gt;" in api.client.get("/").text) is (given.state == "paused")
        api.clock.advance(1.0)
    answer = api.client.get("/")

    assert answer.status_code == 200
    assert answer.text.count("<svg ") == 3
    assert not re.findall(r"""(?:src|href|action)=["'](?:https?:)?//""", answer.text)
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_the_page_stands_before_anything_has_come() -> None:
    answer = make_api().client.get("/")

    assert (answer.status_code, "no query has come in" in answer.text) == (200, True)


def test_a_form_needs_the_admin_key_in_the_form_itself() -> None:
    api = make_api(api_keys={"boss": {"key": KEY, "scopes": ["read", "admin"]}})
    form = {"workload": WORKLOAD, "action": "pause"}
    bearer, crossed = {"Authorization": f"Bearer {KEY}"}, {"Origin": "http://elsewhere.example"}
    for more, headers, status in (({}, bearer, 401), ({"key": KEY}, {}, 303), ({"key": KEY}, crossed, 403)):
        answer = api.client.post("/confirm", data=form | more, headers=headers, follow_redirects=False)
        assert answer.status_code == status
    assert len(api.producer.records) == 1


@pytest.mark.parametrize("name", ["a/b", "a%2Fb", "50%", "a:b", "é / ü"])
def test_a_workload_with_a_slash_has_pages_that_are_404(name: str) -> None:
    api = make_api(workloads=(name, "other"))
    encoded = quote(name, safe="")
    api.tell(sealed_version(workload=name))

    for path in (f"/workloads/{encoded}", f"/v1/status/{encoded}/history", f"/v1/calibrations/{encoded}/1"):
        assert api.client.get(path).status_code == 200, path
    assert api.client.get(f"/v1/label-requests/{encoded}").json()["workload"] == name
    assert api.client.get(f"/v1/status/{encoded}").json()["workload"] == name
    assert api.client.post(f"/v1/calibrations/{encoded}:pause").status_code == 202
    assert api.client.post(f"/v1/calibrations/{encoded}/1:pin").json()["workload"] == name


def test_links_to_a_workload_with_a_slash_lead_to_its_pages() -> None:
    api = make_api(workloads=("a/b", "other"))

    for page in ("/", "/workloads/a%2Fb"):
        links = re.findall(r'href="(/[^"]*a(?:/|%2F)b[^"]*)"', api.client.get(page).text)
        assert links
        assert {api.client.get(unescape(link)).status_code for link in links} == {200}


def test_requests_are_counted_by_route_not_by_workload() -> None:
    api = make_api()
    api.client.get(f"/v1/status/{WORKLOAD}")

    assert 'route="/v1/status/{workload}"' in api.client.get("/metrics").text


@pytest.mark.parametrize("loss", [None, Interval(estimate=0.004, lower=0.003, upper=0.005)])
def test_the_page_says_what_handing_over_changes(loss: Interval | None) -> None:
    """Whether it is on, how often the large model alone says the same, and what that costs as soon as it is known."""
    api = make_api()
    handoff = HandoffStatus(name="field@0.9", active=loss is None, guarded=50, agreement=0.98, micro_f1_loss=loss)
    api.tell(_status(5, handoff=handoff))
    page = api.client.get(f"/workloads/{WORKLOAD}").text

    assert f"Handoff field@0.9 is {'on' if loss is None else 'off'}" in page
    assert "98.0% answered alike alone" in page
    assert ("not known yet" if loss is None else "0.004, 0.003 to 0.005") in page
    assert "Handoff" not in make_api().client.get(f"/workloads/{WORKLOAD}").text
