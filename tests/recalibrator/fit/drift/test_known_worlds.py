"""Traffic as it was once is told from traffic that is new; what labels say of it is heard.

A drift that ends: what held before it holds again at once.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest

from recalibrator.core import Recalibrator
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.data.traffic_window import AGREEING, COUNT, PAIRS, TrafficWindow
from recalibrator.fit.drift.known_worlds import KnownWorlds, fit
from recalibrator.grid import Grid
from schemas.event import to_us
from schemas.traffic import GridSpec
from tests.support.cascade_stream import START, Answers, drive, example, route, routed_batch, settings, typo_world
from tests.support.cores import present

GRID, BATCH, DELAY = Grid(GridSpec()), 200, 800


class Traffic:
    """Queries of which the typical u, and how often the small answer errs at it, can be changed; labels come late."""

    def __init__(self) -> None:
        self.worlds, self.window = KnownWorlds(GRID.cells), TrafficWindow(GRID, 5_000)
        self.labels = LabelTable(GRID, 0.9, ("iso",), 10_000)
        self._rng = np.random.default_rng(1)
        self._waiting: list[tuple[int, Answers]] = []
        self._number = 0

    def pass_by(self, queries: int, *, place: float, errors: float = 0.1) -> int | None:
        """Let queries pass; returns after how many a world was back."""
        for number in range(BATCH, queries + 1, BATCH):
            self.summarise(BATCH, place, errors)
            while self._waiting[0][0] < self._number - DELAY:
                at, one = self._waiting.pop(0)
                if at % 10 == 0:
                    self.labels.offer(example(one, f"q-{at}", "w", _time(at))[1])
            if self.worlds.is_back(self.labels, self.window):
                self.window.forget_before(self.worlds.since_us)
                return number
        return None

    def summarise(self, queries: int, place: float, errors: float) -> None:
        drawn = [self._answers(place, errors) for _ in range(queries)]
        rows = [route(one, f"q-{at}", "w", _time(at)) for at, one in enumerate(drawn, start=self._number)]
        self.worlds.on_traffic(self.window.add(routed_batch(GRID, "w", rows)))
        self._waiting += enumerate(drawn, start=self._number)
        self._number += queries

    def _answers(self, place: float, errors: float) -> Answers:
        u, wrong = 1.0 / (1.0 + np.exp(-self._rng.normal(place))), bool(self._rng.random() < errors)
        return Answers(float(u), (2, 3) if wrong else (3, 3), (3, 3), 3, not wrong)

    @property
    def now_us(self) -> int:
        return to_us(_time(self._number))


def _time(number: int) -> datetime:
    return START + timedelta(seconds=0.1 * number)


@pytest.fixture
def drifted() -> Traffic:
    """Return traffic that has just ended to drift."""
    traffic = Traffic()
    assert traffic.pass_by(8_000, place=-3.0) is None
    traffic.worlds.begin(traffic.now_us)
    assert traffic.pass_by(6_000, place=-2.0, errors=0.3) is None
    return traffic


@pytest.mark.parametrize("alarm", [True, False])
def test_what_was_known_is_found_again(drifted: Traffic, *, alarm: bool) -> None:
    """With an alarm or without; labels of the drift do not count."""
    drift_us = to_us(_time(10_000))
    if alarm:
        drifted.worlds.begin(drifted.now_us)
    assert present(drifted.pass_by(4_000, place=-3.0)) <= 2_000
    spans = present(drifted.worlds.spans)
    assert spans[0][0] == 0
    assert not any(begins <= drift_us and (ends is None or drift_us < ends) for begins, ends in spans)


def test_another_drift_is_no_way_back(drifted: Traffic) -> None:
    drifted.worlds.begin(drifted.now_us)
    assert drifted.pass_by(4_000, place=-1.0, errors=0.4) is None


def test_labels_contradict_a_way_back(drifted: Traffic) -> None:
    """Where labels alone reported a change, traffic like before does not undo it."""
    drifted.pass_by(4_000, place=-3.0)
    drifted.worlds.begin(drifted.now_us, by_labels=True)
    assert drifted.worlds.spans is None
    assert drifted.pass_by(4_000, place=-3.0) is None


def test_a_summary_of_more_queries_than_are_compared() -> None:
    """It raised: the next distances had no further summaries to add."""
    traffic = Traffic()
    traffic.summarise(5_000, -3.0, 0.1)
    assert not traffic.worlds.is_back(traffic.labels, traffic.window)


DRIFT_AT, BACK_AT, QUERIES = 6_000, 12_000, 16_000


def large_calls() -> np.ndarray:
    """Return which queries the large model answered, of a stream whose drift ends."""
    world = typo_world(BACK_AT, DRIFT_AT)

    def draw(number: int) -> Answers:
        return world.draw(number if number < BACK_AT else number - BACK_AT)

    return np.array(drive(Recalibrator(settings()), draw, QUERIES, mean_delay=2_000.0).large_called)


def test_few_calls_too_many_after_a_drift_has_ended() -> None:
    """For thousands of queries a seventh more than before were made, while labels were late."""
    called = large_calls()
    before, after = called[DRIFT_AT - 2_000 : DRIFT_AT].mean(), called[BACK_AT + 1_000 : BACK_AT + 4_000].mean()
    assert called[BACK_AT - 2_000 : BACK_AT].mean() > 1.5 * before
    assert after < 1.05 * before


@pytest.mark.parametrize("count", [1e3, 2.0**53])
def test_agreement_of_a_vast_count_gave_no_number(count: float) -> None:
    """A rate of outcomes that are all alike rounded to 1, and the comparison of worlds to inf - inf."""
    table = np.zeros((4, 32))
    table[[COUNT, PAIRS, AGREEING], 0] = count
    assert np.isfinite(fit(table, table[None], 1.0)).all()
