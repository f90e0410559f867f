"""A fixed stream through the recalibrator's core: drawn answers flow in, digests of all that comes out flow out.

The loop is closed as in production: the core's own versions route the next queries and say whose labels are asked for.
Everything is drawn by Python's own generator, whose numbers are the same on every machine, and nothing but names that
users may import is used.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from threadpoolctl import threadpool_limits

from recalibrator.core import Recalibrator, TrafficSummarizer, WorkloadSettings
from schemas import (
    CalibrationTrial,
    CalibrationVersion,
    Command,
    Decision,
    FeedbackEvent,
    LabelledExample,
    LabelRequest,
    ModelRun,
    QueryCost,
    RoutedEvent,
    TrafficSummary,
    TrialDecision,
)
from tests.golden.digests import Segments, rounded

SEGMENT = 1_000
FIELDS = ("body", "lens", "iso", "place")
START = datetime(2026, 1, 1, tzinfo=UTC)
_EVENT_S = 0.5
_STATUS_EVERY = 500
_SUMMARY_EVERY = 20
_DRAWS = 32


@dataclass(frozen=True)
class Story:
    """What happens in one stream."""

    settings: WorkloadSettings
    #: After which it ends; restarts come after half of them.
    observations: int
    #: Queries from which typos come, in which the large model mostly fails, and in which labelers miss what both models
    #: have right.
    drift_at: int
    outage: tuple[int, int]
    careless: tuple[int, int]
    #: Query from which the target is out of reach.
    harsh_at: int
    #: Where ``more`` counts versions back from the one in force, or gives the share of a canary.
    commands: Sequence[tuple[int, str, dict[str, Any]]]

    seed: int


def _settings(**changed: Any) -> WorkloadSettings:
    table: dict[str, Any] = {
        "name": "golden",
        "fields": FIELDS,
        "target": {"micro_f1": 0.93},
        "cost": {"small": 1.0, "large": 3.02},
        "sampling": {
            "exploration_probability": 0.1,
            "label_probability_kept": 0.6,
            "label_probability_escalated": 0.6,
        },
    }
    return WorkloadSettings.model_validate(table | changed)


STORIES = {
    "audited": Story(
        settings=_settings(),
        observations=16_000,
        drift_at=6_500,
        outage=(5_600, 6_000),
        careless=(11_000, 16_000),
        harsh_at=20_500,
        commands=(
            (300, "bootstrap", {}),
            (3_000, "shadow", {"back": 1}),
            (3_600, "canary", {"back": 2, "share": 0.3}),
            (4_400, "promote", {}),
            (4_700, "pause", {}),
            (4_900, "resume", {}),
            (5_000, "pin", {"back": 3}),
            (5_300, "unpin", {}),
            (5_400, "activate", {"back": 6}),
            (5_500, "refit", {}),
            (7_000, "canary", {"back": 1, "share": 0.9}),
            (7_500, "stop_trial", {}),
            (7_600, "activate", {"back": 10_000}),
        ),
        seed=9,
    ),
    "unpriced": Story(
        settings=_settings(name="golden-unpriced", target={"micro_f1": 0.9}, cost=None, trusted_labelers=("eve",)),
        observations=4_000,
        drift_at=4_000,
        outage=(3_000, 3_100),
        careless=(3_700, 3_900),
        harsh_at=1_000_000,
        commands=((400, "refit", {}),),
        seed=7,
    ),
}


@dataclass(slots=True)
class _Query:
    """One query as drawn: what both models answer, and what is right."""

    number: int
    draws: list[float]
    uncertainty: float | None
    small: dict[str, str] | None
    large: dict[str, str] | None
    gold: dict[str, str]

    @property
    def query_id(self) -> str:
        return f"q-{self.number}"


def _drawn(story: Story, number: int, rng: Random) -> _Query:
    draws = [rng.random() for _ in range(_DRAWS)]
    difficulty, typo = draws[0], number >= story.drift_at and draws[1] < 0.7
    small_slip = 0.004 + 0.34 * difficulty * difficulty + 0.12 * typo
    large_slip = 0.012 + 0.06 * difficulty + 0.01 * typo + (0.1 if number >= story.harsh_at else 0.0)
    gold, small, large = {}, {}, {}
    for place, name in enumerate(FIELDS):
        gold[name] = f"{name} of {number}"
        alike = "none" if draws[20 + place] < 0.1 else None
        small[name] = alike or "small slip" if draws[2 + place] < small_slip else gold[name]
        large[name] = alike or "large slip" if draws[8 + place] < large_slip else gold[name]
    uncertainty = 0.002 + 0.72 * difficulty**3 + 0.03 * typo + 0.05 * draws[14] * difficulty
    small_fails = draws[15] < 0.01
    large_fails = draws[16] < (0.7 if story.outage[0] <= number < story.outage[1] else 0.003)
    known, said = (None, None) if small_fails else (uncertainty, small)
    return _Query(number, draws, known, said, None if large_fails else large, gold)


def _decide(core: Recalibrator, query: _Query) -> tuple[Decision, LabelRequest]:
    version, trial = core.current, core.trial
    if version is None:
        escalated = Decision(escalated=True, reason="cold_start", uncertainty=query.uncertainty, large_probability=1.0)
        return escalated, LabelRequest(requested=True, probability=1.0, reason="random")
    decision = base = version.decide(query.uncertainty, query.query_id)
    if trial is not None:
        tried = trial.version.decide(query.uncertainty, query.query_id)
        acted = trial.acts_on(query.query_id)
        beside = TrialDecision(
            version=trial.version.version,
            mode=trial.mode,
            escalated=tried.escalated,
            base_version=version.version,
            base_escalated=base.escalated,
            acted=acted,
        )
        decision, version = (tried, trial.version) if acted else (base, version)
        decision = decision.model_copy(update={"trial": beside})
    return decision, version.request_label(decision, query.query_id)


def _route(core: Recalibrator, query: _Query) -> RoutedEvent | None:
    """Return the result of a query; None where no model has an answer to it."""
    decision, label = _decide(core, query)
    small = ModelRun(
        model="small",
        entities=query.small,
        valid=query.small is not None,
        uncertainty=query.uncertainty,
        latency_s=0.04 + 0.02 * query.draws[17],
    )
    valid, latency_s = query.large is not None, 0.14 + 0.02 * query.draws[18]
    large = ModelRun(model="large", entities=query.large, valid=valid, latency_s=latency_s)
    by_large = decision.escalated and valid
    if decision.escalated and not valid:
        decision = decision.model_copy(update={"reason": "degraded"})
    entities = query.large if by_large else query.small
    if entities is None:
        return None
    return RoutedEvent(
        query_id=query.query_id,
        workload=core.settings.name,
        text=f"query {query.number}",
        entities=entities,
        answered_by="large" if by_large else "small",
        decision=decision,
        small=small,
        large=large if decision.escalated else None,
        cost=QueryCost(sequential=1.0 + 3.02 * decision.escalated, paper=1.0 + 2.02 * decision.escalated),
        label=label,
        routed_at=START + timedelta(seconds=_EVENT_S * query.number),
        routed_by="router-0",
    )


def _labels(story: Story, query: _Query, routed: RoutedEvent) -> Iterator[tuple[float, LabelledExample]]:
    """Yield what people say of a query, each with the query's number at which it comes."""
    draws, number = query.draws, query.number
    fate, audit = draws[26], routed.label.reason == "audit"
    if draws[27] < 0.03 or not (routed.label.requested or draws[28] < 0.02):
        return
    gold: dict[str, str] = dict(query.gold)
    is_careless = story.careless[0] <= number < story.careless[1] and not audit and draws[29] < 0.3
    if is_careless or fate < 0.05:
        gold[FIELDS[int(len(FIELDS) * draws[30])]] = "missed"
    labeler = "eve" if audit else ("ann", "bob", "cy")[int(3 * draws[31])]
    due = number + 10.0 + 250.0 * draws[19] * draws[19]

    def said(later: float, entities: dict[str, str] | None, **more: Any) -> tuple[float, LabelledExample]:
        trusted, disputed = story.settings.trusted_labelers, more.pop("disputed", 0)
        labelled_at = START + timedelta(seconds=_EVENT_S * int(due + later))
        given = {"entities": entities, "labeler": labeler, "labelled_at": labelled_at, **more}
        label = FeedbackEvent.model_validate({"query_id": query.query_id, **given})
        how: dict[str, Any] = {"fields": FIELDS, "trusted_labelers": trusted, "disputed": disputed}
        return due + later, LabelledExample.from_events(routed, label, **how)

    yield said(0.0, gold)
    if fate < 0.05:
        yield said(80.0, query.gold, revision=2)
    elif fate < 0.07:
        yield said(60.0, gold, revision=2, retracted=True)
    elif fate < 0.08:
        yield said(5.0, gold)
    elif fate < 0.11:
        yield said(40.0, query.gold, revision=2, labeler="dee", disputed=int(gold != query.gold))


