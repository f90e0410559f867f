"""What happens in the demo: calibration, queries, labels. Pure: the same recordings and seed give the same plan."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from schemas.basis import HandoffName
from schemas.calibration import ESCALATE_ALL, CalibrationMap
from schemas.draws import uniform
from schemas.labelled import LabelledExample, OutcomeCounts
from ucci_demo.recorded.traffic import OFFLINE_EXAMPLES, RecordedAnswer, RecordedQuery

CLEAN = "none"
LABELERS = ("ada", "bob", "cleo")
#: Who answers audits; the demo's workload names her in ``trusted_labelers``.
TRUSTED_LABELER = "ada"


class Stretch(NamedTuple):
    """A phase of the stream: its share of the queries, and the share of them that is shifted, and how."""

    title: str
    length: float
    shift: str = CLEAN
    shifted: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """The knobs of the story."""

    queries: int
    #: Harder, easier again, then harder in another way.
    stretches: tuple[Stretch, ...] = (
        Stretch("clean", 0.15),
        Stretch("25% typos", 0.4, "typos", 0.25),
        Stretch("clean again", 0.2),
        Stretch("8% new names", 0.25, "new_names", 0.08),
    )
    #: Mean delay of an ordinary label, in queries answered meanwhile: by the clock, a slow machine would get its labels
    #: sooner in the stream than a fast one, and end with other figures.
    label_delay: float = 120.0
    #: Share of labels that come late, and the mean of their further delay, in queries.
    late_share: float = 0.10
    late_delay: float = 1_440.0
    #: Shares of labels that are wrong, and that are sent twice.
    wrong_share: float = 0.01
    twice_share: float = 0.05

    seed: int = 1

    @property
    def starts(self) -> tuple[int, ...]:
        """Index of the first query of each stretch."""
        lengths = (one.length for one in self.stretches[:-1])
        return tuple(round(self.queries * share) for share in accumulate(lengths, initial=0.0))

    @property
    def drift_index(self) -> int:
        """Index of the first query after the first drift."""
        return self.starts[1]


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """One query of the stream and the recording that it comes from."""

    query_id: str
    index: int
    recorded: RecordedQuery


class LabelPlan(NamedTuple):
    """Who gives a label, how many queries after its own it comes, and what is wrong with it."""

    labeler: str
    delay: int
    wrong: bool
    twice: bool


def offline_set(traffic: Sequence[RecordedQuery]) -> list[RecordedQuery]:
    """Return the clean queries of the offline calibration; the stream never shows them again."""
    return [query for query in traffic if query.shift == CLEAN][:OFFLINE_EXAMPLES]


def plan_stream(traffic: Sequence[RecordedQuery], scenario: Scenario) -> list[PlannedQuery]:
    """Draw the stream: in each stretch its share of shifted queries among clean ones."""
    draw, starts = random.Random(scenario.seed), scenario.starts
    pools = {one.shift: [query for query in traffic if query.shift == one.shift] for one in scenario.stretches}
    pools[CLEAN] = [query for query in traffic if query.shift == CLEAN][OFFLINE_EXAMPLES:]
    stream = []
    for index in range(scenario.queries):
        now = scenario.stretches[bisect_right(starts, index) - 1]
        pool = pools[now.shift if now.shifted > 0.0 and draw.random() < now.shifted else CLEAN]
        stream.append(PlannedQuery(f"demo-{index:06d}", index, draw.choice(pool)))
    return stream


def plan_label(query_id: str, scenario: Scenario, *, is_audit: bool) -> LabelPlan:
    """Draw how one label comes, the same in every run. ``is_audit``: whether it is left to the trusted labeler."""
    draw = random.Random(int(uniform(query_id, f"label-{scenario.seed}") * 2**53))
    delay = draw.expovariate(1.0 / scenario.label_delay)
    if draw.random() < scenario.late_share:
        delay += draw.expovariate(1.0 / scenario.late_delay)
    wrong, twice = draw.random() < scenario.wrong_share, draw.random() < scenario.twice_share
    return LabelPlan(TRUSTED_LABELER if is_audit else draw.choice(LABELERS), round(delay), wrong, twice)


def wrong_gold(gold: dict[str, str | None]) -> dict[str, str | None]:
    """Return the gold entities with the first one left out, as a hurried labeler would."""
    first = next((name for name, value in gold.items() if value), None)
    return gold | ({next(iter(gold)): "unknown"} if first is None else {first: None})


def offline_calibration(queries: Sequence[RecordedQuery], target: float) -> tuple[CalibrationMap, float]:
    """Fit g by isotonic regression and choose the cheapest threshold that meets the target (paper, section 4).

    ``target``: micro-F1 to reach on these very queries, without a margin, as the paper does. Returns the largest u that
    meets the target; all escalate where none does.
    """
    answered = [(q.small.uncertainty, q) for q in queries if q.small.valid and q.small.uncertainty is not None]
    ordered = sorted(answered, key=lambda pair: pair[0])
    fitted = _isotonic_map([u for u, _ in ordered], [not q.small.exact for _, q in ordered])
    gold = sum(q.gold_count for q in queries)
    hits = sum(q.large.true_positives for q in queries)
    named = sum(q.large.predicted for q in queries)
    threshold = ESCALATE_ALL
    # Query after query is kept instead of escalated, in order of u.
    for index, (u, query) in enumerate(ordered):
        hits += query.small.true_positives - query.large.true_positives
        named += query.small.predicted - query.large.predicted
        is_last_of_ties = index + 1 == len(ordered) or ordered[index + 1][0] > u
        if is_last_of_ties and 2.0 * hits >= target * (named + gold):
            threshold = float(u)
    return fitted, threshold


def _isotonic_map(uncertainty: Sequence[float], wrong: Sequence[bool]) -> CalibrationMap:
    """Fit g by isotonic regression; of a run of equal values only the first and the last are kept as knots."""
    places, where, counts = np.unique(uncertainty, return_inverse=True, return_counts=True)
    shares = np.bincount(where, weights=np.asarray(wrong, dtype=float)) / counts
    levels = np.clip(isotonic_regression(shares, weights=counts).x, 0.0, 1.0)
    changes = np.flatnonzero(np.diff(levels))
    kept = np.union1d([0, len(levels) - 1], np.concatenate([changes, changes + 1])).astype(int)
    return CalibrationMap(uncertainty=tuple(places[kept].tolist()), error_probability=tuple(levels[kept].tolist()))


def offline_examples(
    queries: Sequence[RecordedQuery], workload: str, last_routed_at: datetime, handoff: HandoffName | None = None
) -> Iterator[LabelledExample]:
    """Yield recorded queries as labelled, one a second. ``handoff``: under which the large model answered them."""
    for index, query in enumerate(queries):
        moment = last_routed_at - timedelta(seconds=len(queries) - index)
        yield LabelledExample(
            query_id=f"offline-{index:06d}",
            workload=workload,
            uncertainty=query.small.uncertainty,
            small_exact=query.small.exact,
            small=_counts(query.small),
            large=_counts(query.large),
            gold_count=query.gold_count,
            large_probability=1.0,
            label_probability=1.0,
            label_requested=True,
            reason="cold_start",
            agree=query.agree,
            routed_at=moment,
            labelled_at=moment,
            handoff=handoff,
        )


def _counts(answer: RecordedAnswer) -> OutcomeCounts:
    return OutcomeCounts(true_positives=answer.true_positives, predicted=answer.predicted)
