"""The limit on how far one version may move the escalation rate, and how a version follows the one before it."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.calibration import CalibrationMap, CalibrationVersion, Evidence
from schemas.settings import Settings
from schemas.settings_text import settings_warnings
from stream_router.calibration.active_versions import Activated, ActiveVersions, Rejected, RejectionReason
from tests.stream_router.calibration.test_active_versions import NOW, WANTED, known, refused, trial
from tests.support.versions import sealed_version


def version(number: int, rate: float | None, trigger: str = "drift", **changed: Any) -> CalibrationVersion:
    return sealed_version(version=number, evidence=Evidence(trigger=trigger, escalation_rate=rate), **changed)


def limited(limit: float | None = 0.25) -> ActiveVersions:
    """Return a router's versions after its start, with version 1 in force, which escalates 30 %."""
    active = ActiveVersions(WANTED, max_jump=limit)
    active.offer(b"photo", version(1, 0.3).to_json(), NOW)
    active.topic_read(NOW)
    return active


@pytest.mark.parametrize("rate", [0.0, 0.04, 0.56, 1.0])
def test_a_jump_of_the_escalation_rate_is_refused(rate: float) -> None:
    active = limited()
    found = refused(active.offer(b"photo", version(2, rate).to_json(), NOW))
    assert found.reason is RejectionReason.ESCALATION_JUMP
    assert f"{rate:.3g}" in found.error
    assert "max_escalation_jump" in found.error
    assert active.rejected() == {"escalation_jump": 1}
    assert active.versions()["photo"].version == 1
    assert isinstance(active.offer(b"photo", version(3, 0.35).to_json(), NOW), Activated), "it shuts no other one out"


@pytest.mark.parametrize("rate", [0.06, 0.3, 0.55, None])
def test_a_smaller_change_or_an_unknown_rate_is_taken(rate: float | None) -> None:
    assert isinstance(limited().offer(b"photo", version(2, rate).to_json(), NOW), Activated)


def test_no_limit_takes_any_jump() -> None:
    assert isinstance(limited(None).offer(b"photo", version(2, 1.0).to_json(), NOW), Activated)


@pytest.mark.parametrize("trigger", ["activate", "pin", "promote", "bootstrap"])
def test_a_person_may_ask_for_any_jump(trigger: str) -> None:
    """Else a refused version could be taken by a change of the configuration alone."""
    assert isinstance(limited().offer(b"photo", version(3, 1.0, trigger).to_json(), NOW), Activated)


def test_a_cold_start_counts_as_escalating_all() -> None:
    empty = CalibrationMap(uncertainty=(), error_probability=())
    cold = version(2, None, state="cold_start", map=empty, threshold=None)
    assert isinstance(limited().offer(b"photo", cold.to_json(), NOW), Rejected)


def test_what_was_in_force_before_a_start_is_not_judged_again() -> None:
    """A topic that still holds former versions gives the same one in force as a topic that was compacted."""
    active = ActiveVersions(WANTED, max_jump=0.25)
    for number, rate in ((1, 0.1), (2, 0.9)):
        active.offer(b"photo", version(number, rate).to_json(), NOW)
    active.topic_read(NOW)
    assert active.versions()["photo"].version == 2


def test_a_jump_is_judged_against_the_version_on_disk() -> None:
    """A version that was refused before a restart is refused after it."""
    active = ActiveVersions(WANTED, max_jump=0.25)
    active.restore(b"photo", version(1, 0.3).to_json(), NOW)
    assert isinstance(active.offer(b"photo", version(2, 0.9).to_json(), NOW), Rejected)
    assert active.topic_read(NOW) == []
    found = active.versions()["photo"]
    assert (found.version, found.source) == (1, "disk")


def test_a_limit_without_a_state_directory_is_warned_of() -> None:
    limit = {"calibration": {"max_escalation_jump": 0.2}}
    assert any("router.state_dir" in line for line in settings_warnings(Settings.model_validate(limit)))
    kept = Settings.model_validate(limit | {"router": {"state_dir": "./state"}})
    assert not any("router.state_dir" in line for line in settings_warnings(kept))


@pytest.mark.parametrize(("parent", "lineage"), [(5, "follows"), (7, "skips"), (4, "forks"), (None, "forks")])
def test_lineage_follows_from_the_parent_that_is_named(parent: int | None, lineage: str) -> None:
    active = ActiveVersions(WANTED)
    assert active.offer(b"photo", version(5, 0.3).to_json(), NOW) == Activated(version(5, 0.3), "first")
    taken = active.offer(b"photo", version(9, 0.3, parent_version=parent).to_json(), NOW)
    assert isinstance(taken, Activated)
    assert taken.lineage == lineage == active.versions()["photo"].lineage


def test_a_canary_moved_escalation_beyond_the_limit() -> None:
    """Its share of the difference counts, against whatever version is in force; a shadow acts on none."""
    active = ActiveVersions(WANTED, max_jump=0.25)
    active.offer(b"photo", version(5, 0.3).to_json(), NOW)
    taken = {}
    for share in (1.0, 0.4, None):
        change = known(active.trials.offer(b"photo", trial(share, version(6, 0.9)).to_json()))
        taken[share] = change.problem is None
    assert taken == {1.0: False, 0.4: True, None: True}
    active.trials.offer(b"photo", trial(0.4, version(6, 0.9)).to_json())
    active.offer(b"photo", version(7, 0.1).to_json(), NOW)
    assert active.trial("photo") is None
