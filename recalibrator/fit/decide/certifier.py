"""Certified thresholds: the largest threshold that labels prove to meet the target.

For every threshold t a gambler bets against "F(t) ≤ 0", that is "serving by t misses the target". Bets are fair or
worse while that is true, so that wealth of 1/δ at any time, however often one looks, has a chance of at most δ
(Ville, 1939; betting as in Waudby-Smith and Ramdas, 2024). Thresholds are tested in a fixed order, from the safest
on until one fails, which needs no correction for their number (fixed-sequence testing; Maurer et al., 1995).

The proof holds for the mean over the queries since :attr:`Certifier.since_us`, if labels are right, if requests for
labels and exploration were drawn with the probabilities on record, and if no answer holds more than one value a field.
It begins anew when a detector finds that outcomes have changed: no proof about what was says anything of what is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from pydantic import JsonValue

from recalibrator.fit.arrays import Floats, pack, unpack
from recalibrator.fit.decide.threshold import Choice
from recalibrator.fit.micro_f1 import score
from schemas.event import from_us
from schemas.labelled import LabelledExample, OutcomeCounts

_BOLDEST = 0.75
"""Largest share of the wealth that one answer can lose."""

_PRIOR_SPREAD = 0.1
"""Of one answer before any is known, as a share of the worst loss."""


_BETWEEN_MARKS = 256
_MARKS_MOST = 48
"""Some 12,000 labels can be corrected under a running proof; a correction bets anew from the mark before it."""

_Entry = tuple[int, float, float, int]
"""One label: its cell, z of the query when kept and when escalated, and when it was routed."""


@dataclass(slots=True)
class _Bets:
    """Where all gamblers stand after some labels: shape (policies,) each."""

    log_wealth: Floats
    sum: Floats
    square: Floats
    labels: int

    @classmethod
    def fresh(cls, policies: int, spread: float) -> Self:
        return cls(np.zeros(policies), np.zeros(policies), np.full(policies, spread**2), 0)

    def copy(self) -> _Bets:
        return _Bets(self.log_wealth.copy(), self.sum.copy(), self.square.copy(), self.labels)

    def state(self) -> list[Any]:
        return [pack(np.stack((self.log_wealth, self.sum, self.square))), self.labels]

    @classmethod
    def load(cls, state: list[Any], policies: int) -> Self:
        columns, labels = state
        log_wealth, summed, square = unpack(columns, np.zeros((3, policies)))
        return cls(log_wealth, summed, square, int(labels))


class Certifier:
    """The gamblers of one workload, one a threshold.

    Parameters
    ----------
    policies : int
        Number of thresholds; index k keeps the cells of u below k.
    target : float
        τ.
    fields : int
        Fields of an answer; an answer's size is at most twice that.
    least_propensity : float
        The smallest probability with which an outcome is seen, in (0, 1]; outcomes seen more often weigh less.
    confidence : float
        1 - δ, in (0, 1).
    """

    def __init__(self, policies: int, target: float, fields: int, least_propensity: float, confidence: float) -> None:
        self._confidence = confidence
        self._target = target
        self._worst = target * 2.0 * fields
        self._least_propensity = least_propensity
        self._policies = policies
        self.restart(None)

    def restart(self, since_us: int | None) -> None:
        """Begin anew, since outcomes have changed; None: with the first label, whenever it was routed."""
        self._bets = _Bets.fresh(self._policies, _PRIOR_SPREAD * self._worst)
        self._marks = [self._bets.copy()]
        self._first_place, self._closed_us = 0, -1
        self._entries: list[_Entry | None] = []
        self._places: dict[str, int] = {}
        self._stale_from: int | None = None
        self.since_us = since_us

    @property
    def labels(self) -> int:
        """Number of labels behind the proof."""
        self._refresh()
        return self._bets.labels

    def observe(self, example: LabelledExample, cell: int, routed_us: int) -> None:
        """Take the first label of a query; the stakes were set before it came.

        Parameters
        ----------
        example : LabelledExample
            Whose label was requested by chance.
        cell : int
            Of its u; the number of cells where the small answer failed, which always escalates.
        routed_us : int
            Queries routed before :attr:`since_us` prove nothing.
        """
        if self.since_us is not None and routed_us < self.since_us:
            return
        if self.since_us is None:
            self.since_us = routed_us
        entry = (cell, *self._outcomes(example), routed_us)
        self._places[example.query_id] = self._first_place + len(self._entries)
        self._entries.append(entry)
        if self._stale_from is None:
            self._bet(self._bets, entry)
            if len(self._entries) % _BETWEEN_MARKS == 0:
                self._mark()

    def revise(self, query_id: str, example: LabelledExample | None, cell: int, routed_us: int) -> bool:
        """Put what is known now in the place of an earlier label, as if it had been so from the start.

        The stakes after it are set anew, so that the proof is that of the corrected stream.

        Parameters
        ----------
        query_id : str
        example : LabelledExample or None
            None when the label no longer counts.
        cell, routed_us : int
            As in :meth:`observe`.

        Returns
        -------
        bool
            False when the label is part of the proof but lies too far back to be taken out.
        """
        place = self._places.get(query_id)
        if place is None:
            if routed_us <= self._closed_us:
                return False
            if example is not None:
                self.observe(example, cell, routed_us)
            return True
        index = place - self._first_place
        self._entries[index] = None if example is None else (cell, *self._outcomes(example), routed_us)
        self._stale_from = index if self._stale_from is None else min(self._stale_from, index)
        return True

    def _refresh(self) -> None:
        """Bet anew from the earliest revised label on."""
        if self._stale_from is None:
            return
        mark = self._stale_from // _BETWEEN_MARKS
        self._stale_from = None
        del self._marks[mark + 1 :]
        self._bets = self._marks[mark].copy()
        begins = mark * _BETWEEN_MARKS
        entries, self._entries = self._entries, self._entries[:begins]
        for entry in entries[begins:]:
            self._entries.append(entry)
            if entry is not None:
                self._bet(self._bets, entry)
            if len(self._entries) % _BETWEEN_MARKS == 0:
                self._mark()

    def _mark(self) -> None:
        """Remember where the bets stand, and forget the labels that lie too far back to be corrected."""
        self._marks.append(self._bets.copy())
        if len(self._marks) > _MARKS_MOST:
            closed = [entry[3] for entry in self._entries[:_BETWEEN_MARKS] if entry is not None]
            self._closed_us = max(closed, default=self._closed_us)
            del self._marks[0]
            del self._entries[:_BETWEEN_MARKS]
            self._first_place += _BETWEEN_MARKS
            self._places = {one: place for one, place in self._places.items() if place >= self._first_place}

    def _bet(self, bets: _Bets, entry: _Entry) -> None:
        cell, kept, escalated, _ = entry
        outcome = np.full(self._policies, kept)
        outcome[: cell + 1] = escalated
        known = bets.labels + 1
        mean = bets.sum / known
        stake = mean / np.maximum(bets.square / known, 1e-12)
        np.clip(stake, 0.0, _BOLDEST / self._worst, out=stake)
        bets.log_wealth += np.log1p(stake * outcome)
        bets.sum += outcome
        bets.square += outcome * outcome
        bets.labels += 1

    @property
    def limit(self) -> int | None:
        """The largest threshold's index up to which all are proven, None when not even escalating all is."""
        self._refresh()
        unproven = np.flatnonzero(self._bets.log_wealth < -math.log(1.0 - self._confidence))
        last = self._policies if not len(unproven) else int(unproven[0])
        return last - 1 if last > 0 else None

    def cap(self, choice: Choice) -> Choice:
        """Return the choice, or the largest proven threshold below it; escalate all where nothing is proven."""
        return replace(choice, index=min(choice.index, self.limit or 0))

    def _outcomes(self, example: LabelledExample) -> tuple[float, float]:
        """Return z of the query when kept and when escalated, weighted to be unbiased and no worse than the bound."""
        small = self._score(example.small, example.gold_count)
        kept = small * self._weight(example.label_probability)
        ran = example.large is not None and example.reason != "degraded"
        if example.large is not None and ran:
            seen = min(example.large_probability, example.label_probability)
            return kept, self._score(example.large, example.gold_count) * self._weight(seen)
        # A call that failed ends with the small answer under any policy; one that was not drawn says nothing.
        return kept, kept if example.large_probability >= 1.0 else 0.0

    def _weight(self, propensity: float) -> float:
        return min(1.0, self._least_propensity / max(propensity, 1e-12))

    def _score(self, answer: OutcomeCounts, gold: int) -> float:
        z = score(2.0 * answer.true_positives, float(answer.predicted + gold), self._target)
        return max(z, -self._worst)

    def details(self, thresholds: Floats) -> dict[str, JsonValue]:
        """Return what a version's evidence says of the proof.

        Parameters
        ----------
        thresholds : ndarray, shape (policies,)
            On u.
        """
        limit = self.limit
        return {
            "confidence": self._confidence,
            "labels": self.labels,
            "since": None if self.since_us is None else from_us(self.since_us).isoformat(),
            "largest_proven_threshold": None if limit is None else float(thresholds[limit]),
        }

    def state(self) -> dict[str, Any]:
        """Return everything as JSON values, exact."""
        self._refresh()
        return {
            "bets": self._bets.state(),
            "marks": [mark.state() for mark in self._marks],
            "first_place": self._first_place,
            "closed_us": self._closed_us,
            "entries": self._entries,
            "places": self._places,
            "since_us": self.since_us,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take a former :meth:`state` back."""
        self._bets = _Bets.load(state["bets"], self._policies)
        self._marks = [_Bets.load(mark, self._policies) for mark in state["marks"]]
        self._first_place, self._closed_us = int(state["first_place"]), int(state["closed_us"])
        self._entries = [
            None if entry is None else (entry[0], entry[1], entry[2], entry[3]) for entry in state["entries"]
        ]
        self._places = {query_id: int(place) for query_id, place in state["places"].items()}
        self._stale_from = None
        self.since_us = state["since_us"]
