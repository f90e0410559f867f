"""What is open, what Label Studio holds, what was told before → what is still to do. Pure.

The label of each author on each query is the annotation that they changed last. Told twice, out of order or by the
webhook meanwhile, it is the same event; so whatever a round leaves undone, the next one finds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from recalibrator.errors import RequestRefused
from recalibrator.labelling.label_studio import AnnotationKey, annotation_of, of_annotation, retraction_of, told_again
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested

Author = tuple[str, str | None]
"""A query_id and a labeler."""


class Annotation(NamedTuple):
    """One annotation and what it says."""

    key: AnnotationKey
    event: FeedbackEvent


class Task(NamedTuple):
    """One task of the project that asks for a label.

    ``is_untouched`` tells that nobody has annotated it or begun to.
    """

    number: int
    query_id: str
    annotations: tuple[Annotation, ...]
    is_untouched: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Plan:
    """What is still to do.

    Parameters
    ----------
    push : tuple of LabelRequested
        Requests without a task, newest first.
    remove : tuple of int
        Tasks that nobody has touched and nobody needs any more.
    tell : tuple of FeedbackEvent
        What annotators said and nobody was told.
    if_gone : tuple
        What to tell where an annotation that was told of is really gone: a listing may miss one, and a label that is
        taken back by mistake is lost.
    """

    push: tuple[LabelRequested, ...]
    remove: tuple[int, ...]
    tell: tuple[FeedbackEvent, ...]
    if_gone: tuple[tuple[AnnotationKey, FeedbackEvent], ...]


def read_task(document: Mapping[str, Any]) -> tuple[Task | None, list[str]]:
    """Return one task as Label Studio lists it, and a line for each annotation that says nothing clear.

    Returns
    -------
    task : Task or None
        None for tasks that were not made of a label request.
    faults : list of str
    """
    data = document.get("data")
    query_id = data.get("query_id") if isinstance(data, dict) else None
    if not isinstance(query_id, str) or not query_id:
        return None, []
    annotations, faults = [], []
    listed = document.get("annotations") or []
    for annotation in listed:
        try:
            event = of_annotation(annotation, {"data": data})
        except RequestRefused as refused:
            faults.append(f"task {document['id']}, annotation {annotation.get('id')}: {refused}")
            continue
        key = annotation_of(event)
        assert key is not None
        annotations.append(Annotation(key, event))
    is_untouched = not listed and not document.get("drafts")
    created_at = datetime.fromisoformat(document["created_at"])
    return Task(int(document["id"]), query_id, tuple(annotations), is_untouched, created_at), faults


def note_told(told: dict[Author, FeedbackEvent], event: FeedbackEvent, project: int) -> None:
    """Bring what was told of a project up to date with one more event of the feedback topic; labels are not kept."""
    key = annotation_of(event)
    if key is None or key.project != project:
        return
    author = (event.query_id, event.labeler)
    known = told.get(author)
    if known is None or event.revision >= known.revision:
        told[author] = event.model_copy(update={"entities": None})


def plan(
    requests: Sequence[LabelRequested],
    tasks: Iterable[Task],
    told: Mapping[Author, FeedbackEvent],
    *,
    most: int,
    now: datetime,
    over_before: datetime,
    told_before: datetime,
) -> Plan:
    """Decide what is still to do.

    Parameters
    ----------
    requests : sequence of LabelRequested
        Those that should have a task, newest first.
    tasks : iterable of Task
        All of the project.
    told : mapping of Author to FeedbackEvent
        Of each author and query what was told with the highest revision, by webhook or by an earlier round.
    most : int
        Tasks that may wait for an annotator at a time.
    now : datetime
        Stamped on what is taken back.
    over_before : datetime
        Tasks made before are removed when their request is over; younger ones may be before somebody's eyes.
    told_before : datetime
        Annotations changed before are held for told: their query's result is forgotten.

    Returns
    -------
    Plan
    """
    known = list(tasks)
    tell, if_gone = _labels(known, told, now=now, told_before=told_before)
    wanted = {request.query_id for request in requests}
    over = [
        task.number
        for task in known
        if task.is_untouched and task.query_id not in wanted and task.created_at < over_before
    ]
    remove = {*over, *_doubled(known)}
    waiting = sum(task.is_untouched and task.number not in remove for task in known)
    having = {task.query_id for task in known}
    missing = [request for request in requests if request.query_id not in having]
    return Plan(tuple(missing[: max(0, most - waiting)]), tuple(sorted(remove)), tuple(tell), tuple(if_gone))


def _labels(
    tasks: Sequence[Task], told: Mapping[Author, FeedbackEvent], *, now: datetime, told_before: datetime
) -> tuple[list[FeedbackEvent], list[tuple[AnnotationKey, FeedbackEvent]]]:
    annotations: dict[Author, list[Annotation]] = defaultdict(list)
    for task in tasks:
        for annotation in task.annotations:
            annotations[task.query_id, annotation.event.labeler].append(annotation)
    having = {task.query_id for task in tasks}
    tell: list[FeedbackEvent] = []
    if_gone: list[tuple[AnnotationKey, FeedbackEvent]] = []
    for author, own in annotations.items():
        current, last = max(own, key=_age), told.get(author)
        if last is None:
            if _age(current)[0] >= told_before:
                tell.append(current.event)
        # A later annotation of the same author was deleted: this one stands again.
        elif current.event.revision <= last.revision and (lost := _told_key(last)) not in {one.key for one in own}:
            if_gone.append((lost, told_again(current.event, current.key, last.revision)))
        else:
            tell += _correction(current, last)
    for author, last in told.items():
        # A task that was deleted whole is housekeeping: its labels were given and stay.
        if author not in annotations and author[0] in having and not last.retracted:
            lost = _told_key(last)
            if_gone.append((lost, retraction_of(last, lost, now)))
    return tell, if_gone


def _correction(current: Annotation, last: FeedbackEvent) -> list[FeedbackEvent]:
    """Return what tells an author's current annotation, nothing where it is what was told last or the listing is older.

    Revisions are whole seconds, and rise with deletions: a quick correction may lie at or below the last one.
    """
    if current.event.revision > last.revision:
        return [current.event]
    if _age(current) > _age(Annotation(_told_key(last), last)):
        return [told_again(current.event, current.key, last.revision)]
    return []


def _told_key(told: FeedbackEvent) -> AnnotationKey:
    key = annotation_of(told)
    assert key is not None, "note_told keeps events of annotations alone"
    return key


def _age(annotation: Annotation) -> tuple[datetime, AnnotationKey]:
    """Return what orders annotations by their last change."""
    assert annotation.event.labelled_at is not None
    return annotation.event.labelled_at, annotation.key


def _doubled(tasks: Iterable[Task]) -> list[int]:
    """Return the untouched tasks of queries that have another, older or touched, task."""
    by_query: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        by_query[task.query_id].append(task)
    surplus = []
    for same in by_query.values():
        kept = min(same, key=lambda task: (task.is_untouched, task.number))
        surplus += [task.number for task in same if task.is_untouched and task is not kept]
    return surplus
