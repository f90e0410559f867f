"""What `check-config --against-running` says of each kind of change, and which of them it warns a script of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schemas.calibration import CalibrationVersion
from schemas.settings import Settings
from schemas.settings_reread import OF_RECALIBRATOR, OF_ROUTER, running_settings
from schemas.status import RecalibratorStatus, RouterStatus, VersionInUse
from tests.support.versions import sealed_version
from ucci_stream.operate.findings import HARMFUL, Change, Running, changes

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PHOTO: dict[str, Any] = {
    "prompt": "find {text}",
    "fields": ["camera"],
    "small": {"base_url": "http://s/v1", "model": "small"},
    "large": {"base_url": "http://l/v1", "model": "large"},
    "target": {"micro_f1": 0.9},
}


def config(photo: dict[str, Any] | None = None, **tables: Any) -> Settings:
    return Settings.model_validate({"workloads": {"photo": PHOTO | (photo or {})}} | tables)


def both(**tables: Any) -> Settings:
    return config(workloads={"photo": PHOTO, "reviews": PHOTO}, **tables)


def version(settings: Settings, **changed: Any) -> CalibrationVersion:
    """Return version 7, as the fit publishes it under these settings."""
    workload = settings.workloads["photo"]
    asked = workload.sampling.model_dump(include={"label_probability_kept", "label_probability_escalated"})
    made = {"version": 7, "target": workload.target, "signal": workload.signal, "basis": workload.basis}
    return sealed_version(**asked | made | changed)


def runs(settings: Settings, *, silent_s: float = 1.0, **versions: Any) -> Running:
    """Return what a router and a recalibrator report that run with a file, beside its version 7 of ``photo``."""
    at = NOW - timedelta(seconds=silent_s)
    in_use = {name: VersionInUse(version=None) for name in settings.workloads}
    router = RouterStatus(
        instance_id="router-0",
        started_at=at,
        updated_at=at,
        ready=True,
        versions=in_use,
        settings=running_settings(settings, OF_ROUTER),
    )
    told = running_settings(settings, OF_RECALIBRATOR)
    recalibrator = RecalibratorStatus(instance_id="fit-0", started_at=at, updated_at=at, settings=told)
    return Running({"photo": version(settings), **versions}, [router], [recalibrator])


def of(subject: str, found: list[Change]) -> Change:
    (change,) = [one for one in found if one.subject == subject]
    return change


@pytest.mark.parametrize(
    ("effect", "changed", "named"),
    [
        ("cold_start", {"prompt": "name {text}"}, "prompt"),
        ("cold_start", {"handoff": {"margin": 0.9}}, "made for the handoff none, configured is field@0.9"),
        ("refit", {"target": {"micro_f1": 0.8}}, "target differs from version 7"),
        ("refit", {"sampling": {"label_probability_escalated": 0.5}}, "label_probability_escalated differs from ver"),
    ],
)
def test_only_what_changes_the_answers_starts_cold(effect: str, changed: dict[str, Any], named: str) -> None:
    found = changes(config(changed), runs(config()), NOW)
    photo, is_cold = of("photo", found), effect == "cold_start"
    assert (photo.effect, photo.effect in HARMFUL, named in photo.message) == (effect, is_cold, True)
    assert ("ucci-stream calibrate" in photo.act) is is_cold
    assert {change.effect for change in found} == {effect, "restart" if is_cold else "reload"}
    reloads = [change.act for change in found if change.effect == "reload"]
    assert reloads == ([] if is_cold else ["SIGHUP to router-0, fit-0"])


def test_a_new_workload_starts_cold_and_takes_the_unnamed() -> None:
    """A producer that names no workload was understood as long as there was one; a calibrated one decides at once."""
    found = changes(both(), runs(config()), NOW)
    assert (of("photo", found).effect, of("reviews", found).effect) == ("none", "cold_start")
    unnamed = of("default_workload", found)
    assert (unnamed.effect, unnamed.act) == ("dead_letters", 'default_workload = "photo"')
    assert "went to photo" in unnamed.message
    assert of("workloads.reviews", found) == ("restart", "workloads.reviews", "a new table", "restart router-0, fit-0")
    named = changes(both(default_workload="photo"), runs(config()), NOW)
    assert not [change for change in named if change.effect == "dead_letters"]
    ahead = version(config(), workload="reviews")
    safe = of("reviews", changes(both(default_workload="photo"), runs(config(), reviews=ahead), NOW))
    assert (safe.effect, "decides from the first query" in safe.message) == ("none", True)


def test_a_dot_in_a_workloads_name_hid_what_changes() -> None:
    def dotted(*names: str, **changed: Any) -> Settings:
        return Settings.model_validate({"workloads": {"photo": PHOTO} | dict.fromkeys(names, PHOTO | changed)})

    found = changes(dotted("a.b", "a.c", target={"micro_f1": 0.8}), runs(dotted("a.b")), NOW)
    assert (of("workloads.a.b.target", found).effect, of("workloads.a.c", found).message) == ("reload", "a new table")


def test_a_removed_workload_makes_dead_letters() -> None:
    found = changes(config(), runs(both(default_workload="reviews")), NOW)
    reviews, (moved,) = of("reviews", found), [change for change in found if change.effect == "moved"]
    assert (reviews.effect, "unknown_workload" in reviews.message) == ("dead_letters", True)
    assert reviews.effect in HARMFUL
    assert moved.message == "queries that name no workload go to photo instead of reviews"


def test_settings_are_told_apart_by_what_puts_them_in_force() -> None:
    """Each with the processes that go by it; what names one process alone is no difference."""
    tables = {"router": {"max_in_flight": 9, "commit_interval_ms": 50, "http_port": 9, "instance_id": "router-7"}}
    found = changes(config(**tables, notify={"page_url": "http://page"}), runs(config()), NOW)
    assert [tuple(change) for change in found if change.effect != "none"] == [
        ("restart", "router.commit_interval_ms", "the default → 50", "restart router-0"),
        ("reload", "router.max_in_flight", "the default → 9", "SIGHUP to router-0"),
        ("restart", "notify.page_url", 'the default → "http://page"', "restart fit-0"),
    ]


def test_services_that_are_silent_are_not_compared_with() -> None:
    """Their records stay in the compacted topics for ever; nor are versions that do not say what they are made for."""
    gone = runs(both(), silent_s=120.0)
    found = changes(config({"max_tokens": 256}, router={"max_in_flight": 9}), gone, NOW)
    assert [(change.effect, change.subject) for change in found] == [("none", "photo")]
    found = changes(config({"prompt": "name {text}"}), runs(config(), photo=version(config(), basis=None)), NOW)
    (unknown,) = [change for change in found if change.effect == "unknown"]
    assert "does not say with which prompt" in unknown.message
