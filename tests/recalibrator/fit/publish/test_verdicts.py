"""Verdicts are shown beside labels and move nothing: neither honest nor hostile ones, with labels or without."""

from __future__ import annotations

from typing import Any

import pytest

from recalibrator.core import Recalibrator
from recalibrator.fit.publish.measured_quality import KEPT_VERDICTS
from schemas import LabelledExample
from schemas.labelled import OutcomeCounts
from schemas.status import VerdictStatus
from tests.support.cascade_stream import drive, settings, typo_world

QUERIES = 6_000
ALONE = {"small_exact": None, "small": None, "large": None, "gold_count": None, "per_field": None}


def judged(label: LabelledExample, verdict: str, **changed: Any) -> LabelledExample:
    return label.model_copy(update={**ALONE, "verdict": verdict, **changed})


def labels(number: int) -> list[LabelledExample]:
    """Labels of served small answers: every fourth is wrong in one of six pairs."""
    counts = (OutcomeCounts(true_positives=6 - (n % 4 == 0), predicted=6) for n in range(number))
    return [
        LabelledExample.model_validate(
            {
                "query_id": f"q-{n}",
                "workload": "w",
                "uncertainty": 0.1,
                "small_exact": one.true_positives == one.predicted,
                "small": one,
                "large": None,
                "gold_count": 6,
                "large_probability": 0.0,
                "label_probability": 0.5,
                "label_requested": True,
                "reason": "kept",
                "routed_at": f"2026-01-01T00:{n // 60:02}:{n % 60:02}Z",
                "labelled_at": "2026-01-02T00:00:00Z",
            }
        )
        for n, one in enumerate(counts)
    ]


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
    verdicts = heckled.status().verdicts
    assert verdicts is not None
    assert (verdicts.right, verdicts.right_if_exact, verdicts.right_if_wrong) == (0.0, 0.0, 0.0)
    assert quiet.status().verdicts is None


def test_verdicts_alone_stand_in_for_no_label() -> None:
    core = Recalibrator(settings())
    for label in labels(600):
        core.observe(judged(label, "right"))
    status = core.status()
    assert (core.current, status.micro_f1, status.labels.received) == (None, None, 0)
    assert status.verdicts == VerdictStatus(given=600, right=1.0)


def test_the_share_of_right_stands_beside_what_labels_find() -> None:
    core = Recalibrator(settings())
    said = labels(400)
    for number, label in enumerate(said):
        # Every eighth exact answer is called wrong, and every second one that is not exact is called right.
        wrong = number % 8 == 1 or number % 8 == 0
        core.observe(judged(label, "wrong" if wrong else "right"))
        core.observe(label.model_copy(update={"verdict": "wrong" if wrong else "right", "revision": 2}))
    verdicts = core.status().verdicts
    assert verdicts is not None
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


def test_a_withdrawn_verdict_is_shown_no_more() -> None:
    core = Recalibrator(settings())
    for label in labels(10):
        core.observe(judged(label, "right"))
        core.observe(label.model_copy(update={"retracted": True, "revision": 2}))
    assert core.status().verdicts is None


def test_a_flood_of_verdicts_is_bounded_and_kept() -> None:
    core = Recalibrator(settings())
    label = labels(1)[0]
    for number in range(KEPT_VERDICTS + 500):
        verdict = "wrong" if number < 500 else "right"
        core.observe(judged(label, verdict, query_id=f"thumb-{number}"))
    restored = Recalibrator.restore(settings(), core.snapshot())
    assert restored.status().verdicts == VerdictStatus(given=KEPT_VERDICTS + 500, right=1.0)
    assert len(core.snapshot()) < 150_000
