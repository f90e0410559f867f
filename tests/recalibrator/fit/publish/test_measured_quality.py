"""The micro-F1 of what was served, by its labels: against counted answers, by brute force, and by the real draws.

Verdicts are shown beside labels and move nothing: neither honest nor hostile ones, with labels or without.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from recalibrator.core import Recalibrator
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.data.prequential import served_per_field
from recalibrator.fit.publish.measured_quality import KEPT_VERDICTS, WINDOWS, measured, standard_errors
from recalibrator.grid import Grid
from schemas import CalibrationVersion, FieldCounts, LabelledExample
from schemas.calibration import Atom
from schemas.status import VerdictStatus
from schemas.traffic import GridSpec
from tests.support.cascade_stream import FIELDS, START, Answers, drive, example, settings, typo_world
from tests.support.cores import present, restarted
from tests.support.versions import sealed_version


def version(atom: Atom | None = None) -> CalibrationVersion:
    return sealed_version(workload="w", uncertainty_threshold=0.5, **({} if atom is None else {"atom": atom}))


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
                label.model_copy(update={"per_field": counts}), None if by.atom is None else by.exploration_probability
            )
    return table, float(hits[0] / hits[1])


@pytest.mark.parametrize("atom", [None, Atom(above=0.1, most=0.4, keep_probability=0.6)])
def test_explored_queries_flattered_what_was_served(atom: Atom | None) -> None:
    """They are three of five labelled kept queries and three of a hundred served ones."""
    table, truth = served(30_000, version(atom))
    found = present(measured(table, 0, 1_000.0))
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
    assert restarted(core).status().measured == status.measured


QUERIES = 6_000
ALONE = {"small_exact": None, "small": None, "large": None, "gold_count": None, "per_field": None}


def judged(label: LabelledExample, verdict: str, **changed: Any) -> LabelledExample:
    return label.model_copy(update={**ALONE, "verdict": verdict, **changed})


def labels(number: int) -> list[LabelledExample]:
    """Labels of served small answers: every fourth is wrong in one of six pairs."""
    kept = {"large": None, "agree": None, "large_probability": 0.0, "label_probability": 0.5, "reason": "kept"}
    made = (Answers(0.1, (FIELDS - (n % 4 == 0), FIELDS), (0, 0), FIELDS, agree=False) for n in range(number))
    told = (example(one, f"q-{n}", "w", START + timedelta(seconds=n))[1] for n, one in enumerate(made))
    return [label.model_copy(update=kept) for label in told]


class Heckled(Recalibrator):
    """A core that hears of each query, after its label and of another that nobody labelled, that it was wrong."""

    def observe(self, event: Any) -> Any:
        made = super().observe(event)
        if isinstance(event, LabelledExample):
            assert super().observe(event.model_copy(update={"verdict": "wrong"})) is None
            assert super().observe(judged(event, "wrong", query_id=f"{event.query_id}-unlabelled")) is None
        return made


def test_hostile_verdicts_move_no_version() -> None:
    world = typo_world(QUERIES, QUERIES // 2)
    quiet, heckled = Recalibrator(settings()), Heckled(settings())
    expected, found = (drive(core, world.draw, QUERIES) for core in (quiet, heckled))
    assert len(expected.versions) > 3
    assert [one.digest for _, one in found.versions] == [one.digest for _, one in expected.versions]
    verdicts = present(heckled.status().verdicts)
    assert (verdicts.right, verdicts.right_if_exact, verdicts.right_if_wrong) == (0.0, 0.0, 0.0)
    assert quiet.status().verdicts is None


def test_the_share_of_right_stands_beside_what_labels_find() -> None:
    core = Recalibrator(settings())
    for number, label in enumerate(labels(400)):
        # Every eighth exact answer is called wrong, and every second one that is not exact is called right.
        verdict = "wrong" if number % 8 in (0, 1) else "right"
        core.observe(judged(label, verdict))
        core.observe(label.model_copy(update={"verdict": verdict, "revision": 2}))
    verdicts = present(core.status().verdicts)
    assert (verdicts.given, verdicts.labelled, verdicts.right, verdicts.exact) == (400, 400, 0.75, 0.75)
    assert verdicts.right_if_exact == pytest.approx(5 / 6)
    assert verdicts.right_if_wrong == 0.5


def test_a_verdict_that_is_left_of_a_label_takes_its_counts_out() -> None:
    withdrawn, left = Recalibrator(settings()), Recalibrator(settings())
    for label in labels(200):
        for core in (withdrawn, left):
            core.observe(label)
        withdrawn.observe(label.model_copy(update={"retracted": True, "revision": 2}))
        left.observe(judged(label, "wrong", revision=2))
    expected, found = withdrawn.status(), left.status()
    assert found.verdicts == VerdictStatus(given=200, right=0.0)
    assert found.model_copy(update={"verdicts": None}) == expected


def test_a_flood_of_verdicts_is_bounded_and_kept() -> None:
    core, (label,) = Recalibrator(settings()), labels(1)
    for number in range(KEPT_VERDICTS + 500):
        core.observe(judged(label, "wrong" if number < 500 else "right", query_id=f"thumb-{number}"))
    assert restarted(core).status().verdicts == VerdictStatus(given=KEPT_VERDICTS + 500, right=1.0)
    assert len(core.snapshot()) < 150_000
