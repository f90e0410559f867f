"""Scores that people gave to traces in a tracing service, as feedback on the queries behind them. Pure.

A score by the configured name says right or wrong of the answer that was served; a correction, or a score whose
comment or metadata holds entities, says what is right. Scores of programs and of models are left alone. Each author is
a labeler of their own, so that the rules of trust apply; where one has said both, what is right counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from pydantic import ValidationError
from pydantic_core import from_json

from recalibrator.labelling.label_tool import (
    Annotation,
    AnnotationKey,
    InvalidAnnotation,
    JsonDocument,
    Task,
    feedback_id,
)
from recalibrator.labelling.recent_revisions import revision_at
from schemas.event import decode_error
from schemas.feedback import FeedbackEvent, Verdict

#: The name of the scores that labels from elsewhere are written back as; they are not read in again.
OURS = "ucci-label"
#: The names of scores that say what is right: Langfuse calls each of its corrections ``output``.
CORRECTIONS = ("correction", "output")

_VERDICTS: dict[object, Verdict] = {
    **dict.fromkeys(("right", "correct", "true", "yes", "pass", "1", 1, True), "right"),
    **dict.fromkeys(("wrong", "incorrect", "false", "no", "fail", "0", 0, False), "wrong"),
}
_MICROSECONDS = 1_000_000
_SHOWN_CHARS = 60


class Score(NamedTuple):
    """One score, as any tracing service has it."""

    score_id: str
    name: str
    #: What was chosen, where it has a name, and its number.
    label: str | None
    value: float | bool | None
    #: Free text; the corrected answer, where the service has corrections.
    comment: str | None
    metadata: Mapping[str, Any]
    #: None for what came by API without an author.
    author: str | None
    changed_at: datetime


class ScoredTrace(NamedTuple):
    """A trace with scores of people, and the query behind it where a span names one."""

    trace_id: str
    query_id: str | None
    scores: Sequence[Score]


@dataclass(frozen=True, slots=True)
class TraceScoreReader:
    """Reads the scores of one project. ``name``: of those that say right or wrong."""

    source: str
    project: str
    name: str

    def feedback(self, hook: JsonDocument) -> FeedbackEvent | None:
        """Return None: scores are polled."""
        del hook
        return None

    def task(self, document: JsonDocument) -> Task:
        """Return one trace as a task: ``trace`` of the document is a :class:`ScoredTrace`."""
        trace: ScoredTrace = document["trace"]
        scores = trace.scores if trace.query_id else ()
        annotations: list[Annotation] = []
        faults = []
        for score in scores:
            try:
                if (said := self._annotation(trace, score)) is not None:
                    annotations.append(said)
            except InvalidAnnotation as fault:
                faults.append(f"trace {trace.trace_id}, {score.name!r}: {fault}")
        changed_at = max((score.changed_at for score in trace.scores), default=document["now"])
        return Task(
            document_id=trace.trace_id,
            task_id=None,
            query_id=trace.query_id,
            annotations=tuple(_without_less(annotations)),
            is_untouched=False,
            may_leave=False,
            created_at=changed_at,
            changed_at=changed_at,
            faults=tuple(faults),
        )

    def _annotation(self, trace: ScoredTrace, score: Score) -> Annotation | None:
        is_ours = score.name == OURS or score.score_id.startswith(f"{OURS}:")
        if is_ours or score.name not in {self.name, *CORRECTIONS}:
            return None
        entities = _entities(score)
        if entities is None and score.name != self.name:
            if not score.comment:
                return None
            raise InvalidAnnotation("a correction is an object of fields as JSON", "comment")
        key = AnnotationKey(self.project, quote(score.score_id, safe=""))
        mark = int(score.changed_at.timestamp() * _MICROSECONDS)
        content = {
            "query_id": trace.query_id,
            "labeler": f"{self.source}:{score.author or 'api'}",
            "labelled_at": score.changed_at,
            "source": self.source,
            "feedback_id": feedback_id(self.source, key, mark),
            "revision": revision_at(score.changed_at),
            **({"verdict": _verdict(score)} if entities is None else {"entities": entities}),
        }
        try:
            return Annotation(key, FeedbackEvent.model_validate(content))
        except ValidationError as error:
            found = decode_error(error)
            raise InvalidAnnotation(str(found), found.field, found.reason) from None


def _entities(score: Score) -> Mapping[str, Any] | None:
    """Return the right entities, where a score says them: in ``metadata.entities``, or as JSON in its comment."""
    given = score.metadata.get("entities")
    if given is None and score.comment and score.comment.lstrip().startswith("{"):
        try:
            given = from_json(score.comment)
        except ValueError as error:
            raise InvalidAnnotation(f"comment: looks like entities and is no JSON: {error}", "comment") from None
    if given is not None and not isinstance(given, dict):
        raise InvalidAnnotation("metadata.entities: must be an object of fields", "metadata.entities")
    return given


def _verdict(score: Score) -> Verdict:
    said = score.value if score.label is None else score.label.strip().lower()
    verdict = _VERDICTS.get(said)
    if verdict is None:
        message = f"{str(said)[:_SHOWN_CHARS]!r} is neither right nor wrong: use correct and incorrect, or 1 and 0"
        raise InvalidAnnotation(message, "value")
    return verdict


def _without_less(annotations: Sequence[Annotation]) -> Iterable[Annotation]:
    """Leave out verdicts of those who have said what is right."""
    full = {one.event.labeler for one in annotations if one.event.verdict is None}
    return (one for one in annotations if one.event.verdict is None or one.event.labeler not in full)


class TraceLabel(NamedTuple):
    """A label from elsewhere that goes to a trace."""

    trace_id: str
    event: FeedbackEvent

    @property
    def word(self) -> str:
        """What was said, in a word: ``labelled``, ``right``, ``wrong``, ``skipped`` or ``withdrawn``."""
        if self.event.retracted:
            return "withdrawn"
        return self.event.verdict or ("skipped" if self.event.entities is None else "labelled")

    @property
    def details(self) -> dict[str, Any]:
        """Who said it of which query, with which tool, and what is right."""
        return self.event.model_dump(mode="json", include={"query_id", "labeler", "source", "entities"})

    @property
    def identifier(self) -> str:
        """What makes it one score, however often it is written: each labeler has one on a query."""
        return f"{OURS}:{quote(self.event.query_id, safe='')}:{quote(self.event.labeler or '', safe='')}"
