"""Results, requests for labels and feedback whose content depends on the query's number alone."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from schemas.costs import QueryCost
from schemas.draws import uniform
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from schemas.routed import Decision, LabelRequest, ModelRun, RoutedEvent
from schemas.settings import WorkloadSettings

START = datetime(2026, 1, 1, tzinfo=UTC)
FIELDS = ("camera", "lens")


def workload(name: str = "photo", fields: tuple[str, ...] = FIELDS, **changes: Any) -> WorkloadSettings:
    return WorkloadSettings.model_validate({"name": name, "fields": fields, "target": {"micro_f1": 0.9}, **changes})


PHOTO = workload()


def entities(query_id: str, wrong: bool = False) -> dict[str, Any]:
    return {"camera": f"camera of {query_id}", "lens": "wrong lens" if wrong else f"lens of {query_id}"}


def routed(number: int, *, workload: str = "photo", drifted: bool = False, **changes: Any) -> RoutedEvent:
    """Return the result of one query that both models answered.

    The small model errs with probability u, or nearly always once drifted; the large one seldom.
    """
    query_id = f"q-{number}"
    u = uniform(query_id, "uncertainty")
    said = entities(query_id, wrong=uniform(query_id, "small") < (0.5 + 0.5 * u if drifted else u))
    served = entities(query_id, wrong=uniform(query_id, "large") < 0.05)
    event = RoutedEvent(
        query_id=query_id,
        workload=workload,
        text=f"query {number}",
        entities=served,
        answered_by="large",
        decision=Decision(escalated=True, reason="cold_start", uncertainty=u, large_probability=1.0),
        small=ModelRun(model="small", entities=said, valid=True, uncertainty=u, latency_s=0.05),
        large=ModelRun(model="large", entities=served, valid=True, latency_s=0.15),
        cost=QueryCost(sequential=4.0, paper=3.0),
        label=LabelRequest(requested=True, probability=1.0, reason="random"),
        routed_at=START + timedelta(seconds=number),
        routed_by="router-0",
    )
    return event.model_copy(update=changes)


def feedback(number: int, gold: dict[str, Any] | None = None, **changes: Any) -> FeedbackEvent:
    """Return the right label of one query, a minute after it was routed."""
    query_id = f"q-{number}"
    said = {"query_id": query_id, "entities": entities(query_id) if gold is None else gold, "labeler": "ada"}
    return FeedbackEvent.model_validate(said | {"labelled_at": START + timedelta(seconds=number + 60)} | changes)


def label_request(number: int, **changes: Any) -> LabelRequested:
    """Return a request for the label of one query, the later the higher its number."""
    content = {
        "query_id": f"q-{number}",
        "workload": "photo",
        "text": f"query {number}",
        "entities": {"camera": "canon"},
        "answered_by": "small",
        "reason": "monitoring",
        "probability": 0.1,
        "requested_at": START + timedelta(seconds=number),
    }
    return LabelRequested.model_validate(content | changes)


def drawn_inputs(
    draw: random.Random, queries: int, broken: int, *, results: str, feedbacks: str
) -> list[tuple[float, str, int, bytes | None]]:
    """Return results, labels, corrections, withdrawals, repetitions and garbage, unsorted.

    Each is a drawn moment, a topic, the query's number and the record's value; a query's feedback keeps its order.
    """
    sent: list[tuple[float, str, int, bytes | None]] = []
    for number in range(queries):
        sent.append((draw.random(), results, number, routed(number).to_json()))
        said = [feedback(number)]
        if draw.random() < 0.4:
            said.append(feedback(number, entities(f"q-{number}", wrong=True), revision=2))
        if draw.random() < 0.3:
            said.append(feedback(number, revision=3, retracted=True))
        if draw.random() < 0.3:
            said.append(said[-1])
        moments = sorted(draw.random() for _ in said)
        sent += [(m, feedbacks, number, e.to_json()) for m, e in zip(moments, said, strict=True)]
    sent += [(draw.random(), feedbacks, number, b"garbage") for number in range(broken)]
    sent += [(draw.random(), results, number, None) for number in range(broken)]
    return sent
