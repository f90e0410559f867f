"""The fit's loop, driven by hand through crashes, aborts, rebalances and foreign writers: each version once."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recalibrator.core import Recalibrator
from recalibrator.decoding import Observation, decode_observation
from recalibrator.fit import stage
from recalibrator.fit.publish.version_topics import history_key
from schemas.command import Command
from schemas.event import MAX_INTEGER
from schemas.made_for import made_for
from schemas.signature import bound
from schemas.status import HappeningEvent
from schemas.trial import CalibrationTrial
from stream_router.calibration.active_versions import Activated, ActiveVersions, Rejected
from tests.support.cores import present
from tests.support.memory_fit import MAP, SETTINGS, TOPICS, WORKLOADS, Fit, act, bootstrap, label
from tests.support.recalibrator_events import START
from tests.support.recalibrator_memory import Fate
from ucci_runtime.broker.records import Input


@pytest.fixture
def fit(tmp_path: Path) -> Fit:
    return Fit(tmp_path / "state")


@contextmanager
def disturbances(fit: Fit, most: int) -> Iterator[Any]:
    left = [most]

    def maybe() -> None:
        if fit.draw.random() < 0.4:
            fit.turn()
        if left[0] and fit.draw.random() < 0.08:
            left[0] -= 1
            fit.disturb()

    yield maybe


def plan(draw: random.Random) -> list[Observation | bytes | None]:
    events: list[Observation | bytes | None] = []
    for number in range(60):
        workload = draw.choice(WORKLOADS)
        events.append(bootstrap(workload, number) if draw.random() < 0.3 else label(workload, number))
    for value in (b"garbage", None, b'{"kind": "labelled"}'):
        events.insert(draw.randrange(len(events)), value)
    return events


@pytest.mark.parametrize("seed", range(10))
def test_versions_survive_faults_byte_for_byte(tmp_path: Path, seed: int) -> None:
    """Whatever fails, the versions are byte for byte those of an undisturbed fold."""
    events = plan(random.Random(seed))
    fit = Fit(tmp_path / "state", seed, faults=8)
    with disturbances(fit, 6) as maybe:
        for event in events:
            if event is None or isinstance(event, bytes):
                fit.send_bytes("photo", event)
            else:
                fit.send(event)
            maybe()
    fit.settle()
    for workload in WORKLOADS:
        core = Recalibrator(SETTINGS[workload])
        mine = [event for event in events if not isinstance(event, bytes | None) and event.workload == workload]
        expected = [version.to_json() for event in mine if (version := core.observe(event)) is not None]
        published = [record for record in fit.written(TOPICS.calibration) if record.key == workload.encode()]
        assert [record.value for record in published] == expected
        assert fit.status(workload).calibration_version == (len(expected) or None)
    history = fit.written(TOPICS.history)
    assert [r.value for r in history] == fit.broker.values(TOPICS.calibration)
    assert max(Counter(record.key for record in history).values(), default=1) == 1
    assert sorted(fit.broker.values(TOPICS.dead_letters)) == [b"", b"garbage", b'{"kind": "labelled"}']


@pytest.mark.parametrize("seed", range(10))
def test_foreign_versions_keep_commands_exactly_once(tmp_path: Path, seed: int) -> None:
    """With foreign versions in between, numbers only rise and each command is obeyed exactly once."""
    fit = Fit(tmp_path / "state", seed, faults=8)
    highest = 0
    with disturbances(fit, 6) as maybe:
        for number in range(40):
            if fit.draw.random() < 0.1:
                highest = max(highest, *fit.numbers(), 0) + 3
                fit.publish_foreign("photo", highest)
            fit.send(bootstrap("photo", number))
            maybe()
    fit.settle()
    assert fit.numbers() == sorted(set(fit.numbers()))
    assert [round(v.uncertainty_threshold * 1_000) for v in fit.versions("photo")] == list(range(40))


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_a_foreign_version_of_the_last_number_stops_nothing(fit: Fit, first: bool) -> None:
    """Neither published before the workload's first observation nor later; the status and the log say so."""
    if not first:
        fit.take(bootstrap("photo", 1))
    fit.publish_foreign("photo", MAX_INTEGER)
    fit.publish_foreign("photo", 41)
    fit.take(bootstrap("photo", 2))
    assert fit.versions("photo")[-1].version == 42
    fit.begin()
    fit.take(bootstrap("photo", 3))
    assert fit.versions("photo")[-1].version == 43
    assert fit.count.totals["fit_notes version_number_ignored"] >= 1
    assert fit.status().details["version_number_ignored"] == MAX_INTEGER
    (line,) = [news for news in fit.stage.news() if news.event.startswith("foreign version ignored")]
    assert (line.facts["version"], line.is_bad) == (MAX_INTEGER, True)


