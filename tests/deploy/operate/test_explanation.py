"""What is said of one query: its decision can be repeated, and its label's path is told to where it ended."""

from __future__ import annotations

from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest

from schemas.draws import drawn_as, mark_of, uniform
from schemas.labelled import LabelledExample
from schemas.routed import LabelRequest
from schemas.status import WorkloadStatus
from tests.support.recalibrator_events import feedback, routed
from tests.support.versions import sealed_version
from ucci_stream.operate.explanation import Said, Traces, explanation, explanation_page, lines, verdict_of

ASKED = routed(1).model_copy(update={"label": LabelRequest(requested=True, probability=0.1, reason="random")})
SIGNAL = "token_margin"
ARRIVED = datetime(2026, 1, 31, 12, tzinfo=UTC)


def status(**details: Any) -> WorkloadStatus:
    return WorkloadStatus.cold_start("photo", sealed_version().target).model_copy(update={"details": details})


def example(**changes: Any) -> LabelledExample:
    said = feedback(1)
    return LabelledExample.from_events(ASKED, said, revision=said.revision).model_copy(update=changes)


def counted(traces: Traces) -> tuple[str, str]:
    return verdict_of(traces, SIGNAL)


@pytest.mark.parametrize(
    ("traces", "verdict", "because"),
    [
        (Traces(results=[ASKED]), "not yet", "no label has come in"),
        (Traces(results=[ASKED], feedback=[Said(feedback(1))]), "not yet", "the join has not sent it"),
        (Traces(results=[ASKED], feedback=[Said(feedback(1, entities=None))]), "no", "skipped"),
        (Traces(results=[ASKED], examples=[example()]), "yes", "as joined"),
        (Traces(results=[ASKED], examples=[example(), example(revision=2)]), "yes", "last corrected"),
        (Traces(results=[ASKED], examples=[example(), example(revision=2, retracted=True)]), "no", "withdrawn"),
        (Traces(results=[ASKED], examples=[example(label_requested=False)]), "no", "not requested"),
        (Traces(results=[ASKED], examples=[example(signal="entropy")]), "no", "measured by entropy"),
        (
            Traces(results=[ASKED], examples=[example(labeler="eve")], status=status(labelers_set_aside={"eve": {}})),
            "no",
            "labels of eve are set aside",
        ),
        (
            Traces(results=[ASKED], examples=[example()], status=status(label_audit={"quarantined": 7})),
            "unknown",
            "some 7 labels are taken for slips",
        ),
    ],
)
def test_where_a_label_ended_is_said_with_its_reason(traces: Traces, verdict: str, because: str) -> None:
    found = counted(traces)
    assert found[0] == verdict
    assert because in found[1]


def test_the_version_that_decided_decides_the_same_again() -> None:
    """Version, threshold and draw together give the decision: nothing else went into it."""
    version = sealed_version(version=4)
    for uncertainty, elsewhere in ((0.1, 0.05), (0.9, 0.95)):
        decision = version.decide(uncertainty, ASKED.query_id)
        result = ASKED.model_copy(update={"decision": decision})
        found = explanation(ASKED.query_id, Traces(results=[result], version=version), SIGNAL)
        assert found["decision"]["repeatable"] is True
        assert found["decision"]["uncertainty_threshold"] == version.uncertainty_threshold
        assert found["draws"]["number"] == uniform(ASKED.query_id, "photo")
        other = sealed_version(version=4, uncertainty_threshold=elsewhere, exploration_probability=0.0)
        found = explanation(ASKED.query_id, Traces(results=[result], version=other), SIGNAL)
        assert found["decision"]["repeatable"] is False


@pytest.mark.parametrize(("drew", "has"), [(b"one", b"another"), (b"one", None), (None, b"one"), (b"one", b"one")])
def test_a_draw_by_another_key_is_not_called_repeatable(drew: bytes | None, has: bytes | None) -> None:
    version = sealed_version(version=4)
    decision = version.decide(0.1, drawn_as(ASKED.query_id, drew))
    result = ASKED.model_copy(update={"decision": decision, "drawn_with": mark_of(drew)})
    found = explanation(ASKED.query_id, Traces(results=[result], version=version), SIGNAL, key=has)
    said = dict(lines(found))
    assert found["decision"]["repeatable"] is (True if drew == has else None)
    assert ("not repeatable" in said["version"]) is (drew != has)
    assert ("router.draw_key" in said["draws"]) is (drew != has)


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


HOSTILE = "<script>alert('u')</script> & \"quoted\""


class Page(HTMLParser):
    """The page's words, and its elements by name."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.words, self.elements = "", set[str]()
        self.feed(markup)

    def handle_starttag(self, tag: str, _attrs: Any) -> None:
        self.elements.add(tag)

    def handle_data(self, data: str) -> None:
        self.words += f" {data.strip()}"


def page(traces: Traces) -> Page:
    return Page(explanation_page(explanation("q-1", traces, "token_margin")))


def test_it_shows_answers_decision_and_the_labels_path() -> None:
    shown = page(Traces([ASKED], [Said(feedback(1))], examples=[example()], version=sealed_version()))
    for words in (ASKED.text, ASKED.decision.reason, "requested (random)", "counted"):
        assert words in shown.words
    assert {"table", "dl"} <= shown.elements


def test_a_wrong_answer_is_marked_beside_the_label() -> None:
    served = next(iter(ASKED.entities))
    said = feedback(1).model_copy(update={"entities": {served: "what people saw"}})
    shown = page(Traces(results=[ASKED], feedback=[Said(said)]))
    assert "✗" in shown.words
    assert "what people saw" in shown.words


def test_margins_of_fields_are_shown_where_they_are_known() -> None:
    assert "margin, small" not in page(Traces(results=[ASKED])).words
    assert ASKED.small is not None
    small = ASKED.small.model_copy(update={"field_margins": {next(iter(ASKED.entities)): 0.125}})
    shown = page(Traces(results=[ASKED.model_copy(update={"small": small})]))
    assert "margin, small" in shown.words
    assert "0.125" in shown.words


def test_a_query_that_was_set_aside_has_a_page() -> None:
    markup = explanation_page(
        {
            "query_id": "q-1",
            "results": 0,
            "dead_letters": [{"at": "2026-01-31", "stage": "router", "reason": "not_json", "error": HOSTILE}],
        }
    )
    assert "not_json" in Page(markup).words


def test_what_strangers_write_is_text() -> None:
    """Neither a query nor an entity nor a labeler's name becomes an element of the page."""
    hostile = ASKED.model_copy(update={"text": HOSTILE, "entities": {HOSTILE: HOSTILE}})
    said = feedback(1).model_copy(update={"labeler": HOSTILE, "entities": {HOSTILE: HOSTILE}})
    shown = page(Traces(results=[hostile], feedback=[Said(said)]))
    assert "script" not in shown.elements
    assert HOSTILE in shown.words
