"""A stage: a loop that a thread drives one round at a time, what it reports of itself, and how it commits.

A stage takes records in order, so one number for each partition says what it has taken. Whatever did not commit is read
again from what is stored; the group's offsets then say which outputs are in the topics already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

from pydantic import JsonValue

from schemas.errors import UcciError
from schemas.settings import Settings
from schemas.status import (
    LabelerStatus,
    LabelsWithoutResult,
    RecalibratorStatus,
    StageStatus,
    TopicLag,
    WorkloadStatus,
)
from ucci_runtime.broker.ports import Committed, TransactionSession
from ucci_runtime.broker.records import Input, Lag, OffsetCommit, OutputRecord

#: How long a turn takes records; then it lets its group hear of it, and reads the rest of them again.
#:
#: A group gives up a member that does not poll for ``max.poll.interval.ms``, and so all that was taken since its last
#: commit. Polls return up to thousands of records, of which each may lead to a commit.
TURN_S = 5.0


class StageName(StrEnum):
    """The parts that can run alone; a broker makes the groups and sessions of join and fit by these names."""

    JOIN = "join"
    FIT = "fit"
    API = "api"


class ReaderName(StrEnum):
    """By these names a broker makes the readers of whole topics, and of the ends of long ones."""

    VERSIONS = "versions"
    VIEW = "view"
    DEAD_LETTERS = "dead-letters"
    RESULTS = "results"


class NotCommitted(UcciError):
    """A transaction did not commit, or nobody saw its end: forget what is not stored, and read from there again."""


def commit(
    session: TransactionSession,
    records: Sequence[OutputRecord],
    offsets: Mapping[Input, int],
    group: object,
    note: str = "",
) -> None:
    """Commit records and offsets; blocks. Raises NotCommitted; raises Fenced or AccessDenied.

    ``note``: metadata committed with each offset; the partition's next owner reads it.
    """
    end = session.commit(records, {source: OffsetCommit(offset, note) for source, offset in offsets.items()}, group)
    if not isinstance(end, Committed):
        raise NotCommitted(end.reason)


class LabelFacts(NamedTuple):
    """What the join knows of labels and of those who gave them."""

    #: By workload.
    labelers: Mapping[str, tuple[LabelerStatus, ...]] = MappingProxyType({})
    #: None where no join runs.
    without_result: LabelsWithoutResult | None = None
    #: Records that lay in another partition than their query's, by topic.
    forwarded: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class StageReport:
    """A stage as its thread saw it last; ``trouble`` as in :class:`~schemas.status.StageStatus`."""

    is_ready: bool = False
    lag: Mapping[Input, Lag] = field(default_factory=dict)
    labels: LabelFacts = field(default_factory=LabelFacts)
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class News:
    """Something that happened in a stage, as a log line says it."""

    #: In a few words, the same whenever it happens.
    event: str

    facts: Mapping[str, JsonValue]
    #: Whether somebody should look at it.
    is_bad: bool = False


class Stage(Protocol):
    """A loop that a thread can drive."""

    @property
    def is_ready(self) -> bool:
        """Whether it has caught up."""

    def start(self) -> None:
        """Begin."""

    def turn(self) -> None:
        """Do one round; blocks for little."""

    def lag(self) -> Mapping[Input, Lag]:
        """Return how far behind each input is."""
        return {}

    def gauges(self) -> Mapping[str, float]:
        """Return sizes worth watching, by metric name."""
        return {}

    def labels(self) -> LabelFacts:
        """Return what is known of labels and of those who gave them."""
        return LabelFacts()

    def statuses(self) -> Sequence[WorkloadStatus]:
        """Return the statuses of workloads that were committed since the last call, oldest first."""
        return ()

    def news(self) -> Sequence[News]:
        """Return what has happened since the last call."""
        return ()

    def use(self, settings: Settings) -> None:
        """Go on under settings that differ in what is taken over on SIGHUP; called between two turns, in the thread."""

    def close(self) -> None:
        """Commit the rest and leave."""


def recalibrator_status(
    instance_id: str,
    started_at: datetime,
    now: datetime,
    stages: Mapping[str, StageReport],
    settings: Mapping[str, str],
) -> RecalibratorStatus:
    """Put a status together; lags are summed over the partitions of a topic, seconds are those of the worst."""
    return RecalibratorStatus(
        instance_id=instance_id,
        started_at=started_at,
        updated_at=now,
        stages={
            name: StageStatus(ready=report.is_ready, lag=_by_topic(report), trouble=report.trouble)
            for name, report in stages.items()
        },
        labelers={workload: found for report in stages.values() for workload, found in report.labels.labelers.items()},
        labels_without_result=next(filter(None, (report.labels.without_result for report in stages.values())), None),
        records_forwarded={
            topic: count for report in stages.values() for topic, count in report.labels.forwarded.items()
        },
        settings=dict(settings),
    )


def _by_topic(report: StageReport) -> dict[str, TopicLag]:
    found: dict[str, TopicLag] = {}
    for source, behind in sorted(report.lag.items()):
        before = found.get(source.topic, TopicLag())
        ages = [age for age in (before.seconds, behind.seconds) if age is not None]
        found[source.topic] = TopicLag(records=before.records + behind.records, seconds=max(ages, default=None))
    return found
