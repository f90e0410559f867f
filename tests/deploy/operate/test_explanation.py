"""What is said of one query: its decision can be repeated, and its label's path is told to where it ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from schemas.draws import drawn_as, mark_of
from schemas.labelled import LabelledExample
from schemas.routed import LabelRequest
from schemas.status import WorkloadStatus
from tests.support.recalibrator_events import feedback, routed
from tests.support.versions import sealed_version
from ucci_runtime.broker.records import Input, Record
from ucci_stream.operate.explanation import Said, Traces, explanation, lines, verdict_of
from ucci_stream.operate.kafka_letters import Letter

ASKED = routed(1).model_copy(update={"label": LabelRequest(requested=True, probability=0.1, reason="random")})
SIGNAL = "token_margin"
ARRIVED = datetime(2026, 1, 31, 12, tzinfo=UTC)


def status(**details: Any) -> WorkloadStatus:
    return WorkloadStatus.cold_start("photo", sealed_version().target).model_copy(update={"details": details})


def example(**changes: Any) -> LabelledExample:
    said = feedback(1)
    return LabelledExample.from_events(ASKED, said, revision=said.revision).model_copy(update=changes)


PLACED = Said(feedback(1), ARRIVED, "feedback/3/4")


def letter(reason: str, offset: str = "4") -> Letter:
    """A dead letter of the label at that offset."""
    record = Record(Input("dead-letters", 0), 7, None, None)
    return Letter("0/7", ARRIVED, "join", reason, "why", "feedback", "3", offset, "", record)


def joined(*examples: LabelledExample, **told: Any) -> Traces:
    return Traces(results=[ASKED], examples=[*examples], status=status(**told))


@pytest.mark.parametrize(
    ("traces", "verdict", "because"),
    [
        (Traces(results=[ASKED]), "not yet", "no label has come in"),
        (Traces(results=[ASKED], feedback=[Said(feedback(1))]), "not yet", "the join has not sent it"),
        (Traces(results=[ASKED], feedback=[Said(feedback(1, entities=None))]), "no", "skipped"),
        (Traces(feedback=[PLACED]), "not yet", "no result of this id has come"),
        (Traces(feedback=[PLACED], letters=[letter("no_result")]), "no", "set aside as a dead letter: no_result"),
        (Traces(results=[ASKED], feedback=[PLACED], letters=[letter("unknown_fields")]), "no", "unknown_fields"),
        (Traces(results=[ASKED], feedback=[PLACED], letters=[letter("x", "5")]), "not yet", "the join has not sent it"),
        (Traces(feedback=[PLACED], examples=[example()]), "yes", "as joined"),
        (joined(example()), "yes", "as joined"),
        (joined(example(), example(revision=2)), "yes", "last corrected"),
        (joined(example(), example(revision=2, retracted=True)), "no", "withdrawn"),
        (joined(example(label_requested=False)), "no", "not requested"),
        (joined(example(signal="entropy")), "no", "measured by entropy"),
        (joined(example(labeler="eve"), labelers_set_aside={"eve": {}}), "no", "labels of eve are set aside"),
        (joined(example(), label_audit={"quarantined": 7}), "unknown", "some 7 labels are taken for slips"),
    ],
)
def test_where_a_label_ended_is_said_with_its_reason(traces: Traces, verdict: str, because: str) -> None:
    counted, why = verdict_of(traces, SIGNAL)
    assert (counted, because in why) == (verdict, True)


@pytest.mark.parametrize(("drew", "has"), [(b"one", b"another"), (b"one", None), (None, b"one"), (b"one", b"one")])
def test_a_draw_by_another_key_is_not_called_repeatable(drew: bytes | None, has: bytes | None) -> None:
    version = sealed_version(version=4)
    decision = version.decide(0.1, drawn_as(ASKED.query_id, drew))
    result = ASKED.model_copy(update={"decision": decision, "drawn_with": mark_of(drew)})
    found = explanation(ASKED.query_id, Traces(results=[result], version=version), SIGNAL, key=has)
    said = dict(lines(found))
    assert found["decision"]["repeatable"] is (True if drew == has else None)
    other = sealed_version(version=4, uncertainty_threshold=0.05, exploration_probability=0.0)
    decided = explanation(ASKED.query_id, Traces(results=[result], version=other), SIGNAL, key=drew)["decision"]
    assert decided["repeatable"] is False, "version, threshold and draw together give the decision"
    refused = ("not repeatable" in said["version"], "router.draw_key" in said["draws"])
    assert refused == (drew != has, drew != has)


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (Said(feedback(1), ARRIVED), "2026-01-01T00:01:01Z from ada, revision 1"),
        (Said(feedback(1, labelled_at=None), ARRIVED), "2026-01-31T12:00:00Z from ada, revision 1"),
        (Said(feedback(1, labelled_at=None, labeler=None)), "at an unknown time from nobody named, revision 1"),
    ],
)
def test_feedback_without_a_time_came_none(said: Said, line: str) -> None:
    """Where its labeler does not say when, it is dated by its arrival, as in the join."""
    found = explanation("q-1", Traces(results=[ASKED], feedback=[said]), SIGNAL)
    assert dict(lines(found))["came"] == line
