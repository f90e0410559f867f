"""Label Studio's webhooks: created, changed, skipped and deleted annotations."""

from __future__ import annotations

from typing import Any

import pytest

from recalibrator.api.label_studio import feedback_of
from recalibrator.errors import Refused


def _region(label: str, text: str) -> dict[str, Any]:
    return {"from_name": "label", "type": "labels", "value": {"start": 0, "end": 1, "text": text, "labels": [label]}}


def _hook(action: str = "ANNOTATION_CREATED", **annotation: Any) -> dict[str, Any]:
    base = {"id": 7, "completed_by": 3, "updated_at": "2026-01-01T00:00:01.500000Z", "result": []}
    return {"action": action, "annotation": base | annotation, "task": {"data": {"query_id": "q-1"}}}


def test_regions_become_entities_and_repeated_labels_lists() -> None:
    areas = {"from_name": "iso", "type": "textarea", "value": {"text": ["400"]}}
    event = feedback_of(_hook(result=[_region("camera", "canon"), _region("lens", "a"), _region("lens", "b"), areas]))

    assert event is not None
    assert event.entities == {"camera": "canon", "lens": ("a", "b"), "iso": "400"}
    assert (event.query_id, event.labeler, event.source) == ("q-1", "label-studio:3", "label-studio")


def test_a_skip_is_feedback_without_entities() -> None:
    event = feedback_of(_hook(was_cancelled=True))

    assert event is not None
    assert event.entities is None


def test_a_later_change_has_a_higher_revision_and_another_id() -> None:
    first = feedback_of(_hook())
    second = feedback_of(_hook("ANNOTATION_UPDATED", updated_at="2026-01-01T00:00:02Z"))

    assert first is not None
    assert second is not None
    assert second.revision > first.revision
    assert second.identity() != first.identity()


def test_the_query_id_may_stand_in_the_tasks_meta() -> None:
    hook = _hook()
    hook["task"] = {"data": {}, "meta": {"query_id": "q-9"}}
    event = feedback_of(hook)

    assert event is not None
    assert event.query_id == "q-9"


@pytest.mark.parametrize("action", ["ANNOTATIONS_DELETED", "TASKS_CREATED", "PROJECT_UPDATED"])
def test_what_names_no_query_is_left(action: str) -> None:
    assert feedback_of({"action": action, "annotations": [{"id": 7}]}) is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"action": 5}, "action"),
        ({"annotation": None}, "annotation"),
        ({"task": {}}, "task.data.query_id"),
        ({"task": {"data": {"query_id": "q" * 10_000}}}, "query_id"),
        ({"annotation": {"id": 1, "result": [], "updated_at": "yesterday"}}, "annotation.updated_at"),
        ({"annotation": {"id": 1, "result": 5, "updated_at": "2026-01-01T00:00:01Z"}}, "annotation.result"),
        ({"annotation": {"id": 1, "result": [5], "updated_at": "2026-01-01T00:00:01Z"}}, "annotation.result.0"),
    ],
)
def test_a_malformed_hook_is_refused_with_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refused:
        feedback_of(_hook() | change)
    assert refused.value.field == field
    assert refused.value.status == 422
