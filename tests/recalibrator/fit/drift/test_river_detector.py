"""River's detectors on our channels: what they see, when they fire, and that a restart changes nothing."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recalibrator.fit.codec import dump, load
from recalibrator.fit.drift.detector import Channel, Outcomes
from recalibrator.fit.drift.monitors import DriftMonitors, Predicted, check_detectors
from recalibrator.fit.drift.river_detector import RiverDetector, change_point
from schemas.errors import ConfigError
from schemas.settings_workload import DEFAULT_DETECTORS, RiverArguments, RiverName
from tests.support.cascade_stream import settings as workload_settings

pytest.importorskip("river", reason="an extra")

CHANNEL = Channel("errors", needs_labels=True, meaning="outcomes")
RIVER: dict[RiverName, RiverArguments] = {"ADWIN": {"delta": 0.002}, "PageHinkley": {"threshold": 5.0}, "KSWIN": {}}


def made(kind: RiverName, kept_most: int = 16_384) -> RiverDetector:
    return RiverDetector(kind, RIVER[kind], CHANNEL, kept_most)


def errors(count: int, chance: float, seed: int = 1) -> list[float]:
    return list(map(float, np.random.default_rng(seed).uniform(size=count) < chance))


@pytest.mark.parametrize("kind", RIVER)
def test_a_jump_of_errors_raises_an_alarm_near_it(kind: RiverName) -> None:
    detector = made(kind)
    found = [
        (at, alarm)
        for at, error in enumerate([*errors(1_500, 0.1), *errors(1_500, 0.8, seed=2)])
        if (alarm := detector.update(Outcomes(0.1, 1.0, error, at))) is not None
    ]
    at, alarm = next(one for one in found if one[0] >= 1_500)
    assert at < 1_900
    assert abs(alarm.began_us - 1_500) < 250
    assert alarm.detector == f"river:{kind}"
    assert detector.status().alarms == len(found)


def test_an_alarm_shows_in_the_status_until_enough_labels() -> None:
    detector = made("ADWIN")
    outcomes = [*errors(1_000, 0.1), *errors(1_000, 0.6)]
    at = next(at for at, one in enumerate(outcomes) if detector.update(Outcomes(0.1, 1.0, one, at)) is not None)
    status = detector.status()
    assert (status.name, status.state, status.alarms, status.statistic) == ("river:ADWIN", "drifted", 1, 1.0)
    assert status.since is not None
    for error in errors(400, 0.6, seed=3):
        detector.update(Outcomes(0.6, 1.0, error, at))
    assert detector.drift_state == "ok"


@settings(max_examples=15)
@given(
    kind=st.sampled_from(list(RIVER)),
    cut=st.integers(0, 550),
    chances=st.tuples(st.floats(0.05, 0.9), st.floats(0.05, 0.9)),
)
def test_a_restart_continues_exactly(kind: RiverName, cut: int, chances: tuple[float, float]) -> None:
    """Also beyond the inputs that are kept: two of the bounds pass within the stream."""
    outcomes = [*errors(300, chances[0]), *errors(300, chances[1])]
    whole, restored = made(kind, kept_most=200), made(kind, kept_most=200)
    for at, error in enumerate(outcomes):
        if at == cut:
            load(restored, json.loads(json.dumps(dump(whole))))
        alarm = whole.update(Outcomes(0.2, 1.0, error, at))
        assert at < cut or restored.update(Outcomes(0.2, 1.0, error, at)) == alarm
    assert dump(whole) == dump(restored)


def test_counts_of_a_summary_are_one_mean_residual() -> None:
    """Cells without trials count for nothing, and a summary without any is no input."""
    detector = made("ADWIN")
    trials, hits = np.array([3.0, 1.0, 0.0]), np.array([2.0, 1.0, 0.0])
    detector.update(Outcomes(np.array([0.5, 0.5, 0.9]), trials, hits, 1))
    detector.update(Outcomes(np.array([0.5]), np.zeros(1), np.zeros(1), 2))
    kept = made("ADWIN")
    kept.update(Outcomes(0.0, 1.0, 0.25, 1))
    assert {**dump(detector), "since_alarm": 0} == {**dump(kept), "since_alarm": 0}


def test_monitors_run_river_beside_our_detectors() -> None:
    """Its alarm means what label_residual's does, and ours see exactly what they see without it."""
    ours, beside = DriftMonitors(3), DriftMonitors(3, river={"PageHinkley": RIVER["PageHinkley"]})
    name = "river:PageHinkley"
    fired = []
    for at, error in enumerate([*errors(300, 0.1), *errors(300, 0.4)]):
        first = ours.on_label(Predicted(0.1), error, None, None, at, at)
        second = beside.on_label(Predicted(0.1), error, None, None, at, at)
        assert [alarm for alarm in second if alarm.detector != name] == first
        fired += [alarm for alarm in second if alarm.detector == name]
    assert (fired[0].channel.meaning, fired[0].channel.needs_labels) == ("outcomes", True)
    shown = [one.name for one in beside.status(None).detectors]
    assert shown == [*DEFAULT_DETECTORS, name]
    assert ours.status(None).detectors == beside.status(None).detectors[:-1]


def test_a_detector_added_since_the_snapshot_starts_afresh() -> None:
    before = DriftMonitors(3)
    for at, error in enumerate(errors(50, 0.5)):
        before.on_label(Predicted(0.1), error, None, None, at, at)
    after = DriftMonitors(3, river={"ADWIN": {}})
    load(after, json.loads(json.dumps(dump(before))))
    assert after.status(None).detectors[:-1] == before.status(None).detectors
    assert after.status(None).detectors[-1].state == "ok"


def test_without_river_installed_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river.drift", None)
    workloads = {"w": workload_settings(), "x": workload_settings(river={"ADWIN": {"delta": 0.002}})}
    with pytest.raises(ConfigError, match=r"^workloads\.x\.river\.ADWIN: needs river.*'ucci-stream\[river\]'"):
        check_detectors(workloads)


@pytest.mark.parametrize(
    ("river", "message"),
    [
        ({"ADWIN": {"alpha": 0.1}}, "unexpected keyword argument 'alpha'"),
        ({"ADWIN": {"delta": "small"}}, "must be real number"),
        ({"PageHinkley": {"mode": "left"}}, "mode"),
        ({"KSWIN": {"stat_size": 80}}, "Sample larger than population"),
        ({"KSWIN": {"window_size": 2_000, "stat_size": 1_500}}, "Sample larger than population"),
    ],
)
def test_arguments_that_river_refuses_name_the_workload(river: dict[str, dict[str, object]], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^workloads\.x\.river\.{next(iter(river))}: .*{message}"):
        check_detectors({"x": workload_settings(river=river)})


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.5, 3.0))
def test_the_change_point_of_a_clean_step_is_the_step(before: int, after: int, height: float) -> None:
    assert change_point(np.array([0.0] * before + [height] * after)) == before
