"""A stage: a loop that a thread drives one round at a time, and what it reports of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import JsonValue

from schemas.status import LabelerStatus
from ucci_runtime.broker.records import Input, Lag


@dataclass(frozen=True, slots=True)
class StageReport:
    """A stage as its thread saw it last."""

    is_ready: bool = False
    lag: Mapping[Input, Lag] = field(default_factory=dict)
    labelers: Mapping[str, tuple[LabelerStatus, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class News:
    """Something that happened in a stage, as a log line says it.

    Parameters
    ----------
    event : str
        In a few words, the same whenever it happens.
    facts : mapping of str to JSON value
    is_bad : bool
        Whether somebody should look at it.
    """

    event: str
    facts: Mapping[str, JsonValue]
    is_bad: bool = False


class Stage(Protocol):
    """A loop that a thread can drive."""

    @property
    def is_ready(self) -> bool:
        """Whether it has caught up."""
        ...

    def start(self) -> None:
        """Begin."""
        ...

    def turn(self) -> None:
        """Do one round; blocks for little."""
        ...

    def lag(self) -> Mapping[Input, Lag]:
        """Return how far behind each input is."""
        return {}

    def gauges(self) -> Mapping[str, float]:
        """Return sizes worth watching, by metric name."""
        return {}

    def labelers(self) -> Mapping[str, tuple[LabelerStatus, ...]]:
        """Return what labelers have said, by workload."""
        return {}

    def news(self) -> Sequence[News]:
        """Return what has happened since the last call."""
        return ()

    def close(self) -> None:
        """Commit the rest and leave."""
        ...
