"""Label Studio's webhooks: created, changed, skipped and deleted annotations."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from recalibrator.api import routes_feedback
from recalibrator.labelling.label_studio import SOURCE, LabelStudioReader, RecentAnnotations
from recalibrator.labelling.label_tool import (
    AnnotationKey,
    InvalidAnnotation,
    annotation_of,
)
from schemas.feedback import MAX_REVISION, FeedbackEvent
from tests.support.api import START, Api, make_api


def _region(label: str, text: str) -> dict[str, Any]:
    return {"from_name": "label", "type": "labels", "value": {"start": 0, "end": 1, "text": text, "labels": [label]}}


def _hook(action: str = "ANNOTATION_CREATED", **annotation: Any) -> dict[str, Any]:
    base = {"id": 7, "project": 2, "completed_by": 3, "updated_at": "2026-01-01T00:00:01.500000Z", "result": []}
    return {"action": action, "annotation": base | annotation, "task": {"data": {"query_id": "q-1"}}}


def read(hook: dict[str, Any]) -> FeedbackEvent:
    event = LabelStudioReader().feedback(hook)
    assert event is not None
    return event


def test_regions_become_entities_and_repeated_labels_lists() -> None:
    areas = {"from_name": "iso", "type": "textarea", "value": {"text": ["400"]}}
    event = read(_hook(result=[_region("camera", "canon"), _region("lens", "a"), _region("lens", "b"), areas]))

    assert event.entities == {"camera": "canon", "lens": ("a", "b"), "iso": "400"}
    assert (event.query_id, event.labeler, event.source) == ("q-1", "label-studio:3", "label-studio")
    assert read(_hook(completed_by={"id": 3, "email": "ada@example.org"})).labeler == "label-studio:3"
    assert read(_hook(was_cancelled=True)).entities is None, "a skip"
    assert read(_hook() | {"task": {"data": {}, "meta": {"query_id": "q-9"}}}).query_id == "q-9"


def test_an_annotations_revision_is_one_that_feedback_may_have() -> None:
    for moment in ("2019-06-01T00:00:00Z", "2026-01-01T00:00:01.500000Z", "2080-01-01T00:00:00Z"):
        assert 1 <= read(_hook(updated_at=moment)).revision < MAX_REVISION


def test_what_names_no_query_is_left() -> None:
    for action in ("ANNOTATIONS_DELETED", "TASKS_CREATED", "PROJECT_UPDATED"):
        assert LabelStudioReader().feedback({"action": action, "annotations": [{"id": 7}]}) is None


NUMBER = {"from_name": "lens", "type": "number", "value": {"number": 50}}
ARROW = {"type": "relation", "from_id": "r1", "to_id": "r2", "direction": "right"}


def test_a_hook_takes_what_it_reads_and_refuses_the_rest() -> None:
    """The case: a field by a control that was not read counted as none; with an arrow the whole label was refused."""
    api = make_api()
    answer = _post(api, _hook(result=[_region("camera", "abc"), NUMBER, ARROW]))
    assert (answer.status_code, answer.json()) == (202, {"taken": 1, "query_id": "q-1"})
    assert FeedbackEvent.from_json(api.producer.records[-1][2]).entities == {"camera": "abc", "lens": "50"}
    compared = {"from_name": "lens", "type": "pairwise", "value": {"selected": "left"}}
    refused = _post(api, _hook(result=[_region("camera", "abc"), compared]))
    assert refused.status_code == 422
    assert refused.json()["error"]["field"] == "annotation.result.1"
    assert "'lens' (pairwise)" in refused.json()["error"]["message"]


def test_a_hook_names_what_it_left_out() -> None:
    quality = {"from_name": "quality", "type": "choices", "value": {"choices": ["good"]}}
    answer = _post(make_api(), _hook(result=[_region("camera", "abc"), quality]))
    assert answer.status_code == 202
    assert [one["code"] for one in answer.json()["warnings"]] == ["unknown_field"]


def test_a_hook_warns_of_a_spelt_null() -> None:
    answer = _post(make_api(), _hook(result=[_region("camera", "N/A"), NUMBER]))
    assert answer.status_code == 202
    assert [(one["code"], one["field"]) for one in answer.json()["warnings"]] == [("spelt_null", "entities.camera")]


@pytest.mark.parametrize(("controls", "status"), [("camera lens comment", 202), ("camera comment", 422)])
def test_a_hooks_configuration_says_what_can_be_meant(controls: str, status: int) -> None:
    """A comment alone says that the text holds nothing, unless a field could not be given."""
    areas = "".join(f'<TextArea name="{name}" toName="t"/>' for name in controls.split())
    comment = {"from_name": "comment", "type": "textarea", "value": {"text": ["nothing here"]}}
    hook = _hook(result=[comment]) | {"project": {"id": 2, "label_config": f"<View>{areas}</View>"}}
    answer = _post(make_api(), hook)
    assert answer.status_code == status
    if status == 422:
        assert (answer.json()["error"]["field"], "lens" in answer.text) == ("project.label_config", True)


def test_a_hook_is_read_by_the_fields_of_its_query() -> None:
    """Where the query's workload is not known, the names of all count."""
    reader = LabelStudioReader(2, (("camera",), ("lens",)))
    event = reader.feedback(_hook(result=[_region("camera", "abc"), NUMBER]))
    assert event is not None
    assert event.entities == {"camera": "abc", "lens": "50"}
    with pytest.raises(InvalidAnnotation, match="'camera' \\(labels\\) is no field"):
        LabelStudioReader(2, (("lens",),)).feedback(_hook(result=[_region("camera", "abc"), NUMBER]))


