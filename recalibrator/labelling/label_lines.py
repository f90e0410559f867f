"""Label requests and answers as lines of JSON, in the format of Prodigy: for any tool that reads and writes files.

A task is ``{"text", "spans": [], "meta"}``, with the query's id in ``meta``, which tools hand back with the answer. An
answer is ``accept`` with labelled spans of the text, or with ``entities`` as feedback has them; ``reject`` and
``ignore`` are skips, since neither says what would be right. Answers of one person on one query replace each other: in
order of their times, or of the lines where they carry none. A line that is read twice, as from two exports, counts
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import quote

import rfc8785
from pydantic_core import from_json

from recalibrator.labelling.label_tool import (
    Annotation,
    AnnotationKey,
    InvalidAnnotation,
    JsonDocument,
    Task,
    event_of,
    feedback_id,
    invalid,
    query_id_in,
)
from schemas.entities import Entities
from schemas.event import rfc3339
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested

SOURCE = "label-files"
ACCEPT, SKIPS = "accept", frozenset({"reject", "ignore"})
_LABELER_KEYS = ("labeler", "_annotator_id", "_session_id")
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_MARK_CHARS = 20
_SHOWN_CHARS = 60


class Line(NamedTuple):
    """One line of a file, and whom it is by where the line itself does not say so."""

    place: str
    labeler: str
    text: bytes


@dataclass(frozen=True, slots=True)
class LabelLinesReader:
    """Reads the answers to one workload's tasks."""

    #: Answers to tasks of others are left alone.
    workload: str
    source = SOURCE

    @property
    def project(self) -> str:
        """The workload's name, without colons."""
        return quote(self.workload, safe="")

    def feedback(self, hook: JsonDocument) -> FeedbackEvent | None:
        """Return the feedback of one answer, as if it were its author's first on the query.

        Raises InvalidAnnotation.
        """
        meta = hook.get("meta")
        workload = meta.get("workload") if isinstance(meta, dict) else None
        if workload is not None and workload != self.workload:
            return None
        query_id, labeler = _query_id(hook), _labeler(hook)
        key = self._key(query_id, labeler)
        return event_of(
            query_id=query_id,
            entities=_entities(hook),
            labeler=labeler,
            labelled_at=_moment(hook),
            source=SOURCE,
            feedback_id=feedback_id(SOURCE, key, 1),
            retracted=hook.get("retracted", False),
        )

    def task(self, document: JsonDocument) -> Task:
        """Return one query's task with the answers to it: a document of :func:`documents_of`."""
        created_at = document["created_at"] or _LONG_AGO
        return Task(
            document_id=document["id"],
            task_id=document["id"] if document["is_listed"] else None,
            query_id=document["query_id"],
            annotations=tuple(self._annotations(document["answers"])),
            is_untouched=document["is_listed"] and not document["answers"],
            # The answers stay in their own files.
            may_leave=document["is_listed"],
            created_at=created_at,
            changed_at=created_at,
            faults=tuple(document["faults"]),
        )

    def _annotations(self, answers: Sequence[FeedbackEvent]) -> Iterable[Annotation]:
        """Yield each author's last answer; its revision counts the different ones."""
        by_author: dict[str | None, list[FeedbackEvent]] = {}
        for answer in answers:
            said = by_author.setdefault(answer.labeler, [])
            if answer not in said:
                said.append(answer)
        for labeler, said in by_author.items():
            last = max(enumerate(said), key=lambda one: (one[1].labelled_at or _LONG_AGO, one[0]))[1]
            key, revision = self._key(last.query_id, labeler or ""), len(said)
            mark = feedback_id(SOURCE, key, revision)
            yield Annotation(key, last.model_copy(update={"revision": revision, "feedback_id": mark}))

    def _key(self, query_id: str, labeler: str) -> AnnotationKey:
        # Ids of queries may hold colons.
        author = sha256(rfc8785.dumps([query_id, labeler])).hexdigest()[:_MARK_CHARS]
        return AnnotationKey(self.project, author)


def task_line(request: LabelRequested, added_at: datetime, *, prefill: bool) -> dict[str, Any]:
    """Return the line that asks for a label. ``prefill``: whether ``meta`` shows the served answer."""
    meta: dict[str, Any] = {
        "query_id": request.query_id,
        "workload": request.workload,
        "reason": request.reason,
        "requested_at": rfc3339(request.requested_at),
        "added_at": rfc3339(added_at),
    }
    if prefill:
        meta["served"] = _shown(request.entities)
    return {"text": request.text, "spans": [], "meta": meta}


