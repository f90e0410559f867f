"""The demo's summary: the numbers and the verdict from what was observed; no clock and no I/O but printing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from pydantic_core import to_jsonable_python
from rich.console import Console
from rich.table import Table

from schemas.calibration import CalibrationVersion, Interval
from schemas.costs import ModelCosts, QueryCost, TokenUse, query_cost
from schemas.entities import count_pairs
from schemas.routed import RoutedEvent
from schemas.status import HandoffStatus, MeasuredMicroF1, Saving, WorkloadStatus
from ucci_demo.recorded.traffic import RecordedQuery
from ucci_stream.demo.scenario import PlannedQuery, Scenario

Answered = tuple[PlannedQuery, RoutedEvent]


@dataclass(frozen=True, slots=True)
class Lever:
    """The handoff over the whole stream."""

    #: Share of the large calls that went on from a small answer.
    used: float

    #: Of what the same calls cost whole; what the lever itself costs is taken off.
    saved: Saving
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
    whole = np.array([_whole_cost(query, routed, costs) for query, routed in answered])
    paid = np.array([(routed.cost.sequential, routed.cost.paper) for _, routed in answered])
    by_phase = {name: whole[(first <= index) & (index < last)] for name, (first, last) in bounds.items()}
    means = {name: (some.sum(axis=0) / max(1, len(some))).tolist() for name, some in by_phase.items()}
    large = [routed for _, routed in answered if routed.large is not None]
    begun = sum(routed.handoff is not None and routed.handoff.characters > 0 for routed in large)
    sequential, paper = ((whole - paid).sum(axis=0) / whole.sum(axis=0)).tolist()
    return Levers(
        {name: QueryCost(sequential=one, paper=other) for name, (one, other) in means.items()},
        Lever(begun / max(1, len(large)), Saving(sequential=sequential, paper=paper), status.handoff),
    )


def _whole_cost(query: PlannedQuery, routed: RoutedEvent, costs: ModelCosts) -> tuple[float, float]:
    """Return what the query costs with the same decision and whole calls, sequential and as in the paper."""
    small, large = whole_calls(query.recorded)
    calls = [] if routed.large is None else [large]
    cost = query_cost(costs, escalated=routed.decision.escalated, small=small, large=calls)
    return cost.sequential, cost.paper


#: Standard error of micro-F1 is about .21 / sqrt(n) on such traffic, measured on the recorded data.
SE_FACTOR = 0.21


@dataclass(frozen=True, slots=True)
class SeenVersion:
    """A version as the demo saw it published; times in seconds since the stream began."""

    version: CalibrationVersion
    published_s: float
    first_use_s: dict[str, float] = field(default_factory=dict)


class SeenResult(NamedTuple):
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


class Terms(NamedTuple):
    """What a run is judged by."""

    target: float
    costs: ModelCosts
    #: On u, of the static calibration with so many points of micro-F1 as margin; 0, the paper's, among them.
    static_thresholds: Mapping[float, float]


class Row(NamedTuple):
    """What one policy served of one query: pairs that are right, named and to be found, and what that cost."""

    hits: int
    predicted: int
    gold: int
    escalated: bool
    cost: QueryCost


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
    """What the demo found."""

    queries: int
    missing: int
    duplicated: int
    dead_letters: int
    target: float
    tolerance: float
    service: dict[str, Phase]
    #: By name each policy's phases, on the very same queries: the paper's static calibration, that with the cheapest
    #: margin that serves the whole stream as well as the service did (known afterwards alone), and a fixed rate.
    rivals: dict[str, dict[str, Phase]]
    large_only_cost: float
    versions_published: int
    versions_before_stream: int
    publish_to_first_use_s: dict[str, float | None]
    drift_detected_after_queries: int | None
    router_kill_to_first_commit_s: float | None
    labels_sent: int
    #: Again, within the tolerance: from half-way through the first drift to the end.
    held: bool
    seed: int
    cost_unit: str
    levers: Levers | None = None
    measured: tuple[MeasuredMicroF1, ...] = ()
    expected: Interval | None = None

    @property
    def succeeded(self) -> bool:
        """Whether nothing was lost or doubled and the target was held again."""
        return self.held and not (self.missing or self.duplicated or self.dead_letters)

    def to_document(self) -> dict[str, Any]:
        """Return the summary as plain JSON values."""
        plain: dict[str, Any] = to_jsonable_python(self)
        return {**plain, "succeeded": self.succeeded}


WHOLE = "whole stream"
PAPER, RATE = "static calibration", "fixed rate"
#: Queries of which the fixed rate escalates its share.
_RECENT = 1_000
#: Clean queries by which that share is taken; so often the threshold follows.
_FIRST = 500


def phase_bounds(scenario: Scenario) -> dict[str, tuple[int, int]]:
    """Return each phase's first and one-past-last query index; the whole stream is one as well."""
    ends = (*scenario.starts[1:], scenario.queries)
    stretches = zip(scenario.stretches, scenario.starts, ends, strict=True)
    return {one.title: (first, end) for one, first, end in stretches} | {WHOLE: (0, scenario.queries)}


