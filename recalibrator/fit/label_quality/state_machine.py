"""The label gate: labels that contradict what was known are never dropped unasked; trusted people are asked first.

::

    quiet ── alarm ──▶ auditing ─┬─ refuted ────▶ quarantined ─┬─ labels as before ──────▶ quiet, believed from then on
                                 ├─ confirmed ──▶ quiet        ├─ audited anew: refuted ─▶ quarantined
                                 ├─ unanswered ─▶ quiet        └─ else ──────────────────▶ quiet, believed from then on
                                 └─ unfounded ──▶ quiet

Alarms, labels and counts of traffic flow in; the share of pairs to audit, the spans of time whose labels are in
quarantine and news of a verdict flow out. While an audit is open, labels are believed as before: both models failing
alike looks the same. Where its answers leave that open, more are asked for. A quarantine ends by itself: when the
labels' errors are what they were (CUSUM), or when an audit, repeated every so many labels, does not refute them any
more, or is not answered.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from recalibrator.fit.arrays import pack, unpack
from recalibrator.fit.data.label_table import LabelTable, Span
from recalibrator.fit.data.traffic_window import AGREEING, PAIRS, TrafficWindow
from recalibrator.fit.estimate.agreement import Chances, chances_of, inside, multiply_odds
from recalibrator.fit.label_quality.audit_test import (
    AuditRules,
    Told,
    Verdict,
    log_likelihood_ratios,
    told_by,
    verdict,
)
from recalibrator.fit.label_quality.suspicion import Concluded, Suspicion, sentence
from recalibrator.fit.method_constants import AuditConstants
from schemas.traffic import TrafficSummary, VersionTraffic

Floats = NDArray[np.float64]
News = Literal["labels_refuted", "labels_confirmed", "labels_unanswered", "labels_unfounded", "labels_released"]
Probabilities = dict[int, float]

_ANSWERS_LEAST = 10
_HELD_BETWEEN_FITS = 50
_CARRIED_SHARE = 2.0 / 3.0
"""Of the bound, what earlier audits may count at most against labels: each new one must say something itself."""
_NEWS: dict[Verdict, News] = {
    "refuted": "labels_refuted",
    "confirmed": "labels_confirmed",
    "unanswered": "labels_unanswered",
    "unfounded": "labels_unfounded",
}


class Settled(NamedTuple):
    """What became of a suspicion, and the time from which labels are wrong (refuted), or right again.

    ``changed``: outcomes are believed to have changed then; ``conclusive``: given agreement too, so that later labels
    are held against those since.
    """

    news: News
    from_us: int
    changed: bool = False
    conclusive: bool = False


class LabelGate:
    """Whether ordinary labels are believed.

    Parameters
    ----------
    cells : int
    tuning : AuditConstants
    """

    def __init__(self, cells: int, tuning: AuditConstants) -> None:
        self._cells, self._tuning = cells, tuning
        self._rules = AuditRules(tuning.audit_bound, tuning.audit_answers, _ANSWERS_LEAST)
        self._agreement: Floats = np.full(cells, 0.5)
        self._error_given: Floats = np.full((2, cells), 0.5)
        self._error_first: Floats = np.full((2, cells), 0.5)
        self.suspicion: Suspicion | None = None
        self.concluded: Concluded | None = None
        self.spans: tuple[Span, ...] = ()

    @property
    def audit_probability(self) -> float:
        """Share of the queries answered by both models that trusted people are to label."""
        doubt = self.suspicion
        return 0.0 if doubt is None or doubt.opened_us is None or self._is_asked(doubt) else doubt.probability

    def _is_asked(self, doubt: Suspicion) -> bool:
        return doubt.asked >= doubt.rounds * self._tuning.audit_requests

    @property
    def quarantines(self) -> bool:
        """Whether ordinary labels are set aside now."""
        return self.suspicion is not None and self.suspicion.quarantined

    def suspect(
        self,
        began_us: int,
        agreement: Floats,
        error_given: Floats,
        window: LabelTable,
        traffic: TrafficWindow,
        now_us: int,
        *,
        agreeing: bool,
        first_odds: Floats,
    ) -> None:
        """Open an audit.

        Parameters
        ----------
        began_us : int
            From when labels contradict what was expected.
        agreement : ndarray, shape (cells,)
            P(agree | u) now, of which labels tell nothing.
        error_given : ndarray, shape (2, cells)
            P(the small answer is wrong | u, the answers differ), and where they are equal, by labels from before.
        window, traffic
        now_us : int
        agreeing : bool
        first_odds : ndarray, shape (2,)
            Odds of an error by first labels over those by labels as they stand: most ordinary labels since the alarm
            have not been corrected yet.
        """
        self._agreement, self._error_given = agreement, error_given
        self._error_first = inside(multiply_odds(error_given, first_odds[:, None]))
        caution = self._tuning.audit_caution
        doubt = Suspicion(agreeing, began_us, 0.0, None, 0.0, evidence=caution if agreeing else -caution)
        doubt.log_odds = self._told(doubt, window, began_us).mean
        self.suspicion = doubt
        self._open(doubt, traffic, now_us)

    def _told(self, doubt: Suspicion, window: LabelTable, since_us: int) -> Told:
        chances, errors = self._evidence(doubt, window, since_us, audited=False)
        return told_by(chances, errors, rising=doubt.agreeing)

    def _evidence(
        self, doubt: Suspicion, window: LabelTable, since_us: int, *, audited: bool
    ) -> tuple[Chances, Floats]:
        """Return what labels say of the suspicion: those of queries that are, or may be, of its kind."""
        suspects = window.labelers_since(doubt.began_us) if audited else np.zeros(0)
        relation, cell, error = window.errors_since(since_us, audited=audited, suspects=suspects)
        kind = relation == (2 if doubt.agreeing else 1)
        rows = kind if audited else kind | (relation == 0)
        known, cell = kind[rows], cell[rows]
        expected = self._error_given if audited else self._error_first
        rest, weight, given = chances_of(self._agreement, expected, cell, None, agreeing=doubt.agreeing)
        return Chances(np.where(known, 0.0, rest), np.where(known, 1.0, weight), given), error[rows]

    def _open(self, doubt: Suspicion, traffic: TrafficWindow, now_us: int) -> None:
        queries = max(traffic.recent["queries"], 1.0)
        pairs, agreeing = (float(traffic.counts[name].sum()) for name in (PAIRS, AGREEING))
        share = (agreeing if doubt.agreeing else pairs - agreeing) / queries
        wanted = self._tuning.audit_requests / self._tuning.audit_queries
        doubt.probability = min(1.0, wanted / share) if share > 0.0 else 1.0
        doubt.opened_us, doubt.rounds = now_us, 1
        doubt.asked, doubt.ordinary = 0.0, 0

    def on_traffic(self, summary: TrafficSummary, probabilities: Probabilities) -> None:
        """Count, in expectation, the audits that routers have drawn, by the versions that they drew them with."""
        doubt = self.suspicion
        if doubt is None or doubt.opened_us is None:
            return
        for part in summary.versions:
            share = probabilities.get(part.calibration_version or 0, 0.0)
            if share > 0.0:
                doubt.asked += _drawn(part, share, agreeing=doubt.agreeing)

    def on_label(
        self,
        window: LabelTable,
        traffic: TrafficWindow,
        *,
        routed_us: int,
        now_us: int,
        audited: bool,
        cell: int | None,
        agree: bool | None,
        error: float,
    ) -> Settled | None:
        """Take one first label of a query in, which the window already knows; returns what it settles."""
        doubt = self.suspicion
        if doubt is None:
            return None
        if doubt.opened_us is None:
            return None if audited else self._ease(doubt, window, traffic, routed_us, now_us, cell, agree, error)
        if not audited:
            doubt.ordinary += routed_us >= doubt.opened_us
            released = None
            if doubt.quarantined:
                released = self._ease(doubt, window, traffic, routed_us, now_us, cell, agree, error)
            if released is not None or not self._is_over(doubt):
                return released
        return self._judge(doubt, window, now_us)

    def _is_over(self, doubt: Suspicion) -> bool:
        return doubt.ordinary >= doubt.rounds * self._tuning.audit_patience

    def _may_ask_on(self, doubt: Suspicion) -> bool:
        """Whether more answers are worth waiting for: labels that tell of too few errors are not believed so long."""
        return doubt.agreeing and doubt.rounds < self._tuning.audit_rounds

    def _judge(self, doubt: Suspicion, window: LabelTable, now_us: int) -> Settled | None:
        """Let the trusted answers to the open audit decide."""
        assert doubt.opened_us is not None
        # Labels from before the alarm are those that raised it: how far off labels are, later ones tell fairly.
        told = self._told(doubt, window, doubt.opened_us if doubt.judged_us is None else doubt.judged_us)
        chances, errors = self._evidence(doubt, window, doubt.opened_us, audited=True)
        ended = self._is_over(doubt)
        rules = self._rules._replace(answers=doubt.rounds * self._rules.answers)
        found, ratio = verdict(chances, errors, told, rules, ended=ended, carried=doubt.evidence)
        if found is None:
            return None
        if abs(ratio) < rules.bound and not ended and self._may_ask_on(doubt):
            doubt.rounds += 1
            return None
        self.concluded = Concluded(found, len(errors), int(errors.sum()), now_us)
        if found != "refuted":
            begins = doubt.opened_us if doubt.quarantined else doubt.began_us
            changed = found == "confirmed" or (found == "unanswered" and not doubt.quarantined)
            # What is merely likelier is believed, but the question may come up again.
            conclusive = ratio >= self._rules.bound or found == "unanswered"
            self._end(window, begins)
            return Settled(_NEWS[found], begins, changed, conclusive)
        doubt.evidence = max(ratio, -_CARRIED_SHARE * self._rules.bound)
        if not doubt.quarantined:
            self.spans = (*self.spans, (doubt.began_us, None))
            window.quarantine(self.spans)
            doubt.quarantined = True
            doubt.log_odds = self._told(doubt, window, doubt.began_us).mean
        doubt.opened_us, doubt.judged_us, doubt.ordinary, doubt.asked = None, now_us, 0, 0.0
        return Settled("labels_refuted", doubt.began_us)

    def _ease(
        self,
        doubt: Suspicion,
        window: LabelTable,
        traffic: TrafficWindow,
        routed_us: int,
        now_us: int,
        cell: int | None,
        agree: bool | None,
        error: float,
    ) -> Settled | None:
        """Hold one label in quarantine against what was expected; ask anew once there were many."""
        if doubt.opened_us is None:
            doubt.ordinary += 1
            if doubt.ordinary >= self._tuning.audit_again_labels:
                self._open(doubt, traffic, now_us)
        if cell is None or agree is (not doubt.agreeing):
            return None
        doubt.held += 1
        if doubt.held % _HELD_BETWEEN_FITS == 0:
            doubt.log_odds = self._told(doubt, window, doubt.began_us).mean
        chances = chances_of(self._agreement, self._error_first, cell, agree, agreeing=doubt.agreeing)
        doubt.easing -= float(log_likelihood_ratios(chances, np.array(error), np.array([doubt.log_odds]))[0])
        if doubt.easing <= 0.0:
            doubt.easing, doubt.easing_since_us = 0.0, None
            return None
        if doubt.easing_since_us is None:
            doubt.easing_since_us = routed_us
        if doubt.easing < self._tuning.audit_release_bound:
            return None
        self.concluded = Concluded("released", 0, 0, now_us)
        self._end(window, doubt.easing_since_us)
        return Settled("labels_released", doubt.easing_since_us)

    def _end(self, window: LabelTable, believed_us: int) -> None:
        """Believe labels of queries routed from some time on; what was set aside before stays so."""
        if self.quarantines:
            begins = self.spans[-1][0]
            self.spans = (*self.spans[:-1], (begins, max(begins, believed_us)))
            window.quarantine(self.spans)
            self.spans = window.spans
        self.suspicion = None

    @property
    def is_unanswered(self) -> bool:
        """Whether the last audit was never answered."""
        return self.concluded is not None and self.concluded.verdict == "unanswered"

    def sentence(self, window: LabelTable) -> str:
        """Say in one plain sentence what is suspected of labels."""
        return sentence(self.suspicion, self.concluded, window.set_aside_since(-1))

    def details(self, window: LabelTable) -> dict[str, JsonValue]:
        """Return what people are told: the open suspicion, its audit, and the last verdict."""
        doubt, last = self.suspicion, self.concluded
        told: dict[str, JsonValue] = {"quarantined": window.set_aside_since(-1)}
        if doubt is not None:
            told |= doubt.details()
        if doubt is not None and doubt.opened_us is not None:
            _, errors = self._evidence(doubt, window, doubt.opened_us, audited=True)
            told |= {"answered": len(errors), "errors": int(errors.sum())}
        if last is not None:
            told["last"] = last.details()
        return told

    def state(self) -> dict[str, Any]:
        """Return everything as JSON values, exact."""
        return {
            "suspicion": None if self.suspicion is None else asdict(self.suspicion),
            "concluded": None if self.concluded is None else asdict(self.concluded),
            "agreement": pack(self._agreement),
            "error_given": pack(self._error_given),
            "error_first": pack(self._error_first),
            "spans": [list(span) for span in self.spans],
        }

    def load(self, state: dict[str, Any], window: LabelTable) -> None:
        """Take a former :meth:`state` back, and tell the window of it."""
        self.suspicion = None if state["suspicion"] is None else Suspicion(**state["suspicion"])
        self.concluded = None if state["concluded"] is None else Concluded(**state["concluded"])
        self._agreement = unpack(state["agreement"], np.zeros(self._cells))
        self._error_given = unpack(state["error_given"], np.zeros((2, self._cells)))
        self._error_first = unpack(state["error_first"], np.zeros((2, self._cells)))
        self.spans = tuple((int(begins), ends) for begins, ends in state["spans"])
        window.quarantine(self.spans)


def _drawn(part: VersionTraffic, share: float, *, agreeing: bool) -> float:
    """Return how many audits of pairs of one kind one version's routers have drawn, in expectation.

    Every explored query is, and a share of the others; of the explored, as many agree as in their cell.
    """
    counts = (part.pairs, part.agreeing, part.pairs_explored)
    pairs, agree, explored = (np.array(one, dtype=np.float64) for one in counts)
    kind = agree if agreeing else pairs - agree
    of_explored = kind * np.divide(explored, pairs, out=np.zeros(len(pairs)), where=pairs > 0.0)
    return float((share * (kind - of_explored) + of_explored).sum())
