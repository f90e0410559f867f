"""Counts of the queries that each calibration version routed; they add up over partitions and machines."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import datetime

from recalibrator.grid import Grid
from schemas.entities import equal
from schemas.event import MAX_INTEGER
from schemas.routed import QueryHandoff, RoutedEvent, TrialDecision
from schemas.settings import WorkloadSettings
from schemas.traffic import GridSpec, TrafficSummary, TrialTraffic, VersionTraffic

_GRID = GridSpec()


@dataclass(slots=True)
class _Tally:
    """Counts of the queries that one version routed."""

    count: Counter[int] = field(default_factory=Counter)
    pairs: Counter[int] = field(default_factory=Counter)
    agreeing: Counter[int] = field(default_factory=Counter)
    pairs_explored: Counter[int] = field(default_factory=Counter)
    queries: int = 0
    escalated: int = 0
    explored: int = 0
    small_failed: int = 0
    small_skipped: int = 0
    degraded: int = 0
    labels_requested: int = 0
    small_calls: int = 0
    large_calls: int = 0
    cost_sequential: float = 0.0
    cost_paper: float = 0.0
    small_latency_s: float = 0.0
    large_latency_s: float = 0.0
    handed_over: int = 0
    asked_again: int = 0
    guarded: int = 0
    guard_agreeing: int = 0
    small_tokens: int = 0
    small_prompt_tokens: int = 0
    large_tokens: int = 0
    large_prompt_tokens: int = 0
    handed_over_tokens: int = 0
    lost_tokens: int = 0
    lost_prompt_tokens: int = 0


#: Version, signal, handoff and basis that queries were routed under.
_Key = tuple[int | None, str, str | None, str | None]


@dataclass(slots=True)
class _TrialTally:
    """Counts of the queries for which one version on trial decided too."""

    queries: int = 0
    escalated: int = 0
    base_escalated: int = 0
    agreeing: int = 0
    acted: int = 0

    def add(self, decision: TrialDecision) -> None:
        self.queries += 1
        self.escalated += decision.escalated
        self.base_escalated += decision.base_escalated
        self.agreeing += decision.escalated == decision.base_escalated
        self.acted += decision.acted


class TrafficSummarizer:
    """Adds up the traffic of one workload between two takes."""

    def __init__(self, settings: WorkloadSettings) -> None:
        self._settings = settings
        self._grid = Grid(_GRID)
        self._tallies: dict[_Key, _Tally] = {}
        self._trials: dict[int, _TrialTally] = {}
        self._first: datetime | None = None
        self._last: datetime | None = None

    def add(self, routed: RoutedEvent) -> None:
        """Count one routed query; the caller passes none twice."""
        decision = routed.decision
        self._first = routed.routed_at if self._first is None else min(self._first, routed.routed_at)
        self._last = routed.routed_at if self._last is None else max(self._last, routed.routed_at)
        handoff = routed.handoff
        name = None if handoff is None else handoff.name
        key = (decision.calibration_version, routed.signal, name, routed.basis)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = _Tally()
        tally.queries += 1
        tally.escalated += decision.escalated
        tally.explored += decision.reason == "exploration"
        is_lost = decision.reason == "large_only" and routed.small is not None and decision.uncertainty is None
        tally.small_failed += decision.reason == "small_failed" or is_lost
        # Without a u there may be a small answer all the same, asked for because the large model failed.
        tally.small_skipped += decision.small_probability is not None and decision.uncertainty is None and not is_lost
        tally.degraded += decision.reason == "degraded"
        tally.labels_requested += routed.label.requested
        tally.cost_sequential += routed.cost.sequential
        tally.cost_paper += routed.cost.paper
        if decision.trial is not None:
            self._trials.setdefault(decision.trial.version, _TrialTally()).add(decision.trial)
        self._add_runs(tally, routed)
        if handoff is not None:
            self._add_handoff(tally, routed, handoff)

    def _add_handoff(self, tally: _Tally, routed: RoutedEvent, handoff: QueryHandoff) -> None:
        tally.handed_over += handoff.characters > 0 or handoff.asked_again
        tally.asked_again += handoff.asked_again
        tally.large_tokens += handoff.lost_tokens
        tally.large_prompt_tokens += handoff.lost_prompt_tokens
        tally.lost_tokens += handoff.lost_tokens
        tally.lost_prompt_tokens += handoff.lost_prompt_tokens
        tally.handed_over_tokens += handoff.tokens
        large, alone = routed.large, routed.large_alone
        if large is not None and large.valid and alone is not None and alone.valid:
            tally.guarded += 1
            tally.guard_agreeing += equal(large.entities, alone.entities, self._settings.fields)

    def _add_runs(self, tally: _Tally, routed: RoutedEvent) -> None:
        small, large, uncertainty = routed.small, routed.large, routed.decision.uncertainty
        if small is not None:
            tally.small_calls += 1
            tally.small_latency_s += small.latency_s if small.valid else 0.0
            tally.small_tokens += small.completion_tokens
            tally.small_prompt_tokens += small.prompt_tokens
        if large is not None:
            tally.large_calls += 1
            tally.large_latency_s += large.latency_s if large.valid else 0.0
            tally.large_tokens += large.completion_tokens
            tally.large_prompt_tokens += large.prompt_tokens
        if uncertainty is None:
            return
        cell = self._grid.index(uncertainty)
        tally.count[cell] += 1
        if small is not None and large is not None and small.valid and large.valid:
            tally.pairs[cell] += 1
            tally.agreeing[cell] += equal(small.entities, large.entities, self._settings.fields)
            tally.pairs_explored[cell] += routed.decision.reason in ("exploration", "cold_start")

    def take(self) -> TrafficSummary | None:
        """Return what was added since the last take, and start over; None when nothing was."""
        if self._first is None or self._last is None:
            return None
        summary = TrafficSummary(
            workload=self._settings.name,
            first_routed_at=self._first,
            last_routed_at=self._last,
            grid=self._grid.spec,
            versions=tuple(_traffic(key, tally) for key, tally in sorted(self._tallies.items(), key=_by_version)),
            trials=tuple(
                TrialTraffic(version=version, **asdict(tally)) for version, tally in sorted(self._trials.items())
            ),
        )
        self._tallies, self._trials, self._first, self._last = {}, {}, None, None
        return summary


def _by_version(entry: tuple[_Key, _Tally]) -> tuple[int, str, str, str]:
    version, signal, handoff, basis = entry[0]
    return -1 if version is None else version, signal, handoff or "", basis or ""


def _traffic(key: _Key, tally: _Tally) -> VersionTraffic:
    version, signal, handoff, basis = key
    cells = sorted(tally.count)
    return VersionTraffic(
        calibration_version=version,
        queries=tally.queries,
        cell=tuple(cells),
        count=tuple(tally.count[cell] for cell in cells),
        pairs=tuple(tally.pairs[cell] for cell in cells),
        agreeing=tuple(tally.agreeing[cell] for cell in cells),
        pairs_explored=tuple(tally.pairs_explored[cell] for cell in cells),
        escalated=tally.escalated,
        explored=tally.explored,
        small_failed=tally.small_failed,
        small_skipped=tally.small_skipped,
        degraded=tally.degraded,
        labels_requested=tally.labels_requested,
        small_calls=tally.small_calls,
        large_calls=tally.large_calls,
        cost_sequential=tally.cost_sequential,
        cost_paper=tally.cost_paper,
        small_latency_s=tally.small_latency_s,
        large_latency_s=tally.large_latency_s,
        signal=signal,
        handoff=handoff,
        handed_over=tally.handed_over,
        asked_again=tally.asked_again,
        guarded=tally.guarded,
        guard_agreeing=tally.guard_agreeing,
        # Servers count, and may say anything.
        small_tokens=min(MAX_INTEGER, tally.small_tokens),
        small_prompt_tokens=min(MAX_INTEGER, tally.small_prompt_tokens),
        large_tokens=min(MAX_INTEGER, tally.large_tokens),
        large_prompt_tokens=min(MAX_INTEGER, tally.large_prompt_tokens),
        handed_over_tokens=min(MAX_INTEGER, tally.handed_over_tokens),
        lost_tokens=min(MAX_INTEGER, tally.lost_tokens),
        lost_prompt_tokens=min(MAX_INTEGER, tally.lost_prompt_tokens),
        basis=basis,
    )
