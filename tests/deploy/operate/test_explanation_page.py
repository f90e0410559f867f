"""The page about one query: what people look for on it, whatever a query, a model or a labeler has written."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from schemas.labelled import LabelledExample
from schemas.routed import LabelRequest
from tests.support.recalibrator_events import feedback, routed
from tests.support.versions import sealed_version
from ucci_stream.operate.explanation import Said, Traces, explanation, explanation_page

HOSTILE = "<script>alert('u')</script> & \"quoted\""
ROUTED = routed(1).model_copy(update={"label": LabelRequest(requested=True, probability=0.1, reason="random")})


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
    said = feedback(1)
    joined = LabelledExample.from_events(ROUTED, said, revision=said.revision)
    shown = page(Traces(results=[ROUTED], feedback=[Said(said)], examples=[joined], version=sealed_version()))
    for words in (
        ROUTED.text,
        ROUTED.decision.reason,
        "requested (random)",
        "counted",
    ):
        assert words in shown.words
    assert {"table", "dl"} <= shown.elements


def test_a_wrong_answer_is_marked_beside_the_label() -> None:
    served = next(iter(ROUTED.entities))
    said = feedback(1).model_copy(update={"entities": {served: "what people saw"}})
    shown = page(Traces(results=[ROUTED], feedback=[Said(said)]))
    assert "✗" in shown.words
    assert "what people saw" in shown.words


def test_margins_of_fields_are_shown_where_they_are_known() -> None:
    assert "margin, small" not in page(Traces(results=[ROUTED])).words
    assert ROUTED.small is not None
    small = ROUTED.small.model_copy(update={"field_margins": {next(iter(ROUTED.entities)): 0.125}})
    shown = page(Traces(results=[ROUTED.model_copy(update={"small": small})]))
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
    hostile = ROUTED.model_copy(update={"text": HOSTILE, "entities": {HOSTILE: HOSTILE}})
    said = feedback(1).model_copy(update={"labeler": HOSTILE, "entities": {HOSTILE: HOSTILE}})
    shown = page(Traces(results=[hostile], feedback=[Said(said)]))
    assert "script" not in shown.elements
    assert HOSTILE in shown.words
