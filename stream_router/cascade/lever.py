"""The port of the levers: what may change how a query is decided or asked for, besides the version in force. Pure.

A lever is made for every query by :func:`~stream_router.cascade.answerer.levers_of`; the cascade walks
them and knows none by name. The one of trials is here; a larger one is a file of its own.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple

from schemas.calibration import CalibrationVersion
from schemas.routed import Decision, LabelRequest, ModelRun, RoutedEvent, TrialDecision
from stream_router.ports import Calibrations, CascadeMetrics, TokenMark


class RunEnd(Enum):
    """How asking a model ended."""

    VALID = "valid"
    #: It failed on this query: refused, not an answer, or out of attempts while the server answers others.
    FAILED = "failed"
    #: The server is down, or too busy to take a query that can do without it; nothing is said about this query.
    DOWN = "down"


class Asked(NamedTuple):
    """One model's run and how it ended."""

    run: ModelRun
    end: RunEnd
    #: Whether it failed by what was asked or answered: a valid answer may follow if it is asked otherwise.
    invalid: bool = False
    #: Of the answer's tokens, where they are known.
    marks: tuple[TokenMark, ...] = ()


class Drawn(NamedTuple):
    """The decision on a query, whose it is (None: a cold start), when it was made, and the number drawn for it."""

    decision: Decision
    label: LabelRequest
    version: CalibrationVersion | None
    decided_at: datetime
    draw: float


class Lever:
    """One query's part in a lever, which by default changes nothing; its methods are called in this order."""

    #: Whether the small model must be asked as a stream, so that its answer's tokens are marked.
    streams_small = False

    #: The beginning of the answer that the large model goes on from; empty where it starts over.
    begun = ""

    #: Whether the large model is to answer once more, without this lever, to compare; that is never served.
    wants_alone = False

    #: Calls of the large model that were made for this lever and are paid for, besides the one whose answer counts.
    unserved: tuple[Asked, ...] = ()

    def rule(self, version: CalibrationVersion, _uncertainty: float | None, _draw: float) -> CalibrationVersion:
        """Return the version that decides this query: the one in force, or another; not called in a cold start."""
        return version

    def small_ended(self, small: Asked, drawn: Drawn, *, large_follows: bool) -> None:
        """Take the small answer and the decision on it; sets how the large call begins, if one follows."""

    def large_ended(self, _large: Asked) -> bool:
        """Take the outcome of the large call; False: it does not count, and the large model is asked again."""
        return True

    def alone_ended(self, alone: Asked) -> None:
        """Take the answer that was wanted to compare."""

    def record(self, content: dict[str, Any]) -> None:
        """Put this lever's part into the fields of the result."""

    def count(self, routed: RoutedEvent, metrics: CascadeMetrics) -> None:
        """Count its outcome."""


class TrialLever(Lever):
    """A version on trial is computed beside the one in force, and decides a canary's share.

    Asks for the trial when the small answer has come; without one the version in force decides alone.
    """

    def __init__(self, query_id: str, workload: str, calibrations: Calibrations) -> None:
        self._query_id = query_id
        self._workload = workload
        self._calibrations = calibrations
        self._told: TrialDecision | None = None

    def rule(self, version: CalibrationVersion, uncertainty: float | None, draw: float) -> CalibrationVersion:
        """Decide by both versions; the one on trial acts on its share."""
        trial = self._calibrations.trial(self._workload)
        if trial is None:
            self._told = None
            return version
        base, tried = (one.decide(uncertainty, self._query_id, draw) for one in (version, trial.version))
        self._told = TrialDecision(
            version=trial.version.version,
            mode=trial.mode,
            escalated=tried.escalated,
            base_version=version.version,
            base_escalated=base.escalated,
            acted=trial.acts_on(self._query_id),
        )
        return trial.version if self._told.acted else version

    def record(self, content: dict[str, Any]) -> None:
        """Name both decisions in the one acted on."""
        if self._told is not None:
            content["decision"] = content["decision"].model_copy(update={"trial": self._told})


def trial_labels(workload: str, decided: TrialDecision | None) -> tuple[str, str, str, str] | None:
    """Return what a result is counted by: workload, mode, whose decision was acted on, and how both compare."""
    if decided is None:
        return None
    compared = "same"
    if decided.escalated != decided.base_escalated:
        compared = "trial_escalates" if decided.escalated else "base_escalates"
    return workload, decided.mode, "trial" if decided.acted else "base", compared
