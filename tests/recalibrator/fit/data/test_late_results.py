"""Results of escalated queries come late while the large model is slow: that is no new mix of queries."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from recalibrator.core import Recalibrator
from recalibrator.fit.data.traffic_window import COUNT, LateResults, TrafficWindow
from recalibrator.fit.drift.monitors import DriftMonitors
from recalibrator.grid import Grid
from schemas.traffic import GridSpec, TrafficSummary
from tests.support.cascade_stream import START, settings
from tests.support.cores import present, restarted
from tests.support.traffic import unpaired

GRID = Grid(GridSpec())
THRESHOLD = 0.3
#: Queries.
A_SECOND = 100

Floats = NDArray[np.float64]


def summary(u: Floats, at_s: int, latency_s: float = 0.2) -> TrafficSummary:
    """Summarise the results of a second; those above the threshold took a call of the large model."""
    asked, escalated = len(u), int((u > THRESHOLD).sum())
    calls = {"small_calls": asked, "large_calls": escalated, "large_latency_s": latency_s * escalated}
    return unpaired(GRID, u, at_s, queries=asked, escalated=escalated, **calls)


def in_order_of_calls(
    seconds: int, spells: dict[int, int], *, harder_from: int | None = None
) -> Iterator[TrafficSummary]:
    """Yield what is seen of a stream: in a spell, given by its first second and length, no large call ends."""
    random = np.random.default_rng(5)
    withheld: list[Floats] = []
    ends = -1
    for at_s in range(seconds):
        u = random.beta(1.0, 4.0, size=A_SECOND)
        if harder_from is not None and at_s >= harder_from:
            u = np.sqrt(u)
        if at_s in spells:
            ends = at_s + spells[at_s]
        if at_s < ends:
            withheld.append(u[u > THRESHOLD])
            yield summary(u[u <= THRESHOLD], at_s)
            continue
        if withheld:
            late = np.concatenate(withheld)
            yield summary(late, at_s, latency_s=len(withheld) / 2)
            withheld = []
        yield summary(u, at_s)


def alarmed(stream: Iterator[TrafficSummary], late: LateResults | None) -> list[int]:
    """Return the seconds at which detectors of u raised an alarm."""
    window, monitors = TrafficWindow(GRID, 5_000), DriftMonitors(GRID.cells)
    found = []
    for one in stream:
        batch = window.add(one)
        seen = late.take(batch) if late else (batch.cell, batch.counts[COUNT].astype(np.float64))
        alarms = [] if seen is None else monitors.on_mix(seen[0], seen[1], batch.last_us)
        found += [round((one.last_routed_at - START).total_seconds())] * len(alarms)
    return found


@pytest.mark.parametrize("length", [3, 10, 40])
def test_a_slow_large_model_is_no_new_mix_of_queries(length: int) -> None:
    spells = {60 * number: length for number in range(1, 15)}
    assert len(alarmed(in_order_of_calls(900, spells), None)) >= 2, "judged as they come, spells are alarms"
    assert alarmed(in_order_of_calls(900, spells), LateResults(GRID.cells)) == []


def test_the_status_names_no_drift_while_the_large_model_is_slow() -> None:
    core, restored = Recalibrator(settings()), None
    for number, one in enumerate(in_order_of_calls(600, {60 * number: 10 for number in range(1, 9)})):
        core.observe(one)
        if restored is not None:
            restored.observe(one)
        elif number == 305:
            restored = restarted(core)
    assert [(one.name, one.alarms) for one in core.status().drift.detectors if one.alarms] == []
    assert present(restored).snapshot() == core.snapshot()


def test_a_new_mix_during_a_spell_is_found_after_it() -> None:
    found = alarmed(in_order_of_calls(150, {80: 10}, harder_from=85), LateResults(GRID.cells))
    assert 90 <= found[0] <= 95


def test_a_large_model_that_stays_slower_is_soon_usual() -> None:
    """After two minutes nobody waits any longer: a mix that is new later than that is found at once."""
    drawn = np.random.default_rng(6).beta(1.0, 4.0, size=(400, A_SECOND))
    stream = (
        summary(np.sqrt(u) if at_s >= 300 else u, at_s, latency_s=0.2 if at_s < 60 else 1.5)
        for at_s, u in enumerate(drawn)
    )
    found = alarmed(stream, LateResults(GRID.cells))
    assert 300 <= found[0] <= 305
