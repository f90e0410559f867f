"""Current traffic where small calls are stopped early: what is not seen is stood for by what is like it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from recalibrator.fit.data.traffic_window import COUNT, TrafficWindow
from recalibrator.fit.drift.monitors import DriftMonitors
from recalibrator.fit.publish.early_stopping import longest
from recalibrator.grid import Grid
from schemas.traffic import GridSpec, TrafficSummary, VersionTraffic
from tests.support.cascade_stream import START
from tests.support.traffic import unpaired

GRID = Grid(GridSpec())
FULL_SHARE, THRESHOLD = 0.2, 0.3
WINDOWS, QUERIES = 1_000, 2_000
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def drawn(queries: int, random: np.random.Generator) -> tuple[Floats, Bools, Bools]:
    """Return u, which calls give cause to stop, and which are drawn to run in full.

    Answers to hard queries doubt early, so that among equals above the threshold the larger u gives cause more often.
    """
    u = random.beta(1.0, 4.0, size=queries)
    cause = (u > THRESHOLD) & (random.uniform(size=queries) < 0.4 + 0.6 * u)
    return u, cause, random.uniform(size=queries) < FULL_SHARE


def summary(u: Floats, cause: Bools, in_full: Bools, at_s: int = 0) -> TrafficSummary:
    """Summarise queries whose calls are stopped where there is cause, unless they are drawn to run in full."""
    seen, stopped = u[~cause | in_full], int((cause & ~in_full).sum())
    return unpaired(GRID, seen, at_s, spared=u[cause & in_full], queries=len(u), stopped=stopped)


def rates(by_cell: Floats) -> Floats:
    """Return the share of queries above each of some thresholds."""
    cells = [GRID.index(threshold) for threshold in (0.1, THRESHOLD, 0.4, 0.6)]
    above: Floats = np.array([by_cell[cell + 1 :].sum() for cell in cells])
    return above / float(by_cell.sum())


def test_escalation_rates_are_as_unbiased_as_those_of_full_runs() -> None:
    """A thousand windows: above the threshold, below it and beyond, the mean is that of the same queries all known."""
    random = np.random.default_rng(7)
    gaps, naive, nobody = [], [], np.zeros(QUERIES, dtype=bool)
    for _ in range(WINDOWS):
        u, cause, in_full = drawn(QUERIES, random)
        stopped, full = TrafficWindow(GRID, QUERIES), TrafficWindow(GRID, QUERIES)
        stopped.add(summary(u, cause, in_full))
        full.add(summary(u, nobody, in_full))
        assert stopped.seen.by_cell.sum() == pytest.approx(full.seen.by_cell.sum()) == QUERIES
        gaps.append(rates(stopped.seen.by_cell) - rates(full.seen.by_cell))
        naive.append(rates(stopped.counts[COUNT].astype(np.float64)) - rates(full.seen.by_cell))
    mean, error = np.mean(gaps, axis=0), np.std(gaps, axis=0) / np.sqrt(WINDOWS)
    assert (np.abs(mean) < 3.5 * np.maximum(error, 1e-12)).all()
    assert (np.abs(mean) < 0.0005).all()
    assert (np.mean(naive, axis=0) < [-0.05, -0.05, -0.05, -0.01]).all(), "unless each stands for others, the rates lie"


def test_effective_queries_tell_how_uncertain_a_mean_is() -> None:
    """A mean over u spreads no more than over as many queries of known u, and more than over all."""
    random = np.random.default_rng(8)
    found, claimed = [], []
    for _ in range(WINDOWS):
        window = TrafficWindow(GRID, QUERIES)
        window.add(summary(*drawn(QUERIES, random)))
        shares = window.seen.by_cell / window.seen.by_cell.sum()
        found.append(float(shares @ GRID.centres))
        spread = float(shares @ np.square(GRID.centres)) - found[-1] ** 2
        claimed.append(spread / window.seen.effective_queries)
        assert window.seen.effective_queries < 0.8 * QUERIES
    assert np.std(found) < 1.05 * np.sqrt(np.mean(claimed))


def test_without_stops_nothing_changes() -> None:
    """Counts stay whole, and every query is worth one."""
    u, _, in_full = drawn(QUERIES, np.random.default_rng(9))
    window = TrafficWindow(GRID, QUERIES)
    batch = window.add(summary(u, np.zeros(QUERIES, dtype=bool), in_full))
    assert window.seen.by_cell.tolist() == window.counts[COUNT].tolist()
    assert window.seen.spread(batch.cell, batch.seen)[1].tolist() == batch.counts[COUNT].tolist()
    assert window.seen.effective_queries == QUERIES


def test_answers_that_would_have_failed_are_stood_for_too() -> None:
    """Of the calls stopped some would have given no answer: as large a share as of those that ran in full."""
    window = TrafficWindow(GRID, QUERIES)
    part = VersionTraffic(calibration_version=1, queries=1_000, stopped=80, small_failed=10, spared_failed=10)
    cells = {"cell": (300,), "count": (910,), "pairs": (0,), "agreeing": (0,), "pairs_explored": (0,), "spared": (10,)}
    filled = part.model_copy(update=cells)
    window.add(
        TrafficSummary(workload="w", first_routed_at=START, last_routed_at=START, grid=GRID.spec, versions=(filled,))
    )
    assert window.seen.weight == 5.0
    assert window.seen.failed_share == pytest.approx(0.05)


def test_what_was_added_is_taken_out_and_survives_a_snapshot() -> None:
    """Weights are made when they are read, so that counts stay whole numbers."""
    random = np.random.default_rng(10)
    window, latest = TrafficWindow(GRID, QUERIES), TrafficWindow(GRID, QUERIES)
    for at_s in range(4):
        one = summary(*drawn(QUERIES, random), at_s=at_s)
        window.add(one)
    latest.add(one)
    assert window.seen.by_cell.tolist() == latest.seen.by_cell.tolist()
    restored = TrafficWindow(GRID, QUERIES)
    restored.load(json.loads(json.dumps(window.state())))
    assert restored.seen.by_cell.tolist() == window.seen.by_cell.tolist()
    assert restored.state() == window.state()


def lengths(**counted: int) -> TrafficSummary:
    by_length = {int(name.removeprefix("n")): many for name, many in counted.items()}
    part = VersionTraffic(
        calibration_version=1, queries=1_000, length=tuple(by_length), lengths=tuple(by_length.values())
    )
    return TrafficSummary(workload="w", first_routed_at=START, last_routed_at=START, grid=GRID.spec, versions=(part,))


@pytest.mark.parametrize(("quantile", "expected"), [(0.5, 20), (0.9, 30), (0.91, 90), (1.0, 90)])
def test_the_longest_answer_expected_is_a_quantile(quantile: float, expected: int) -> None:
    window = TrafficWindow(GRID, QUERIES)
    window.add(lengths(n10=200, n20=400, n30=300, n90=100))
    assert longest(window.lengths, quantile) == expected


def test_few_lengths_say_nothing() -> None:
    window = TrafficWindow(GRID, QUERIES)
    window.add(lengths(n10=199))
    assert longest(window.lengths, 0.9) is None


def test_spared_queries_show_a_new_mix_as_it_is() -> None:
    """Where nearly all calls run in full, what detectors are shown of harder queries is nearly those queries."""
    random = np.random.default_rng(15)
    window = TrafficWindow(GRID, 5_000)
    u, cause, _ = drawn(5_000, random)
    window.add(summary(u, cause, random.uniform(size=5_000) < 0.95))
    u = np.sqrt(u[:300])
    batch = window.add(summary(u, u > THRESHOLD, random.uniform(size=300) < 0.95, at_s=1))
    cells, queries = window.seen.spread(batch.cell, batch.seen)
    shown = float(queries @ GRID.centres[cells] / queries.sum())
    assert queries.sum() == pytest.approx(300)
    assert shown == pytest.approx(float(u.mean()), abs=0.01)


def test_a_stopped_mix_raises_no_more_alarms_than_a_known_one() -> None:
    """One that stands for five is no five queries: in four streams of 200,000 of one mix, no more alarms than usual."""
    alarms = {True: 0, False: 0}
    for seed in range(12, 16):
        random = np.random.default_rng(seed)
        for stops in alarms:
            window, monitors = TrafficWindow(GRID, 5_000), DriftMonitors(GRID.cells)
            for at_s in range(2_000):
                u, cause, in_full = drawn(100, random)
                batch = window.add(summary(u, cause & stops, in_full, at_s))
                alarms[stops] += len(monitors.on_mix(*window.seen.spread(batch.cell, batch.seen), at_s))
    assert alarms[True] <= alarms[False] <= 8


def test_a_new_mix_is_found_where_calls_are_stopped() -> None:
    """Harder queries raise an alarm of u, within a few thousand of them."""
    random = np.random.default_rng(13)
    window, monitors = TrafficWindow(GRID, 5_000), DriftMonitors(GRID.cells)
    found: list[int] = []
    for at_s in range(150):
        u, cause, in_full = drawn(100, random)
        if at_s >= 80:
            u = np.sqrt(u)
            cause = (u > THRESHOLD) & (random.uniform(size=100) < 0.4 + 0.6 * u)
        batch = window.add(summary(u, cause, in_full, at_s))
        alarms = monitors.on_mix(*window.seen.spread(batch.cell, batch.seen), at_s)
        found += [at_s] * len(alarms)
    assert found
    assert 80 <= found[0] < 110
