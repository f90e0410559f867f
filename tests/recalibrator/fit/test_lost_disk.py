"""A fit that lost its disk, and whose log no longer reaches back: what people decided stays decided, and is named."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from schemas.calibration import CalibrationVersion
from schemas.command import Command
from schemas.settings import WorkloadSettings
from schemas.signature import bound, signed
from schemas.trial import CalibrationTrial
from tests.support.memory_fit import MAP, SETTINGS, TOPICS, Fit, act, bootstrap, label
from tests.support.recalibrator_events import workload as settings_of
from ucci_runtime.broker.records import Input

#: As many that a version in force would be replaced.
LABELS = 700

ANN = {"issued_by": "ann", "reason": "worse since noon"}
KEY = b"k" * 32
TRIALS = TOPICS.trial or ""


@pytest.fixture
def fit(tmp_path: Path) -> Fit:
    """Versions 1 and 2 were published, the second is in force."""
    fit = Fit(tmp_path / "state")
    publish_two(fit)
    return fit


def publish_two(fit: Fit, workload: str = "photo") -> None:
    fit.take(bootstrap(workload, 300), bootstrap(workload, 400))


def lose_everything(fit: Fit, *, but: int = 0) -> None:
    """Lose the disk, and all observations but the last offsets; then start anew."""
    shutil.rmtree(fit.directory)
    for partition in (0, 1):
        log = fit.broker.cluster.logs[Input(TOPICS.observations, partition)]
        log.cut(log.end - but)
    fit.begin()


def order(fit: Fit, action: str, **arguments: Any) -> None:
    fit.take(act(action, 1_000, **arguments))


def send_labels(fit: Fit, first: int = 0) -> None:
    fit.take(*(label("photo", number) for number in range(first, first + LABELS)))


def standing(fit: Fit) -> tuple[Any, ...]:
    """What people have decided, as the status shows it."""
    now = fit.status()
    trial = now.trial if now.trial is not None and now.trial.ended_at is None else None
    return now.state, now.calibration_version, trial and (trial.mode, trial.share, trial.version, trial.issued_by)


@pytest.mark.parametrize(
    ("action", "arguments"), [("activate", {"version": 1, "hold": True}), ("pin", {"version": 1}), ("pin", {})]
)
def test_a_lost_disk_publishes_over_a_pin(fit: Fit, action: str, arguments: dict[str, Any]) -> None:
    """Rolled back or pinned before all that is left of the log, a version stays, and the status says by whom."""
    order(fit, action, **arguments, **ANN)
    held = fit.numbers()[-1]
    lose_everything(fit)
    send_labels(fit)
    assert fit.numbers()[-1] == held
    now = fit.status()
    assert (now.state, now.calibration_version) == ("pinned", held)
    assert now.sentence.startswith(f"Version {held} is held")
    assert f"by ann ({action}: worse since noon)" in now.sentence
    assert f"Version {held} was read from the calibration topic" in now.sentence


def test_an_unpin_after_the_loss_lets_fits_decide(fit: Fit) -> None:
    order(fit, "activate", version=1, hold=True)
    held = fit.numbers()[-1]
    lose_everything(fit)
    order(fit, "unpin")
    assert fit.status().state != "pinned"
    send_labels(fit)
    assert fit.versions("photo")[-1].evidence.trigger not in {"activate", "unpin"}
    assert fit.numbers() == list(range(1, fit.numbers()[-1] + 1))
    assert fit.numbers()[-1] > held


def test_a_lost_disk_says_cold_start_while_versions_decide(fit: Fit) -> None:
    """Held or not: the version on the topic decides at the routers, and the next one follows it."""
    lose_everything(fit)
    fit.take(label("photo", 0))
    assert (fit.status().state, fit.status().calibration_version) == ("label_starved", 2)
    assert "Version 2 was read from the calibration topic" in fit.status().sentence
    send_labels(fit, first=1)
    following = fit.versions("photo")[2]
    assert (following.version, following.parent_version) == (3, 2)
    assert "calibration topic" not in fit.status().sentence


def test_what_is_left_of_a_log_names_another_version(fit: Fit) -> None:
    """Folded without its beginning, a log gives numbers and holds that nobody has published."""
    fit.take(*(bootstrap("photo", 500 + number) for number in range(10)))
    order(fit, "pin", **ANN)
    fit.take(*(label("photo", number) for number in range(5)))
    before, content = fit.numbers(), fit.versions("photo")[-1].uncertainty_threshold
    # Some of the commands are left, and the pin is not.
    for left in (3, 20):
        lose_everything(fit, but=left)
        fit.settle()
        assert (fit.numbers(), standing(fit)) == (before, ("pinned", before[-1], None))
    assert fit.versions("photo")[-1].uncertainty_threshold == content
    # A number means what it meant at the routers, not what it would in the rest of the log.
    order(fit, "pin", version=2)
    assert fit.status().details["last_command"] == "pin refused: version 2 is not among those kept"


def test_a_lost_disk_forgets_a_trial(fit: Fit) -> None:
    order(fit, "canary", version=1, share=0.25, **ANN)
    before = standing(fit)
    assert before[2] == ("canary", 0.25, 3, "ann")
    lose_everything(fit)
    fit.take(label("photo", 0))
    assert standing(fit) == before
    assert len([value for value in fit.broker.values(TRIALS) if value]) == 1
    order(fit, "promote")
    promoted = fit.versions("photo")[-1]
    assert (promoted.version, promoted.parent_version, promoted.uncertainty_threshold) == (4, 2, 0.3)
    assert fit.broker.values(TRIALS)[-1] == b""


def test_each_workload_keeps_its_own_hold(tmp_path: Path) -> None:
    """On one partition and on two."""
    fit = Fit(tmp_path / "state")
    for workload in SETTINGS:
        publish_two(fit, workload)
    fit.take(act("pin", 1_000), act("pause", 1_000, workload="audio"))
    lose_everything(fit)
    fit.take(*(label(workload, 0) for workload in SETTINGS))
    assert [fit.status(workload).state for workload in SETTINGS] == ["pinned", "paused", "label_starved"]
    assert [fit.status(workload).calibration_version for workload in SETTINGS] == [3, 3, 2]


@pytest.mark.parametrize("is_signed", [True, False])
def test_a_stranger_unpins_by_an_unsigned_version(tmp_path: Path, is_signed: bool) -> None:
    """With a key only what is signed is taken over; the next number lies above what a stranger took all the same."""
    fit = Fit(tmp_path / "state", key=KEY)
    publish_two(fit)
    order(fit, "pin", **ANN)
    stranger = sealed(fit, 41)
    value = (signed(stranger, bound(KEY, TOPICS.calibration)) if is_signed else stranger).to_json()
    fit.broker.publish(TOPICS.calibration, b"photo", value)
    lose_everything(fit)
    fit.take(label("photo", 0))
    assert standing(fit)[:2] == (("label_starved", 41) if is_signed else ("pinned", 3))
    order(fit, "bootstrap", map=MAP)
    assert fit.numbers()[-1] == 42


def sealed(fit: Fit, number: int) -> CalibrationVersion:
    """Return the version published last, under another number and without what holds it."""
    document = json.loads(fit.broker.values(TOPICS.calibration)[-1])
    for name in ("holds", "signature", "digest"):
        document.pop(name, None)
    return CalibrationVersion.sealed(**document | {"version": number})


@pytest.mark.parametrize("left", [0, 5])
def test_a_version_of_another_prompt_is_taken_over(tmp_path: Path, left: int) -> None:
    """What was made with another prompt is not in force; a pause outlasts it, a pin does not, as with a disk."""
    fit = Fit(tmp_path / "state")
    fit.settings = {**SETTINGS, "photo": of_prompt("Extract {text}")}
    fit.begin()
    publish_two(fit)
    order(fit, "pin", **ANN)
    order(fit, "pause", **ANN)
    for prompt, expected in (("Find {text}", ("cold_start", None)), ("Extract {text}", ("paused", 4))):
        fit.settings = {**SETTINGS, "photo": of_prompt(prompt)}
        lose_everything(fit, but=left)
        fit.take(label("photo", 0))
        assert standing(fit)[:2] == expected
        if expected[1] is None:
            assert "Paused since" in fit.status().sentence


def of_prompt(prompt: str) -> WorkloadSettings:
    models: dict[str, Any] = {name: {"base_url": "http://m/v1", "model": name} for name in ("small", "large")}
    return settings_of(prompt=prompt, **models)


def test_an_old_copy_of_the_disk_forgets_a_pin(fit: Fit, tmp_path: Path) -> None:
    """As left by a fit that had the partition before another one, for longer than the log is kept."""
    shutil.copytree(fit.directory, tmp_path / "copy")
    fit.take(*(bootstrap("photo", 500 + number) for number in range(3)))
    order(fit, "pin", **ANN)
    before = standing(fit)
    lose_everything(fit)
    shutil.copytree(tmp_path / "copy", fit.directory, dirs_exist_ok=True)
    fit.begin()
    send_labels(fit)
    assert standing(fit) == before == ("pinned", 6, None)


def test_a_foreign_version_ends_no_pin_of_a_fit_with_a_disk(fit: Fit) -> None:
    order(fit, "pin", **ANN)
    fit.publish_foreign("photo", 41)
    fit.settle()
    fit.begin()
    fit.take(label("photo", 0))
    assert (standing(fit), fit.numbers()) == (("pinned", 3, None), [1, 2, 3, 41])


def plan(draw: random.Random) -> list[Command]:
    content = {"version": 1, "map": MAP, "uncertainty_threshold": 0.25}
    acts: list[tuple[str, dict[str, Any]]] = [
        ("activate", content | {"hold": True}),
        ("activate", content),
        ("pin", {}),
        ("pin", content),
        ("unpin", {}),
        ("pause", {}),
        ("resume", {}),
        ("shadow", content),
        ("canary", content | {"share": 0.5}),
        ("promote", {}),
        ("stop_trial", {}),
    ]
    return [act(action, 500 + number, **more) for number, (action, more) in enumerate(draw.choices(acts, k=30))]


@pytest.mark.parametrize("seed", range(8))
def test_what_people_decided_outlasts_any_loss(tmp_path: Path, seed: int) -> None:
    """After each loss, crash and abort, state, version and trial are those of before it."""
    fit = Fit(tmp_path / "state", seed, faults=12)
    publish_two(fit)
    for command in plan(random.Random(seed)):
        fit.take(command)
        if fit.draw.random() < 0.4:
            before = standing(fit)
            lose_everything(fit, but=fit.draw.choice([0, 0, 2, 9]))
            fit.take(label("photo", 0))
            assert standing(fit) == before
    found = fit.numbers()
    assert found == sorted(set(found))
    tried = [CalibrationTrial.from_json(value).version.version for value in fit.broker.values(TRIALS) if value]
    assert len(set(tried)) == len(tried)
