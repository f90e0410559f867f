"""One workload's life: cold start, active, drift, infeasible, active again; equal events, equal bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np
import pytest

from recalibrator.core import Recalibrator
from recalibrator.fit.method_constants import DEFAULT
from schemas import CalibrationVersion, Command, LabelledExample, TrafficSummary
from tests.support.cascade_stream import Run, World, drive, in_turn, settings, typo_world
from tests.support.cores import driven, in_force, present, restarted

DRIFT_AT = 5_000
QUERIES = 10_000
TARGET = 0.93
Events = list[LabelledExample | TrafficSummary | Command]


@dataclass(frozen=True)
class Drifted:
    """A stream that took up typos, and what the core made of it."""

    core: Recalibrator
    world: World
    run: Run

    @property
    def thresholds(self) -> np.ndarray:
        return np.array(self.run.thresholds)


@pytest.fixture(scope="module")
def drifted() -> Drifted:
    core, world = Recalibrator(settings()), typo_world(QUERIES, DRIFT_AT)
    return Drifted(core, world, drive(core, world.draw, QUERIES))


def test_target_is_held_before_drift_and_again_after_it(drifted: Drifted) -> None:
    before, after = slice(1_000, DRIFT_AT), slice(DRIFT_AT + 1_500, QUERIES)
    world, served = drifted.world, drifted.thresholds
    static = float(served[DRIFT_AT - 1])
    assert world.expected_micro_f1(served[before], before) >= TARGET - 0.006
    assert world.expected_micro_f1(static, before) >= TARGET - 0.006
    assert world.expected_micro_f1(static, after) < TARGET - 0.03
    assert world.expected_micro_f1(served[after], after) >= TARGET - 0.006
    # For less than the large model alone costs.
    assert 1.0 + 3.02 * float((world.uncertainty[before] > served[before]).mean()) < 3.02


def test_most_refits_of_a_quiet_stream_publish_nothing(drifted: Drifted) -> None:
    """In the quiet 2,500 queries before the drift about a hundred refits make a dozen versions."""
    quiet = [number for number, _ in drifted.run.versions if 2_500 <= number < DRIFT_AT]
    assert len(quiet) <= 25


def test_refits_wait_while_nothing_moves() -> None:
    """Once much is known, a quiet stream is fitted seldom; a drift brings a version as soon as without the wait."""
    fits, reacted, world = [], [], typo_world(14_000, 12_000, seed=6)
    for most in (0, DEFAULT.refits_put_off):
        core = Recalibrator(settings(), replace(DEFAULT, refits_put_off=most))
        drive(core, world.draw, 6_000)
        with patch.object(core, "evaluate", wraps=core.evaluate) as evaluate:
            drive(core, world.draw, 6_000, first=6_000)
        fits.append(evaluate.call_count)
        reacted.append(drive(core, world.draw, 2_000, first=12_000).versions[0][0])
    assert 6_000 / 2_500 <= fits[1] < 0.6 * fits[0]
    assert reacted[1] <= reacted[0] + 200


def test_exploration_rests_until_a_change_is_detected(drifted: Drifted) -> None:
    """Exploration rests while all is quiet and is full again once a change is detected."""
    configured = drifted.core.settings.sampling.exploration_probability
    rates = {number: version.exploration_probability for number, version in drifted.run.versions}
    before = [rate for number, rate in rates.items() if number < DRIFT_AT]
    told = [rate for number, rate in rates.items() if DRIFT_AT < number < DRIFT_AT + 1_500]
    assert set(rates.values()) == {configured, configured * drifted.core.constants.quiet_exploration}
    assert before[-1] < configured
    assert configured in told


def test_a_new_mix_widens_the_margin_until_labels_come() -> None:
    before, after = typo_world(4_000, 4_000, seed=3), typo_world(12_000, 0, seed=4, harm=0.0)
    world, core = in_turn(before, after), Recalibrator(settings())
    margins = []

    def margin(known: Recalibrator) -> float:
        found = known.evaluate().policies
        return float(found.error[found.index(0.25)])

    for first, queries in ((0, 4_000), (4_000, 3_000), (7_000, 5_800)):
        drive(core, world.draw, queries, first=first)
        margins.append(margin(core))
        assert margin(restarted(core)) == margins[-1]
    assert margins[1] > 1.05 * margins[0]
    assert margins[2] < margins[0]


def test_infeasible_ends_when_the_target_is_in_reach_again() -> None:
    good, bad = typo_world(2_500, 9_999, seed=1), typo_world(3_000, 9_999, seed=2, large_right=0.88)
    world = in_turn(good, bad, typo_world(3_500, 9_999, seed=3))
    core = driven(world, 2_500)
    assert core.status().state == "active"
    drive(core, world.draw, 3_000, first=2_500)
    refused = in_force(core)
    assert refused.state == "infeasible"
    assert present(refused.evidence.best_micro_f1) < TARGET
    # Since the first version that missed it, through those that follow and a restart.
    since = core.status().details["unreached_since"]
    assert str(since) < refused.created_at.isoformat()
    assert restarted(core).status().details["unreached_since"] == since
    drive(core, world.draw, 3_500, first=5_500)
    assert in_force(core).state == "active"
    assert "unreached_since" not in core.status().details


def recording(world: World, queries: int) -> Events:
    """Return the events that a driven core saw, in order."""
    seen: Events = []

    class Recorder(Recalibrator):
        def observe(self, event: LabelledExample | TrafficSummary | Command) -> CalibrationVersion | None:
            seen.append(event)
            return super().observe(event)

    drive(Recorder(settings()), world.draw, queries)
    return seen


def test_a_snapshot_of_another_workload_or_format_is_refused() -> None:
    snapshot = Recalibrator(settings()).snapshot()
    with pytest.raises(ValueError, match="of workload 'w'"):
        Recalibrator.restore(settings(name="other"), snapshot)
    with pytest.raises(ValueError, match="format is 0"):
        Recalibrator.restore(settings(), re.sub(rb'"format":\d+', b'"format":0', snapshot))
