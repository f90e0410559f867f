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
from schemas.status import CalibrationError, HandoffStatus, LabelsWithoutResult, ReliabilityBin, WorkloadStatus
from tests.support.api import KEY, START, WORKLOAD, Api, make_api, plain_router, plain_status
from tests.support.versions import sealed_version
from tests.support.workload_statuses import recalibrator


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


def test_history_begins_at_since(api: Api) -> None:
    path, since = f"/v1/status/{WORKLOAD}/history", rfc3339(START + timedelta(seconds=15))
    points = api.client.get(path, params={"since": since}).json()["points"]

    assert len(api.client.get(path).json()["points"]) == 6
    assert [one["calibration_version"] for one in points] == [2, 3, 3]
    assert api.client.get(path, params={"since": "yesterday"}).json()["error"]["field"] == "since"


def test_labels_without_result_are_summed_until_they_clear(api: Api) -> None:
    """Over the joins that report; the headline names them while they are many, and then that this is over."""

    def tell(*counts: tuple[int, int]) -> dict[str, Any]:
        now = api.clock.now()
        for number, (lost, labels) in enumerate(counts):
            waiting = LabelsWithoutResult(queries=lost, oldest_at=START, last_hour=lost, labels_last_hour=labels)
            said = {"labels_without_result": waiting, "updated_at": now, "instance_id": f"join-{number}"}
            api.tell(recalibrator(now, "join").model_copy(update=said))
        api.tell(plain_router(version=2, updated_at=now))
        answer: dict[str, Any] = api.client.get(f"/v1/status/{WORKLOAD}").json()
        return answer

    found = tell((12, 40), (8, 60))
    waiting = LabelsWithoutResult.model_validate(found["labels"]["without_result"])
    assert (waiting.queries, waiting.last_hour, waiting.labels_last_hour) == (20, 20, 100)
    assert found["headline"]["kind"] == "labels_without_result"
    assert "20 labels of the last hour (20%)" in found["headline"]["sentence"]
    api.clock.advance(10.0)
    assert "this is over" in tell((0, 400), (0, 60))["headline"]["sentence"]
    api.clock.advance(61.0)
    assert tell((0, 400), (0, 60))["headline"]["kind"] != "labels_without_result"


def test_what_is_not_there_is_404_in_the_one_shape(api: Api) -> None:
    """As is a version once a tombstone has taken it out; before, it is shown as it was published."""
    assert CalibrationVersion.from_json(api.client.get(f"/v1/calibrations/{WORKLOAD}/1").content) == _version(1)
    api.cache.take("ucci.calibration-history", f"{WORKLOAD}:1".encode(), None)
    versions = f"/v1/calibrations/{WORKLOAD}"
    for path in ("/v1/status/other", "/v1/calibrations/other", f"{versions}/1", f"{versions}/99", "/x"):
        answer = api.client.get(path)
        assert (answer.status_code, set(answer.json()["error"])) == (404, {"code", "message", "field"}), path


def test_the_page_stands_before_anything_has_come() -> None:
    client = make_api().client

    assert "no query has come in" in client.get("/").text
    assert client.get(f"/v1/status/{WORKLOAD}").json()["state"] == "cold_start"


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
    page = "\n".join(api.client.get(path).text for path in ("/", f"/workloads/{encoded}"))
    links = {unescape(link) for link in re.findall(r'href="(/[^"]*)"', page) if f"workloads/{encoded}" in link}
    assert links
    assert {api.client.get(link).status_code for link in links} == {200}


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
