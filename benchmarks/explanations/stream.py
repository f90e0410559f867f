"""A stream of routed queries and labels, as summaries and examples: a scenario and a seed in, events out.

Some texts are in capitals or German from the start, so that no series begins empty. In bursts, a user's queries come
one after another: from one source, and in one kind of text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache

import numpy as np

from benchmarks.explanations.scenarios import Scenario
from benchmarks.explanations.texts import FIELDS, Asked, Kind, asked
from recalibrator.core import TrafficSummarizer, WorkloadSettings
from schemas import (
    Decision,
    FieldCounts,
    LabelledExample,
    LabelRequest,
    ModelRun,
    OutcomeCounts,
    RoutedEvent,
    TrafficSummary,
)
from schemas.costs import QueryCost

START = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = WorkloadSettings.model_validate(
    {"name": "photo", "fields": FIELDS, "target": {"micro_f1": 0.9}, "segments": ("source", "tier")}
)
SOURCES = ("web", "app", "api", "kiosk")
_SHARES = (0.5, 0.3, 0.2, 0.0)
_THRESHOLD = 0.02
_POOL: dict[Kind, int] = {"clean": 3_000}
_OTHERS = 600
_USUAL: tuple[tuple[Kind, float], ...] = (("capitals", 0.03), ("german", 0.03))
_BURST = 8
_DOUBT = 0.85
_WRONG, _WRONG_LATER = 0.1, 0.5
QUERIES_A_SUMMARY = 50
LABEL_EVERY = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """How a stream runs.

    Parameters
    ----------
    queries, shift_at : int
        The shift hits queries from ``shift_at`` on.
    seed : int
    in_bursts : bool
    """

    queries: int
    shift_at: int
    seed: int
    in_bursts: bool = False


def events(scenario: Scenario, plan: Plan) -> Iterator[tuple[int, TrafficSummary | LabelledExample]]:
    """Yield the stream's events, each with the number of the query that it follows."""
    rng, outcomes = np.random.default_rng(plan.seed), np.random.default_rng([plan.seed, 1])
    counter = TrafficSummarizer(SETTINGS)
    source, usual = "web", _usual_kind(rng)
    for number in range(plan.queries):
        hit = number >= plan.shift_at
        if not plan.in_bursts or number % _BURST == 0:
            shares = scenario.sources if hit and scenario.sources is not None else _SHARES
            source, usual = str(rng.choice(SOURCES, p=shares)), _usual_kind(rng)
        shifted = hit and scenario.source in (None, source) and rng.uniform() < scenario.share
        kind = scenario.kind if shifted and scenario.kind != "clean" else usual
        if scenario.sources is not None and source == "api" and rng.uniform() < 0.5:
            kind = "capitals"
        texts = asked(kind, _POOL.get(kind, _OTHERS))
        one = _changed(texts[rng.integers(len(texts))], scenario) if shifted else texts[rng.integers(len(texts))]
        latency_s = float(rng.lognormal(-3.0, 0.3)) * (scenario.slower if hit else 1.0)
        counter.add(routed(number, one, source, latency_s))
        if (number + 1) % QUERIES_A_SUMMARY == 0 and (summary := counter.take()) is not None:
            yield number, summary
        if number % LABEL_EVERY == 0:
            yield (
                number,
                _outcome(_label(number, scenario if hit else None, rng), source, scenario if hit else None, outcomes),
            )


def _usual_kind(rng: np.random.Generator) -> Kind:
    drawn = rng.uniform()
    for kind, share in _USUAL:
        if drawn < share:
            return kind
        drawn -= share
    return "clean"


def _changed(one: Asked, scenario: Scenario) -> Asked:
    if scenario.fails:
        return Asked(one.text, None, None)
    if scenario.doubts is not None and scenario.doubts in one.margins:
        doubted = {scenario.doubts: _DOUBT * one.margins[scenario.doubts]}
        return replace(one, margins=one.margins | doubted)
    if scenario.forgets is None or one.entities is None:
        return one
    return replace(one, entities={**one.entities, scenario.forgets: None})


def routed(number: int, one: Asked, source: str, latency_s: float) -> RoutedEvent:
    """Return the result of one query."""
    answer = None if one.entities is None else tuple(one.entities.items())
    template = _template(one.text, answer, one.uncertainty, tuple(one.margins.items()))
    assert template.small is not None
    return template.model_copy(
        update={
            "query_id": f"q-{number:07d}",
            "small": template.small.model_copy(update={"latency_s": latency_s}),
            "routed_at": START + timedelta(seconds=number),
            "metadata": {"source": source, "tier": "free" if number % 3 else "paid"},
        }
    )


@cache
def _template(
    text: str,
    answer: tuple[tuple[str, str | tuple[str, ...] | None], ...] | None,
    uncertainty: float | None,
    margins: tuple[tuple[str, float], ...],
) -> RoutedEvent:
    """Return the result of one text; validated once, however often it is drawn."""
    valid, entities = answer is not None, dict(answer or ())
    escalated = uncertainty is None or uncertainty > _THRESHOLD
    run = ModelRun(model="large", entities=entities, valid=True, latency_s=0.2)
    return RoutedEvent(
        query_id="q",
        workload="photo",
        text=text,
        entities=entities,
        answered_by="large" if escalated else "small",
        decision=Decision(
            escalated=escalated,
            reason="kept" if not escalated else "threshold" if valid else "small_failed",
            uncertainty=uncertainty,
            large_probability=float(escalated),
        ),
        small=ModelRun(
            model="small", entities=entities if valid else None, valid=valid, field_margins=dict(margins) or None
        ),
        large=run if escalated else None,
        cost=QueryCost(sequential=1.0, paper=1.0),
        label=LabelRequest(requested=False, probability=1.0 / LABEL_EVERY),
        routed_at=START,
        routed_by="router-0",
    )


def _label(number: int, scenario: Scenario | None, rng: np.random.Generator) -> LabelledExample:
    labels = None if scenario is None else scenario.labels
    drawn = str(rng.choice(["ada", "bo", "cy"], p=(0.5, 0.3, 0.2)))
    labeler = "dee" if labels == "labeler" and rng.uniform() < 0.4 else drawn
    delay_s = float(rng.exponential(600.0)) * (8.0 if labels == "delay" else 1.0)
    routed_at = START + timedelta(seconds=number)
    return LabelledExample(
        query_id=f"q-{number:07d}",
        workload="photo",
        uncertainty=0.01,
        small_exact=True,
        small=OutcomeCounts(true_positives=1, predicted=1),
        large=None,
        gold_count=1,
        large_probability=0.1,
        label_probability=1.0 / LABEL_EVERY,
        label_requested=True,
        reason="kept",
        routed_at=routed_at,
        labelled_at=routed_at + timedelta(seconds=delay_s),
        labeler=labeler,
    )


def _outcome(
    label: LabelledExample, source: str, scenario: Scenario | None, rng: np.random.Generator
) -> LabelledExample:
    """Return the label with how right the answer was: one in ten is wrong, or half where the scenario says so."""
    fails = scenario is not None and scenario.labels == "wrong" and source == scenario.source
    hits = int(rng.uniform() >= (_WRONG_LATER if fails else _WRONG))
    counts = {"camera": FieldCounts(true_positives=hits, predicted=1, gold=1)}
    return label.model_copy(update={"per_field": counts, "traits": {"segment:source": source}})
