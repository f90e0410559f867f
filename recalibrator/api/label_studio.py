"""A Label Studio webhook → feedback events. Pure.

An annotation flows in; what its author says of the query flows out. Label regions and text areas carry the name of
the workload's field. The annotation's own time of change is the revision, so that webhook and export tell the same
event, and what comes out of order does no harm.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from recalibrator.errors import Refused
from schemas.event import decode_error
from schemas.feedback import FeedbackEvent

SOURCE = "label-studio"
_TAKEN = frozenset({"ANNOTATION_CREATED", "ANNOTATION_UPDATED"})
_MICROSECONDS = 1_000_000
_UNPROCESSABLE = 422


def feedback_of(hook: dict[str, Any]) -> FeedbackEvent | None:
    """Return the feedback of one webhook.

    Parameters
    ----------
    hook : dict
        The webhook's body: ``action``, ``annotation``, ``task``.

    Returns
    -------
    FeedbackEvent or None
        None for what says nothing of a query: projects, tasks, and deletions, which name no query.

    Raises
    ------
    Refused
        422, naming the field.
    """
    action = hook.get("action")
    if not isinstance(action, str):
        raise _invalid("action", "is required and must be text such as ANNOTATION_CREATED")
    if action not in _TAKEN:
        return None
    annotation, task = _object(hook, "annotation"), _object(hook, "task")
    return of_annotation(annotation, task)


def of_annotation(annotation: dict[str, Any], task: dict[str, Any]) -> FeedbackEvent:
    """Return what one annotation says of the query of its task.

    Raises
    ------
    Refused
        422, naming the field.
    """
    changed_at = _moment(annotation)
    revision = max(int(changed_at.timestamp() * _MICROSECONDS), 1)
    skipped = annotation.get("was_cancelled") is True
    content = {
        "query_id": _query_id(task),
        "entities": None if skipped else _entities(annotation.get("result")),
        "labeler": f"{SOURCE}:{_author(annotation.get('completed_by'))}",
        "labelled_at": changed_at,
        "source": SOURCE,
        "feedback_id": f"{SOURCE}:{annotation.get('id')}:{revision}",
        "revision": revision,
    }
    try:
        return FeedbackEvent.model_validate(content)
    except ValidationError as error:
        found = decode_error(error)
        raise Refused(_UNPROCESSABLE, found.reason, str(found), found.field) from None


def _query_id(task: dict[str, Any]) -> str:
    for part in ("data", "meta"):
        holder = task.get(part)
        found = holder.get("query_id") if isinstance(holder, dict) else None
        if isinstance(found, str) and found:
            return found
    raise _invalid("task.data.query_id", "is missing: push tasks with the query's id in their data")


def _author(completed_by: object) -> str:
    if isinstance(completed_by, dict):
        completed_by = completed_by.get("email") or completed_by.get("id")
    return str(completed_by) if isinstance(completed_by, str | int) else "unknown"


def _moment(annotation: dict[str, Any]) -> datetime:
    given = annotation.get("updated_at") or annotation.get("created_at")
    if not isinstance(given, str):
        raise _invalid("annotation.updated_at", "is required and must be an RFC 3339 time")
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise _invalid("annotation.updated_at", f"{given[:60]!r} is not an RFC 3339 time") from None
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise _invalid("annotation.updated_at", f"{given[:60]!r} cannot be told in UTC") from None


def _entities(result: object) -> dict[str, str | list[str] | None]:
    if not isinstance(result, list):
        raise _invalid("annotation.result", "must be a list of regions")
    found: dict[str, list[str]] = {}
    for index, region in enumerate(result):
        field, texts = _region(region, f"annotation.result.{index}")
        if field is not None:
            found.setdefault(field, []).extend(texts)
    return {field: texts[0] if len(texts) == 1 else texts for field, texts in found.items()}


def _region(region: object, place: str) -> tuple[str | None, list[str]]:
    """Return the field that a region names and its texts; no field for regions of other kinds."""
    if not isinstance(region, dict) or not isinstance(region.get("value"), dict):
        raise _invalid(place, "must be an object with a value")
    value = region["value"]
    text = value.get("text")
    labels = value.get("labels")
    if isinstance(labels, list) and labels and isinstance(labels[0], str):
        if not isinstance(text, str):
            raise _invalid(f"{place}.value.text", "is required: turn on saving the text of a region")
        return labels[0], [text]
    name = region.get("from_name")
    if region.get("type") == "textarea" and isinstance(name, str):
        lines = text if isinstance(text, list) else [text]
        return name, [line for line in lines if isinstance(line, str) and line]
    return None, []


def _object(hook: dict[str, Any], name: str) -> dict[str, Any]:
    value = hook.get(name)
    if not isinstance(value, dict):
        raise _invalid(name, "is required and must be an object")
    return value


def _invalid(field: str, message: str) -> Refused:
    return Refused(_UNPROCESSABLE, "invalid_field", f"{field}: {message}", field)
