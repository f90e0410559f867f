"""What handing over costs, from queries that the large model answered alone as well; and when it must end.

Both answers are to the same query, so that most differences are 0 and few labels show much. The interval of the loss is
a confidence sequence (:func:`~recalibrator.fit.publish.measured_quality.standard_errors`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from recalibrator.fit.codec import Floats, Kept, load
from recalibrator.fit.data.label_table import Change
from recalibrator.fit.decide.candidate import Part, View
from recalibrator.fit.decide.threshold import Policies
from recalibrator.fit.publish.measured_quality import standard_errors
from schemas.basis import handoff_name
from schemas.calibration import Interval
from schemas.event import MAX_INTEGER
from schemas.labelled import LabelledExample
from schemas.routed import DecisionReason
from schemas.settings_workload import HandoffSettings
from schemas.status import HandoffStatus
from schemas.target_words import estimated
from schemas.traffic import TrafficSummary

LOSS_MOST = 0.002
"""micro-F1 on escalated queries that handing over may cost: less than a version's estimate is certain of. Where labels
show more, with 95% confidence, it is switched off."""

LEAST_DIFFERING = 10
"""Labelled queries with different answers, below which a normal approximation says nothing."""

KEPT_LABELS = 20_000
"""Labelled queries that are compared, the latest to arrive; none of those before can be corrected."""

_TIGHTEST_AT = 500.0
"""Labels at which the sequence is to be tightest."""

_RECENT_CALLS = 5_000.0
"""Half-life of the shares in the status, in calls of the large model."""

_COUNT_MOST = 2**20
_ESCALATED: frozenset[DecisionReason] = frozenset({"threshold", "infeasible", "small_failed"})

_Pair = tuple[int, int, int, int]
"""2·TP and size of the answer that the large model gave alone, and of that with handoff."""


class HandoffWatch(Part):
    """The handoff of one workload, and what is known of it; without settings nothing is ever handed over.

    ``in_versions`` is what versions say of it. ``name`` is what labels that count are marked with, None while nothing
    is handed over.
    """

    _configured: Kept[str | None]
    _is_off: Kept[bool] = False
    _pairs: Kept[dict[str, _Pair]]
    _sums: Kept[Floats]
    _squares: Kept[Floats]
    _differing: Kept[int] = 0
    _loss: Kept[Interval | None] = None
    _guarded: Kept[int] = 0
    _agreeing: Kept[int] = 0
    _calls: Kept[float] = 0.0
    _handed_over: Kept[float] = 0.0
    _asked_again: Kept[float] = 0.0

    def __init__(self, settings: HandoffSettings | None, loss_most: float = LOSS_MOST) -> None:
        self._settings, self._loss_most = settings, loss_most
        self._configured = None if settings is None else handoff_name(settings.handoff)
        self.restored()
        self._pairs = {}
        self._sums = np.zeros(4)
        self._squares = np.zeros((4, 4))

    def restored(self) -> None:
        """Compute what follows from the state."""
        settings, active = self._settings, not self._is_off
        self.in_versions = None if settings is None else settings.handoff.model_copy(update={"active": active})
        # Every event is compared with it.
        self.name = handoff_name(self.in_versions)

    def take_label(self, example: LabelledExample, change: Change | None) -> None:
        """Take a label in that was made under this handoff."""
        if self.name is None or not example.label_requested or change not in ("added", "corrected", "withdrawn"):
            return
        before = self._pairs.pop(example.query_id, None)
        if before is not None:
            self._count(before, -1)
        pair = None if change == "withdrawn" else _pair(example)
        if pair is not None:
            self._pairs[example.query_id] = pair
            self._count(pair, 1)
            while len(self._pairs) > KEPT_LABELS:
                self._count(self._pairs.pop(next(iter(self._pairs))), -1)
        if before is not None or pair is not None:
            self._loss = self._estimated_loss()

    def take_traffic(self, summary: TrafficSummary) -> None:
        """Take the counts of what was routed under this handoff in."""
        for part in summary.versions if self.name is not None else ():
            if part.handoff != self.name or not part.large_calls:
                continue
            kept = 0.5 ** (part.large_calls / _RECENT_CALLS)
            self._calls = kept * self._calls + part.large_calls
            self._handed_over = kept * self._handed_over + part.handed_over
            self._asked_again = kept * self._asked_again + part.asked_again
            self._guarded = min(MAX_INTEGER, self._guarded + part.guarded)
            self._agreeing = min(MAX_INTEGER, self._agreeing + part.guard_agreeing)

    def _count(self, pair: _Pair, sign: int) -> None:
        values = np.array(pair, dtype=np.float64)
        self._sums += sign * values
        self._squares += sign * np.outer(values, values)
        self._differing += sign * (pair[:2] != pair[2:])

    @property
    def loss(self) -> Interval | None:
        """micro-F1 of the large model alone less that with handoff, with its 95% interval; None below enough."""
        return self._loss

    def _estimated_loss(self) -> Interval | None:
        """Estimate the loss from the sums.

        With a = 2·TP and d the size of an answer, F = Σa / Σd. The influence of one query on F_alone - F_handoff is
        (a_1 - F_1·d_1) / mean(d_1) - (a_2 - F_2·d_2) / mean(d_2), the mean of which is 0 (delta method).
        """
        labels = len(self._pairs)
        hits_alone, size_alone, hits, size = self._sums.tolist()
        if self._differing < LEAST_DIFFERING or size_alone <= 0.0 or size <= 0.0:
            return None
        alone, begun = hits_alone / size_alone, hits / size
        influence = labels * np.array([1.0 / size_alone, -alone / size_alone, -1.0 / size, begun / size])
        variance = max(0.0, float(influence @ self._squares @ influence)) / labels
        width = math.sqrt(variance / labels) * standard_errors(labels, _TIGHTEST_AT)
        loss = alone - begun
        return Interval(estimate=loss, lower=loss - width, upper=loss + width)

    @property
    def costs_too_much(self) -> bool:
        """Whether labels show that it costs more than it may."""
        is_on = self._settings is not None and not self._is_off
        return is_on and self._loss is not None and self._loss.lower > self._loss_most

    def end(self) -> None:
        """Hand nothing over from now on."""
        self._is_off = True
        self.restored()

    def status(self, view: View, policies: Policies | None) -> dict[str, Any]:  # noqa: ARG002
        """Return what is known of it, for people; nothing where nothing is ever handed over."""
        if self._settings is None:
            return {}
        found = HandoffStatus(
            name=handoff_name(self._settings.handoff) or "",
            active=not self._is_off,
            handed_over_share=min(1.0, self._handed_over / self._calls) if self._calls else None,
            asked_again_share=min(1.0, self._asked_again / self._calls) if self._calls else None,
            guarded=self._guarded,
            agreement=min(1.0, self._agreeing / self._guarded) if self._guarded else None,
            labels=len(self._pairs),
            micro_f1_loss=self.loss,
        )
        return {"handoff": found}

    def sentence(self) -> str:
        """Say that it is off, where it is, and what it cost."""
        loss = self.loss
        if not self._is_off or loss is None:
            return ""
        return f" Nothing is handed over any more: it cost micro-F1 {estimated(loss)} on escalated queries."

    def take_back(self, former: dict[str, Any]) -> bool:
        """Take a dumped state back if it is of this handoff; returns whether labels that counted then count now."""
        if former["_configured"] == self._configured:
            load(self, former)
            return True
        return self.name is None and bool(former["_is_off"])


def _pair(example: LabelledExample) -> _Pair | None:
    """Return what the label says of both answers, where the threshold escalated and both are known."""
    large, alone = example.large, example.large_alone
    if large is None or alone is None or not example.label_requested or example.reason not in _ESCALATED:
        return None
    gold = example.gold_count
    assert gold is not None
    counts = (2 * alone.true_positives, alone.predicted + gold, 2 * large.true_positives, large.predicted + gold)
    return None if max(counts) > _COUNT_MOST else counts
