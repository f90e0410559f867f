"""What handing over costs, from paired answers: an interval that holds at all times, and an end when it is too much."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from recalibrator.fit.codec import dump
from recalibrator.fit.decide.candidate import View
from recalibrator.fit.publish.handoff_watch import KEPT_LABELS, LEAST_DIFFERING, HandoffWatch
from schemas import LabelledExample, OutcomeCounts, TrafficSummary, VersionTraffic
from schemas.settings_workload import HandoffSettings
from schemas.status import HandoffStatus
from schemas.traffic import GridSpec
from tests.support.cascade_stream import FIELDS, START, Answers, example
from tests.support.cores import present

NAME = "field@0.9"


def shown(watch: HandoffWatch) -> HandoffStatus:
    return watch.status(cast(View, None), None)["handoff"]  # type: ignore[no-any-return]


def watch(loss: float = 0.002) -> HandoffWatch:
    return HandoffWatch(HandoffSettings(), loss)


def label(number: int, alone: int, large: int, **changes: Any) -> LabelledExample:
    """Return a label of a query that escalated; both answers predict all fields."""
    made = example(Answers(0.5, (0, FIELDS), (large, FIELDS), FIELDS, agree=False), f"q-{number}", "w", START)[1]
    compared = {"large_alone": OutcomeCounts(true_positives=alone, predicted=FIELDS), "handoff": NAME}
    return made.model_copy(update={"label_probability": 0.1, "reason": "threshold"} | compared | changes)


def draws(labels: int, share: float, worse: float, seed: int) -> list[tuple[int, int]]:
    """Draw answers a ``share`` of which differ in one field; of those the part ``worse`` is worse with handoff."""
    rng = np.random.default_rng(seed)
    alone = rng.binomial(FIELDS - 2, 0.9, labels) + 1
    differs, is_worse = rng.uniform(size=labels) < share, rng.uniform(size=labels) < worse
    large = alone - differs * np.where(is_worse, 1, -1)
    return list(zip(alone.tolist(), large.tolist(), strict=True))


def took(pairs: list[tuple[int, int]], limit: float) -> tuple[HandoffWatch, int | None]:
    """Feed labels one by one; return the watch, and after how many it said that handing over costs too much."""
    found = watch(limit)
    for number, (alone, large) in enumerate(pairs):
        found.take_label(label(number, alone, large), "added")
        if found.costs_too_much:
            return found, number + 1
    return found, None


def test_the_loss_is_that_of_counted_answers() -> None:
    """Every answer predicts all fields, so that micro-F1 is the share of right ones."""
    pairs = draws(400, 0.3, 0.8, seed=1)
    found, _ = took(pairs, limit=1.0)
    loss, (alone, large) = present(found.loss), (sum(each) / (FIELDS * len(pairs)) for each in zip(*pairs, strict=True))
    assert loss.estimate == pytest.approx(alone - large)
    assert loss.lower < alone - large < loss.upper


def test_a_handoff_that_costs_what_it_may_is_rarely_ended() -> None:
    """At the limit itself, looking after every one of 400 labels, at most 5 % of 100 streams are ended."""
    share, worse = 0.06, 0.7
    limit = share * (2 * worse - 1) / FIELDS
    ended = [took(draws(400, share, worse, seed), limit)[1] is not None for seed in range(100)]
    assert np.mean(ended) <= 0.05


def test_a_costly_handoff_is_ended_within_a_thousand_labels() -> None:
    """One that costs .017 where .002 are allowed, in all of 20 streams."""
    assert all(took(draws(1_000, 0.1, 1.0, seed), 0.002)[1] is not None for seed in range(20))


def test_nothing_is_concluded_from_a_handful_of_differences() -> None:
    found, ended = took([(6, 0)] * (LEAST_DIFFERING - 1), limit=0.0)
    assert (ended, found.loss) == (None, None)


def test_corrections_and_withdrawals_end_where_right_labels_do() -> None:
    """A label corrected, withdrawn or given again leaves the same estimate as one that was right at once."""
    pairs = draws(300, 0.3, 0.8, seed=2)
    right, _ = took(pairs[:200], limit=1.0)
    mended, _ = took([(alone, 6) for alone, _ in pairs[:200]] + pairs[200:], limit=1.0)
    for number, (alone, large) in enumerate(pairs[:200]):
        mended.take_label(label(number, alone, large, revision=2), "corrected")
    for number in range(200, 300):
        mended.take_label(label(number, 1, 1, retracted=True, revision=2), "withdrawn")
    assert present(mended.loss).model_dump() == pytest.approx(present(right.loss).model_dump())


@pytest.mark.parametrize(
    "changes",
    [
        *({"reason": reason} for reason in ("exploration", "cold_start", "degraded")),
        *({"large_alone": None}, {"label_requested": False}),
    ],
)
def test_only_escalated_queries_with_both_answers_count(changes: dict[str, Any]) -> None:
    found = watch()
    for number in range(30):
        found.take_label(label(number, 5, 1, **changes), "added")
    assert found.loss is None


def test_the_oldest_labels_leave() -> None:
    found = watch(1.0)
    for number in range(KEPT_LABELS + 100):
        found.take_label(label(number, 5, 5 if number < 100 else 4), "added")
    assert present(found.loss).estimate == pytest.approx(1 / FIELDS)


def test_the_status_says_what_was_handed_over() -> None:
    """And how often that changed the answer. Traffic under another handoff says nothing of this one."""
    found, counted = watch(), {"handed_over": 60, "asked_again": 3, "guarded": 10, "guard_agreeing": 9}
    ours = VersionTraffic(calibration_version=1, queries=400, large_calls=100, handoff=NAME, **counted)
    others = ({"handoff": None}, {"handoff": "token@0.8", "guard_agreeing": 0})
    parts = (ours, *(ours.model_copy(update=other) for other in others))
    grid = GridSpec()
    summary = TrafficSummary(workload="w", first_routed_at=START, last_routed_at=START, grid=grid, versions=parts)
    found.take_traffic(summary)
    status = shown(found)
    assert (status.name, status.active, status.guarded, status.agreement) == (NAME, True, 10, 0.9)
    assert status.handed_over_share == pytest.approx(0.6)
    assert status.asked_again_share == pytest.approx(0.03)


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize(("was_on", "was_ended"), [(False, False), (True, False), (True, True)])
def test_labels_count_on_only_if_as_much_is_handed_over(was_on: bool, was_ended: bool, is_on: bool) -> None:
    """What was ended goes on as it was, and is as good as none where none is configured any more."""
    former, now = (HandoffWatch(HandoffSettings() if has_one else None) for has_one in (was_on, is_on))
    if was_ended:
        former.end()
    assert now.take_back(dump(former)) is (was_on == is_on or was_ended)
