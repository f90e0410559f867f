"""What is served of a workload: the fit's own status, completed by the other topics."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recalibrator.api.read_model.status_documents import GONE_AFTER
from recalibrator.headlines.facts import SILENT_AFTER
from schemas.status import LabelerStatus, ModelHealth, StageStatus, TopicLag, VersionInUse, WorkloadStatus
from tests.support.api import START, WORKLOAD, Api, make_api, plain_router, plain_status
from tests.support.versions import sealed_version
from tests.support.workload_statuses import recalibrator

URL = f"/v1/status/{WORKLOAD}"


def tell_router(api: Api, name: str, *, silent_for: timedelta = timedelta()) -> None:
    in_use = {WORKLOAD: VersionInUse(version=2), "other": VersionInUse(version=9)}
    models = {WORKLOAD: {"small": ModelHealth(state="up", latency_s={"p50": 0.1})}}
    lags: dict[str, Any] = {"lag": {"0": 4, "1": 1}, "lag_s": {"0": 2.5, "1": 0.5}}
    api.tell(plain_router(name, updated_at=START - silent_for, versions=in_use, models=models, **lags))


def tell_recalibrator(api: Api, name: str, *labelers: LabelerStatus, silent_for: timedelta = timedelta()) -> None:
    stages = {"join": StageStatus(ready=True, lag={"ucci.results": TopicLag(records=7, seconds=1.5)})}
    said = {"instance_id": name, "stages": stages, "labelers": {WORKLOAD: labelers}}
    api.tell(recalibrator(START - silent_for).model_copy(update=said))


@pytest.fixture
def api() -> Api:
    api = make_api()
    version = sealed_version(workload=WORKLOAD, version=2, created_at=START)
    api.tell(version, plain_status(calibration_version=2, lag={"observations": 3}))
    return api


def test_routers_come_with_version_and_model_health(api: Api) -> None:
    tell_router(api, "router-0")
    tell_router(api, "router-1", silent_for=SILENT_AFTER + timedelta(seconds=1))
    tell_router(api, "router-2", silent_for=GONE_AFTER + timedelta(seconds=1))
    tell_recalibrator(api, "a/join", LabelerStatus(labeler="ann", labels=5))
    document = api.client.get(URL).json()
    listed = document["routers"]
    assert WorkloadStatus.model_validate(document).version is not None, "what is served is a status"

    assert [(one["instance_id"], one["version"], one["silent"], one["ready"]) for one in listed] == [
        ("router-0", 2, False, True),
        ("router-1", 2, True, False),
    ]
    assert listed[0]["models"]["small"]["latency_s"] == {"p50": 0.1}
    assert document["lag"]["observations"] == 3
    assert document["lag"]["records"] == {"queries": 5, "results": 7}
    assert document["lag"]["seconds"] == {"queries": 2.5, "results": 1.5}
    assert len(api.client.get("/v1/status").json()["routers"]) == 3


def test_a_router_that_falls_silent_is_told_without_any_news(api: Api) -> None:
    tell_router(api, "router-0")
    tag = api.client.get(URL).headers["etag"]
    api.clock.advance(SILENT_AFTER.total_seconds() + 1.0)
    answer = api.client.get(URL, headers={"If-None-Match": tag})

    assert answer.status_code == 200
    assert answer.json()["routers"][0]["silent"] is True


def test_labelers_are_summed_over_the_joins_that_are_alive(api: Api) -> None:
    # Its partitions went to the others, who have counted its labels again; until then its counts are all there is.
    tell_recalibrator(api, "gone/join", LabelerStatus(labeler="ann", labels=6), silent_for=timedelta(days=3))
    assert api.client.get(URL).json()["labels"]["by_labeler"][0]["labels"] == 6
    tell_recalibrator(api, "a/join", LabelerStatus(labeler="ann", labels=5, compared=2, agreeing=1))
    tell_recalibrator(api, "b/join", LabelerStatus(labeler="ann", labels=3), LabelerStatus(labeler="bob", labels=9))
    listed = api.client.get(URL).json()["labels"]["by_labeler"]

    assert [(one["labeler"], one["labels"]) for one in listed] == [("bob", 9), ("ann", 8)]
    assert (listed[1]["compared"], listed[1]["agreeing"]) == (2, 1)
