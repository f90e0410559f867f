"""Label Studio's annotations → feedback events. Pure.

A webhook, or an annotation as the API of Label Studio lists it, flows in; what its author says of the query flows out.
Label regions and text areas carry the name of the workload's field. The annotation's own time of change is the
revision, in seconds since 2020, and stands in the ``feedback_id`` to the microsecond: webhook and listing tell the
same event, and what comes out of order does no harm. Changes within one second share a revision; the one that arrives
last stands, and ``ucci-stream label-studio sync`` compares the full times.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pydantic import ValidationError

from recalibrator.errors import RequestRefused
from schemas.event import decode_error
from schemas.feedback import FeedbackEvent

SOURCE = "label-studio"
DELETED = "ANNOTATIONS_DELETED"
_TAKEN = frozenset({"ANNOTATION_CREATED", "ANNOTATION_UPDATED"})
_RETRACTED = "retracted"
_ID_PARTS = 4
_REVISION_ONE = datetime(2020, 1, 1, tzinfo=UTC)
"""Label Studio is no older; counted from here, seconds stay within the bound of revisions until 2088."""

_SECOND, _MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNPROCESSABLE = 422


class AnnotationKey(NamedTuple):
    """Which annotation: Label Studio's ids of the project and of the annotation."""

    project: int
    annotation: int


def feedback_of(hook: dict[str, Any]) -> FeedbackEvent | None:
    """Return the feedback of one webhook.

    Parameters
    ----------
    hook : dict
        The webhook's body: ``action``, ``annotation``, ``task``, ``project``.

    Returns
    -------
    FeedbackEvent or None
        None for what says nothing of a query: projects, tasks, and deletions, which name no query.

    Raises
    ------
    RequestRefused
        422, naming the field.
    """
    if _action(hook) not in _TAKEN:
        return None
    return of_annotation(_object(hook, "annotation"), _object(hook, "task"))


def deleted_by(hook: dict[str, Any]) -> list[AnnotationKey]:
    """Return the annotations that a webhook says were deleted; Label Studio tells their ids and nothing more.

    Raises
    ------
    RequestRefused
        422, naming the field.
    """
    if _action(hook) != DELETED:
        return []
    project = _number(_object(hook, "project"), "id", "project.id")
    listed = hook.get("annotations")
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise _invalid("annotations", "is required and must be a list of objects with an id")
    return [AnnotationKey(project, _number(one, "id", f"annotations.{n}.id")) for n, one in enumerate(listed)]


def of_annotation(annotation: dict[str, Any], task: dict[str, Any]) -> FeedbackEvent:
    """Return what one annotation says of the query of its task.

    Raises
    ------
    RequestRefused
        422, naming the field.
    """
    changed_at = _moment(annotation)
    revision = max((changed_at - _REVISION_ONE) // _SECOND, 1)
    key = AnnotationKey(
        _number(annotation, "project", "annotation.project"), _number(annotation, "id", "annotation.id")
    )
    skipped = annotation.get("was_cancelled") is True
    content = {
        "query_id": _query_id(task),
        "entities": None if skipped else _entities(annotation.get("result")),
        "labeler": f"{SOURCE}:{_author(annotation.get('completed_by'))}",
        "labelled_at": changed_at,
        "source": SOURCE,
        "feedback_id": _feedback_id(key, max((changed_at - _EPOCH) // _MICROSECOND, 1)),
        "revision": revision,
    }
    try:
        return FeedbackEvent.model_validate(content)
    except ValidationError as error:
        found = decode_error(error)
        raise RequestRefused(_UNPROCESSABLE, found.reason, str(found), found.field) from None


def retraction_of(told: FeedbackEvent, key: AnnotationKey, at: datetime) -> FeedbackEvent:
    """Return what takes an annotation's label back.

    The revision is the one after what was told last, not the time of the deletion, which nobody knows: told twice it
    is the same event, and an annotation that its author made a second or more later stands above it.

    Parameters
    ----------
    told : FeedbackEvent
        The latest of the annotation.
    key : AnnotationKey
    at : datetime
        When the deletion was noticed.
    """
    revision = told.revision + 1
    return FeedbackEvent(
        query_id=told.query_id,
        entities=None,
        labeler=told.labeler,
        labelled_at=at,
        source=SOURCE,
        feedback_id=f"{_feedback_id(key, revision)}:{_RETRACTED}",
        revision=revision,
        retracted=True,
    )


def told_again(event: FeedbackEvent, key: AnnotationKey, above: int) -> FeedbackEvent:
    """Return an annotation's event under a revision above another, so that it stands in that one's place."""
    return event.model_copy(update={"revision": above + 1, "feedback_id": _feedback_id(key, above + 1)})


def annotation_of(event: FeedbackEvent) -> AnnotationKey | None:
    """Return the annotation that an event of this module is about; None for events of others."""
    source, *numbers = (event.feedback_id or "").split(":")[:_ID_PARTS]
    is_ours = event.source == source == SOURCE and len(numbers) == _ID_PARTS - 1
    if not is_ours or not all(one.isascii() and one.isdigit() for one in numbers):
        return None
    return AnnotationKey(int(numbers[0]), int(numbers[1]))


def _feedback_id(key: AnnotationKey, number: int) -> str:
    return f"{SOURCE}:{key.project}:{key.annotation}:{number}"


def _action(hook: dict[str, Any]) -> str:
    action = hook.get("action")
    if not isinstance(action, str):
        raise _invalid("action", "is required and must be text such as ANNOTATION_CREATED")
    return action


def _query_id(task: dict[str, Any]) -> str:
    for part in ("data", "meta"):
        holder = task.get(part)
        found = holder.get("query_id") if isinstance(holder, dict) else None
        if isinstance(found, str) and found:
            return found
    raise _invalid("task.data.query_id", "is missing: push tasks with the query's id in their data")


def _author(completed_by: object) -> str:
    # Webhooks name the author by id, some listings by an object: the same person must be the same labeler.
    if isinstance(completed_by, dict):
        completed_by = completed_by.get("id") or completed_by.get("email")
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


def _number(holder: dict[str, Any], key: str, field: str) -> int:
    value = holder.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _invalid(field, "is required and must be a number, as Label Studio gives it")
    return value


def _invalid(field: str, message: str) -> RequestRefused:
    return RequestRefused(_UNPROCESSABLE, "invalid_field", f"{field}: {message}", field)


MAX_REMEMBERED = 20_000


class RecentAnnotations:
    """The latest event of each annotation; used by one event loop.

    Parameters
    ----------
    most : int
        Annotations remembered; the one told of longest ago goes first.
    """

    def __init__(self, most: int = MAX_REMEMBERED) -> None:
        self._most = most
        self._told: OrderedDict[AnnotationKey, FeedbackEvent] = OrderedDict()

    def remember(self, event: FeedbackEvent) -> None:
        """Remember what was told of an annotation; the label itself is not kept."""
        key = annotation_of(event)
        if key is None:
            return
        known = self._told.get(key)
        if known is None or event.revision >= known.revision:
            self._told[key] = event.model_copy(update={"entities": None})
        self._told.move_to_end(key)
        if len(self._told) > self._most:
            self._told.popitem(last=False)

    def retraction(self, key: AnnotationKey, at: datetime) -> FeedbackEvent | None:
        """Return what takes a deleted annotation's label back; None where it is not known."""
        told = self._told.get(key)
        return None if told is None else retraction_of(told, key, at)

    def forget(self, event: FeedbackEvent) -> None:
        """Forget the annotation of a retraction that was told."""
        key = annotation_of(event)
        if key is not None:
            self._told.pop(key, None)
