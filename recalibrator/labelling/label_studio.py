"""Label Studio's annotations as feedback: those that its webhooks send and those that its API lists.

An annotation that is not understood in full is refused. The annotation's own time of change is the revision, in seconds
since 2020, and stands in the ``feedback_id`` to the microsecond: webhook and listing yield the same event, and events
out of order do no harm. Changes within one second share a revision; the one that arrives last stands, and ``ucci-stream
label-studio sync`` compares the full times.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from recalibrator.labelling.field_names import FieldNames
from recalibrator.labelling.label_studio_config import missing_fields
from recalibrator.labelling.label_studio_regions import entities_of
from recalibrator.labelling.label_tool import (
    Annotation,
    AnnotationKey,
    InvalidAnnotation,
    JsonDocument,
    Task,
    annotation_of,
    event_of,
    feedback_id,
    invalid,
    query_id_in,
    retraction_of,
)
from schemas.entities import EntityValue
from schemas.event import to_us
from schemas.feedback import FeedbackEvent, revision_at

SOURCE = "label-studio"
DELETED = "ANNOTATIONS_DELETED"
#: Stands for the project of a webhook that names none; Label Studio counts from 1.
UNKNOWN_PROJECT = 0

MAX_REMEMBERED = 20_000
_TAKEN = frozenset({"ANNOTATION_CREATED", "ANNOTATION_UPDATED"})


@dataclass(frozen=True, slots=True)
class LabelStudioReader:
    """Reads webhooks and listed tasks."""

    #: The project of annotations that do not name theirs.
    default_project: int | None = None
    #: The fields of each workload that a task may be of; where none are given, each name is taken for a field.
    fields: tuple[tuple[str, ...], ...] = ()
    #: The project's labeling configuration, for annotations that come without theirs.
    label_config: str | None = None
    source = SOURCE

    def feedback(self, hook: JsonDocument) -> FeedbackEvent | None:
        """Return a webhook's feedback; None where it is of no query, as a deletion. Raises InvalidAnnotation."""
        if _action(hook) not in _TAKEN:
            return None
        annotation, task = _object(hook, "annotation"), _object(hook, "task")
        places = (
            (annotation.get("project"), "annotation.project"),
            (_id_of(hook.get("project")), "project.id"),
            (_id_of(task.get("project")), "task.project"),
        )
        project = hook.get("project")
        config = project.get("label_config") if isinstance(project, dict) else None
        return self._event(annotation, task, self._project(*places), config if isinstance(config, str) else None).event

    def deleted(self, hook: JsonDocument) -> list[AnnotationKey]:
        """Return the annotations that a webhook says were deleted: ids alone. Raises InvalidAnnotation."""
        if _action(hook) != DELETED:
            return []
        project = self._project((_id_of(hook.get("project")), "project.id"))
        listed = hook.get("annotations")
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise invalid("annotations", "is required and must be a list of objects with an id")
        return [_key(project, _number(one.get("id"), f"annotations.{n}.id")) for n, one in enumerate(listed)]

    def task(self, document: JsonDocument) -> Task:
        """Return one task as Label Studio lists it."""
        data, annotations, faults = document.get("data"), [], []
        query_id = query_id_in(data)
        listed = [] if query_id is None else document.get("annotations") or []
        for annotation in listed:
            try:
                project = self._project((annotation.get("project"), "annotation.project"))
                annotations.append(self._event(annotation, {"data": data}, project))
            except InvalidAnnotation as fault:
                faults.append(f"task {document['id']}, annotation {annotation.get('id')}: {fault}")
        is_untouched = not listed and not document.get("drafts")
        return Task(
            document_id=str(document["id"]),
            task_id=str(document["id"]),
            query_id=query_id,
            annotations=tuple(annotations),
            is_untouched=is_untouched,
            # Its annotations go with a task.
            may_leave=is_untouched,
            created_at=datetime.fromisoformat(document["created_at"]),
            changed_at=datetime.fromisoformat(document["updated_at"]),
            faults=tuple(faults),
        )

    def _event(
        self, annotation: JsonDocument, task: JsonDocument, project: int, label_config: str | None = None
    ) -> Annotation:
        changed_at = _moment(annotation)
        key = _key(project, _number(annotation.get("id"), "annotation.id"))
        query_id = query_id_in(task.get("data"), task.get("meta"))
        if query_id is None:
            raise invalid("task.data.query_id", "is missing: push tasks with the query's id in their data")
        if (is_skip := annotation.get("was_cancelled")) not in (True, False, None):
            raise invalid("annotation.was_cancelled", "must be true or false")
        event = event_of(
            query_id=query_id,
            entities=None if is_skip else self._entities(annotation.get("result"), label_config or self.label_config),
            labeler=f"{SOURCE}:{_author(annotation.get('completed_by'))}",
            labelled_at=changed_at,
            source=SOURCE,
            feedback_id=feedback_id(SOURCE, key, max(to_us(changed_at), 1)),
            revision=revision_at(changed_at),
        )
        return Annotation(key, event)

    def _entities(self, result: object, label_config: str | None) -> dict[str, EntityValue]:
        names = FieldNames(name for own in self.fields for name in own)
        missing = [None if label_config is None else missing_fields(label_config, own) for own in self.fields]
        covered = next((own for own, lost in zip(self.fields, missing, strict=True) if lost == ()), ())
        lacking = [lost for lost in missing if lost]
        if lacking and len(lacking) == len(missing):
            fewest = min((len(lost), lost) for lost in lacking)[1]
            message = f"has no control for {', '.join(fewest)}, which nobody can say then"
            raise invalid("project.label_config", f"{message}: label-studio setup says what to change")
        return entities_of(result, names, covered)

    def _project(self, *places: tuple[object, str]) -> int:
        """Return the first project's number that is named, else the reader's own."""
        for value, field in places:
            if value is not None:
                return _number(value, field)
        if self.default_project is None:
            remedy = "is missing, and several workloads are configured: add ?project=NUMBER to the webhook's address"
            raise invalid(places[0][1], remedy)
        return self.default_project


