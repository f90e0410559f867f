"""Scores that people gave to traces in a tracing service, as feedback on the queries behind them. Pure.

A score by the configured name says right or wrong of the answer that was served; a correction, or a score whose
comment or metadata holds entities, says what is right, and outranks what the same author says otherwise. Each author is
a labeler of their own, so that the rules of trust apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from pydantic_core import from_json

from recalibrator.labelling.label_tool import (
    Annotation,
    AnnotationKey,
    InvalidAnnotation,
    JsonDocument,
    Task,
    event_of,
    feedback_id,
)
from schemas.feedback import FeedbackEvent, Verdict, revision_at

#: The name of the scores that labels from elsewhere are written back as; they are not read in again.
OURS = "ucci-label"
#: The names of scores that say what is right: Langfuse calls each of its corrections ``output``.
CORRECTIONS = ("correction", "output")

_VERDICTS: dict[object, Verdict] = {
    **dict.fromkeys(("right", "correct", "true", "yes", "pass", 1, True), "right"),
    **dict.fromkeys(("wrong", "incorrect", "false", "no", "fail", 0, False), "wrong"),
}
_SHOWN_CHARS = 60


class Score(NamedTuple):
    """One score of a person, by any service; ``value`` is the word or the number, ``author`` None where unknown."""

    score_id: str
    name: str
    value: str | float | bool | None
    comment: str | None
    metadata: Mapping[str, Any]
    author: str | None
    changed_at: datetime


class ScoredTrace(NamedTuple):
    """A trace with scores, and the query behind it where that is known."""

    trace_id: str
    query_id: str | None
    scores: Sequence[Score]


@dataclass(frozen=True, slots=True)
class TraceScoreReader:
    """Reads the scores of one project. ``name``: of those that say right or wrong."""

    source: str
    project: str
    name: str

    def task(self, document: JsonDocument) -> Task:
        """Return one trace, a :class:`ScoredTrace` under ``trace``, as a task."""
        trace, found, faults = document["trace"], list[Annotation](), list[str]()
        for score in trace.scores if trace.query_id else ():
            try:
                found += self._annotations(trace, score)
            except InvalidAnnotation as fault:
                faults.append(f"trace {trace.trace_id}, {score.name!r}: {fault}")
        full = {one.event.labeler for one in found if one.event.verdict is None}
        said = tuple(one for one in found if one.event.verdict is None or one.event.labeler not in full)
        at = document["now"]
        return Task(trace.trace_id, None, trace.query_id, said, False, False, at, at, tuple(faults))

    def _annotations(self, trace: ScoredTrace, score: Score) -> list[Annotation]:
        """Return what a score says, in a list; none where it is not meant for us."""
        entities = _entities(score) if score.name in {self.name, *CORRECTIONS} else None
        if score.name != self.name and entities is None:
            return []
        key = AnnotationKey(self.project, quote(score.score_id, safe=""))
        event = event_of(
            query_id=trace.query_id,
            labeler=f"{self.source}:{score.author or 'api'}",
            labelled_at=score.changed_at,
            source=self.source,
            feedback_id=feedback_id(self.source, key, score.changed_at.timestamp()),
            revision=revision_at(score.changed_at),
            **({"verdict": _verdict(score)} if entities is None else {"entities": entities}),
        )
        return [Annotation(key, event)]


def _entities(score: Score) -> Mapping[str, Any] | None:
    """Return the right entities, where a score says them: in ``metadata.entities``, or as JSON in its comment."""
    given = score.metadata.get("entities")
    is_meant = score.name in CORRECTIONS or (score.comment or "").lstrip().startswith("{")
    try:
        if given is None and score.comment and is_meant:
            given = from_json(score.comment)
    except ValueError:
        given = score.comment
    if given is not None and not isinstance(given, dict):
        raise InvalidAnnotation("entities: must be an object of fields, in the metadata or as JSON in the comment")
    return given


def _verdict(score: Score) -> Verdict:
    said = score.value.strip().lower() if isinstance(score.value, str) else score.value
    verdict = _VERDICTS.get(said)
    if verdict is None:
        message = f"{str(said)[:_SHOWN_CHARS]!r} is neither right nor wrong: use correct and incorrect, or 1 and 0"
        raise InvalidAnnotation(message, "value")
    return verdict


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