def _deletion(*annotations: int) -> dict[str, Any]:
    return {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": n} for n in annotations], "project": {"id": 2}}


def test_feedback_of_others_is_about_no_annotation() -> None:
    for source, named in ((None, "label-studio:1:2:3"), (SOURCE, "mine")):
        assert annotation_of(FeedbackEvent(query_id="q", entities={}, source=source, feedback_id=named), SOURCE) is None


def test_a_deletion_retracts_known_annotations_and_counts_others() -> None:
    """At once what this process was sent; one that the broker did not take is not forgotten, and can be repeated."""
    api = make_api()
    for hook in (_hook(), _hook(id=8, completed_by=4)):
        assert _post(api, hook).json() == {"taken": 1, "query_id": "q-1"}
    api.producer.is_away = True
    assert _post(api, _deletion(7)).status_code == 503
    api.producer.is_away = False
    assert _post(api, _deletion(7, 99)).json() == {"taken": 1}
    last = FeedbackEvent.from_json(api.producer.records[-1][2])
    assert (last.labeler, last.retracted) == ("label-studio:3", True)
    assert "ucci_recalibrator_deletions_unknown_total 1.0" in api.client.get("/metrics").text
    assert _post(api, _deletion(7, 99)).json() == {"taken": 0}


def _post(api: Api, hook: dict[str, Any], query: str = "") -> Any:
    return api.client.post(f"/v1/hooks/label-studio{query}", json=hook)


def test_a_process_that_stood_still_refused_what_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker had acknowledged it, and the answer was 503 since the process itself was slow; it counts as taken.

    A broker that does not acknowledge it in Label Studio's time is 503.
    """
    api = make_api()
    monkeypatch.setattr(routes_feedback, "HOOK_TIMEOUT_S", 0.01)
    queue = api.producer.queue

    def queue_and_stand_still(*record: Any) -> asyncio.Future[None]:
        time.sleep(0.02)  # as on a machine without CPU to spare: longer than the wait for the broker
        return queue(*record)

    monkeypatch.setattr(api.producer, "queue", queue_and_stand_still)
    for takes_s, status in ((0.0, 202), (60.0, 503)):
        api.producer.takes_s = takes_s
        assert _post(api, _hook()).status_code == status
        assert 'ucci_recalibrator_feedback_total{source="label-studio"} 1.0' in api.client.get("/metrics").text


def test_only_the_annotations_told_of_lately_are_remembered() -> None:
    recent = RecentAnnotations(most=2)
    for annotation in (1, 2, 1, 3):
        recent.remember(read(_hook(id=annotation)))
    assert [number for number in (1, 2, 3) if recent.retraction(AnnotationKey("2", str(number)), START)] == [1, 3]


@pytest.mark.parametrize(
    ("hook", "field"),
    [
        (_deletion(7) | {"annotations": [5]}, "annotations"),
        (_deletion(7) | {"annotations": [{"id": "x"}]}, "annotations.0.id"),
        (_deletion(7) | {"project": {}}, "project.id"),
        (_hook() | {"annotation": None}, "annotation"),
        (_hook() | {"task": {}}, "task.data.query_id"),
        (_hook() | {"task": {"data": {"query_id": "q" * 10_000}}}, "query_id"),
        (_hook(updated_at="yesterday"), "annotation.updated_at"),
        (_hook(result=[5]), "annotation.result.0"),
        (_hook(id=True), "annotation.id"),
        (_hook(was_cancelled="no"), "annotation.was_cancelled"),
        (_hook(project="2"), "annotation.project"),
    ],
)
def test_a_malformed_hook_is_refused_with_its_field(hook: dict[str, Any], field: str) -> None:
    reader = LabelStudioReader()
    with pytest.raises(InvalidAnnotation) as refused:
        (reader.feedback if "annotation" in hook else reader.deleted)(hook)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("place", "query", "expected"),
    [
        ({"project": {"id": 5}}, "", "5"),
        ({"task": {"data": {"query_id": "q-1"}, "project": 5}}, "", "5"),
        ({}, "?project=5", "5"),
        ({}, "?workload=b", "0"),
        ({}, "", (422, "annotation.project")),
        ({}, "?project=x", (422, "project")),
        ({}, "?project=1234567890", (422, "project")),
        ({}, "?workload=c", (404, "workload")),
    ],
)
def test_a_hook_without_annotation_project_is_422(
    place: dict[str, Any], query: str, expected: str | tuple[int, str]
) -> None:
    """It is taken wherever the project is named elsewhere, or only one workload can be meant."""
    api, hook = make_api(workloads=("a", "b")), _hook(project=None) | place
    answer = _post(api, hook, query)

    if isinstance(expected, tuple):
        assert (answer.status_code, answer.json()["error"]["field"]) == expected
        assert _post(make_api(workloads=("a",)), hook).status_code == 202
    else:
        assert answer.status_code == 202
        event = FeedbackEvent.from_json(api.producer.records[0][2])
        assert annotation_of(event, SOURCE) == AnnotationKey(expected, "7")
