"""The demo's summary: the numbers and the verdict from what was observed, as a table and as JSON.

No clock and no I/O but printing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.table import Table

from schemas.calibration import CalibrationVersion
from schemas.costs import ModelCosts, QueryCost, TokenUse, query_cost
from schemas.entities import count_pairs
from schemas.routed import RoutedEvent
from schemas.status import HandoffStatus, WorkloadStatus
from ucci_demo.recorded.traffic import RecordedQuery
from ucci_stream.demo.scenario import PlannedQuery, Scenario

Answered = tuple[PlannedQuery, RoutedEvent]


@dataclass(frozen=True, slots=True)
class Saved:
    """A share of what the same calls cost whole; what a lever itself costs is taken off."""

    sequential: float
    paper: float

    def __str__(self) -> str:
        return f"{self.sequential:.1%} / {self.paper:.1%} of the cost"


@dataclass(frozen=True, slots=True)
class Lever:
    """The handoff over the whole stream."""

    #: Share of the large calls that went on from a small answer.
    used: float

    saved: Saved
    #: What the service itself says of it at the end.
    status: HandoffStatus


@dataclass(frozen=True, slots=True)
class Levers:
    """What the lever did."""

    #: The service's mean cost of a query in each phase, had it made the same calls whole.
    whole_calls: Mapping[str, QueryCost]

    handoff: Lever


def whole_calls(recorded: RecordedQuery) -> tuple[TokenUse, TokenUse]:
    """Return what the small and the large model generate in whole calls; reading is not priced in the demo."""
    return TokenUse(generated=recorded.small.tokens), TokenUse(generated=recorded.large.tokens)


def levers_of(
    answered: Sequence[Answered],
    bounds: Mapping[str, tuple[int, int]],
    costs: ModelCosts,
    status: WorkloadStatus | None,
) -> Levers | None:
    """Return what the handoff did, or None where it is off."""
    if status is None or not answered or status.handoff is None:
        return None
    index = np.array([query.index for query, _ in answered])
    whole = np.array([_both(_whole_cost(query, routed, costs)) for query, routed in answered])
    paid = np.array([_both(routed.cost) for _, routed in answered])
    by_phase = {name: whole[(first <= index) & (index < last)] for name, (first, last) in bounds.items()}
    means = {name: (some.sum(axis=0) / max(1, len(some))).tolist() for name, some in by_phase.items()}
    large = [routed for _, routed in answered if routed.large is not None]
    begun = sum(routed.handoff is not None and routed.handoff.characters > 0 for routed in large)
    saved = Saved(*((whole - paid).sum(axis=0) / whole.sum(axis=0)).tolist())
    return Levers(
        {name: QueryCost(sequential=sequential, paper=paper) for name, (sequential, paper) in means.items()},
        Lever(begun / max(1, len(large)), saved, status.handoff),
    )


def _both(cost: QueryCost) -> tuple[float, float]:
    return cost.sequential, cost.paper


def _whole_cost(query: PlannedQuery, routed: RoutedEvent, costs: ModelCosts) -> QueryCost:
    """Return what the query costs with the same decision and whole calls."""
    small, large = whole_calls(query.recorded)
    calls = [large] if routed.large is not None else []
    return query_cost(costs, escalated=routed.decision.escalated, small=small, large=calls)


#: Standard error of micro-F1 is about .21 / sqrt(n) on such traffic, measured on the recorded data.
SE_FACTOR = 0.21


@dataclass(frozen=True, slots=True)
class SeenVersion:
    """A version as the demo saw it published; times in seconds since the stream began."""

    version: CalibrationVersion
    published_s: float
    first_use_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeenResult:
    """A committed result as the demo read it; times in seconds since the stream began."""

    routed: RoutedEvent
    seen_s: float


@dataclass(slots=True)
class Observations:
    """Everything that the demo saw; ``versions_before`` of its versions came before the first query."""

    results: dict[str, SeenResult] = field(default_factory=dict)
    duplicated: int = 0
    dead_letters: int = 0
    versions: list[SeenVersion] = field(default_factory=list)
    versions_before: int = 1
    drift_started_s: float | None = None
    drift_seen_s: float | None = None
    killed_router: str | None = None
    killed_s: float | None = None
    first_commit_after_kill_s: float | None = None
    labels_sent: int = 0
    status: WorkloadStatus | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """What a run is judged by."""

    target: float
    costs: ModelCosts
    #: On u, of the static calibration, which hands over nothing and stops nothing.
    static_threshold: float


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of the stream, for one policy."""

    queries: int
    micro_f1: float
    escalation_rate: float
    cost_sequential: float
    cost_paper: float


