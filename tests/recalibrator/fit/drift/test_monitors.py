"""What the detectors of labels make of one label, against the audit's own arithmetic.

The last change of outcomes, and taking back what labels have told of it.

Streams that begin with nothing and never change: the detectors' references rest on few labels, and err.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from recalibrator.core import Recalibrator
from recalibrator.fit.change_monitor import OutcomeChange
from recalibrator.fit.drift.detector import Channel, Cusum, CusumRules, Outcomes
from recalibrator.fit.drift.monitors import DriftMonitors, Predicted
from tests.support.cascade_stream import FIELDS, World, drive, settings


@pytest.mark.parametrize(
    ("by_labels", "wrong_since", "taken_back"), [(True, 30, True), (True, 41, False), (False, 30, False)]
)
def test_a_change_reported_by_wrong_labels_is_retracted(*, by_labels: bool, wrong_since: int, taken_back: bool) -> None:
    change = OutcomeChange()
    change.note(10, 5, 20, by_labels=True, settled=True)
    change.note(30, 2, 40, by_labels=by_labels, settled=False)
    assert change.reported_by_labels(wrong_since) is taken_back
    change.retract(wrong_since)
    assert change.began_us == (10 if taken_back else 30)


CHANNEL = Channel("errors", needs_labels=True, meaning="outcomes")
RULES = CusumRules(odds=1.7, bound=8.5, both_ways=True)
STREAMS = 40


def delays(chances: list[float], truth: float, known: float) -> list[int]:
    """Return the labels at which those detectors fire that do; they expect ``chances`` by so many ``known`` labels."""
    found = list[int]()
    for seed, chance in enumerate(chances):
        detector, wrong = Cusum("errors", CHANNEL, RULES), np.random.default_rng(seed).uniform(size=1_500) < truth
        seen = (Outcomes(chance, 1.0, one, at, known=known) for at, one in enumerate(wrong.astype(float).tolist()))
        found += islice((one.at_us for one in seen if detector.update(one) is not None), 1)
    return found


def references(truth: float, labels: int) -> list[float]:
    drawn = np.random.default_rng(7).binomial(labels, truth, size=STREAMS)
    return [float(one) for one in np.clip(drawn / labels, 0.02, 0.98)]


@pytest.mark.parametrize("truth", [0.1, 0.5, 0.9])
def test_few_labels_behind_a_reference_are_no_alarm(truth: float) -> None:
    """A reference of 200 labels errs: taken for exact it fires in many streams, as an estimate in next to none."""
    exact, honest = (len(delays(references(truth, 200), truth, known)) for known in (np.inf, 200.0))
    assert exact >= 5
    assert honest <= 1


def test_a_change_is_found_soon_after_a_cold_start() -> None:
    """Errors rise from 1 in 10 to 1 in 4: seen in most streams by 200 labels, as fast as ever by 9,000."""
    found, settled = (delays(references(0.1, known), 0.25, float(known)) for known in (200, 9_000))
    known = delays([0.1] * STREAMS, 0.25, np.inf)
    assert len(found) >= 0.8 * STREAMS
    assert np.median(found) < 400
    assert len(known) == len(settled) == STREAMS
    assert np.mean(settled) <= 1.1 * np.mean(known)


def infeasible_world(queries: int, seed: int) -> World:
    """Draw a world in which the small model is mostly wrong, whatever u says, and both models never agree."""
    rng = np.random.default_rng(seed)
    draw, uncertainty = rng.uniform(size=queries), rng.uniform(size=queries) * 0.5
    small, large = draw < 0.10, (draw >= 0.10) & (draw <= 0.96)
    return World(
        uncertainty=uncertainty,
        small_right=small.astype(np.float64),
        large_right=large.astype(np.float64),
        small=np.where(small, FIELDS, FIELDS // 2),
        large=np.where(large, FIELDS, FIELDS // 2),
        agree=np.zeros(queries, dtype=bool),
    )


def alarms_of(world: World) -> dict[str, int]:
    """Return the alarms by detector in a stream that begins with nothing."""
    sampling = {"exploration_probability": 0.1, "label_probability_kept": 0.3, "label_probability_escalated": 0.3}
    core = Recalibrator(settings(target={"micro_f1": 0.97}, sampling=sampling))
    drive(core, world.draw, len(world.uncertainty))
    return {one.name: one.alarms for one in core.status().drift.detectors if one.alarms}


@pytest.mark.parametrize("seed", [4, 11])
def test_a_cold_start_raises_no_alarm_of_residuals(seed: int) -> None:
    """The first map rests on some 250 labels and stays in force for a thousand: its error is no drift."""
    assert alarms_of(infeasible_world(1_800, seed)) == {}


def test_models_that_never_agree_raise_no_alarm() -> None:
    """Agreement is cut at 1 in 100: pairs of models that agree less often than that are no evidence of a fall."""
    assert alarms_of(infeasible_world(3_200, 2)) == {}


@pytest.mark.parametrize("wrong", [0.0, 1.0])
def test_a_map_at_its_end_is_not_contradicted_there(wrong: float) -> None:
    """g(u) near 0 or 1 is cut for safety; outcomes that all are as it said contradict nothing, however many."""
    monitors = DriftMonitors(3)
    assert not any(monitors.on_label(Predicted(wrong), wrong, None, None, at, at) for at in range(5_000))


@pytest.mark.parametrize(("wrong", "alarms"), [(11, False), (2, True)])
def test_small_answers_alone_are_judged_by_few_pairs(wrong: int, *, alarms: bool) -> None:
    """100 pairs expect 13 of 20 kept answers to be wrong: 11 are no sign of flattering labels, 2 are."""
    for pairs, fires in ((np.inf, True), (100.0, alarms)):
        monitors = DriftMonitors(1)
        monitors.expect(np.array([0.3]), np.array([[0.9], [0.05]]), pairs=pairs)
        found = [monitors.on_label(None, float(at * 7 % 20 < wrong), None, 0, at, at) for at in range(2_000)]
        assert any(alarm.detector == "right_given_disagreement" for some in found for alarm in some) == fires
