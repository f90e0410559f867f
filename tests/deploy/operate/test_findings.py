"""Each rule of the doctor: what is a fault, what a warning, and which remedy stands beside it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schemas.settings import WorkloadSettings
from schemas.status import (
    DriftStatus,
    LabelStatus,
    LabelsWithoutResult,
    RecalibratorStatus,
    RouterStatus,
    WorkloadStatus,
)
from tests.support.recalibrator_events import PHOTO, workload
from tests.support.versions import sealed_version
from ucci_stream.operate.findings import (
    ClockFacts,
    of_clocks,
    of_disk,
    of_joins,
    of_routers,
    of_status,
    of_transaction,
    of_version,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
UNSURE = DriftStatus(state="insufficient_labels")


def of_small(model: str) -> WorkloadSettings:
    return workload(small={"base_url": "http://h/v1", "model": model})


def status(**changes: Any) -> WorkloadStatus:
    made = {"drift": DriftStatus(state="ok"), "updated_at": NOW, "queries": 5_000, "state": "active"}
    made["labels"] = LabelStatus(requested=100, received=90)
    return WorkloadStatus.cold_start("photo", PHOTO.target).model_copy(update=made | changes)


def test_clocks_that_contradict_the_broker_are_named() -> None:
    """A result appended before it was routed, or after it was read, can only come of a wrong clock."""
    late, soon = NOW + timedelta(seconds=60), NOW - timedelta(seconds=60)
    (ahead,) = of_clocks(ClockFacts("router-3", late, NOW, late))
    assert "router router-3 is at least 60 s ahead" in ahead.message
    (behind,) = of_clocks(ClockFacts("router-3", NOW, NOW, soon))
    assert "this machine is at least 60 s behind" in behind.message
    (fine,) = of_clocks(ClockFacts("router-3", soon, NOW, late))
    assert fine.severity == "ok", "a slow commit or an old result says nothing of a clock"


def test_a_version_of_another_model_is_to_be_recalibrated() -> None:
    """Whom a version is made for is judged as routers do; a transaction that is open for a moment is no fault."""
    version = sealed_version()
    fine = of_version(of_small("small"), version, version.created_at + timedelta(days=3))
    assert (fine.severity, "made 3 d ago" in fine.message) == ("ok", True)
    swapped = of_version(of_small("other"), version, NOW)
    assert (swapped.severity, swapped.remedy.partition(",")[0]) == ("fault", "recalibrate")
    none = of_version(PHOTO, None, NOW)
    assert (none.severity, "bootstrap FILE --workload photo" in none.remedy) == ("warning", True)
    assert [of_transaction("u.results", 1, 5, open_s).severity for open_s in (0.2, 90.0)] == ["ok", "fault"]


@pytest.mark.parametrize(
    ("requested", "received", "changes", "severity"),
    [
        (100, 90, {}, "ok"),
        (217, 617, {}, "ok"),
        (100, 97, {"drift": UNSURE}, "ok"),
        (100, 90, {"drift": UNSURE}, "warning"),
        (100, 0, {}, "warning"),
        (3, 0, {"queries": 30}, "ok"),
    ],
)
def test_labels_of_a_calibration_are_none_that_were_asked_for(
    requested: int, received: int, changes: dict[str, Any], severity: str
) -> None:
    """It said: 617 of 217 came; and that they were too few where 97 % of them had come."""
    labels = LabelStatus(requested=requested, received=received)
    (found,) = of_status(status(labels=labels, **changes), PHOTO, NOW)
    assert (found.area, found.severity) == ("labels", severity)
    asked = "" if received > requested else f" of {requested} asked for"
    assert f"photo: {received} labels{asked} came for" in found.message


def test_a_silent_fit_and_a_missed_target_are_warnings() -> None:
    silent, _ = of_status(status(), PHOTO, NOW + timedelta(hours=3))
    assert "has reported nothing for 3 h" in silent.message
    missed, _ = of_status(status(state="infeasible"), PHOTO, NOW)
    assert missed.message.startswith("photo: No threshold has reached micro-F1 0.9")
    assert missed.remedy.startswith("Change no target before it has been out of reach for an hour")
    (none,) = of_status(None, PHOTO, NOW)
    assert none.severity == "warning"


def test_only_routers_that_report_are_judged() -> None:
    refusing = {"ready": False, "rejected_versions": {"bad_signature": 2}}
    router = RouterStatus.model_validate({"instance_id": "r", "started_at": NOW, "updated_at": NOW, **refusing})
    refused, unready = of_routers([router], NOW)
    assert "bad_signature: 2" in refused.message
    assert "not ready" in unready.message
    assert list(of_routers([router], NOW + timedelta(minutes=5))) == []


def test_what_a_server_says_to_a_router_is_repeated() -> None:
    models = {
        "photo": {
            "small": {"state": "down", "reason": "HTTP 400: no logprobs", "misconfigured": True},
            "large": {"state": "probing", "reason": "no answer within 5 s"},
        }
    }
    content = {"instance_id": "r", "started_at": NOW, "updated_at": NOW, "ready": True, "models": models}
    refusing, away = of_routers([RouterStatus.model_validate(content)], NOW)
    assert refusing[:3] == (
        "models",
        "fault",
        "router r: workloads.photo.small answers nobody as configured: HTTP 400: no logprobs",
    )
    assert away[:3] == ("models", "warning", "router r: workloads.photo.large is probing: no answer within 5 s")


def test_labels_that_wait_for_results_are_summed_and_named() -> None:
    def join(age: timedelta, heard: datetime = NOW) -> RecalibratorStatus:
        waiting = LabelsWithoutResult(queries=4, oldest_at=NOW - age, last_hour=4, labels_last_hour=40, latest=["Q-1"])
        named = {"instance_id": "r", "started_at": NOW, "updated_at": heard}
        return RecalibratorStatus.model_validate(named | {"labels_without_result": waiting})

    (found,) = of_joins([join(timedelta(hours=3)), join(timedelta(0)), join(timedelta(1), NOW - timedelta(1))], NOW)
    assert (found.severity, found.message) == ("warning", "Labels of 8 queries wait for a result, the oldest for 3 h")
    assert "ucci-stream explain Q-1" in found.remedy
    (young,) = of_joins([join(timedelta(seconds=30))], NOW)
    assert young.severity == "ok", "its result may be on its way"
    assert list(of_joins([], NOW)) == []


@pytest.mark.parametrize(
    ("free", "writable", "severity"),
    [(10**10, True, "ok"), (5 * 10**8, True, "warning"), (10**6, True, "fault"), (10**10, False, "fault")],
)
def test_disk_is_judged_before_it_is_full(free: int, writable: bool, severity: str) -> None:
    assert of_disk("/state", free, writable).severity == severity
