"""Counts of the queries that each calibration version routed; they add up over partitions and machines."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime

from recalibrator.grid import Grid
from schemas.entities import Entities, equal, with_nulls
from schemas.event import MAX_INTEGER
from schemas.routed import QueryHandoff, RoutedEvent, TrialDecision
from schemas.settings import WorkloadSettings
from schemas.traffic import GridSpec, TrafficSummary, TrialTraffic, VersionTraffic

_GRID = GridSpec()

_KEYS_MOST = 100
"""Versions, or ways to measure u, that one summary tells apart; more of them could exceed the size of a record."""


#: What is summed of a version's queries: the plain numbers of :class:`~schemas.traffic.VersionTraffic`.
_NOTHING = {"queries": 0} | {
    name: known.default for name, known in VersionTraffic.model_fields.items() if isinstance(known.default, int | float)
}


#: The same of the queries for which one version on trial decided too.
_NO_TRIAL = dict.fromkeys(("queries", "escalated", "base_escalated", "agreeing", "acted"), 0)


#: What is summed of either model's runs; as constants, since every query is counted.
_SMALL_SUMS = ("small_calls", "small_latency_s", "small_tokens", "small_prompt_tokens")
_LARGE_SUMS = ("large_calls", "large_latency_s", "large_tokens", "large_prompt_tokens")


@dataclass(frozen=True, slots=True)
class _Tally:
    """Counts of the queries that one version routed; of each cell queries with u, pairs, agreeing and drawn ones."""

    sums: dict[str, float] = field(default_factory=_NOTHING.copy)
    cells: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0, 0]))


#: Version, signal, handoff and basis that queries were routed under.
_Key = tuple[int | None, str, str | None, str | None]


class TrafficSummarizer:
    """Adds up the traffic of one workload between two takes."""

    def __init__(self, settings: WorkloadSettings) -> None:
        self._settings = settings
        self._grid = Grid(_GRID)
        self._tallies: defaultdict[_Key, _Tally] = defaultdict(_Tally)
        self._trials: defaultdict[int, dict[str, int]] = defaultdict(_NO_TRIAL.copy)
        self._first: datetime | None = None
        self._last: datetime | None = None

    def add(self, routed: RoutedEvent) -> None:
        """Count one routed query; the caller passes none twice."""
        decision = routed.decision
        self._first = routed.routed_at if self._first is None else min(self._first, routed.routed_at)
        self._last = routed.routed_at if self._last is None else max(self._last, routed.routed_at)
        handoff = routed.handoff
        name = None if handoff is None else handoff.name
        tally = self._tallies[decision.calibration_version, routed.signal, name, routed.basis]
        sums = tally.sums
        sums["queries"] += 1
        sums["escalated"] += decision.escalated
        sums["explored"] += decision.reason == "exploration"
        is_lost = decision.reason == "large_only" and routed.small is not None and decision.uncertainty is None
        sums["small_failed"] += decision.reason == "small_failed" or is_lost
        # Without a u there may be a small answer all the same, asked for because the large model failed.
        is_skipped = decision.small_probability is not None and decision.uncertainty is None
        sums["small_skipped"] += is_skipped and not is_lost
        sums["degraded"] += decision.reason == "degraded"
        sums["labels_requested"] += routed.label.requested
        sums["cost_sequential"] += routed.cost.sequential
        sums["cost_paper"] += routed.cost.paper
        if decision.trial is not None:
            self._add_trial(decision.trial)
        self._add_runs(tally, routed)
        if handoff is not None:
            self._add_handoff(sums, routed, handoff)

    def _add_trial(self, decision: TrialDecision) -> None:
        counts = self._trials[decision.version]
        counts["queries"] += 1
        counts["escalated"] += decision.escalated
        counts["base_escalated"] += decision.base_escalated
        counts["agreeing"] += decision.escalated == decision.base_escalated
        counts["acted"] += decision.acted

    def _add_handoff(self, sums: dict[str, float], routed: RoutedEvent, handoff: QueryHandoff) -> None:
        sums["handed_over"] += handoff.characters > 0 or handoff.asked_again
        sums["asked_again"] += handoff.asked_again
        for name, lost in (("tokens", handoff.lost_tokens), ("prompt_tokens", handoff.lost_prompt_tokens)):
            sums[f"large_{name}"] += lost
            sums[f"lost_{name}"] += lost
        sums["handed_over_tokens"] += handoff.tokens
        large, alone = routed.large, routed.large_alone
        if large is not None and large.valid and alone is not None and alone.valid:
            sums["guarded"] += 1
            sums["guard_agreeing"] += self._agree(large.entities, alone.entities)

    def _add_runs(self, tally: _Tally, routed: RoutedEvent) -> None:
        small, large, uncertainty = routed.small, routed.large, routed.decision.uncertainty
        sums = tally.sums
        for run, (calls, latency_s, tokens, prompt_tokens) in ((small, _SMALL_SUMS), (large, _LARGE_SUMS)):
            if run is not None:
                sums[calls] += 1
                sums[latency_s] += run.latency_s if run.valid else 0.0
                sums[tokens] += run.completion_tokens
                sums[prompt_tokens] += run.prompt_tokens
        if uncertainty is None:
            return
        counts = tally.cells[self._grid.index(uncertainty)]
        counts[0] += 1
        if small is not None and large is not None and small.valid and large.valid:
            counts[1] += 1
            counts[2] += self._agree(small.entities, large.entities)
            counts[3] += routed.decision.reason in ("exploration", "cold_start")

    def _agree(self, first: Entities | None, second: Entities | None) -> bool:
        nulls = self._settings.nulls
        if nulls:
            first, second = with_nulls(first or {}, nulls), with_nulls(second or {}, nulls)
        return equal(first, second, self._settings.fields)

    @property
    def is_full(self) -> bool:
        """Whether what was added is to be taken before anything else is added: a summary holds no more versions."""
        return max(len(self._tallies), len(self._trials)) >= _KEYS_MOST

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
            trials=tuple(TrialTraffic(version=version, **counts) for version, counts in sorted(self._trials.items())),
        )
        self._tallies.clear()
        self._trials.clear()
        self._first = self._last = None
        return summary


def _by_version(entry: tuple[_Key, _Tally]) -> tuple[int, str, str, str]:
    version, signal, handoff, basis = entry[0]
    return -1 if version is None else version, signal, handoff or "", basis or ""


def _traffic(key: _Key, tally: _Tally) -> VersionTraffic:
    version, signal, handoff, basis = key
    cells = sorted(tally.cells)
    count, pairs, agreeing, explored = zip(*(tally.cells[cell] for cell in cells), strict=True) if cells else [()] * 4
    return VersionTraffic(
        calibration_version=version,
        signal=signal,
        handoff=handoff,
        basis=basis,
        cell=tuple(cells),
        count=count,
        pairs=pairs,
        agreeing=agreeing,
        pairs_explored=explored,
        # Servers count tokens, which have a price, and may say anything.
        **{name: min(type(value)(MAX_INTEGER), value) for name, value in tally.sums.items()},
    )
