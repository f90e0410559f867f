"""A proof is seldom wrong however often one looks, comes with enough labels, and ends with the world it was about."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recalibrator.core import Recalibrator
from recalibrator.fit.decide.certifier import Certifier
from recalibrator.fit.decide.threshold import Choice
from schemas.labelled import LabelledExample, OutcomeCounts
from schemas.settings import WorkloadSettings
from tests.support.cascade_stream import drive, settings, typo_world

FIELDS, TARGET, CELLS = 4, 0.9, 4
KEPT, ESCALATED, EXPLORED = 0.1, 0.2, 0.05
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def labels(
    rng: np.random.Generator, right: NDArray[np.float64], threshold: int, queries: int
) -> Iterator[tuple[int, LabelledExample]]:
    """Route queries that fall into random cells; yield the cell and the label of those whose label was drawn.

    ``right[model, cell]`` is the chance that a field is right.
    """
    cells, draws = rng.integers(CELLS, size=queries), rng.uniform(size=queries)
    come = draws < np.where(cells >= threshold, ESCALATED, KEPT)
    cells, draws = cells[come], draws[come]
    small, large = rng.binomial(FIELDS, right[:, cells])
    rows = zip(cells.tolist(), draws.tolist(), small.tolist(), large.tolist(), strict=True)
    for cell, draw, of_small, of_large in rows:
        is_escalated = cell >= threshold
        yield cell, labelled(of_small, of_large if is_escalated or draw < EXPLORED else None, is_escalated)


@cache
def labelled(small: int, large: int | None, is_escalated: bool) -> LabelledExample:
    """Return a label by the right pairs of the answers; simulations draw each of these few again and again."""
    return LabelledExample(
        query_id="q",
        workload="w",
        uncertainty=0.5,
        error_probability=None,
        calibration_version=1,
        small_exact=small == FIELDS,
        small=OutcomeCounts(true_positives=small, predicted=FIELDS),
        large=None if large is None else OutcomeCounts(true_positives=large, predicted=FIELDS),
        gold_count=FIELDS,
        large_probability=1.0 if is_escalated else EXPLORED,
        label_probability=ESCALATED if is_escalated else KEPT,
        label_requested=True,
        reason="threshold" if is_escalated else "kept",
        agree=None,
        routed_at=NOW,
        labelled_at=NOW,
    )


def certifier(confidence: float = 0.95) -> Certifier:
    return Certifier(CELLS + 1, TARGET, FIELDS, min(KEPT, ESCALATED, EXPLORED), confidence)


def true_f1(right: NDArray[np.float64], keep: int) -> float:
    """Expected micro-F1 when the first cells are kept; every answer has as many pairs as gold."""
    return float(np.concatenate((right[0, :keep], right[1, keep:])).mean())


@pytest.mark.slow
def test_a_missed_target_is_hardly_ever_proven() -> None:
    """A threshold that misses the target is hardly ever proven though looked at after every label."""
    right = np.array([[0.99, 0.93, 0.785, 0.7], [0.96, 0.94, 0.92, 0.89]])
    missing = next(keep for keep in range(CELLS + 1) if true_f1(right, keep) < TARGET)
    assert true_f1(right, missing) > TARGET - 0.015
    rng, wrong = np.random.default_rng(7), 0
    for _ in range(100):
        bets = certifier(0.9)
        for cell, one in labels(rng, right, 2, 6_000):
            bets.observe(one, cell, 0)
            limit = bets.limit
            if limit is not None and limit >= missing:
                wrong += 1
                break
    # Ten in a hundred may go wrong at a confidence of .9; more than 20 do so once in a thousand times.
    assert wrong <= 20


def test_thresholds_that_clearly_meet_the_target_are_proven() -> None:
    """Thresholds that clearly meet the target are proven and no others."""
    right = np.array([[0.99, 0.97, 0.85, 0.6], [0.97, 0.96, 0.95, 0.95]])
    rng, bets = np.random.default_rng(3), certifier()
    for cell, one in labels(rng, right, 2, 60_000):
        bets.observe(one, cell, 0)
    assert [true_f1(right, keep) > TARGET for keep in range(CELLS + 1)] == [True, True, True, True, False]
    assert bets.limit == 3
    assert bets.cap(Choice(4, feasible=True)) == Choice(3, feasible=True)
    assert bets.cap(Choice(1, feasible=True)) == Choice(1, feasible=True)


def test_after_a_change_nothing_is_proven() -> None:
    """After a change nothing is proven any more and everything escalates."""
    right = np.full((2, CELLS), 0.99)
    rng, bets = np.random.default_rng(5), certifier()
    for cell, one in labels(rng, right, 2, 20_000):
        bets.observe(one, cell, 10)
    assert bets.limit == CELLS
    bets.restart(20)
    assert bets.limit is None
    assert bets.cap(Choice(3, feasible=True)) == Choice(0, feasible=True)
    late = next(labels(rng, right, 2, 100))
    bets.observe(late[1], late[0], 19)
    assert bets.labels == 0


def test_a_restored_certifier_goes_on_exactly() -> None:
    right = np.full((2, CELLS), 0.95)
    rng, bets = np.random.default_rng(5), certifier()
    found = list(labels(rng, right, 1, 2_000))
    for cell, one in found[:50]:
        bets.observe(one, cell, 1)
    other = certifier()
    other.load(bets.state())
    for cell, one in found[50:]:
        bets.observe(one, cell, 1)
        other.observe(one, cell, 1)
    assert other.state() == bets.state()


def test_a_certified_workload_serves_more_safely() -> None:
    """A certified workload serves more safely and restores to the same bytes."""
    plain = settings()
    strict = WorkloadSettings.model_validate(
        plain.model_dump() | {"target": plain.target.model_dump() | {"certified": 0.95}}
    )
    rates = {}
    for chosen in (plain, strict):
        core = Recalibrator(chosen)
        drive(core, typo_world(6_000, 6_000, seed=4).draw, 6_000)
        rates[chosen.target.certified] = core.evaluate()
        assert core.current is not None
        assert ("certified" in core.current.evidence.details) == (chosen is strict)
        restored = Recalibrator.restore(chosen, core.snapshot())
        assert restored.snapshot() == core.snapshot()
    free, proven = (view.policies.escalation_rate[view.choice.index] for view in rates.values())
    assert free < proven < 1.0


def test_certification_without_exploration_is_refused() -> None:
    with pytest.raises(ValueError, match="exploration_probability above 0"):
        WorkloadSettings.model_validate(
            {
                "name": "w",
                "fields": ["iso"],
                "target": {"micro_f1": 0.9, "certified": 0.95},
                "sampling": {"exploration_probability": 0.0},
            }
        )


@given(st.integers(0, 2**32 - 1), st.integers(1, 900))
@hypothesis_settings(max_examples=25)
def test_a_proof_after_corrections_is_that_of_right_labels(seed: int, corrections: int) -> None:
    """A proof after corrections is that of labels that were right at once."""
    rng = np.random.default_rng(seed)
    right = np.array([[0.9] * CELLS, [0.97] * CELLS])
    drawn = labels(rng, right, 2, 6_000)
    come = [(cell, one.model_copy(update={"query_id": f"q{n}"})) for n, (cell, one) in enumerate(drawn)]
    revised, at_once = certifier(), certifier()
    changed = {int(one) for one in rng.integers(0, len(come), corrections)}
    for place, (cell, one) in enumerate(come):
        first = one.model_copy(update={"small": OutcomeCounts(true_positives=0, predicted=FIELDS)})
        revised.observe(first if place in changed else one, cell, place)
        at_once.observe(one, cell, place)
    for place in changed:
        cell, one = come[place]
        assert revised.revise(one.query_id, one, cell, place)
    assert revised.limit == at_once.limit
    assert revised.state() == at_once.state()
