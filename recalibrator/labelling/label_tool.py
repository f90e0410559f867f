"""What a label tool offers: annotations that become feedback, and tasks that follow the label requests.

A tool that can POST or produce a ``FeedbackEvent`` by itself needs none of this. Any other is attached by an
:class:`AnnotationReader`, which is pure and reads what the tool writes, and a :class:`LabelTool`, which also lists,
adds and removes its tasks. The functions below give every annotation an identity in the feedback topic, so that a round
of synchronisation finds there what was sent before, by whichever process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from pydantic import ValidationError

from recalibrator.errors import RecalibratorError
from schemas.errors import one_line
from schemas.event import decode_error
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested

#: A JSON object as the tool writes it.
JsonDocument = Mapping[str, Any]

#: What a tool calls one of its tasks.
TaskId = str

_ID_PARTS = 4


class InvalidAnnotation(RecalibratorError):
    """An annotation that does not say clearly what its author means.

    ``message``: field, value and remedy. ``field``: dotted path of the faulty one.
    """

    def __init__(self, message: str, field: str | None = None, reason: str = "invalid_field") -> None:
        self.field = field
        self.reason = reason
        super().__init__(one_line(message))


def invalid(field: str, message: str) -> InvalidAnnotation:
    """Return what to raise of a field."""
    return InvalidAnnotation(f"{field}: {message}", field)


class LabelToolFailed(RecalibratorError):
    """The tool did not answer, or not as it should; waiting may help, and the line says what to look at."""


class Interrupted(RecalibratorError):
    """The command was asked to end; what it has done so far stays done."""

    exit_code = 0


class AnnotationKey(NamedTuple):
    """Which annotation: its project and its id, both as the tool knows them. Neither holds a colon."""

    project: str
    annotation: str


class Annotation(NamedTuple):
    """One annotation and what it says."""

    key: AnnotationKey
    event: FeedbackEvent


class Task(NamedTuple):
    """One task of a project."""

    #: Which document of the listing it was read from.
    document_id: str
    #: None where only answers are left of it, so that it can neither wait nor be removed.
    task_id: TaskId | None
    #: None for tasks that were not made of a label request.
    query_id: str | None

    annotations: tuple[Annotation, ...]
    #: Whether nobody has annotated it or begun to.
    is_untouched: bool
    #: Whether nothing is lost when it is removed.
    may_leave: bool

    created_at: datetime
    #: When it, or one of its annotations, changed last.
    changed_at: datetime
    #: A line for each annotation that says nothing clear.
    faults: tuple[str, ...] = ()


class AnnotationReader(Protocol):
    """Reads what one tool writes. Pure."""

    @property
    def source(self) -> str:
        """The tool's name: ``source`` of its feedback, and the beginning of each ``feedback_id``."""

    def task(self, document: JsonDocument) -> Task:
        """Return one task as :meth:`LabelTool.tasks` lists it, with what its annotations say."""


class LabelTool(Protocol):
    """One project of a tool, as the synchronisation sees it; any call may raise :class:`LabelToolFailed`."""

    @property
    def reader(self) -> AnnotationReader:
        """What reads the tool's documents."""

    @property
    def project(self) -> str:
        """Which project of the tool this is; it is part of each :class:`AnnotationKey`."""

    def tasks(self, changed_since: datetime | None) -> AsyncIterator[JsonDocument]:
        """Yield at least the tasks that have changed since a time; None: all of them."""

    async def add(self, requests: Sequence[LabelRequested]) -> None:
        """Make a task of each request."""

    async def remove(self, tasks: Sequence[TaskId]) -> None:
        """Remove tasks."""

    async def has(self, annotation: AnnotationKey) -> bool:
        """Return whether an annotation that the listing lacks exists all the same."""


def event_of(**content: Any) -> FeedbackEvent:
    """Return the feedback with this content. Raises InvalidAnnotation."""
    try:
        return FeedbackEvent.model_validate(content)
    except ValidationError as error:
        found = decode_error(error)
        raise InvalidAnnotation(str(found), found.field, found.reason) from None


def query_id_in(*holders: object) -> str | None:
    """Return the first query_id that one of these holds."""
    found = (holder.get("query_id") for holder in holders if isinstance(holder, dict))
    return next((one for one in found if isinstance(one, str) and one), None)


def feedback_id(source: str, key: AnnotationKey, mark: object) -> str:
    """Return the idempotency key of one state of an annotation; ``mark`` distinguishes its states.

    Examples
    --------
    >>> feedback_id("label-studio", AnnotationKey("2", "7"), 1767225601500000)
    'label-studio:2:7:1767225601500000'
    """
    return f"{source}:{key.project}:{key.annotation}:{mark}"


def annotation_of(event: FeedbackEvent, source: str) -> AnnotationKey | None:
    """Return the annotation that an event of this tool is about; None for events of others."""
    named, *parts = (event.feedback_id or "").split(":")[:_ID_PARTS]
    if not (event.source == named == source and len(parts) == _ID_PARTS - 1 and all(parts)):
        return None
    return AnnotationKey(parts[0], parts[1])


def retraction_of(sent: FeedbackEvent, key: AnnotationKey, at: datetime) -> FeedbackEvent:
    """Return the withdrawal of an annotation's label.

    The revision is the one after the last that was sent, not the time of the deletion, which is unknown: sent twice
    it is the same event, and an annotation that its author makes later stands above it.
    """
    revision = sent.revision + 1
    return FeedbackEvent(
        query_id=sent.query_id,
        entities=None,
        labeler=sent.labeler,
        labelled_at=at,
        source=sent.source,
        feedback_id=f"{feedback_id(sent.source or '', key, revision)}:retracted",
        revision=revision,
        retracted=True,
    )


def reissued(event: FeedbackEvent, key: AnnotationKey, above: int) -> FeedbackEvent:
    """Return an annotation's event under a revision above another, so that it takes that one's place."""
    changed = {"revision": above + 1, "feedback_id": feedback_id(event.source or "", key, above + 1)}
    return event.model_copy(update=changed)
