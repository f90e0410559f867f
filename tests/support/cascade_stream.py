"""A cascade in miniature: drawn answers of two models flow in, the core's events flow out, by the core's own versions.

Pure and seeded. Labels come late, traffic in batches, decisions by the version in force when the query came.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from math import log

import numpy as np
from numpy.typing import NDArray

from recalibrator.core import Recalibrator
from recalibrator.grid import Grid
from schemas import (
    CalibrationVersion,
    Decision,
    LabelledExample,
    LabelRequest,
    OutcomeCounts,
    TrafficSummary,
    VersionTraffic,
    WorkloadSettings,
)
from schemas.draws import uniform

Floats = NDArray[np.float64]

START = datetime(2026, 1, 1, tzinfo=UTC)
FIELDS = 6


@dataclass(frozen=True, slots=True)
class Answers:
    uncertainty: float
    small: tuple[int, int]
    large: tuple[int, int]
    gold: int
    agree: bool

    @property
    def exact(self) -> bool:
        return self.small == (self.gold, self.gold)


Draw = Callable[[int], Answers]


@dataclass(frozen=True, slots=True)
class Routed:
    """One query on its way: what both models would answer, and what was decided by the version in force."""

    answers: Answers
    query_id: str
    workload: str
    routed_at: datetime
    version: CalibrationVersion | None
    decision: Decision
    request: LabelRequest

    @property
    def reason(self) -> str:
        return self.decision.reason

    @property
    def calibration_version(self) -> int | None:
        return None if self.version is None else self.version.version

    @property
    def small_asked(self) -> bool:
        return self.decision.small_probability is None or self.decision.uncertainty is not None

    def label(self, labelled_at: datetime) -> LabelledExample:
        """Return what is known once the query is labelled, truly."""
        answers, decision = self.answers, self.decision
        large = None
        if decision.escalated:
            pairs = (0, 0) if decision.reason == "degraded" else answers.large
            large = OutcomeCounts(true_positives=pairs[0], predicted=pairs[1])
        small = answers.small if self.small_asked else (0, 0)
        return LabelledExample(
            query_id=self.query_id,
            workload=self.workload,
            uncertainty=answers.uncertainty if self.small_asked else None,
            error_probability=None if self.version is None else decision.error_probability,
            calibration_version=self.calibration_version,
            small_exact=answers.exact and self.small_asked,
            small=OutcomeCounts(true_positives=small[0], predicted=small[1]),
            large=large,
            gold_count=answers.gold,
            large_probability=decision.large_probability,
            label_probability=self.request.probability,
            label_requested=self.request.requested,
            label_reason=self.request.reason,
            reason=decision.reason,
            agree=answers.agree if self.small_asked and decision.escalated and decision.reason != "degraded" else None,
            routed_at=self.routed_at,
            labelled_at=labelled_at,
        )


def route(
    answers: Answers,
    query_id: str,
    workload: str,
    routed_at: datetime,
    *,
    version: CalibrationVersion | None = None,
    large_fails: bool = False,
) -> Routed:
    """Route one query by a version (both models run without one).

    Where the large model is asked and fails, the small answer is served: degraded, agreement unknown.
    """
    if version is None:
        u = answers.uncertainty
        decision = Decision(escalated=True, reason="cold_start", uncertainty=u, large_probability=1.0)
        request = LabelRequest(requested=True, probability=1.0, reason=None)
    elif version.large_only is not None and version.large_only.lasts(routed_at):
        is_asked = uniform(query_id, workload) < version.large_only.small_probability
        decision = version.decide_alone(answers.uncertainty if is_asked else None)
        request = version.request_label(decision, query_id)
    else:
        decision = version.decide(answers.uncertainty, query_id)
        request = version.request_label(decision, query_id)
    if decision.escalated and large_fails:
        decision = decision.model_copy(update={"reason": "degraded"})
    return Routed(answers, query_id, workload, routed_at, version, decision, request)


def example(
    answers: Answers,
    query_id: str,
    workload: str,
    routed_at: datetime,
    *,
    version: CalibrationVersion | None = None,
    labelled_at: datetime | None = None,
) -> tuple[Decision, LabelledExample]:
    routed = route(answers, query_id, workload, routed_at, version=version)
    return routed.decision, routed.label(labelled_at or routed_at)


def routed_batch(grid: Grid, workload: str, rows: Sequence[Routed]) -> TrafficSummary:
    """Summarise routed queries, counted here a second time and independently of the summarizer."""
    by_version: defaultdict[int | None, list[Routed]] = defaultdict(list)
    for row in rows:
        by_version[row.calibration_version].append(row)
    parts = []
    for version, routed in by_version.items():
        asked = np.array([one.small_asked for one in routed])
        cells = np.array([grid.index(one.answers.uncertainty) for one in routed])[asked]
        called = np.array([one.decision.escalated for one in routed])
        degraded = np.array([one.reason == "degraded" for one in routed])
        ran = called & ~degraded
        agree = np.array([one.answers.agree for one in routed]) & ran
        explored = np.array([one.reason in ("exploration", "cold_start") for one in routed])

        def by_cell(
            chosen: NDArray[np.bool_], cells: NDArray[np.int64] = cells, asked: NDArray[np.bool_] = asked
        ) -> tuple[int, ...]:
            return tuple(np.bincount(cells[chosen[asked]], minlength=grid.cells)[np.unique(cells)].tolist())

        parts.append(
            VersionTraffic(
                calibration_version=version,
                queries=len(routed),
                cell=tuple(np.unique(cells).tolist()),
                count=by_cell(np.ones_like(ran)),
                pairs=by_cell(ran),
                agreeing=by_cell(agree),
                pairs_explored=by_cell(explored),
                escalated=int(called.sum()),
                explored=int(explored.sum()),
                labels_requested=sum(one.request.requested for one in routed),
                small_calls=int(asked.sum()),
                small_skipped=int((~asked).sum()),
                degraded=int(degraded.sum()),
                large_calls=int(called.sum()),
                cost_sequential=float(asked.sum()) + 3.02 * float(called.sum()),
                cost_paper=len(routed) + 2.02 * float(called.sum()),
                small_latency_s=0.05 * float(asked.sum()),
                large_latency_s=0.151 * float(called.sum()),
            )
        )
    return TrafficSummary(
        workload=workload,
        first_routed_at=min(row.routed_at for row in rows),
        last_routed_at=max(row.routed_at for row in rows),
        grid=grid.spec,
        versions=tuple(parts),
    )


@dataclass(slots=True)
class Run:
    versions: list[tuple[int, CalibrationVersion]] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    large_called: list[bool] = field(default_factory=list)
    small_called: list[bool] = field(default_factory=list)
    labels: int = 0


def drive(
    core: Recalibrator,
    draw: Draw,
    queries: int,
    *,
    batch: int = 200,
    mean_delay: float = 100.0,
    first: int = 0,
    tell: Callable[[int, LabelledExample], LabelledExample | None] = lambda _, label: label,
    large_fails: Callable[[int, Run], bool] = lambda _, run: False,
) -> Run:
    """Stream queries through a core; one query every tenth of a second of event time.

    ``draw``: from a query's number to its answers. ``mean_delay``: of labels, in queries. ``tell``: from a query's
    number and its true label to what the labeler says, None for nothing. ``large_fails``: from a query's number, and
    what has happened so far, to whether a call of the large model fails.
    """
    run, grid, workload = Run(), Grid(core.constants.grid), core.settings.name
    pending: list[tuple[float, int, LabelledExample]] = []
    rows: list[Routed] = []

    def observed(event: LabelledExample | TrafficSummary, number: int) -> None:
        version = core.observe(event)
        if version is not None:
            run.versions.append((number, version))

    for number in range(first, first + queries):
        now = START + timedelta(seconds=0.1 * number)
        answers, query_id = draw(number), f"q-{number}"
        routed = route(answers, query_id, workload, now, version=core.current, large_fails=large_fails(number, run))
        run.large_called.append(routed.decision.escalated)
        run.small_called.append(routed.small_asked)
        run.thresholds.append(-1.0 if core.current is None else core.current.uncertainty_threshold)
        rows.append(routed)
        if routed.request.requested:
            delay = -mean_delay * log(max(1e-12, uniform(query_id, "delay")))
            told = tell(number, routed.label(now + timedelta(seconds=0.1 * delay)))
            if told is not None:
                heapq.heappush(pending, (number + delay, number, told))
        if len(rows) == batch:
            observed(routed_batch(grid, workload, rows), number)
            rows = []
        while pending and pending[0][0] <= number:
            run.labels += 1
            observed(heapq.heappop(pending)[2], number)
    return run


@dataclass(frozen=True)
class World:
    """Queries drawn ahead, as columns; ``small_right`` and ``large_right`` are the chances behind the drawn answers."""

    uncertainty: Floats
    small_right: Floats
    large_right: Floats
    small: NDArray[np.int64]
    large: NDArray[np.int64]
    agree: NDArray[np.bool_]

    def draw(self, number: int) -> Answers:
        return Answers(
            uncertainty=float(self.uncertainty[number]),
            small=(int(self.small[number]), FIELDS),
            large=(int(self.large[number]), FIELDS),
            gold=FIELDS,
            agree=bool(self.agree[number]),
        )

    def expected_micro_f1(self, thresholds: float | Floats, queries: slice) -> float:
        """Return micro-F1 in expectation over some queries when u above the threshold escalates."""
        escalated = self.uncertainty[queries] > thresholds
        return float(np.where(escalated, self.large_right[queries], self.small_right[queries]).mean())


def in_turn(*worlds: World) -> World:
    names = [column.name for column in fields(World)]
    return World(**{name: np.concatenate([getattr(world, name) for world in worlds]) for name in names})


def settings(**changed: object) -> WorkloadSettings:
    """Return the settings of a workload whose labels come fast, so that tests need few queries."""
    sampling = {"exploration_probability": 0.06} | dict.fromkeys(
        ("label_probability_kept", "label_probability_escalated"), 0.3
    )
    table = {"name": "w", "fields": tuple("abcdef"), "target": {"micro_f1": 0.93}, "sampling": sampling}
    return WorkloadSettings.model_validate(table | {"cost": {"small": 1.0, "large": 3.02}} | changed)


def typo_world(queries: int, drift_at: int, *, seed: int = 1, harm: float = 0.12, large_right: float = 0.985) -> World:
    """Draw a world in which most queries carry typos from some query on.

    Typos raise u a little (the mix of queries drifts) and the small model's errors by more than u tells (their meaning
    drifts), while the large model hardly suffers. ``harm``: what typos add to the small model's chance of a wrong
    field; ``large_right``: the large model's chance of a right field on the easiest query.
    """
    rng = np.random.default_rng(seed)
    difficulty = rng.uniform(size=queries)
    typo = (np.arange(queries) >= drift_at) & (rng.uniform(size=queries) < 0.7)
    small_right = 1.0 - np.clip(0.004 + 0.34 * difficulty**2 + harm * typo, 0.0, 1.0)
    large = np.clip(large_right - 0.06 * difficulty - 0.01 * typo, 0.0, 1.0)
    small_counts, large_counts = rng.binomial(FIELDS, small_right), rng.binomial(FIELDS, large)
    both_wrong = (small_counts < FIELDS) & (large_counts < FIELDS)
    return World(
        uncertainty=1.0 / (1.0 + np.exp(6.0 - 7.0 * difficulty - 0.5 * typo - rng.normal(0.0, 0.3, queries))),
        small_right=small_right,
        large_right=large,
        small=small_counts,
        large=large_counts,
        agree=((small_counts == FIELDS) & (large_counts == FIELDS)) | (both_wrong & (rng.uniform(size=queries) < 0.1)),
    )