def summarise(stream: Sequence[PlannedQuery], seen: Observations, scenario: Scenario, terms: Terms) -> Summary:
    """Reduce what was observed to the demo's numbers."""
    bounds, back_s = phase_bounds(scenario), seen.first_commit_after_kill_s
    drift, over = scenario.starts[1:3]

    def served(part: Sequence[PlannedQuery]) -> Phase:
        return _phase([served_row(*pair) for pair in _answered(part, seen)])

    large = [terms.costs.of_large(whole_calls(query.recorded)[1]) for query in stream]
    again = served(stream[(drift + over) // 2 :])
    service = {name: served(stream[slice(*at)]) for name, at in bounds.items()}
    return Summary(
        queries=len(stream),
        missing=sum(query.query_id not in seen.results for query in stream) - seen.dead_letters,
        duplicated=seen.duplicated,
        dead_letters=seen.dead_letters,
        target=terms.target,
        tolerance=(tolerance := 2.0 * SE_FACTOR / math.sqrt(max(1, again.queries))),
        service=service,
        rivals=_rivals(stream, bounds, terms, service[WHOLE].micro_f1),
        large_only_cost=sum(large) / max(1, len(large)),
        versions_published=len(seen.versions),
        versions_before_stream=seen.versions_before,
        publish_to_first_use_s=first_use(seen),
        drift_detected_after_queries=_detection_delay(stream, seen, scenario),
        router_kill_to_first_commit_s=None if back_s is None or seen.killed_s is None else back_s - seen.killed_s,
        labels_sent=seen.labels_sent,
        held=again.micro_f1 >= terms.target - tolerance,
        seed=scenario.seed,
        cost_unit=f"small calls of {1.0 / terms.costs.small:.0f} tokens",
        levers=levers_of(_answered(stream, seen), bounds, terms.costs, seen.status),
        measured=() if seen.status is None else tuple(seen.status.measured.values()),
        expected=None if seen.status is None else seen.status.micro_f1,
    )


def _rivals(
    stream: Sequence[PlannedQuery], bounds: Mapping[str, tuple[int, int]], terms: Terms, wanted: float
) -> dict[str, dict[str, Phase]]:
    def phases(thresholds: Sequence[float]) -> dict[str, Phase]:
        pairs = zip(stream, thresholds, strict=True)
        rows = [static_row(query, threshold, terms.costs) for query, threshold in pairs]
        return {name: _phase(rows[slice(*at)]) for name, at in bounds.items()}

    by_margin = {margin: phases([at] * len(stream)) for margin, at in terms.static_thresholds.items()}
    enough = [margin for margin, one in by_margin.items() if margin > 0.0 and one[WHOLE].micro_f1 >= wanted]
    best = min(enough, default=max(by_margin))
    return {
        PAPER: by_margin[0.0],
        f"static + {100 * best:.2f} points": by_margin[best],
        RATE: phases(_fixed_rate(stream, terms.static_thresholds[0.0])),
    }


def _fixed_rate(stream: Sequence[PlannedQuery], threshold: float) -> list[float]:
    """Return the thresholds that escalate the share which one does in the first phase, of the latest queries."""
    u = np.array([math.inf if (one := query.recorded.small.uncertainty) is None else one for query in stream])
    kept = float((u[:_FIRST] <= threshold).mean()) if len(u) else 0.0
    found = [threshold] * min(_FIRST, len(u))
    for first in range(_FIRST, len(u), _FIRST):
        recent = u[max(0, first - _RECENT) : first]
        found += [float(np.quantile(recent, kept, method="lower"))] * min(_FIRST, len(u) - first)
    return found


def micro_f1(true_positives: int, predicted: int, gold: int) -> float:
    """Return 2·TP / (predicted + gold), or NaN where there is nothing to find."""
    return 2.0 * true_positives / (predicted + gold) if predicted + gold else math.nan


def _answered(part: Sequence[PlannedQuery], seen: Observations) -> list[Answered]:
    return [(query, seen.results[query.query_id].routed) for query in part if query.query_id in seen.results]


def served_row(query: PlannedQuery, routed: RoutedEvent) -> Row:
    """Return what the service served of a query, and what that cost."""
    counts = count_pairs(routed.entities, query.recorded.gold)
    return Row(counts.true_positives, counts.predicted, counts.gold, routed.decision.escalated, routed.cost)


def static_row(query: PlannedQuery, threshold: float, costs: ModelCosts) -> Row:
    """Return what a fixed threshold would have served of a query, as the recorded answers show."""
    u = query.recorded.small.uncertainty
    up = u is None or u > threshold
    served = query.recorded.large if up else query.recorded.small
    small, large = whole_calls(query.recorded)
    cost = query_cost(costs, escalated=up, small=small, large=[large] * up)
    return Row(served.true_positives, served.predicted, query.recorded.gold_count, up, cost)


def _phase(rows: Sequence[Row]) -> Phase:
    n = max(1, len(rows))
    counts = np.array([row[:4] for row in rows], dtype=int).reshape(-1, 4)
    hits, predicted, gold, escalated = counts.sum(axis=0).tolist()
    sequential, paper = sum(row.cost.sequential for row in rows), sum(row.cost.paper for row in rows)
    return Phase(len(rows), micro_f1(hits, predicted, gold), escalated / n, sequential / n, paper / n)


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
    return {"p50": _quantile(delays, 0.5), "p99": _quantile(delays, 0.99), "samples": len(delays)}


def _was_down(router: str, at_s: float, seen: Observations) -> bool:
    if router != seen.killed_router or seen.killed_s is None:
        return False
    back_s = math.inf if seen.first_commit_after_kill_s is None else seen.first_commit_after_kill_s
    return seen.killed_s <= at_s <= back_s


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None


def _detection_delay(stream: Sequence[PlannedQuery], seen: Observations, scenario: Scenario) -> int | None:
    """Count the drifted stream's queries that were answered before the detector spoke."""
    if seen.drift_seen_s is None:
        return None
    answered = (seen.results.get(query.query_id) for query in stream[scenario.drift_index :])
    return sum(result is not None and result.seen_s <= seen.drift_seen_s for result in answered)


def print_summary(summary: Summary, console: Console) -> None:
    """Print the end table and the verdict."""
    title = f"micro-F1 against a target of {summary.target}, cost in {summary.cost_unit} (sequential / paper)"
    table = Table("", *summary.service, title=title)
    for name, phases in {"this service": summary.service, **summary.rivals}.items():
        table.add_row(name, *(f"[bold]{one.micro_f1:.4f}[/]" for one in phases.values()))
        table.add_row("  escalated", *(f"{one.escalation_rate:.1%}" for one in phases.values()))
        table.add_row("  cost", *(f"{one.cost_sequential:.2f} / {one.cost_paper:.2f}" for one in phases.values()))
        if summary.levers is not None and phases is summary.service:
            whole = summary.levers.whole_calls.values()
            table.add_row("  by whole calls", *(f"{one.sequential:.2f} / {one.paper:.2f}" for one in whole))
    console.print(table)
    for name, value in _facts(summary):
        console.print(f"[bold]{name:>34}[/]  {value}", highlight=False)
    console.print(_verdict(summary), highlight=False)


def _facts(summary: Summary) -> list[tuple[str, str]]:
    p50, p99 = (summary.publish_to_first_use_s[name] for name in ("p50", "p99"))
    kill, before = summary.router_kill_to_first_commit_s, summary.versions_before_stream
    after = summary.drift_detected_after_queries
    return [
        ("queries", f"{summary.queries}, {summary.missing} missing, {summary.duplicated} duplicated"),
        ("held again after the first drift", "yes" if summary.held else "no"),
        ("labels sent", str(summary.labels_sent)),
        ("versions published", f"{summary.versions_published}, of them {before} before the stream"),
        (
            "publish to first use",
            "none" if p50 is None or p99 is None else f"p50 {p50 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms",
        ),
        ("drift detected", "not detected" if after is None else f"after {after} queries"),
        ("router killed to its first commit", "not seen" if kill is None else f"{kill:.2f} s"),
        ("cost of the large model alone", f"{summary.large_only_cost:.2f}"),
        *_quality_facts(summary),
        *_lever_facts(summary.levers),
    ]


def _quality_facts(summary: Summary) -> list[tuple[str, str]]:
    """Return what the status said at the end: expected by the estimate that chose, and measured by served labels."""
    measured = [(f"measured, latest {one.labels} labels", one) for one in summary.measured]
    found: list[tuple[str, Interval | None]] = [("micro-F1 expected now", summary.expected), *measured]
    return [(name, f"{one.estimate:.4f}, {one.lower:.4f} to {one.upper:.4f}") for name, one in found if one is not None]


def _lever_facts(levers: Levers | None) -> list[tuple[str, str]]:
    if levers is None:
        return []
    lever, saved = levers.handoff, levers.handoff.saved
    share = f"{saved.sequential:.1%} / {saved.paper:.1%} of the cost"
    compared = f"; {lever.status.guarded} compared with the large model alone"
    if lever.status.agreement is not None:
        compared += f", {lever.status.agreement:.1%} of them equal"
    return [("handoff", f"in {lever.used:.1%} of large calls, saves {share}{compared}")]


def held_in_words(micro_f1: float, target: float, tolerance: float) -> str:
    """Return whether the target was held; below it but within the tolerance is not called held."""
    if micro_f1 >= target:
        return "held"
    return "missed, though within the tolerance" if micro_f1 >= target - tolerance else "missed"


def _verdict(summary: Summary) -> str:
    """Say how the whole stream went, and what the rival with the best margin, known afterwards alone, paid for it."""
    ours, target = summary.service[WHOLE], summary.target
    held = held_in_words(ours.micro_f1, target, summary.tolerance)
    (name, best), paper = list(summary.rivals.items())[1], summary.rivals[PAPER][WHOLE]
    whole = best[WHOLE]
    better = "no more" if whole.cost_sequential <= ours.cost_sequential else "more"
    return (
        f"Over the whole stream, target {target}: {held}, {ours.micro_f1:.4f} at {ours.cost_sequential:.2f} a query "
        f"(tolerance {summary.tolerance:.4f}); the paper's static calibration {paper.micro_f1:.4f} at "
        f"{paper.cost_sequential:.2f}. "
        f"The best margin in hindsight, {name}, serves {whole.micro_f1:.4f} for {better}, {whole.cost_sequential:.2f}."
    )
