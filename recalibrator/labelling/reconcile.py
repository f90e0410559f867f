"""What is still to do so that a label tool, the label requests and the feedback topic agree.

The label of each author on each query is the annotation that they changed last. Sent twice, out of order or by a
webhook meanwhile, it is the same event; so whatever a round leaves undone, the next one finds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple

import rfc8785

from recalibrator.labelling.label_tool import (
    Annotation,
    AnnotationKey,
    Task,
    TaskId,
    annotation_of,
    reissued,
    retraction_of,
)
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested

#: A query_id and a labeler.
Author = tuple[str, str | None]

#: Stands for the time of an annotation that carries none: its revision and its content alone order it.
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Sent(NamedTuple):
    """What was sent last of an author: the event without its label, of which only a digest is kept."""

    key: AnnotationKey
    event: FeedbackEvent
    content: str


class Plan(NamedTuple):
    """What is still to do."""

    #: Requests without a task, newest first.
    push: tuple[LabelRequested, ...]
    #: Tasks whose request is over and that nothing is lost with.
    remove: tuple[TaskId, ...]
    #: What annotators said and the topic does not hold.
    send: tuple[FeedbackEvent, ...]
    #: What to send where an annotation that was sent is really gone: a listing may miss one, and a label that is
    #: withdrawn by mistake is lost.
    if_gone: tuple[tuple[AnnotationKey, FeedbackEvent], ...]


def note_sent(sent: dict[Author, Sent], event: FeedbackEvent, source: str, project: str) -> None:
    """Bring what was sent of a tool's project up to date with one more event of the feedback topic."""
    key = annotation_of(event, source)
    if key is None or key.project != project:
        return
    author = (event.query_id, event.labeler)
    known = sent.get(author)
    if known is None or event.revision >= known.event.revision:
        sent[author] = Sent(key, event.model_copy(update={"entities": None}), _content(event))


def plan(
    requests: Sequence[LabelRequested],
    tasks: Iterable[Task],
    sent: Mapping[Author, Sent],
    *,
    most: int,
    now: datetime,
    over_before: datetime,
    forgotten_before: datetime,
) -> Plan:
    """Decide what is still to do.

    ``requests``: those that should have a task, newest first. ``sent``: of each author and query what was sent with the
    highest revision, by webhook or by an earlier round. ``over_before``: tasks made before are removed when their
    request is over; somebody may have a younger one open. ``forgotten_before``: annotations changed before are not
    sent, for the join has forgotten their query's result.
    """
    known = [task for task in tasks if task.query_id is not None]
    send, if_gone = _labels(known, sent, now=now, forgotten_before=forgotten_before)
    wanted = {request.query_id for request in requests}
    remove = {*_over(known, wanted, over_before), *_doubled(known)}
    waiting = sum(task.is_untouched and task.task_id not in remove for task in known)
    having = {task.query_id for task in known if task.task_id is not None}
    push = [request for request in requests if request.query_id not in having][: max(0, most - waiting)]
    return Plan(tuple(push), tuple(sorted(remove, key=_order)), tuple(send), tuple(if_gone))


def _over(tasks: Iterable[Task], wanted: set[str], over_before: datetime) -> list[TaskId]:
    return [
        task.task_id
        for task in tasks
        if task.task_id is not None and task.may_leave and task.query_id not in wanted and task.created_at < over_before
    ]


def _labels(
    tasks: Sequence[Task], sent: Mapping[Author, Sent], *, now: datetime, forgotten_before: datetime
) -> tuple[list[FeedbackEvent], list[tuple[AnnotationKey, FeedbackEvent]]]:
    annotations: dict[Author, list[Annotation]] = defaultdict(list)
    for task in tasks:
        for annotation in task.annotations:
            annotations[annotation.event.query_id, annotation.event.labeler].append(annotation)
    having, send = {task.query_id for task in tasks}, list[FeedbackEvent]()
    if_gone: list[tuple[AnnotationKey, FeedbackEvent]] = []
    for author, own in annotations.items():
        current, last = max(own, key=_age), sent.get(author)
        if last is None:
            labelled_at = current.event.labelled_at or forgotten_before
            if not current.event.retracted and labelled_at >= forgotten_before:
                send.append(current.event)
        # A later annotation of the same author was deleted: this one stands again.
        elif current.event.revision <= last.event.revision and last.key not in {one.key for one in own}:
            if_gone.append((last.key, reissued(current.event, current.key, last.event.revision)))
        else:
            send += _correction(current, last)
    for author, last in sent.items():
        # A task that was deleted whole is housekeeping: its labels were given and stay.
        if author not in annotations and author[0] in having and not last.event.retracted:
            if_gone.append((last.key, retraction_of(last.event, last.key, now)))
    return send, if_gone


def _correction(current: Annotation, last: Sent) -> list[FeedbackEvent]:
    """Return an author's current annotation where it differs from what was sent and the listing is not older.

    Revisions may be as coarse as seconds, and rise with deletions: a quick correction may lie at or below the last one.
    """
    if current.event.revision > last.event.revision:
        return [current.event]
    age, sent_age = _age(current), _age(Annotation(last.key, last.event))
    if age > sent_age or (age == sent_age and _content(current.event) != last.content):
        return [reissued(current.event, current.key, last.event.revision)]
    return []


def _content(event: FeedbackEvent) -> str:
    said = [event.model_dump(mode="json")["entities"], event.retracted, *([event.verdict] if event.verdict else [])]
    return sha256(rfc8785.dumps(said)).hexdigest()


def _age(annotation: Annotation) -> tuple[datetime, int, str]:
    """Return what orders annotations by their last change; of two at one moment, by number."""
    return annotation.event.labelled_at or _LONG_AGO, *_order(annotation.key.annotation)


def _order(number: str) -> tuple[int, str]:
    """Return what orders numbers written as text: a longer one is larger."""
    return len(number), number


def _doubled(tasks: Iterable[Task]) -> list[TaskId]:
    """Return the untouched tasks of queries that have another, older or touched, task."""
    by_query: dict[str | None, list[tuple[bool, tuple[int, str]]]] = defaultdict(list)
    for task in tasks:
        if task.task_id is not None:
            by_query[task.query_id].append((task.is_untouched, _order(task.task_id)))
    surplus = (one for same in by_query.values() for one in sorted(set(same))[1:])
    return [order[1] for is_untouched, order in surplus if is_untouched]
