"""The limit on how far one version may move the escalation rate, and how a version follows the one before it."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.calibration import CalibrationMap, CalibrationVersion, Evidence
from schemas.settings import Settings
from schemas.settings_text import settings_warnings
from stream_router.calibration.active_versions import Activated, ActiveVersions, Rejected
from tests.stream_router.calibration.test_active_versions import NOW, WANTED, offered, on_trial, refused, trial
from tests.support.versions import sealed_version


def version(number: int, rate: float | None, trigger: str = "drift", **changed: Any) -> CalibrationVersion:
    return sealed_version(version=number, evidence=Evidence(trigger=trigger, escalation_rate=rate), **changed)


def limited(limit: float | None = 0.25) -> ActiveVersions:
    """Return a router's versions after its start, with version 1 in force, which escalates 30 %."""
    active = ActiveVersions(WANTED, max_jump=limit)
    offered(active, version(1, 0.3))
    active.topic_read(NOW)
    return active


@pytest.mark.parametrize("rate", [0.0, 0.04, 0.56, 1.0])
def test_a_jump_of_the_escalation_rate_is_refused(rate: float) -> None:
    active = limited()
    error = refused(offered(active, version(2, rate)), "escalation_jump")
    assert f"{rate:.3g}" in error
    assert "max_escalation_jump" in error
    assert active.rejected() == {"escalation_jump": 1}
    assert active.versions()["photo"].version == 1
    assert isinstance(offered(active, version(3, 0.35)), Activated), "it shuts no other one out"


@pytest.mark.parametrize(
    ("limit", "rate", "trigger"),
    [
        *((0.25, rate, "drift") for rate in (0.06, 0.3, 0.55, None)),
        (None, 1.0, "drift"),
        # A person may ask for any jump: else a refused version could be taken by a change of the configuration alone.
        *((0.25, 1.0, trigger) for trigger in ("activate", "pin", "promote", "bootstrap")),
    ],
)
def test_no_jump_beyond_the_limit_is_taken(limit: float | None, rate: float | None, trigger: str) -> None:
    """Nor one that is not known, nor one that a person asked for."""
    assert isinstance(offered(limited(limit), version(2, rate, trigger)), Activated)


def test_a_cold_start_counts_as_escalating_all() -> None:
    empty = CalibrationMap(uncertainty=(), error_probability=())
    cold = version(2, None, state="cold_start", map=empty, threshold=None)
    assert isinstance(offered(limited(), cold), Rejected)


def test_what_was_in_force_before_a_start_is_not_judged_again() -> None:
    """A topic that still holds former versions gives the same one in force as a topic that was compacted."""
    active = ActiveVersions(WANTED, max_jump=0.25)
    for number, rate in ((1, 0.1), (2, 0.9)):
        offered(active, version(number, rate))
    active.topic_read(NOW)
    assert active.versions()["photo"].version == 2


def test_a_jump_is_judged_against_the_version_on_disk() -> None:
    """A version that was refused before a restart is refused after it."""
    active = ActiveVersions(WANTED, max_jump=0.25)
    active.restore(b"photo", version(1, 0.3).to_json(), NOW)
    assert isinstance(offered(active, version(2, 0.9)), Rejected)
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
    assert offered(active, version(5, 0.3)) == Activated(version(5, 0.3), "first")
    taken = offered(active, version(9, 0.3, parent_version=parent))
    assert isinstance(taken, Activated)
    assert taken.lineage == lineage == active.versions()["photo"].lineage


def test_a_canary_moved_escalation_beyond_the_limit() -> None:
    """Its share of the difference counts, against whatever version is in force; a shadow acts on none."""
    active = ActiveVersions(WANTED, max_jump=0.25)
    offered(active, version(5, 0.3))
    taken = {}
    for share in (1.0, 0.4, None):
        change = on_trial(active, trial(share, version(6, 0.9)).to_json())
        taken[share] = change.problem is None
    assert taken == {1.0: False, 0.4: True, None: True}
    active.trials.offer(b"photo", trial(0.4, version(6, 0.9)).to_json())
    offered(active, version(7, 0.1))
    assert active.trial("photo") is None