def test_with_a_key_all_that_is_published_is_signed(tmp_path: Path) -> None:
    """Versions in force, in the history and on trial, as routers with the key take them; also after a restart."""
    key = b"k" * 32
    fit = Fit(tmp_path / "state", key=bound(key, "cluster-1"))
    fit.take(bootstrap("photo", 1))
    fit.begin()
    fit.take(bootstrap("photo", 2), act("shadow", 3, version=1))
    active, elsewhere, prefixed = (ActiveVersions({"photo": made_for(SETTINGS["photo"])}, [key]) for _ in range(3))
    active.bind("cluster-1", TOPICS.calibration, str(TOPICS.trial))
    elsewhere.bind("cluster-2", TOPICS.calibration, str(TOPICS.trial))
    prefixed.bind("cluster-1", "other.calibration", "other.calibration-trial")
    published = fit.written(TOPICS.calibration)
    assert [type(active.offer(record.key, record.value, START)) for record in published] == [Activated, Activated]
    (tried,) = [record for record in fit.written(TOPICS.trial) if record.value]
    assert present(active.trials.offer(tried.key, tried.value)).problem is None
    for stranger in (elsewhere, prefixed):
        outcome = stranger.offer(published[0].key, published[0].value, START)
        assert isinstance(outcome, Rejected)
        assert outcome.reason == "bad_signature"
        assert present(stranger.trials.offer(tried.key, tried.value)).trial is None
    # What was signed as tried is not a version to be in force.
    inner = CalibrationTrial.from_json(present(tried.value)).version
    assert isinstance(active.offer(b"photo", inner.to_json(), START), Rejected)
    assert all(b'"signature":"' in present(record.value) for record in fit.written(TOPICS.history))