@dataclass(frozen=True, slots=True)
class Summary:
    """What the demo found; ``held`` is its verdict."""

    queries: int
    missing: int
    duplicated: int
    dead_letters: int
    target: float
    tolerance: float
    service: dict[str, Phase]
    static: dict[str, Phase]
    large_only_cost: float
    versions_published: int
    versions_before_stream: int
    publish_to_first_use_s: dict[str, float | None]
    drift_detected_after_queries: int | None
    router_kill_to_first_commit_s: float | None
    labels_sent: int
    held: bool
    static_held: bool
    seed: int
    cost_unit: str
    levers: Levers | None = None

    @property
    def succeeded(self) -> bool:
        """Whether nothing was lost or doubled and the target was held again."""
        return self.held and not (self.missing or self.duplicated or self.dead_letters)

    def to_document(self) -> dict[str, Any]:
        """Return the summary as plain JSON values."""
        plain: dict[str, Any] = to_jsonable_python(self)
        return {**plain, "succeeded": self.succeeded}


#: Those of the table.
PHASES = ("before_drift", "just_after_drift", "after_recovery")


def phase_bounds(scenario: Scenario) -> dict[str, tuple[int, int]]:
    """Return each phase's first and one-past-last query index; the whole stream is one as well."""
    drift, last = scenario.drift_index, scenario.queries
    after = last - drift
    return {
        "before_drift": (0, drift),
        "just_after_drift": (drift, drift + after // 5),
        "after_recovery": (last - after // 2, last),
        "whole_stream": (0, last),
    }


def summarise(stream: Sequence[PlannedQuery], seen: Observations, scenario: Scenario, terms: Terms) -> Summary:
    """Reduce what was observed to the demo's numbers.

    The static policy is the offline calibration, as the paper's user would have kept it, on the very same queries; the
    recorded answers show what it would have served.
    """
    phases = {name: stream[first:last] for name, (first, last) in phase_bounds(scenario).items()}
    service = {name: _service_phase(_answered(part, seen)) for name, part in phases.items()}
    static = {name: _static_phase(part, terms) for name, part in phases.items()}
    tolerance = 2.0 * SE_FACTOR / math.sqrt(max(1, service["after_recovery"].queries))
    least = terms.target - tolerance
    return Summary(
        queries=len(stream),
        missing=sum(query.query_id not in seen.results for query in stream) - seen.dead_letters,
        duplicated=seen.duplicated,
        dead_letters=seen.dead_letters,
        target=terms.target,
        tolerance=tolerance,
        service=service,
        static=static,
        large_only_cost=_large_only(stream, terms.costs),
        versions_published=len(seen.versions),
        versions_before_stream=seen.versions_before,
        publish_to_first_use_s=first_use(seen),
        drift_detected_after_queries=_detection_delay(stream, seen, scenario),
        router_kill_to_first_commit_s=_difference(seen.first_commit_after_kill_s, seen.killed_s),
        labels_sent=seen.labels_sent,
        held=service["after_recovery"].micro_f1 >= least,
        static_held=static["after_recovery"].micro_f1 >= least,
        seed=scenario.seed,
        cost_unit=f"small calls of {1.0 / terms.costs.small:.0f} tokens",
        levers=levers_of(_answered(stream, seen), phase_bounds(scenario), terms.costs, seen.status),
    )


def micro_f1(true_positives: int, predicted: int, gold: int) -> float:
    """Return 2·TP / (predicted + gold), or NaN where there is nothing to find.

    Examples
    --------
    >>> micro_f1(3, 4, 4)
    0.75
    """
    return 2.0 * true_positives / (predicted + gold) if predicted + gold else math.nan


def _large_only(stream: Sequence[PlannedQuery], costs: ModelCosts) -> float:
    return sum(costs.of_large(whole_calls(query.recorded)[1]) for query in stream) / max(1, len(stream))


def _answered(part: Sequence[PlannedQuery], seen: Observations) -> list[Answered]:
    return [(query, seen.results[query.query_id].routed) for query in part if query.query_id in seen.results]


def _service_phase(pairs: Sequence[Answered]) -> Phase:
    hits = predicted = gold = escalated = 0
    sequential = paper = 0.0
    for query, routed in pairs:
        counts = count_pairs(routed.entities, query.recorded.gold)
        hits, predicted, gold = hits + counts.true_positives, predicted + counts.predicted, gold + counts.gold
        escalated += routed.decision.escalated
        sequential += routed.cost.sequential
        paper += routed.cost.paper
    n = max(1, len(pairs))
    return Phase(len(pairs), micro_f1(hits, predicted, gold), escalated / n, sequential / n, paper / n)


def _static_phase(part: Sequence[PlannedQuery], terms: Terms) -> Phase:
    hits = predicted = gold = escalated = 0
    sequential = paper = 0.0
    for query in part:
        u = query.recorded.small.uncertainty
        up = u is None or u > terms.static_threshold
        served = query.recorded.large if up else query.recorded.small
        hits, predicted = hits + served.true_positives, predicted + served.predicted
        gold += query.recorded.gold_count
        escalated += up
        small, large = whole_calls(query.recorded)
        cost = query_cost(terms.costs, escalated=up, small=small, large=[large] * up)
        sequential, paper = sequential + cost.sequential, paper + cost.paper
    n = max(1, len(part))
    return Phase(len(part), micro_f1(hits, predicted, gold), escalated / n, sequential / n, paper / n)


def first_use(seen: Observations) -> dict[str, float | None]:
    """Return how long after its publication a version was first decided by, as quantiles in seconds.

    Over versions and routers; what was published before the stream, or while a router was dead, says nothing of it.
    """
    delays = sorted(
        first - version.published_s
        for version in seen.versions[max(seen.versions_before, 1) :]
        for router, first in version.first_use_s.items()
        if not _was_down(router, version.published_s, seen)
    )
    if not delays:
        return {"p50": None, "p99": None, "samples": 0}
    return {"p50": _quantile(delays, 0.5), "p99": _quantile(delays, 0.99), "samples": len(delays)}


def _was_down(router: str, at_s: float, seen: Observations) -> bool:
    if router != seen.killed_router or seen.killed_s is None:
        return False
    back_s = math.inf if seen.first_commit_after_kill_s is None else seen.first_commit_after_kill_s
    return seen.killed_s <= at_s <= back_s


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def _detection_delay(stream: Sequence[PlannedQuery], seen: Observations, scenario: Scenario) -> int | None:
    """Count the drifted stream's queries that were answered before the detector spoke."""
    if seen.drift_seen_s is None:
        return None
    after = stream[scenario.drift_index :]
    answered = (seen.results.get(query.query_id) for query in after)
    return sum(result is not None and result.seen_s <= seen.drift_seen_s for result in answered)


def _difference(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else later - earlier


def print_summary(summary: Summary, console: Console) -> None:
    """Print the end table and the verdict."""
    table = Table(
        title=f"micro-F1 against a target of {summary.target}, cost in {summary.cost_unit} (sequential / paper)"
    )
    for heading in ("", "before drift", "just after drift", "after recovery"):
        table.add_column(heading)
    for name, phases in (("this service", summary.service), ("static calibration", summary.static)):
        table.add_row(name, *(f"[bold]{phases[p].micro_f1:.4f}[/]" for p in PHASES))
        table.add_row("  escalated", *(f"{phases[p].escalation_rate:.1%}" for p in PHASES))
        table.add_row("  cost", *(f"{phases[p].cost_sequential:.2f} / {phases[p].cost_paper:.2f}" for p in PHASES))
        if summary.levers is not None and phases is summary.service:
            whole = summary.levers.whole_calls
            table.add_row("  by whole calls", *(f"{whole[p].sequential:.2f} / {whole[p].paper:.2f}" for p in PHASES))
    console.print(table)
    for name, value in _facts(summary):
        console.print(f"[bold]{name:>34}[/]  {value}", highlight=False)
    console.print(_verdict(summary), highlight=False)


def _facts(summary: Summary) -> list[tuple[str, str]]:
    use = summary.publish_to_first_use_s
    p50, p99 = use["p50"], use["p99"]
    kill = summary.router_kill_to_first_commit_s
    return [
        ("queries", f"{summary.queries}, {summary.missing} missing, {summary.duplicated} duplicated"),
        ("labels sent", str(summary.labels_sent)),
        (
            "versions published",
            f"{summary.versions_published}, of them {summary.versions_before_stream} before the stream",
        ),
        (
            "publish to first use",
            "none" if p50 is None or p99 is None else f"p50 {p50 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms",
        ),
        (
            "drift detected",
            "not detected"
            if summary.drift_detected_after_queries is None
            else f"after {summary.drift_detected_after_queries} queries",
        ),
        ("router killed to its first commit", "not seen" if kill is None else f"{kill:.2f} s"),
        ("cost of the large model alone", f"{summary.large_only_cost:.2f}"),
        *_lever_facts(summary.levers),
    ]


def _lever_facts(levers: Levers | None) -> list[tuple[str, str]]:
    if levers is None:
        return []
    lever = levers.handoff
    compared = f"; {lever.status.guarded} compared with the large model alone"
    if lever.status.agreement is not None:
        compared += f", {lever.status.agreement:.1%} of them equal"
    return [("handoff", f"in {lever.used:.1%} of large calls, saves {lever.saved}{compared}")]


def held_in_words(micro_f1: float, target: float, tolerance: float) -> str:
    """Return whether the target was held again; below it but within the tolerance is not called held.

    Examples
    --------
    >>> held_in_words(0.9042, 0.91, 0.0067)
    'missed, though within the tolerance,'
    """
    if micro_f1 >= target:
        return "held again"
    return "missed, though within the tolerance," if micro_f1 >= target - tolerance else "not held"


def _verdict(summary: Summary) -> str:
    recovered = summary.service["after_recovery"].micro_f1
    held = held_in_words(recovered, summary.target, summary.tolerance)
    color = "red" if not summary.held else "green" if recovered >= summary.target else "yellow"
    fixed = summary.static["after_recovery"].micro_f1
    static = "held it too" if summary.static_held else "stays below"
    return (
        f"Target {summary.target} [{color}]{held}[/] after the drift: {recovered:.4f} (tolerance "
        f"{summary.tolerance:.4f}, two standard errors); the static calibration {static}, at {fixed:.4f}."
    )
