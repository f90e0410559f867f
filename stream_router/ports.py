"""The seams between the router's loop and the world: what answers a query, by which calibration, and who watches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from schemas.calibration import CalibrationVersion
from schemas.routed import ModelRole, QueryEvent, RoutedEvent
from schemas.settings import Settings
from schemas.status import ModelHealth
from schemas.trial import CalibrationTrial

#: By this name a broker makes the routers' group and the session that commits for it.
GROUP = "router"

#: By this name a broker makes the reader of versions.
CALIBRATION_READER = "calibration"


class Calibrations(Protocol):
    """Which version each workload is decided by; swapped at any time without a restart."""

    def in_force(self, workload: str) -> CalibrationVersion | None:
        """Return the version in force, or None in a cold start."""

    def trial(self, workload: str) -> CalibrationTrial | None:
        """Return the version on trial beside it, or None."""


class Answerer(Protocol):
    """Answers queries with the cascade."""

    async def start(self) -> None:
        """Open connections."""

    async def close(self) -> None:
        """Close connections."""

    def use(self, settings: Settings) -> None:
        """Answer the queries to come under settings that differ in what is taken over on SIGHUP."""

    async def answer(self, query: QueryEvent, workload: str, headers: Mapping[str, str] | None = None) -> RoutedEvent:
        """Run the cascade for one query.

        Waits, however long, while neither model server can answer, unless it was made not to; may be cancelled at any
        time. Raises ModelsFailed when both models fail on this query while the servers answer others; raises
        ServersDown where it does not wait.
        """

    def health(self) -> Mapping[str, Mapping[ModelRole, ModelHealth]]:
        """Return each workload's model servers as seen from here, by role."""

    @property
    def can_answer(self) -> bool:
        """Whether every workload has at least one model server that is up."""


class ServerName(NamedTuple):
    """Which workload's model server, and in which role."""

    workload: str
    role: ModelRole

    def __str__(self) -> str:
        return f"{self.workload}/{self.role}"


class TokenMark(NamedTuple):
    """Where a token of an answer begins, in characters of its text, and its margin p1 - p2, in [0, 1]."""

    start: int
    margin: float


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said."""

    #: Without the thinking before the answer.
    text: str
    #: As the server says; ``length``, ``content_filter`` and ``abort`` are cut answers, though the status is 200.
    finish_reason: str | None
    completion_tokens: int
    #: u in [0, 1], of the answer's own tokens; None when none carries probabilities, or they are not the answer's.
    uncertainty: float | None
    #: Read by the model; 0 where the server does not count them.
    prompt_tokens: int = 0
    #: Of the tokens, in order; of a streamed reply alone. Tokens that came together share one start.
    marks: tuple[TokenMark, ...] = ()
    #: Why this can be no answer, whatever the text: of the signal where ``uncertainty`` is None, else of the text.
    defect: str | None = None
    #: Tokens of the answer that carry probabilities.
    measured_tokens: int = 0
    #: Whether the model thought before it answered.
    thought: bool = False


class Answered(NamedTuple):
    """A reply, and how long it took: from the first attempt on, retries and the queue for a place included."""

    reply: Reply
    latency_s: float


class CascadeMetrics(Protocol):
    """Takes what the cascade and its model calls count, by the names of the metrics; called in the event loop."""

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter or a histogram; must not block."""

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge; must not block."""
