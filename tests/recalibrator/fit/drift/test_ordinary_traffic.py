"""What the detectors of u make of traffic in which nothing changes but what always does, and of a new mix in it."""

from __future__ import annotations

import numpy as np
import pytest

from recalibrator.fit.drift.monitors import DriftMonitors

CELLS, SUMMARY, QUERIES, A_DAY, SEEDS = 40, 250, 100_000, 20_000, 3


def told(places: np.ndarray, back_every: int = QUERIES) -> tuple[list[int], float]:
    """Return after how many queries alarms came, and the share of summaries after which the state was "drifted".

    Every so many queries the latest of them are taken for a world that is back.
    """
    panel, alarms, drifted = DriftMonitors(CELLS), list[int](), 0
    cells = np.clip((8.0 * places).astype(np.intp) + CELLS // 2, 0, CELLS - 1)
    for end in range(SUMMARY, len(cells) + 1, SUMMARY):
        cell, queries = np.unique(cells[end - SUMMARY : end], return_counts=True)
        alarms += [end] * len(panel.on_mix(cell, queries.astype(np.float64), end))
        drifted += panel.worst == "drifted"
        if end % back_every == 0:
            reference = np.bincount(cells[end - 2 * SUMMARY : end], minlength=CELLS).astype(np.float64)
            panel.begin_anew(reference, end)
    return alarms, drifted * SUMMARY / len(cells)


def in_bursts(rng: np.random.Generator, places: np.ndarray) -> np.ndarray:
    """Let a tenth of traffic come in runs of 200 queries alike."""
    first = np.arange(len(places)) // 200 * 200
    alike = (rng.uniform(size=len(places)) < 0.1)[first]
    return np.where(alike, places[first], places)


def test_bursts_of_alike_queries_raise_few_alarms() -> None:
    """There were some forty in 100,000 queries, and the state was "drifted" nearly all the time."""
    rngs = [np.random.default_rng(seed) for seed in range(SEEDS)]
    assert_calm([told(in_bursts(rng, rng.normal(size=QUERIES))) for rng in rngs])


@pytest.mark.parametrize("back_every", [QUERIES, 8_000], ids=["of new hours", "of hours that are back"])
def test_a_daily_season_raises_few_alarms(back_every: int) -> None:
    """There were some twenty in 100,000 queries, on most slopes of each day.

    And eight where each return of an hour forgot how u scatters, so that the next slope was an alarm.
    """
    hours = 0.2 * np.sin(2.0 * np.pi * np.arange(QUERIES) / A_DAY)
    rngs = [np.random.default_rng(seed) for seed in range(SEEDS)]
    assert_calm([told(hours + rng.normal(size=QUERIES), back_every) for rng in rngs])


def assert_calm(streams: list[tuple[list[int], float]]) -> None:
    """Three alarms in 100,000 queries at most, and "drifted" less than a tenth of the time."""
    assert sum(len(alarms) for alarms, _ in streams) <= 3 * SEEDS
    assert max(drifted for _, drifted in streams) < 0.1


def test_a_new_mix_is_seen_at_once_and_drift_ends() -> None:
    """What is new becomes what later queries are compared with, and the state is "ok" again."""
    places = np.random.default_rng(1).normal(size=QUERIES)
    places[QUERIES // 2 :] += 0.4
    alarms, drifted = told(places)
    assert 0 < alarms[0] - QUERIES // 2 <= 1_000
    assert len(alarms) <= 2
    assert drifted < 0.04


def test_bursts_do_not_hide_a_new_mix() -> None:
    rng = np.random.default_rng(2)
    places = in_bursts(rng, rng.normal(size=QUERIES))
    places[QUERIES // 2 :] += 0.8
    alarms, _ = told(places)
    assert any(0 < at - QUERIES // 2 <= 4_000 for at in alarms)