def documents_of(reader: LabelLinesReader, tasks: Iterable[Line], answers: Iterable[Line]) -> list[dict[str, Any]]:
    """Return one document for each query that has a task or an answer, and one for each line that cannot be read."""
    found: dict[str, dict[str, Any]] = {}
    broken = []
    for line in tasks:
        task = _parsed_task(reader, line)
        if task is not None:
            query_id, added_at = task
            found[query_id] = _document(query_id, added_at, is_listed=True)
    for line in answers:
        try:
            event = reader.feedback(_answer(line))
        except InvalidAnnotation as fault:
            broken.append(_document(None, None, fault=f"{line.place}: {fault}"))
            continue
        if event is not None:
            found.setdefault(event.query_id, _document(event.query_id, None))["answers"].append(event)
    return [*found.values(), *broken]


def query_of_task(reader: LabelLinesReader, line: Line) -> str | None:
    """Return the query that a line of tasks asks about; None for lines that are not of this workload's requests."""
    task = _parsed_task(reader, line)
    return None if task is None else task[0]


def _parsed_task(reader: LabelLinesReader, line: Line) -> tuple[str, datetime] | None:
    try:
        meta = from_json(line.text)["meta"]
        if meta["workload"] != reader.workload:
            return None
        return str(meta["query_id"]), datetime.fromisoformat(meta["added_at"])
    except (ValueError, KeyError, TypeError):
        return None


def _document(
    query_id: str | None, created_at: datetime | None, *, is_listed: bool = False, fault: str | None = None
) -> dict[str, Any]:
    return {
        "id": query_id or fault,
        "query_id": query_id,
        "created_at": created_at,
        "is_listed": is_listed,
        "answers": [],
        "faults": [fault] if fault is not None else [],
    }


def _answer(line: Line) -> dict[str, Any]:
    try:
        answer = from_json(line.text)
    except ValueError as error:
        raise InvalidAnnotation(f"is no JSON: {error}") from None
    if not isinstance(answer, dict):
        raise InvalidAnnotation("must be a JSON object")
    return answer if any(answer.get(key) for key in _LABELER_KEYS) else answer | {"labeler": line.labeler}


def _query_id(answer: JsonDocument) -> str:
    if (found := query_id_in(answer, answer.get("meta"))) is not None:
        return found
    raise invalid("meta.query_id", "is missing: answers keep the meta of their task")


def _labeler(answer: JsonDocument) -> str:
    for key in _LABELER_KEYS:
        found = answer.get(key)
        if isinstance(found, str) and found:
            return found
        if found is not None:
            raise invalid(key, f"must be text that names who answered (got {str(found)[:_SHOWN_CHARS]!r})")
    raise invalid("labeler", "is missing: name who answered")


def _moment(answer: JsonDocument) -> datetime | None:
    """Return when the answer was given: ``labelled_at``, else Prodigy's ``_timestamp``."""
    given = answer.get("labelled_at")
    try:
        if isinstance(given, str):
            return datetime.fromisoformat(given)
        stamp = answer.get("_timestamp")
        return None if stamp is None else datetime.fromtimestamp(stamp, UTC)
    except (ValueError, TypeError, OverflowError, OSError):
        field = "labelled_at" if given is not None else "_timestamp"
        remedy = "must be an RFC 3339 time (labelled_at) or seconds since 1970 (_timestamp)"
        raise invalid(field, remedy) from None


def _entities(answer: JsonDocument) -> Mapping[str, Any] | None:
    verdict = answer.get("answer", ACCEPT)
    if answer.get("retracted") is True or verdict in SKIPS:
        return None
    if verdict != ACCEPT:
        raise invalid("answer", f"must be accept, reject or ignore (got {str(verdict)[:_SHOWN_CHARS]!r})")
    if "entities" in answer:
        entities = answer["entities"]
        if entities is not None and not isinstance(entities, dict):
            raise invalid("entities", "must be an object of fields, or null for a skip")
        return entities
    spans = answer.get("spans")
    if not isinstance(spans, list):
        raise invalid("spans", "is missing: give labelled spans of the text, an empty list for none, or entities")
    found: dict[str, list[str]] = {}
    for index, span in enumerate(spans):
        label, text = _span(span, answer.get("text"), f"spans.{index}")
        found.setdefault(label, []).append(text)
    return {field: texts[0] if len(texts) == 1 else texts for field, texts in found.items()}


def _span(span: object, text: object, place: str) -> tuple[str, str]:
    label = span.get("label") if isinstance(span, dict) else None
    if not isinstance(span, dict) or not isinstance(label, str) or not label:
        raise invalid(place, "must be an object with a label")
    if isinstance(span.get("text"), str):
        return label, span["text"]
    start, end = span.get("start"), span.get("end")
    if not isinstance(text, str) or not isinstance(start, int) or not isinstance(end, int):
        raise invalid(place, "must have its text, or a start and an end in the text of the answer")
    if not 0 <= start < end <= len(text):
        raise invalid(place, "must lie within the text: start and end count its characters")
    return label, text[start:end]


def _shown(entities: Entities) -> str:
    return ", ".join(
        f"{field}={value if isinstance(value, str) else ' | '.join(value)}"
        for field, value in entities.items()
        if value
    )
