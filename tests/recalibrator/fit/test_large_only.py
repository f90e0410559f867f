"""Where the cascade costs more than the large model alone: the large one answers, a share asks both, until it pays."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

import numpy as np
import pytest

from recalibrator.core import Recalibrator
from schemas.status import WorkloadStatus
from tests.support.cascade_stream import START, Run, drive, in_turn, settings, typo_world
from tests.support.cores import driven, in_force, present, restarted
from tests.support.orders import note, order

LARGE, SHARE = 3.02, 0.3
#: Queries with a good small model, with one that is wrong on most, and with the good one again.
GOOD, BAD, AGAIN = 6_000, 6_000, 8_000
WORLD = in_turn(typo_world(GOOD, GOOD, seed=2), typo_world(BAD, 0, seed=3, harm=0.45), typo_world(AGAIN, AGAIN, seed=4))


def paid(run: Run, queries: slice) -> float:
    """What a query has cost: the large call, and the small one where it was asked."""
    return float(np.mean(LARGE * np.array(run.large_called[queries]) + np.array(run.small_called[queries])))


@cache
def stream() -> tuple[Run, WorkloadStatus, WorkloadStatus]:
    """Return what happened, and the status at the end of the bad time and at the end; to be read only."""
    core = Recalibrator(settings(large_only_when_dear=True))
    run = drive(core, WORLD.draw, GOOD + BAD)
    then = core.status()
    after = drive(core, WORLD.draw, AGAIN, first=GOOD + BAD)
    run.versions += after.versions
    run.large_called += after.large_called
    run.small_called += after.small_called
    return run, then, core.status()


LATE = slice(GOOD + 2_000, GOOD + BAD)


def test_a_cascade_that_costs_more_is_left_where_asked_for() -> None:
    run, then, _ = stream()
    assert paid(run, LATE) < LARGE + 1.2 * SHARE
    assert present(then.large_only).issued_by == ""
    cost = present(then.cost)
    assert cost.sequential == pytest.approx(paid(run, LATE), abs=0.1)
    assert cost.paper == pytest.approx(LARGE)


def test_labels_and_traffic_stay_fair_while_few_are_asked_twice() -> None:
    """What is expected of the answers is the truth, as where every query asks both models."""
    _, status, _ = stream()
    found, curve = present(status.micro_f1), present(status.frontier)
    assert found.lower - 0.003 <= WORLD.expected_micro_f1(-1.0, LATE) <= found.upper + 0.003
    middle = len(curve.threshold) // 2
    kept = WORLD.expected_micro_f1(curve.threshold[middle], LATE)
    assert curve.micro_f1[middle] == pytest.approx(kept, abs=0.03)
    rate = float((WORLD.uncertainty[LATE] > curve.threshold[middle]).mean())
    assert curve.escalation_rate[middle] == pytest.approx(rate, abs=0.03)


def test_it_ends_by_itself_once_the_cascade_pays() -> None:
    run, _, at_end = stream()
    ended = [number for number, one in run.versions if one.evidence.trigger == "cascade_pays"]
    assert GOOD + BAD < ended[-1] < GOOD + BAD + 5_000
    assert at_end.large_only is None
    assert paid(run, slice(-1_000, None)) < 0.8 * LARGE


def told(core: Recalibrator, action: str, **arguments: Any) -> str:
    """Give a command and return what the fit said of it."""
    order(core, action, issued_by="ann", issued_at=START + timedelta(days=1), **arguments)
    return str(note(core))


def test_a_person_begins_and_ends_it() -> None:
    core = Recalibrator(settings())
    assert "there is no version in force yet" in told(core, "large_only")
    drive(core, typo_world(4_000, 4_000).draw, 4_000)
    assert "say until when" in told(core, "large_only")
    hour = START + timedelta(days=1, hours=1)
    assert told(core, "large_only", until=hour) == "large only until 2026-01-02 01:00 UTC"
    begun, threshold = present(in_force(core).large_only), in_force(core).uncertainty_threshold
    assert (begun.until, begun.issued_by) == (hour, "ann")
    assert "end that first" in told(core, "shadow", version=1)
    assert told(core, "end_large_only") == "the cascade answers again"
    assert (in_force(core).large_only, in_force(core).uncertainty_threshold) == (None, threshold)
    assert "refused" in told(core, "end_large_only")


def test_it_ends_at_the_hour_named_and_survives_a_restart() -> None:
    world = typo_world(6_000, 6_000)
    core = driven(world, 4_000)
    until = START + timedelta(seconds=500)
    order(core, "large_only", until=until, issued_at=START + timedelta(seconds=400))
    core = restarted(core)
    assert in_force(core).large_only is not None
    run = drive(core, world.draw, 2_000, first=4_000)
    assert sum(run.small_called[:1_000]) < 400
    assert all(run.small_called[1_000:])
    assert in_force(core).large_only is None
    assert "large_only_over" in [version.evidence.trigger for _, version in run.versions]
