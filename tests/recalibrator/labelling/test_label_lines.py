"""Answers as lines of JSON: what each says, which of several counts, and that reading twice changes nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from recalibrator.labelling.label_lines import LabelLinesReader, Line, documents_of, task_line
from recalibrator.labelling.label_tool import InvalidAnnotation, Task
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from tests.support.recalibrator_events import routed

NOW = datetime(2026, 3, 1, tzinfo=UTC)
READER = LabelLinesReader("photo")
TEXT = "canon 5d with a 50 mm lens"


def answer(verdict: str = "accept", **changes: Any) -> dict[str, Any]:
    """As Prodigy writes it: the task with the answer added."""
    spans = [{"start": 0, "end": 8, "label": "camera", "token_start": 0, "token_end": 1}]
    base = {"text": TEXT, "spans": spans, "meta": {"query_id": "q-1"}, "answer": verdict, "_annotator_id": "ada"}
    return base | changes


def lines(*answers: dict[str, Any], labeler: str = "", name: str = "answers.jsonl") -> list[Line]:
    return [Line(f"{name} line {n}", labeler, json.dumps(one).encode()) for n, one in enumerate(answers, 1)]


def tasks_of(answers: list[Line], tasks: list[Line] | None = None) -> list[Task]:
    return [READER.task(document) for document in documents_of(READER, tasks or [], answers)]


def events_of(*answers: dict[str, Any]) -> list[FeedbackEvent]:
    return [one.event for task in tasks_of(lines(*answers)) for one in task.annotations]


def read(line: dict[str, Any]) -> FeedbackEvent:
    event = READER.feedback(line)
    assert event is not None
    return event


def test_accepted_spans_become_entities() -> None:
    spans = [*answer()["spans"], {"label": "lens", "text": "50 mm"}, {"label": "lens", "start": 16, "end": 21}]
    event = read(answer(spans=spans, _timestamp=1_772_323_200.25))

    assert event.entities == {"camera": "canon 5d", "lens": ("50 mm", "50 mm")}
    assert (event.query_id, event.labeler, event.source, event.revision) == ("q-1", "ada", "label-files", 1)
    assert event.labelled_at == datetime(2026, 3, 1, 0, 0, 0, 250_000, tzinfo=UTC)
    assert read(answer(spans=[])).entities == {}, "nothing is there"


def test_entities_stand_as_they_are_and_need_no_spans() -> None:
    event = read({"query_id": "q:2", "entities": {"camera": "Canon EOS 5D"}, "labeler": "bob"})

    assert (event.query_id, event.entities, event.labelled_at) == ("q:2", {"camera": "Canon EOS 5D"}, None)


@pytest.mark.parametrize("verdict", ["reject", "ignore"])
def test_what_is_not_accepted_is_a_skip(verdict: str) -> None:
    assert (read(answer(verdict)).entities, read(answer(verdict)).retracted) == (None, False)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"answer": "maybe"}, "answer"),
        ({"meta": {}}, "meta.query_id"),
        ({"_annotator_id": None}, "labeler"),
        ({"_annotator_id": 7}, "_annotator_id"),
        ({"spans": None}, "spans"),
        ({"spans": ["camera"]}, "spans.0"),
        ({"spans": [{"label": "camera"}]}, "spans.0"),
        ({"spans": [{"label": "camera", "start": 5, "end": 99}]}, "spans.0"),
        ({"entities": ["canon"]}, "entities"),
        ({"entities": {"camera": 5}}, "entities.camera"),
        ({"labelled_at": "yesterday"}, "labelled_at"),
        ({"_timestamp": "noon"}, "_timestamp"),
        ({"_timestamp": 1e300}, "_timestamp"),
        ({"retracted": "yes"}, "retracted"),
    ],
)
def test_an_unclear_answer_is_refused_with_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidAnnotation) as refused:
        READER.feedback(answer(**change))
    assert refused.value.field is not None
    assert refused.value.field.startswith(field)
    assert field.partition(".")[0] in str(refused.value)


@pytest.mark.parametrize("stamped", [True, False])
def test_a_correction_has_the_next_revision_and_another_id(stamped: bool) -> None:
    times: list[dict[str, Any]] = [{"_timestamp": 1_772_323_200 + n} if stamped else {} for n in range(2)]
    first = events_of(answer(**times[0]))
    both = events_of(answer(**times[0]), answer(spans=[], **times[1]))

    assert [(one.revision, one.entities) for one in first] == [(1, {"camera": "canon 5d"})]
    assert [(one.revision, one.entities) for one in both] == [(2, {})]
    assert first[0].identity() != both[0].identity()


def test_answers_are_ordered_by_time_not_by_line() -> None:
    (event,) = events_of(answer(_timestamp=1_772_323_201), answer("ignore", _timestamp=1_772_323_200))

    assert (event.revision, event.entities) == (2, {"camera": "canon 5d"})


def test_a_line_of_two_exports_counts_once() -> None:
    once, twice = (tasks_of([*lines(answer()), *lines(*[answer()] * n)]) for n in (0, 2))

    assert once[0].annotations == twice[0].annotations


def test_each_person_has_a_label_of_their_own() -> None:
    named = tasks_of([*lines(answer(_annotator_id=None), labeler="bob"), *lines(answer(), labeler="bob")])

    (task,) = named
    assert [one.event.labeler for one in task.annotations] == ["bob", "ada"]
    assert len({one.key for one in task.annotations}) == 2


def test_lines_that_cannot_be_read_are_named_by_file_and_number() -> None:
    broken = Line("answers-bob.jsonl line 7", "bob", b'{"half')
    (task,) = tasks_of([broken])

    (fault,) = task.faults
    assert fault.startswith("answers-bob.jsonl line 7: is no JSON")
    assert (task.query_id, task.annotations) == (None, ())


def test_answers_to_tasks_of_another_workload_are_left_alone() -> None:
    assert tasks_of(lines(answer(meta={"query_id": "q-1", "workload": "other"}))) == []


def test_a_task_is_prodigys_and_leads_back_to_its_query() -> None:
    request = LabelRequested.from_result(routed(1, entities={"camera": ("canon", "nikon"), "lens": None}))
    line = task_line(request, NOW, prefill=True)

    assert line["text"] == request.text
    assert line["spans"] == []
    assert line["meta"]["served"] == "camera=canon | nikon"
    assert "served" not in task_line(request, NOW, prefill=False)["meta"]
    (waiting,) = tasks_of([], lines(line))
    assert (waiting.query_id, waiting.is_untouched, waiting.created_at) == (request.query_id, True, NOW)
    assert read(line | {"answer": "accept", "_annotator_id": "ada"}).query_id == request.query_id
