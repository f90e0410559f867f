"""What the next queries may cost, and how many of them people are asked about, by what those before have taken."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

from recalibrator.fit.codec import Kept
from recalibrator.fit.data.traffic_window import SUM_MOST
from recalibrator.fit.decide.candidate import Candidate, Part, View
from recalibrator.fit.decide.threshold import Affordable
from recalibrator.fit.method_constants import MethodConstants
from schemas.calibration import BudgetStanding, LabelShares
from schemas.event import to_us
from schemas.settings_workload import LabelAllowance
from schemas.traffic import TrafficSummary, VersionTraffic

_LAGS_AVERAGED = 4


class Pacer(Part):
    """The account of one workload's budget: what the next queries may cost, by what those before have really cost.

    A threshold is chosen for an expected cost, and two things keep the realised one away from it. What escalates is
    drawn, which moves the mean cost of n queries by about c_l·√(r(1-r)/n); and an expectation is late when queries
    change. So what queries have really cost is fed back: what was left over or overdrawn is spent or saved by the
    queries of the next horizon. Exploration, handoff guards, repeated calls and whatever else is paid are in the
    realised cost, and so are paid out of the budget without a model of them.

    A correction is seen in the cost only once queries that it decided are reported. Until then the same error would be
    corrected again with every version, and the cost would swing. So what is already on its way counts as if it had been
    paid: corrections in force over the last D reported queries decide the D that are not reported yet (a Smith
    predictor). D is measured, as the queries of older versions that are reported after a new one was published. Where
    the measure is right, the rate of correction 1/h is bounded by no delay. Where it is wrong by δ, the loop is

        s·h + 1 - exp(-s·D) + exp(-s·(D ± δ)) = 0,

    which is damped wherever √(1 + ω²h²) > 2·|sin(ωδ/2)| at every ω, and so for h ≥ .7·δ. Hence h = D / √2: D may be
    wrong by its own size. What an outage has left over or cost is neither spent in a rush nor does it starve the time
    after it: both the balance and a correction are bounded.

    ``budget`` is the mean sequential cost of a query, in the unit of the workload's costs.

    Examples
    --------
    >>> pacer = Pacer(1.5, MethodConstants(pace_queries=1_000))
    >>> cost = VersionTraffic(calibration_version=1, queries=200, cost_sequential=350.0)
    >>> pacer.take_traffic(TrafficSummary.model_construct(versions=(cost,)))
    >>> pacer.allowed
    1.45
    """

    _booked_for: Kept[float]
    _balance: Kept[float] = 0.0
    _lag: Kept[float] = 0.0
    _lags: Kept[int] = 0
    _awaited: Kept[int | None] = None
    _unseen: Kept[int] = 0
    _reported: Kept[int] = 0
    _orders: Kept[deque[tuple[int, float]]]
    _recent: Kept[deque[tuple[int, float]]]
    _queries: Kept[int] = 0
    _cost: Kept[float] = 0.0

    def __init__(self, budget: float, constants: MethodConstants) -> None:
        self._budget, self._booked_for, self._constants = budget, budget, constants
        self._orders = deque()
        self._recent = deque()

    def take_traffic(self, summary: TrafficSummary) -> None:
        """Book what queries have cost; those of a cold start, which no version decided, are outside the budget."""
        decided = [part for part in summary.versions if part.calibration_version is not None]
        queries = min(int(SUM_MOST), sum(part.queries for part in decided))
        if not queries:
            return
        self._time(decided)
        self._reported += queries
        cost = min(SUM_MOST, sum(part.cost_sequential for part in decided))
        window = self._constants.budget_queries
        most = self._constants.carried_share * self._budget * window
        self._balance = min(most, max(-most, self._balance + self._budget * queries - cost))
        self._recent.append((queries, cost))
        self._queries, self._cost = self._queries + queries, self._cost + cost
        while self._queries - self._recent[0][0] >= window:
            self._recent.popleft()
            # Summed from scratch: what is taken out of a running sum leaves its rounding behind.
            self._queries = sum(queries for queries, _ in self._recent)
            self._cost = sum(cost for _, cost in self._recent)

    def contribute(self, candidate: Candidate, view: View) -> Candidate:
        """Add what share of queries the large model may answer within the budget, where costs are known."""
        if view.costs is None:
            return replace(candidate, budget=self.standing)
        now, ever = ((cost - view.costs.small) / view.costs.large for cost in (self.allowed, self._budget))
        return replace(candidate, affordable=Affordable(now, ever), budget=self.standing)

    def published(self, version: int) -> None:
        """Note that a version was published for what is allowed now.

        How many queries pass until it shows is what a correction takes.
        """
        if self._awaited is None:
            self._awaited, self._unseen = version, 0
        order = (self._reported, self.allowed - self._budget)
        if self._orders and self._orders[-1][0] == self._reported:
            self._orders.pop()
        self._orders.append(order)
        while len(self._orders) > 1 and self._orders[1][0] <= self._reported - self._constants.budget_queries:
            self._orders.popleft()

    def _time(self, decided: list[VersionTraffic]) -> None:
        """Measure the delay of a correction, in queries, where the one that is awaited shows."""
        if (awaited := self._awaited) is None:
            return
        self._unseen += sum(part.queries for part in decided if (part.calibration_version or 0) < awaited)
        if any((part.calibration_version or 0) >= awaited for part in decided):
            self._lags = min(_LAGS_AVERAGED, self._lags + 1)
            self._lag += (self._unseen - self._lag) / self._lags
            self._awaited = None

    @property
    def horizon(self) -> float:
        """Queries over which what is left over, or overdrawn, is spent or saved."""
        a_summary = self._queries / len(self._recent) if self._recent else 0.0
        return max(self._constants.pace_queries, a_summary, self._lag / math.sqrt(2.0))

    @property
    def _on_its_way(self) -> float:
        """What the queries that are not reported yet were allowed to cost beyond the budget, all together."""
        end, begun, found = self._reported, self._reported - self._lag, 0.0
        for since, correction in reversed(self._orders):
            found += correction * max(0.0, end - max(since, begun))
            end = min(end, since)
        return found

    @property
    def allowed(self) -> float:
        """What the next queries may cost on average."""
        most = self._constants.correction_most * self._budget
        return self._budget + min(most, max(-most, (self._balance - self._on_its_way) / self.horizon))

    @property
    def standing(self) -> BudgetStanding:
        """How the budget is kept."""
        realised = self._cost / self._queries if self._queries else None
        return BudgetStanding(allowed=self.allowed, realised=realised, queries=self._queries)

    def restored(self) -> None:
        """Carry nothing over from another budget but what queries have cost."""
        if self._booked_for != self._budget:
            self._booked_for, self._balance, self._orders = self._budget, 0.0, deque()


_US, _DAY_S = 1e6, 86_400.0
_RATE_S = 300.0
"""Over which the rate of queries is averaged."""
_LEAST_QUERIES = 1e-6
"""Below, so long after the latest query, the rate of queries is forgotten."""
_HORIZON_S, _HORIZON_QUERIES = 3_600.0, 2_000.0
"""Over which the account is steered to zero."""
_CARRIED_S, _CARRIED_QUERIES = 28_800.0, 10_000.0
"""Whose income it carries over at most: an outage of hours is made up for, one of a day is not."""
_PACE_MOST = 4.0
"""Times the income, what is spent at most."""
_TOLERANCE = 0.2
"""Relative change of a share below which no version is worth it."""


class LabelSpending(Part):
    """The account of one workload's labels: what a budget of labels, a day or a query, asks people for.

    It is credited by the budget and debited by each label asked for, and steered to zero within a horizon: bursts,
    nights and outages, which make the share of queries wrong for a while, are paid back, and what an outage left over
    cannot flood anybody. Saving at rest for the time after an alarm was measured, and moved neither quality nor cost.

    An escalated query is asked for twice as often as a kept one, as by the default shares: there both answers are seen.

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
            self._income, self._horizon, self._carried = allowance.per_day / _DAY_S, _HORIZON_S, _CARRIED_S
        else:
            assert allowance.per_queries is not None
            self._income, self._horizon, self._carried = allowance.per_queries, _HORIZON_QUERIES, _CARRIED_QUERIES

    def take_traffic(self, summary: TrafficSummary) -> None:
        """Book the labels that a summary's queries were asked for, and the budget's income meanwhile."""
        queries = float(sum(part.queries for part in summary.versions))
        asked = float(sum(part.labels_requested for part in summary.versions))
        seconds = self._pass_until(to_us(summary.last_routed_at), queries)
        earned = self._income * (seconds if self._by_day else queries)
        most = self._income * self._carried
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

        ``escalation_rate`` is in [0, 1]. Shares in force, ``former``, stay where the change is too small to matter and
        where the rate of queries is forgotten, and grow at most twofold at a time: after an outage that rate is known
        late.
        """
        if not self._income:
            return LabelShares(0.0, 0.0)
        pace = 1.0 + self._balance / (self._income * self._horizon)
        spent = self._income * min(_PACE_MOST, max(0.0, pace))
        if self._by_day:
            if self._queries < _LEAST_QUERIES or not self._span_s:
                return former
            spent *= self._span_s / self._queries
        kept = min(1.0, spent / (1.0 + escalation_rate))
        if former is not None and former.kept > 0.0:
            kept = min(kept, 2.0 * former.kept)
        shares = LabelShares(kept, min(1.0, 2.0 * kept))
        return former if former is not None and shares.is_near(former, _TOLERANCE) else shares
