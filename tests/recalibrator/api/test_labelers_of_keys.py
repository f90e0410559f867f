"""Who speaks: a key names the labelers that it is bound to, a relay key anyone, and nobody speaks for a stranger."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.feedback import FeedbackEvent
from tests.support.api import Api, make_api

ALICE, TEAM, TOOL, READER = "alice-key-0123456", "team-key-01234567", "tool-key-01234567", "reader-key-012345"
KEYS: dict[str, Any] = {
    "alice": {"key": ALICE, "scopes": ["feedback"]},
    "team": {"key": TEAM, "scopes": ["feedback"], "labelers": ["bob", "label-studio:3"]},
    "tool": {"key": TOOL, "scopes": ["relay"]},
    "reader": {"key": READER, "scopes": ["read"]},
}


@pytest.fixture
def api() -> Api:
    return make_api(api_keys=KEYS)


def _event(**changes: Any) -> dict[str, Any]:
    return {"query_id": "q", "entities": {"camera": "canon"}, **changes}


def _post(api: Api, key: str, content: Any, path: str = "/v1/feedback") -> Any:
    return api.client.post(path, json=content, headers={"X-Api-Key": key})


def _batch(api: Api, key: str, *events: dict[str, Any]) -> Any:
    headers = {"X-Api-Key": key, "content-type": "application/jsonl"}
    return api.client.post("/v1/feedback:batch", content="\n".join(map(json.dumps, events)), headers=headers)


def _sent(api: Api) -> list[FeedbackEvent]:
    return [FeedbackEvent.from_json(value) for _, _, value in api.producer.records]


def _hook(author: int) -> dict[str, Any]:
    content = {"id": 7, "project": 2, "completed_by": author, "updated_at": "2026-01-01T00:00:01Z", "result": []}
    return {"action": "ANNOTATION_CREATED", "annotation": content, "task": {"data": {"query_id": "q"}}}


def test_in_a_batch_only_the_lines_that_name_others_are_refused(api: Api) -> None:
    answer = _batch(api, TEAM, _event(labeler="bob"), _event(labeler="alice"), _event())

    assert answer.status_code == 207
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [(line["line"], line["status"]) for line in lines] == [(1, 202), (2, 403), (3, 422)]
    assert [line["error"] and line["error"]["field"] for line in lines] == [None, "labeler", "labeler"]
    assert [event.labeler for event in _sent(api)] == ["bob"]


@pytest.mark.parametrize(
    ("key", "labelers", "named", "expected"),
    [
        ("feedback", None, None, "clerk"),
        ("feedback", ["carol"], None, "carol"),
        ("feedback", ["carol"], "clerk", 403),
        ("feedback", None, "Clerk", 403),
        ("feedback", ["carol", "dan"], "dan", "dan"),
        ("feedback", ["carol", "dan"], None, 422),
        ("relay", None, "anybody", "anybody"),
        ("relay", ["carol"], None, "carol"),
        ("relay", ["carol"], "anybody", "anybody"),
        ("relay", ["carol", "dan"], None, 422),
    ],
)
def test_a_label_is_said_by_whom_its_key_may_name(
    key: str, labelers: list[str] | None, named: str | None, expected: str | int
) -> None:
    bound = {} if labelers is None else {"labelers": labelers}
    api = make_api(api_keys={"clerk": {"key": ALICE, "scopes": [key], **bound}})

    answer = _post(api, ALICE, _event(labeler=named))

    if isinstance(expected, str):
        assert answer.status_code == 202
        assert [event.labeler for event in _sent(api)] == [expected]
        assert answer.json()["feedback_id"] == _sent(api)[0].identity()
    else:
        assert (answer.status_code, answer.json()["error"]["field"]) == (expected, "labeler")
        assert api.producer.records == []


def test_a_relay_key_may_give_feedback_and_nothing_else(api: Api) -> None:
    assert _batch(api, TOOL, _event(labeler="alice"), _event(labeler="bob")).status_code == 202
    assert api.client.get("/v1/status", headers={"X-Api-Key": TOOL}).status_code == 403
    assert _post(api, TOOL, {}, "/v1/calibrations/photo-search:pause").status_code == 403
    refused = _post(api, READER, _event())
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "scope_missing")


@pytest.mark.parametrize(("key", "author", "status"), [(TOOL, 9, 202), (TEAM, 3, 202), (TEAM, 9, 403), (ALICE, 3, 403)])
def test_the_hook_needs_a_relay_key_or_one_bound_to_annotators(api: Api, key: str, author: int, status: int) -> None:
    answer = _post(api, key, _hook(author), "/v1/hooks/label-studio")

    assert answer.status_code == status
    assert len(api.producer.records) == (status == 202)
    if status == 403:
        error = answer.json()["error"]
        assert (error["code"], error["field"]) == ("labeler_not_bound", "labeler")
        assert "relay" in error["message"]


def test_a_stranger_cannot_delete_another_keys_annotation(api: Api) -> None:
    deletion = {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 7}], "project": {"id": 2}}
    assert _post(api, TOOL, _hook(9), "/v1/hooks/label-studio").status_code == 202

    assert _post(api, TEAM, deletion, "/v1/hooks/label-studio").status_code == 403
    assert len(api.producer.records) == 1
    assert _post(api, TOOL, deletion, "/v1/hooks/label-studio").json()["taken"] == 1