def test_pruned_history_survives_restart(tmp_path: Path) -> None:
    """Old versions leave the history and do not come back after a restart."""
    fit = Fit(tmp_path / "state", kept_versions=3)
    fit.take(*(bootstrap("photo", number) for number in range(4)))
    fit.begin()
    fit.take(bootstrap("photo", 4))
    deleted = [record.key for record in fit.written(TOPICS.history) if record.value is None]
    assert deleted == [history_key("photo", 1), history_key("photo", 2)]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"kind": "riddle"}', "invalid_field"),
        (label("photo", 1).model_copy(update={"workload": "text"}).to_json(), "unknown_workload"),
        (b'"' + b"x" * 1_000_000 + b'"', "too_large"),
        (None, "empty"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bad_observation_becomes_a_dead_letter(fit: Fit, value: bytes | None, reason: str) -> None:
    fit.send_bytes("photo", value)
    fit.take(bootstrap("photo", 1))
    (letter,) = fit.written(TOPICS.dead_letters)
    headers = dict(letter.headers)
    said = [headers[f"dlq.{name}"] for name in ("stage", "reason", "topic", "offset")]
    assert (letter.key, *said) == (b"photo", b"fit", reason.encode(), b"observations", b"0")
    assert ("dlq.truncated" in headers) == (reason == "too_large")
    assert fit.numbers() == [1]


def test_a_killed_fit_folds_again_only_what_came_since(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot is due while traffic goes on too: what was folded is committed first, then stored."""
    fit.log.deliver_all()
    fit.take(label("photo", 0))
    # The last one while the commit before may still wait for more.
    for number, passed_s in enumerate((stage.SNAPSHOT_INTERVAL_S, stage.SNAPSHOT_INTERVAL_S - 0.1, 0.2)):
        fit.send(label("photo", 1 + number))
        fit.clock.advance(passed_s)
        fit.turn()
    assert fit.broker.offsets[Input(TOPICS.observations, 0)] >= 4
    fit.begin()
    folded = list[bytes | None]()

    def counted(value: bytes | None, workloads: frozenset[str]) -> Observation:
        folded.append(value)
        return decode_observation(value, workloads)

    monkeypatch.setattr(stage, "decode_observation", counted)
    fit.settle()
    assert folded == []


def trial_plan(draw: random.Random) -> list[Command]:
    """Trials begun, replaced, promoted, stopped and pinned away, versions in between."""
    content = {"version": 1, "map": MAP, "uncertainty_threshold": 0.25}
    choices: list[tuple[str, dict[str, Any]]] = [
        ("shadow", content),
        ("canary", content | {"share": 0.5}),
        ("promote", {}),
        ("stop_trial", {}),
        ("activate", content),
        ("bootstrap", {"map": MAP}),
    ]
    chosen = [draw.choice(choices) for _ in range(40)]
    return [bootstrap("photo", 0), *(act(action, n + 1, **arguments) for n, (action, arguments) in enumerate(chosen))]


@pytest.mark.parametrize("seed", range(6))
def test_trials_survive_faults_exactly_once(tmp_path: Path, seed: int) -> None:
    """Whatever fails, each trial begins and ends once, as in an undisturbed fold."""
    plan = trial_plan(random.Random(seed))
    fit = Fit(tmp_path / "state", seed, faults=8)
    with disturbances(fit, 6) as maybe:
        for event in plan:
            fit.send(event)
            maybe()
    fit.settle()
    core, versions, trials = Recalibrator(SETTINGS["photo"]), [], []
    for event in plan:
        before, version = core.trial, core.observe(event)
        if core.trial is not before or (core.trial is None and event.action in ("activate", "stop_trial")):
            trials.append(b"" if core.trial is None else core.trial.to_json())
        versions += [] if version is None else [version.to_json()]
    assert fit.broker.values(TOPICS.calibration) == versions
    assert fit.broker.values("trial") == trials
    numbers = Counter(record.key for record in fit.written(TOPICS.history))
    assert set(numbers) == {history_key("photo", n + 1) for n in range(core.version_floor)}
    assert max(numbers.values()) == 1


def test_trial_ends_in_the_publishing_transaction(fit: Fit) -> None:
    fit.take(bootstrap("photo", 1), act("shadow", 2, version=1), act("promote", 3))
    written = [(record.topic, record.value is None) for record in fit.broker.outputs if record.topic != TOPICS.status]
    assert written[-3:] == [("trial", True), ("calibration", False), ("history", False)]


def test_a_disk_that_refuses_a_snapshot_ended_the_service(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is put off, counted and tried again, also where nothing but the floor of versions has changed."""
    fit.take(bootstrap("photo", 1))
    with monkeypatch.context() as refusing:
        refusing.setattr(os, "fsync", refuse)
        fit.publish_foreign("photo", 40)
        fit.take(bootstrap("photo", 2))
    assert fit.numbers() == [1, 40, 41]
    assert fit.count.totals["fit_notes snapshot_refused"] > 0
    fit.clock.advance(60.0)
    fit.turn()
    fit.begin()
    fit.take(bootstrap("photo", 3))
    assert fit.numbers() == [1, 40, 41, 42]


def refuse(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("fate", [Fate.ABORT, Fate.UNSEEN_COMMIT, Fate.UNSEEN_ABORT])
def test_an_outage_left_the_former_core_in_memory(fit: Fit, fate: Fate) -> None:
    """The frames of what had not committed hold it, and an error of the client those, as the group is asked again."""
    fit.budget.append(fate)
    for number in range(1, 20):
        fit.take(bootstrap("photo", number))
    assert not fit.budget
    assert fit.log.kept == []


def test_records_that_add_up_were_read_again_for_ever(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that took longer than the group waits for a member was lost whole, each time that it was read."""
    fit.log.deliver_all()

    def slow(value: bytes | None, workloads: frozenset[str]) -> Observation:
        fit.log.spend(1.0)
        return decode_observation(value, workloads)

    monkeypatch.setattr(stage, "decode_observation", slow)
    fit.take(*(label("photo", number) for number in range(60)), bootstrap("photo", 60))
    assert fit.numbers() == [1]


def test_what_somebody_did_is_still_known_after_a_restart(fit: Fit) -> None:
    """Beside the status, which compaction removes, the happening stays in a topic of its own; once."""
    fit.take(label("photo", 1))
    fit.take(act("pause", 2))
    fit.begin()
    fit.settle()
    kept = map(HappeningEvent.from_json, fit.broker.values("happenings"))
    assert [(one.kind, one.sentence.split(":")[0]) for one in kept] == [("act", "test")]