@dataclass
class _Log:
    """What goes in, counted, and what comes out, hashed."""

    given: Segments = field(default_factory=lambda: Segments(SEGMENT))
    observations: Counter[str] = field(default_factory=Counter)
    triggers: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    last_trial: CalibrationTrial | None = None

    def record(self, event: LabelledExample | TrafficSummary | Command, version: CalibrationVersion | None) -> None:
        self.observations[event.kind] += 1
        if version is not None:
            assert version.is_sealed
            self.triggers[version.evidence.trigger] += 1
            self.given.take(_document(version))

    def look(self, core: Recalibrator) -> None:
        if core.trial is not self.last_trial:
            self.last_trial = core.trial
            self.given.take(None if core.trial is None else _document(core.trial))
        if self.observations.total() % _STATUS_EVERY == 0:
            status = core.status()
            self.states[status.state] += 1
            self.given.take(_document(status))
        self.given.step()

    def summary(self) -> dict[str, Any]:
        return {
            "observations": dict(sorted(self.observations.items())),
            "triggers": dict(sorted(self.triggers.items())),
            "states": dict(sorted(self.states.items())),
            "outputs_by_thousands": self.given.digests,
        }


def _document(event: Any) -> Any:
    """Return an event as JSON, without the digest of a version: that is of the numbers before they are rounded."""
    document = rounded(event.to_json())
    for holder in (document, document.get("version")):
        if isinstance(holder, dict):
            holder.pop("digest", None)
    return document


