"""Certified thresholds: labels flow in, the largest threshold that is proven to meet the target flows out.

For every threshold t a gambler bets against "F(t) ≤ 0", that is "serving by t misses the target". Bets are fair or
worse while that is true, so that wealth of 1/δ at any time, however often one looks, has a chance of at most δ
(Ville, 1939; betting as in Waudby-Smith and Ramdas, 2024). Thresholds are tested in a fixed order, from the safest
on until one fails, which needs no correction for their number (fixed-sequence testing; Maurer et al., 1995).

The proof holds for the mean over the queries since :attr:`Certifier.since_us`, if labels are right, if requests for
labels and exploration were drawn as told, and if no answer holds more than one value a field. It begins anew when a
detector believes that outcomes have changed: no proof about what was says anything of what is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from pydantic import JsonValue

from recalibrator.core.decide.threshold import Choice
from recalibrator.core.estimate.smooth import Floats
from recalibrator.core.observe.columns import pack, unpack
from recalibrator.core.observe.instants import from_us
from recalibrator.core.observe.score import score
from schemas.labelled import LabelledExample, OutcomeCounts

_BOLDEST = 0.75
"""Largest share of the wealth that one answer can lose."""

_PRIOR_SPREAD = 0.1
"""Of one answer before any is known, as a share of the worst loss."""


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
        self._log_wealth, self._sum, self._square = np.zeros((3, policies))
        self.restart(None)

    def restart(self, since_us: int | None) -> None:
        """Begin anew, since outcomes have changed; None: with the first label, whenever it was routed."""
        self._log_wealth[:] = self._sum[:] = 0.0
        self._square[:] = (_PRIOR_SPREAD * self._worst) ** 2
        self.labels = 0
        self.since_us = since_us

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
        kept, escalated = self._outcomes(example)
        outcome = np.full(len(self._sum), kept)
        outcome[: cell + 1] = escalated
        known = self.labels + 1
        mean = self._sum / known
        stake = mean / np.maximum(self._square / known, 1e-12)
        np.clip(stake, 0.0, _BOLDEST / self._worst, out=stake)
        self._log_wealth += np.log1p(stake * outcome)
        self._sum += outcome
        self._square += outcome * outcome
        self.labels += 1
        if self.since_us is None:
            self.since_us = routed_us

    @property
    def limit(self) -> int | None:
        """The largest threshold's index up to which all are proven, None when not even escalating all is."""
        unproven = np.flatnonzero(self._log_wealth < -math.log(1.0 - self._confidence))
        last = len(self._sum) if not len(unproven) else int(unproven[0])
        return last - 1 if last > 0 else None

    def cap(self, choice: Choice) -> Choice:
        """Return the choice, or the largest proven threshold below it; escalate all where nothing is proven."""
        return Choice(min(choice.index, self.limit or 0), choice.feasible)

    def _outcomes(self, example: LabelledExample) -> tuple[float, float]:
        """Return z of the query when kept and when escalated, weighted to be unbiased and no worse than the bound."""
        small = self._score(example.small, example.gold_count)
        kept = small * self._weight(example.label_probability)
        ran = example.large is not None and example.reason != "degraded"
        if example.large is not None and ran:
            seen = min(example.large_probability, example.label_probability)
            return kept, self._score(example.large, example.gold_count) * self._weight(seen)
        # A call that failed ends with the small answer, whoever makes it; one that was not drawn says nothing.
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
        return {
            "columns": pack(np.stack((self._log_wealth, self._sum, self._square))),
            "labels": self.labels,
            "since_us": self.since_us,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take a former :meth:`state` back."""
        like: Floats = np.zeros((3, len(self._sum)))
        self._log_wealth, self._sum, self._square = unpack(state["columns"], like)
        self.labels, self.since_us = int(state["labels"]), state["since_us"]
