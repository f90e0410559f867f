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
from recalibrator.fit.drift.river_detector import RiverDetector
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


@settings(max_examples=15)
@given(
    kind=st.sampled_from(list(RIVER)),
    cut=st.integers(0, 320),
    chances=st.tuples(st.floats(0.05, 0.9), st.floats(0.05, 0.9)),
)
def test_a_restart_continues_exactly(kind: RiverName, cut: int, chances: tuple[float, float]) -> None:
    """Also beyond the inputs that are kept: three of the bounds pass within the stream."""
    outcomes = [*errors(170, chances[0]), *errors(170, chances[1])]
    whole, restored = made(kind, kept_most=140), made(kind, kept_most=140)
    for at, error in enumerate(outcomes):
        if at == cut:
            load(restored, json.loads(json.dumps(dump(whole))))
        alarm = whole.update(Outcomes(0.2, 1.0, error, at))
        assert at < cut or restored.update(Outcomes(0.2, 1.0, error, at)) == alarm
    assert dump(whole) == dump(restored)


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


def test_without_river_installed_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river.drift", None)
    workloads = {"w": workload_settings(), "x": workload_settings(river={"ADWIN": {"delta": 0.002}})}
    with pytest.raises(ConfigError, match=r"^workloads\.x\.river\.ADWIN: needs river.*'ucci-stream\[river\]'"):
        check_detectors(workloads)


@pytest.mark.parametrize(
    ("river", "message"),
    [
        ({"ADWIN": {"alpha": 0.1}}, "unexpected keyword argument 'alpha'"),
        ({"KSWIN": {"window_size": 2_000, "stat_size": 1_500}}, "Sample larger than population"),
    ],
)
def test_arguments_that_river_refuses_name_the_workload(river: dict[str, dict[str, object]], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^workloads\.x\.river\.{next(iter(river))}: .*{message}"):
        check_detectors({"x": workload_settings(river=river)})
