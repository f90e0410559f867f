"""The micro-F1 of what was served, by its labels: against counted answers, by brute force, and by the real draws."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from recalibrator.core import Recalibrator
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.data.prequential import served_per_field
from recalibrator.fit.publish.measured_quality import WINDOWS, measured, standard_errors
from recalibrator.grid import Grid
from schemas import CalibrationMap, CalibrationVersion, Evidence, FieldCounts, LabelledExample, Signal, Target
from schemas.calibration import Atom
from schemas.event import to_us
from schemas.traffic import GridSpec
from tests.support.cascade_stream import FIELDS, START, Answers, drive, example, settings, typo_world


def version(atom: Atom | None = None) -> CalibrationVersion:
    return CalibrationVersion.sealed(
        workload="w",
        version=1,
        created_at=START,
        state="active",
        map=CalibrationMap(uncertainty=(0.0, 1.0), error_probability=(0.0, 0.5)),
        uncertainty_threshold=0.5,
        threshold=0.2,
        exploration_probability=0.03,
        label_probability_kept=0.05,
        label_probability_escalated=0.10,
        target=Target(micro_f1=0.9),
        signal=Signal(small_model="m"),
        evidence=Evidence(trigger="test"),
        **({} if atom is None else {"atom": atom}),
    )


def served(queries: int, by: CalibrationVersion) -> tuple[LabelTable, float]:
    """Route queries of which the small model has half right and the large one nearly all; return labels and truth."""
    rng, table = np.random.default_rng(1), LabelTable(Grid(GridSpec()), 0.9, ("iso",), queries)
    hits = np.zeros(2)
    for number in range(queries):
        u, small, large = rng.uniform(), int(rng.binomial(FIELDS, 0.5)), int(rng.binomial(FIELDS, 0.95))
        answers = Answers(float(u), (small, FIELDS), (large, FIELDS), FIELDS, agree=small == large)
        decision, label = example(answers, f"q-{number}", "w", START + timedelta(seconds=number), version=by)
        right = large if decision.escalated else small
        hits += (right, FIELDS)
        if label.label_requested:
            counts = {"iso": FieldCounts(true_positives=right, predicted=FIELDS, gold=FIELDS)}
            table.offer(
                label.model_copy(update={"per_field": counts}),
                None if by.atom is None else by.exploration_probability,
            )
    return table, float(hits[0] / hits[1])


@pytest.mark.parametrize("atom", [None, Atom(above=0.1, most=0.4, keep_probability=0.6)])
def test_explored_queries_flattered_what_was_served(atom: Atom | None) -> None:
    """They are three of five labelled kept queries and three of a hundred served ones."""
    table, truth = served(30_000, version(atom))
    found = measured(table, 0, 1_000.0)
    assert found is not None
    assert abs(found.estimate - truth) < 0.015
    assert found.lower < truth < found.upper
    if atom is None:
        assert abs(served_per_field(table, 1e9)["iso"] - truth) < 0.015


def test_the_interval_covers_at_all_looks_together() -> None:
    """Brute force: small hits of a beta-binomial, labels of two propensities, a look after every 20 labels."""
    rng, missed, streams, labels = np.random.default_rng(5), 0, 400, 400
    for _ in range(streams):
        share = rng.beta(4.0, 1.0, labels)
        hits, asked = rng.binomial(FIELDS, share), np.where(share < 0.7, 0.1, 0.05)
        kept = rng.uniform(size=labels) < asked / 0.1  # what is asked for less often is in the sample less often
        a, d = 2.0 * hits[kept] / asked[kept], np.full(int(kept.sum()), 2.0 * FIELDS) / asked[kept]
        for upto in range(60, len(a), 20):
            f = a[:upto].sum() / d[:upto].sum()
            error = np.sqrt(np.square(a[:upto] - f * d[:upto]).sum()) / d[:upto].sum()
            if abs(f - 0.8) > standard_errors(upto, 250.0) * error:
                missed += 1
                break
    assert missed <= 0.05 * streams


def test_windows_follow_labels_and_a_snapshot_goes_on_alike() -> None:
    """Offline labels count for nothing; a window is shown until the next has its labels, and then gives way."""
    world, core = typo_world(6_000, 9_999, seed=3), Recalibrator(settings())
    for number in range(300):
        core.observe(example(world.draw(number), f"o-{number}", "w", START - timedelta(days=1, seconds=number))[1])
    assert core.status().measured == {}
    drive(core, world.draw, 6_000)
    status = core.status()
    fast, slow = status.measured["fast"], status.measured["slow"]
    assert WINDOWS["fast"] <= fast.labels <= 2 * WINDOWS["fast"]
    assert fast.since > slow.since >= START
    assert slow.lower < slow.estimate < slow.upper
    assert Recalibrator.restore(core.settings, core.snapshot()).status().measured == status.measured


def test_a_withdrawn_label_is_measured_no_more() -> None:
    table, _ = served(4_000, version())
    before = measured(table, 0, 250.0)
    rows = [number for number in range(4_000) if table.standing(f"q-{number}").counts]
    answers = Answers(0.2, (0, FIELDS), (0, FIELDS), FIELDS, agree=True)
    for number in rows[:100]:
        label = example(answers, f"q-{number}", "w", START + timedelta(seconds=number), version=version())[1]
        table.offer(label.model_copy(update={"retracted": True, "revision": 2}))
    after = measured(table, 0, 250.0)
    assert before is not None
    assert after is not None
    assert after.labels == before.labels - 100


def test_a_degraded_answer_counts_as_the_small_one() -> None:
    table = LabelTable(Grid(GridSpec()), 0.9, ("iso",), 100)
    for number in range(60):
        answers = Answers(0.9, (3, FIELDS), (0, 0), FIELDS, agree=False)
        label: LabelledExample = example(answers, f"q-{number}", "w", START, version=version())[1]
        table.offer(label.model_copy(update={"reason": "degraded", "label_requested": True}))
    found = measured(table, to_us(START), 250.0)
    assert found is not None
    assert found.estimate == pytest.approx(0.5)
