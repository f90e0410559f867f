"""Calibration error against the definitions, computed label by label."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.data.prequential import calibration_error
from recalibrator.grid import Grid
from schemas import FieldCounts, LabelledExample
from schemas.traffic import GridSpec
from tests.support.cascade_stream import START, example, typo_world
from tests.support.cores import present

QUERIES = 3_000
WORLD = typo_world(QUERIES, 1_000, seed=9)
HALF_LIFE = 500.0


def labelled(count: int, seed: int = 4) -> list[LabelledExample]:
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        base = example(WORLD.draw(number % QUERIES), f"q-{number}", "w", START + timedelta(seconds=number))[1]
        changed = {
            "per_field": {"iso": FieldCounts(true_positives=int(rng.integers(0, 2)), predicted=1, gold=1)},
            "error_probability": float(rng.uniform()),
            "label_probability": float(rng.choice([0.1, 0.5])),
            "labelled_at": base.routed_at + timedelta(seconds=float(rng.exponential(60.0))),
        }
        made.append(base.model_copy(update=changed))
    return made


def table_of(labels: list[LabelledExample], capacity: int = 10_000) -> LabelTable:
    table = LabelTable(Grid(GridSpec()), 0.93, ("iso", "lens"), capacity)
    for one in labels:
        table.offer(one)
    return table


def mass(labels: list[LabelledExample]) -> np.ndarray:
    stand_for = np.array([1.0 / one.label_probability for one in labels])
    age = np.append(np.cumsum(stand_for[::-1])[::-1][1:], 0.0)
    raw = np.array([2.0 ** (-a / HALF_LIFE) / one.label_probability for a, one in zip(age, labels, strict=True)])
    return np.asarray(raw / raw.sum())


def test_brier_and_ece_equal_their_definitions() -> None:
    labels = labelled(2_000)
    found = calibration_error(table_of(labels), HALF_LIFE)
    weight = mass(labels)
    predicted = np.array([one.error_probability for one in labels], dtype=float)
    error = np.array([not one.small_exact for one in labels], dtype=float)
    brier, ece = present(found.brier), present(found.ece)
    assert abs(brier.estimate - float(weight @ (predicted - error) ** 2)) < 1e-9
    order = np.argsort(predicted)
    sums, filled = np.zeros((10, 6)), 0.0
    for index in order:  # ten bins of equal mass, a label in the bin where the middle of its mass lies
        middle = min(int((filled + weight[index] / 2.0) * 10), 9)
        filled += weight[index]
        w, p, y = weight[index], predicted[index], error[index]
        sums[middle] += [w * p, w * y, w, w**2 * (y - p) ** 2, w**2, w**2 * p * (1.0 - p)]
    bias = sums[:, 1] - sums[:, 0]
    noise = np.maximum(sums[:, 3] - bias**2 * sums[:, 4] / sums[:, 2] ** 2, sums[:, 5])
    assert abs(ece.estimate - float(np.sqrt(np.maximum(bias**2 - noise, 0.0)).sum())) < 1e-9
    assert abs(ece.upper - min(1.0, float(np.abs(bias).sum() + 1.96 * np.sqrt(noise.sum())))) < 1e-4
    assert sum(one.count for one in found.bins) == len(labels)


@pytest.mark.parametrize("count", [20, 100, 400])
@pytest.mark.parametrize("shift", [0.0, 0.1])
def test_the_interval_of_the_calibration_error_covers(count: int, shift: float) -> None:
    """On a perfect map, where the plain sum over bins lies far above 0, as on one that is off everywhere."""
    rng, made, covered, alarms = np.random.default_rng(3), labelled(count), 0, 0
    for _ in range(40):
        said = rng.uniform(0.0, 0.8, count)
        wrong = rng.uniform(size=count) < said + shift
        changed = ({"error_probability": float(u), "small_exact": not y} for u, y in zip(said, wrong, strict=True))
        labels = [one.model_copy(update=update) for one, update in zip(made, changed, strict=True)]
        found = present(calibration_error(table_of(labels), 1e9).ece)
        covered += found.lower <= shift <= found.upper
        alarms += found.lower > 0.05 and not shift
    assert covered >= 37
    assert alarms == 0


def test_below_twenty_scored_labels_no_figure_is_quoted() -> None:
    assert calibration_error(table_of(labelled(19)), HALF_LIFE).ece is None
    unscored = [one.model_copy(update={"error_probability": None}) for one in labelled(50)]
    assert calibration_error(table_of(unscored), HALF_LIFE).brier is None
