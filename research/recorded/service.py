"""Our own core on the stream: batches become traffic summaries, labels labelled examples, as in the join stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from recalibrator.core import Recalibrator, WorkloadSettings
from recalibrator.decoding import Observation
from recalibrator.fit.method_constants import DEFAULT
from recalibrator.grid import Grid
from research.recorded.simulate import Routed
from research.recorded.stream import (
    EXPLORED,
    LABELLED_ESCALATED,
    LABELLED_KEPT,
    WORKLOAD,
    all_outcomes,
    query_id,
)
from research.recorded.tokens import HANDOFF, Levers, offline_queries
from research.routed_batch import RoutedBatch, summarise
from schemas import CalibrationVersion, Command, LabelledExample, OutcomeCounts, TrafficSummary
from schemas.basis import handoff_name
from schemas.calibration import LabelShares
from ucci_stream.demo.scenario import offline_examples

START = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS_A_QUERY = 0.1
_LARGE_COST = 3.02
_HANDOFF = {"granularity": "token"}
_FIELDS = ("camera", "lens", "aperture", "shutter_speed", "iso", "focal_length")


class Service:
    """:class:`recalibrator.core.Recalibrator`, bootstrapped on the offline labels.

    ``target``: micro-F1. ``safety``: standard errors by which the estimate must exceed the target. ``handoff``: whether
    the workload's settings ask for it, by token and otherwise with the defaults. ``fields``: of the workload.
    ``offline``: other offline labels than those of the demo's recording, whose answers the levers need. ``labels``:
    share of the usual labels that is asked for. ``budget``: labels a query, which the service spends as it sees fit,
    instead. ``**tuned``: fields of the method's constants that differ from the defaults. ``triggers``: why each version
    after the bootstrap's was published.
    """

    def __init__(
        self,
        target: float,
        safety: float,
        *,
        handoff: bool = False,
        fields: Sequence[str] = _FIELDS,
        offline: Iterable[LabelledExample] | None = None,
        labels: float = 1.0,
        budget: float | None = None,
        **tuned: Any,
    ) -> None:
        # Explored queries must be labelled, by the same draw.
        self._explored = min(EXPLORED, labels * LABELLED_KEPT)
        self._settings = WorkloadSettings.model_validate(
            {
                "name": WORKLOAD,
                "fields": fields,
                "target": {"micro_f1": target, "safety": safety},
                **(
                    {
                        "sampling": {
                            "exploration_probability": self._explored,
                            "label_probability_kept": labels * LABELLED_KEPT,
                            "label_probability_escalated": labels * LABELLED_ESCALATED,
                        }
                    }
                    if budget is None
                    else {"labels": {"per_queries": budget}}
                ),
                "cost": {"small": 1.0, "large": _LARGE_COST},
                **({"handoff": _HANDOFF} if handoff else {}),
            }
        )
        self._constants = replace(DEFAULT, **tuned)
        if offline is None:
            made_under = HANDOFF if handoff else None
            offline = offline_examples(offline_queries(handoff=handoff), WORKLOAD, START, made_under)
        self._start_anew(offline, START)
        self._grid = Grid(self.core.constants.grid)
        self._issued: list[tuple[int, CalibrationVersion]] = []
        self.triggers: list[str] = []
        self._remember(-1)

    def _start_anew(self, known: Iterable[Observation], now: datetime, floor: int = 0) -> None:
        """Bootstrap a fresh core on what is known, with versions above a floor."""
        self.core = Recalibrator(self._settings, self._constants)
        self.core.raise_version_floor(floor)
        for event in known:
            self.core.observe(event)
        self.core.observe(Command(workload=WORKLOAD, action="bootstrap", issued_by="benchmark", issued_at=now))

    @property
    def threshold(self) -> float:
        """On u, of the version in force."""
        return self._version.uncertainty_threshold

    @property
    def exploration(self) -> float:
        """Of the version in force."""
        return self._version.exploration_probability

    @property
    def label_shares(self) -> LabelShares | None:
        """Of the version in force, where the service has a budget."""
        return None if self._settings.labels is None else self._version.label_shares

    @property
    def levers(self) -> Levers:
        """As the version in force has them."""
        version, asked = self._version, self._settings.handoff
        handed = handoff_name(version.handoff) is not None
        return Levers(handed, 0.0 if asked is None else asked.guard_share)

    @property
    def _version(self) -> CalibrationVersion:
        return self._issued[-1][1]

    @property
    def versions(self) -> int:
        """How many were published, the bootstrap's included."""
        return len(self._issued)

    def _observe(self, event: Observation) -> None:
        version = self.core.observe(event)
        if version is not None:
            self.triggers.append(version.evidence.trigger)

    def see(self, routed: Routed) -> None:
        """Hand on a batch of traffic, as one summary."""
        self._observe(self._summary(routed))
        self._remember(int(routed.rows[-1]))

    def learn(self, labelled: Routed) -> None:
        """Hand on labels, one by one."""
        for example in self._examples(labelled):
            self._observe(example)
        # In force from the batch after the one in which the label came: that batch has been seen already.
        self._remember(self._seen)

    def _remember(self, last_row: int) -> None:
        self._seen = last_row
        current = self.core.current
        if current is not None and (not self._issued or current.version != self._version.version):
            self._issued.append((last_row, current))

    def _in_force(self, row: int) -> CalibrationVersion:
        """Return the version that routed a query."""
        return next(version for since, version in reversed(self._issued) if since < row)

    def _summary(self, routed: Routed) -> TrafficSummary:
        batch = RoutedBatch(
            routed.outcomes.uncertainty,
            routed.ran,
            routed.explored,
            routed.outcomes.agree,
            routed.labelled,
            time_of(int(routed.rows[0])),
            time_of(int(routed.rows[-1])),
            handoff=HANDOFF if routed.handed[0] else None,
        )
        version = self._in_force(int(routed.rows[0])).version
        return summarise(batch, self._grid, WORKLOAD, version, _LARGE_COST)

    def _examples(self, labelled: Routed) -> Iterator[LabelledExample]:
        outcomes = labelled.outcomes
        alone = all_outcomes().take(outcomes.recording) if labelled.compared.any() else outcomes
        for place, row in enumerate(labelled.rows.tolist()):
            u = float(outcomes.uncertainty[place])
            above, explored = bool(labelled.above[place]), bool(labelled.explored[place])
            failed, ran = bool(np.isnan(u)), above or explored
            version = self._in_force(row)
            kept_or_explored = "exploration" if explored else "kept"
            yield LabelledExample(
                query_id=query_id(row),
                workload=WORKLOAD,
                uncertainty=None if failed else u,
                error_probability=None if failed else version.error_probability(u),
                calibration_version=version.version,
                small_exact=bool(outcomes.exact[place]),
                small=outcome_counts(outcomes.small_hits[place], outcomes.small_named[place]),
                large=outcome_counts(outcomes.large_hits[place], outcomes.large_named[place]) if ran else None,
                gold_count=int(outcomes.gold[place]),
                large_probability=1.0 if above else float(labelled.exploration[place]),
                label_probability=version.label_probability(u, above),
                label_requested=True,
                reason="small_failed" if failed else "threshold" if above else kept_or_explored,
                agree=bool(outcomes.agree[place]) if ran else None,
                handoff=HANDOFF if labelled.handed[place] else None,
                large_alone=outcome_counts(alone.large_hits[place], alone.large_named[place])
                if labelled.compared[place]
                else None,
                routed_at=time_of(row),
                labelled_at=time_of(row),
            )


def outcome_counts(hits: int, named: int) -> OutcomeCounts:
    """Return the counts of one answer."""
    return OutcomeCounts(true_positives=int(hits), predicted=int(named))


def time_of(row: int) -> datetime:
    """Return when a query of the stream is routed."""
    return START + timedelta(seconds=SECONDS_A_QUERY * (row + 1))
