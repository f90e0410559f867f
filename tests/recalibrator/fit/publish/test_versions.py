"""What people ask of the fit: done, or refused with a reason; never an error."""

from __future__ import annotations

from typing import Any

import pytest

from recalibrator.core import Recalibrator
from schemas.calibration import CalibrationVersion, Hold
from tests.support.cascade_stream import START, drive, example, settings, typo_world
from tests.support.cores import driven, in_force, present, restarted
from tests.support.orders import MAP, note, order

WORLD = typo_world(4_000, 1_500, seed=12)


def published(core: Recalibrator, action: str, **arguments: Any) -> CalibrationVersion:
    """Give a command that leads to a version."""
    return present(order(core, action, **arguments))


@pytest.fixture
def bootstrapped() -> Recalibrator:
    core = Recalibrator(settings())
    order(core, "bootstrap", map=MAP, uncertainty_threshold=0.3)
    return core


def test_bootstrap_takes_a_threshold_on_g_or_escalates_all() -> None:
    for given, expected in (({"error_probability_threshold": 0.4}, 0.2), ({}, -1.0)):
        version = published(Recalibrator(settings()), "bootstrap", map=MAP, **given)
        assert version.uncertainty_threshold == pytest.approx(expected)


def test_a_roll_back_that_holds_outlives_refits_until_unpin() -> None:
    """Held, a version survives the labels that would replace it; not held, it goes."""
    for hold in (True, None):
        core = driven(WORLD, 1_500)
        assert order(core, "activate", version=in_force(core).version, hold=hold) is not None
        assert (core.status().state == "pinned") is (hold is True)
        assert (not drive(core, WORLD.draw, 1_500, first=1_500).versions) is (hold is True)
        order(core, "unpin")
        assert core.status().state != "pinned"
        assert drive(core, WORLD.draw, 1_000, first=3_000).versions


@pytest.mark.parametrize("begin", ["pin", "activate"])
def test_a_commanded_refit_replaced_a_pinned_version(bootstrapped: Recalibrator, begin: str) -> None:
    """What is pinned stays until it is unpinned, whoever asks for a new fit."""
    drive(bootstrapped, WORLD.draw, 600, first=100)
    held = published(bootstrapped, begin, version=1, hold=True)
    assert order(bootstrapped, "refit") is None
    assert bootstrapped.current == held
    assert str(note(bootstrapped)).endswith("unpin it first")
    order(bootstrapped, "unpin")
    assert published(bootstrapped, "refit").evidence.trigger == "refit"


def test_the_status_keeps_what_became_of_commands(bootstrapped: Recalibrator) -> None:
    """Each outcome is found by its command's id: the version that it led to, or why nothing was done."""
    order(bootstrapped, "activate", version=1, command_id="a")
    order(bootstrapped, "activate", version=77, command_id="b")
    order(bootstrapped, "shadow", version=1, command_id="c")
    order(bootstrapped, "refit", command_id="d")
    commands = restarted(bootstrapped).status().commands
    found = {one.command_id: (one.is_refused, one.version) for one in commands}
    assert found == {None: (False, 1), "a": (False, 2), "b": (True, 2), "c": (False, 3), "d": (True, 2)}
    for _ in range(20):
        order(bootstrapped, "pause")
    assert len(bootstrapped.status().commands) == 8


def decides(version: CalibrationVersion) -> tuple[Any, ...]:
    return version.map, version.uncertainty_threshold, version.exploration_probability, version.state


@pytest.mark.parametrize(("begin", "end", "what"), [("pin", "unpin", "pinned"), ("pause", "resume", "paused")])
def test_a_hold_stands_in_what_is_published(bootstrapped: Recalibrator, begin: str, end: str, what: str) -> None:
    """One version says who began it and another one that nothing holds any more; both decide as the one before."""
    before = in_force(bootstrapped)
    held = published(bootstrapped, begin, reason="night shift")
    fitted = published(bootstrapped, "bootstrap", map=MAP)
    released = published(bootstrapped, end)
    for version, of in ((held, before), (released, fitted)):
        assert decides(version) == decides(of)
        assert (version.parent_version, version.evidence.details["content_of"]) == (of.version, of.version)
    assert held.holds == {what: Hold(action=begin, issued_by="me", issued_at=START, reason="night shift")}
    assert fitted.holds == held.holds
    assert b"holds" not in released.to_json()
    assert order(bootstrapped, end) is None


@pytest.mark.parametrize(
    ("action", "arguments", "because"),
    [
        ("activate", {"version": 99}, "activate refused: version 99 is not among those kept"),
        ("pin", {"version": 2**53 - 1}, f"pin refused: version {2**53 - 1} is not among those kept"),
        ("pin", {}, "pin refused: there is none yet"),
        ("bootstrap", {"map": {"uncertainty": [], "error_probability": []}}, "bootstrap refused: its map has no knots"),
        ("refit", {}, "refit refused: needs 50 labels, some with both models run; 0 are known"),
        ("unpin", {}, "unpinned"),
        ("resume", {"version": 3}, "resumed"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(action: str, arguments: dict[str, Any], because: str) -> None:
    core = Recalibrator(settings())
    assert order(core, action, **arguments) is None
    assert (note(core), core.current, core.status().state) == (because, None, "cold_start")


def test_pause_stops_automatic_versions_until_resume() -> None:
    core = Recalibrator(settings())
    order(core, "pause")
    assert not drive(core, WORLD.draw, 600).versions
    order(core, "resume")
    assert drive(core, WORLD.draw, 200, first=600).versions


def test_bootstrap_fits_from_fifty_labels_on() -> None:
    core = Recalibrator(settings())
    for number in range(60):
        if number == 40:
            assert order(core, "bootstrap") is None
        core.observe(example(WORLD.draw(number), f"q-{number}", "w", START)[1])
    assert published(core, "bootstrap").evidence.labels == 60


@pytest.mark.parametrize("action", ["activate", "pin"])
def test_a_version_too_old_to_be_kept_is_taken_from_the_command(action: str) -> None:
    core = Recalibrator(settings())
    first = published(core, "bootstrap", map=MAP, uncertainty_threshold=0.3)
    for number in range(core.constants.kept_versions):
        order(core, "bootstrap", map=MAP, uncertainty_threshold=0.31 + number / 1_000)

    assert order(core, action, version=1) is None
    assert note(core) == f"{action} refused: version 1 is not among those kept"
    again = published(core, action, version=1, map=first.map, uncertainty_threshold=first.uncertainty_threshold)
    assert (again.map, again.uncertainty_threshold) == (first.map, 0.3)
    assert (again.evidence.trigger, again.evidence.details["content_of"]) == (action, 1)
    assert (core.status().state == "pinned") is (action == "pin")
