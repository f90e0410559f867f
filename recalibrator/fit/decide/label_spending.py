"""What a budget of labels asks people for.

An account is credited by the budget and debited by each label asked for, and steered to zero within a horizon: bursts,
nights and outages, which make the share of queries wrong for a while, are paid back, and what an outage left over
cannot flood anybody. Saving at rest for the time after an alarm was measured, and moved neither quality nor cost.

An escalated query is asked for twice as often as a kept one, as by the default shares: there both answers are seen.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from recalibrator.fit.codec import Kept
from recalibrator.fit.data.label_table import Change
from recalibrator.fit.decide.candidate import Candidate, Part, View
from schemas.calibration import LabelShares
from schemas.event import to_us
from schemas.labelled import LabelledExample
from schemas.settings import LabelAllowance
from schemas.traffic import TrafficSummary

_US, _DAY_S = 1e6, 86_400.0
_RATE_S = 300.0
"""Over which the rate of queries is averaged."""
_HORIZON_S, _HORIZON_QUERIES = 3_600.0, 2_000.0
"""Over which the account is steered to zero."""
_CARRIED_S, _CARRIED_QUERIES = 28_800.0, 10_000.0
"""Whose income it carries over at most: an outage of hours is made up for, one of a day is not."""
_PACE_MOST = 4.0
"""Times the income, what is spent at most."""
_TOLERANCE = 0.2
"""Relative change of a share below which no version is worth it."""


class _Unit(NamedTuple):
    """What a budget is counted over: its income a unit, and how many units its spans are."""

    income: float
    horizon: float
    carried: float


class LabelSpending(Part):
    """The account of one workload's labels.

    Parameters
    ----------
    allowance : LabelAllowance
        Labels a day, or a query.

    Examples
    --------
    >>> LabelSpending(LabelAllowance(per_queries=0.02)).shares(0.5)
    LabelShares(kept=0.013333333333333334, escalated=0.02666666666666667)
    """

    _balance: Kept[float] = 0.0
    _queries: Kept[float] = 0.0
    """Of late, forgotten exponentially with the time."""
    _span_s: Kept[float] = 0.0
    """Over which they came, forgotten alike."""
    _last_us: Kept[int | None] = None

    def __init__(self, allowance: LabelAllowance) -> None:
        self._by_day = allowance.per_day is not None
        if allowance.per_day is not None:
            self._unit = _Unit(allowance.per_day / _DAY_S, _HORIZON_S, _CARRIED_S)
        else:
            assert allowance.per_queries is not None
            self._unit = _Unit(allowance.per_queries, _HORIZON_QUERIES, _CARRIED_QUERIES)

    def take(self, event: LabelledExample | TrafficSummary, change: Change | None) -> None:  # noqa: ARG002
        """Book the labels that a summary's queries were asked for, and the budget's income meanwhile."""
        if not isinstance(event, TrafficSummary):
            return
        queries = float(sum(part.queries for part in event.versions))
        asked = float(sum(part.labels_requested for part in event.versions))
        seconds = self._pass_until(to_us(event.last_routed_at), queries)
        earned = self._unit.income * (seconds if self._by_day else queries)
        most = self._unit.income * self._unit.carried
        self._balance = max(-most, min(most, self._balance + earned - asked))

    def _pass_until(self, now_us: int, queries: float) -> float:
        """Let time pass, and return how much, in seconds; a clock that goes back stands still."""
        before = now_us if self._last_us is None else self._last_us
        self._last_us = max(before, now_us)
        seconds = (self._last_us - before) / _US
        kept = math.exp(-seconds / _RATE_S)
        self._queries = kept * self._queries + queries
        self._span_s = kept * self._span_s + _RATE_S * (1.0 - kept)
        return seconds

    def contribute(self, candidate: Candidate, view: View) -> Candidate | None:
        """Say what share of queries to ask labels for, and explore no more than those."""
        former = None if view.current is None else view.current.label_shares
        shares = self.shares(view.traffic.escalation_rate or 0.0, former)
        if shares is None:
            return None
        return replace(candidate, label_shares=shares, exploration=min(candidate.exploration, shares.kept))

    def shares(self, escalation_rate: float, former: LabelShares | None = None) -> LabelShares | None:
        """Return the shares of kept and of escalated queries to ask for now; None before the rate of queries is known.

        Parameters
        ----------
        escalation_rate : float
            Share of recent queries, in [0, 1].
        former : LabelShares, optional
            In force. They stay where the change is too small to matter, and grow at most twofold at a time: after an
            outage the rate of queries is known late.
        """
        unit = self._unit
        if not unit.income:
            return LabelShares(0.0, 0.0)
        pace = 1.0 + self._balance / (unit.income * unit.horizon)
        spent = unit.income * min(_PACE_MOST, max(0.0, pace))
        if self._by_day:
            if not (self._queries and self._span_s):
                return None
            spent *= self._span_s / self._queries
        kept = min(1.0, spent / (1.0 + escalation_rate))
        if former is not None and former.kept > 0.0:
            kept = min(kept, 2.0 * former.kept)
        shares = LabelShares(kept, min(1.0, 2.0 * kept))
        return former if former is not None and shares.is_near(former, _TOLERANCE) else shares
