"""Each rule of the doctor: what is a fault, what a warning, and which remedy stands beside it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from schemas.settings import WorkloadSettings
from schemas.status import DriftStatus, LabelStatus, RouterStatus, WorkloadStatus
from tests.support.versions import sealed_version
from ucci_stream.operate.findings import (
    ClockFacts,
    Finding,
    GroupFacts,
    OpenTransaction,
    exit_code,
    of_clocks,
    of_disk,
    of_group,
    of_routers,
    of_status,
    of_transaction,
    of_version,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def workload(small: str, decoding: str = "free") -> WorkloadSettings:
    return WorkloadSettings.model_validate(
        {
            "name": "photo",
            "prompt": "find {text}",
            "fields": ["camera"],
            "decoding": decoding,
            "small": {"base_url": "http://h/v1", "model": small},
            "large": {"base_url": "http://h/v1", "model": "big"},
            "target": {"micro_f1": 0.9},
        }
    )


def status(**changes: object) -> WorkloadStatus:
    made = {
        "workload": "photo",
        "state": "active",
        "sentence": "All is well.",
        "target": {"micro_f1": 0.9},
        "drift": DriftStatus(state="ok"),
        "updated_at": NOW,
        "queries": 5_000,
        "labels": LabelStatus(requested=100, received=90),
    }
    return WorkloadStatus.model_validate(made | changes)


@pytest.mark.parametrize(
    ("facts", "severity"),
    [
        (GroupFacts("ucci-router", 2, 10), "ok"),
        (GroupFacts("ucci-router", 0, 0), "warning"),
        (GroupFacts("ucci-router", 0, 10), "fault"),
    ],
)
def test_work_that_nobody_takes_is_a_fault(facts: GroupFacts, severity: str) -> None:
    found = of_group(facts, "stream-router")
    assert found.severity == severity
    assert (severity == "ok") == (found.remedy == "")


def test_only_a_transaction_left_open_is_a_fault() -> None:
    """The services' own are open for milliseconds at almost any time."""
    assert of_transaction(OpenTransaction("u.results", 1, 5, 0.2)).severity == "ok"
    found = of_transaction(OpenTransaction("u.results", 1, 5, 90.0))
    assert found.severity == "fault"
    assert "--topic u.results --partition 1" in found.remedy


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
    version = sealed_version()
    measured = version.signal.small_model
    (fine,) = of_version(workload(measured), version, version.created_at + timedelta(days=3))
    assert (fine.severity, "made 3 d ago" in fine.message) == ("ok", True)
    (swapped,) = of_version(workload("other"), version, NOW)
    assert swapped.severity == "fault"
    assert f"small_model {measured}, not other" in swapped.message
    assert swapped.remedy.startswith("recalibrate")
    (masked,) = of_version(workload(measured, "json_schema"), version, NOW)
    assert "decoding free, not json_schema" in masked.message


def test_a_workload_without_version_is_warned_of() -> None:
    (found,) = of_version(workload("small"), None, NOW)
    assert found.severity == "warning"
    assert "bootstrap FILE --workload photo" in found.remedy


def test_labels_of_a_calibration_are_none_that_were_asked_for() -> None:
    """It said: 617 of 217 came; and that they were too few where 97 % of them had come."""
    (offline,) = of_status(status(labels=LabelStatus(requested=217, received=617)), workload("small"), NOW)
    few = status(labels=LabelStatus(requested=100, received=97), drift=DriftStatus(state="insufficient_labels"))
    (answered,) = of_status(few, workload("small"), NOW)

    assert "617 labels came" in offline.message
    assert answered.severity == "ok"


def test_labels_asked_for_and_never_given_are_noticed() -> None:
    (fine,) = of_status(status(), workload("small"), NOW)
    assert fine.severity == "ok"
    (starved,) = of_status(status(labels=LabelStatus(requested=100)), workload("small"), NOW)
    assert (starved.area, starved.severity) == ("labels", "warning")
    (young,) = of_status(status(labels=LabelStatus(requested=3), queries=30), workload("small"), NOW)
    assert young.severity == "ok"
    (unsure,) = of_status(status(drift=DriftStatus(state="insufficient_labels")), workload("small"), NOW)
    assert unsure.severity == "warning"


def test_a_silent_fit_and_a_missed_target_are_warnings() -> None:
    silent, _ = of_status(status(), workload("small"), NOW + timedelta(hours=3))
    assert "has reported nothing for 3 h" in silent.message
    missed, _ = of_status(status(state="infeasible"), workload("small"), NOW)
    assert missed.message.startswith("photo: No threshold has reached micro-F1 0.9")
    assert missed.remedy.startswith("Change no target before")
    (none,) = of_status(None, workload("small"), NOW)
    assert none.severity == "warning"


def test_only_routers_that_report_are_judged() -> None:
    router = RouterStatus(
        instance_id="r", started_at=NOW, updated_at=NOW, ready=False, rejected_versions={"bad_signature": 2}
    )
    refused, unready = of_routers([router], NOW)
    assert "bad_signature: 2" in refused.message
    assert "not ready" in unready.message
    assert list(of_routers([router], NOW + timedelta(minutes=5))) == []


@pytest.mark.parametrize(
    ("free", "writable", "severity"),
    [(10**10, True, "ok"), (5 * 10**8, True, "warning"), (10**6, True, "fault"), (10**10, False, "fault")],
)
def test_disk_is_judged_before_it_is_full(free: int, writable: bool, severity: str) -> None:
    assert of_disk("/state", free, writable).severity == severity


def test_warnings_alone_leave_the_exit_code_zero() -> None:
    warning, fault = Finding("labels", "warning", "w"), Finding("disk", "fault", "f")
    assert exit_code([warning]) == 0
    assert exit_code([warning, fault]) == 1
