"""The port of the levers: what may change how a query is decided or asked for, besides the version in force. Pure.

A lever is one file here, made for every query by :func:`~stream_router.cascade.answerer.levers_of`; the cascade walks
them and knows none by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from schemas.calibration import CalibrationVersion
from schemas.routed import Decision, LabelRequest, ModelRun, RoutedEvent
from stream_router.ports import CascadeMetrics, TokenMark


class RunEnd(Enum):
    """How asking a model ended."""

    VALID = "valid"
    #: It failed on this query: refused, not an answer, or out of attempts while the server answers others.
    FAILED = "failed"
    #: The server is down, or too busy to take a query that can do without it; nothing is said about this query.
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class Asked:
    """One model's run and how it ended."""

    run: ModelRun
    end: RunEnd
    #: Whether it failed by what was asked or answered: a valid answer may follow if it is asked otherwise.
    invalid: bool = False
    #: Of the answer's tokens, where they are known.
    marks: tuple[TokenMark, ...] = ()


@dataclass(frozen=True, slots=True)
class Drawn:
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