def _command(core: Recalibrator, number: int, action: str, more: dict[str, Any]) -> Command:
    rest = {key: value for key, value in more.items() if key != "back"}
    if "back" in more:
        in_force = 0 if core.current is None else core.current.version
        rest["version"] = abs(in_force - more["back"]) or 1
    at = START + timedelta(seconds=_EVENT_S * number)
    document = {"workload": core.settings.name, "action": action, "issued_by": "golden", "issued_at": at, **rest}
    return Command.model_validate(document)


def run(name: str) -> dict[str, Any]:
    """Drive one story's stream through a core, restarted in the middle; on one BLAS thread, as the service does.

    Returns counts for people to read, and the digests.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        return _run(STORIES[name])


def _run(story: Story) -> dict[str, Any]:
    rng, log = Random(story.seed), _Log()
    core, summarizer = Recalibrator(story.settings), TrafficSummarizer(story.settings)
    commands = {number: (action, more) for number, action, more in story.commands}
    pending: list[tuple[float, int, LabelledExample]] = []
    number = sequence = 0
    while True:
        events: list[LabelledExample | TrafficSummary | Command] = []
        query = _drawn(story, number, rng)
        routed = _route(core, query)
        if routed is not None:
            summarizer.add(routed)
            for due, example in _labels(story, query, routed):
                sequence += 1
                heapq.heappush(pending, (due, sequence, example))
        if number in commands:
            events.append(_command(core, number, *commands[number]))
        if number % _SUMMARY_EVERY == _SUMMARY_EVERY - 1 and (summary := summarizer.take()) is not None:
            events.append(summary)
        while pending and pending[0][0] <= number:
            events.append(heapq.heappop(pending)[2])
        for event in events:
            log.record(event, core.observe(event))
            log.look(core)
            if log.observations.total() == story.observations // 2:
                core = Recalibrator.restore(story.settings, core.snapshot())
                core.raise_version_floor(core.version_floor + 5)
            if log.observations.total() == story.observations:
                return {"queries": number, **log.summary()}
        number += 1