class RecentAnnotations:
    """The latest event of each annotation, so that a deletion, which names no query, can withdraw its label.

    Bounded, and of this process alone: a deletion that is not known here is found by ``ucci-stream label-studio sync``.
    Used by one event loop. ``most``: annotations remembered; the one that was sent longest ago goes first.
    """

    def __init__(self, most: int = MAX_REMEMBERED) -> None:
        self._most = most
        self._sent: dict[AnnotationKey, FeedbackEvent] = {}

    def remember(self, event: FeedbackEvent) -> None:
        """Remember what was sent of an annotation; the label itself is not kept."""
        if (key := annotation_of(event, SOURCE)) is None:
            return
        known = self._sent.pop(key, event)
        self._sent[key] = event.model_copy(update={"entities": None}) if event.revision >= known.revision else known
        if len(self._sent) > self._most:
            del self._sent[next(iter(self._sent))]

    def retraction(self, key: AnnotationKey, at: datetime) -> FeedbackEvent | None:
        """Return the withdrawal of a deleted annotation's label; None where the annotation is not known."""
        sent = self._sent.get(key)
        return None if sent is None else retraction_of(sent, key, at)

    def forget(self, event: FeedbackEvent) -> None:
        """Forget the annotation of a retraction that was sent."""
        if (key := annotation_of(event, SOURCE)) is not None:
            self._sent.pop(key, None)


def _action(hook: JsonDocument) -> str:
    action = hook.get("action")
    if not isinstance(action, str):
        raise invalid("action", "is required and must be text such as ANNOTATION_CREATED")
    return action


def _author(completed_by: object) -> str:
    # Webhooks name the author by id, some listings by an object: the same person must be the same labeler.
    if isinstance(completed_by, dict):
        completed_by = completed_by.get("id") or completed_by.get("email")
    return str(completed_by) if isinstance(completed_by, str | int) else "unknown"


def _moment(annotation: JsonDocument) -> datetime:
    given = annotation.get("updated_at") or annotation.get("created_at")
    if not isinstance(given, str):
        raise invalid("annotation.updated_at", "is required and must be an RFC 3339 time")
    try:
        moment = datetime.fromisoformat(given)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except ValueError:
        raise invalid("annotation.updated_at", f"{given[:60]!r} is not an RFC 3339 time") from None
    except OverflowError:
        raise invalid("annotation.updated_at", f"{given[:60]!r} has no equivalent in UTC") from None


def _object(hook: JsonDocument, name: str) -> dict[str, Any]:
    value = hook.get(name)
    if not isinstance(value, dict):
        raise invalid(name, "is required and must be an object")
    return value


def _id_of(holder: object) -> object:
    return holder.get("id") if isinstance(holder, dict) else holder


def _number(value: object, field: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise invalid(field, "is required and must be a number, as Label Studio gives it")
    return value


def _key(project: int, annotation: int) -> AnnotationKey:
    return AnnotationKey(str(project), str(annotation))
