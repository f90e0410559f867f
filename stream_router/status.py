"""A router's status, and whether the router is ready, in words for people.

A :class:`~schemas.status.RouterStatus` reports the counts and states of the process; while it is not ready, it gives
the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple, cast

from schemas.status import ModelHealth, RouterStatus, Served, VersionInUse
from ucci_runtime.broker.records import Lag


@dataclass(frozen=True, slots=True)
class Readiness:
    """What has to be true before queries are answered."""

    is_assigned: bool
    is_calibration_read: bool
    has_producer: bool
    can_answer: bool
    is_draining: bool = False
    #: Why the broker could not be asked for its topics; None once it has answered.
    broker_away: str | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """One line for each thing that is not there yet; empty when ready."""
        reasons = (
            (self.is_draining, "draining: the process is about to end"),
            (not self.is_assigned, "the consumer group has not assigned partitions yet"),
            (not self.is_calibration_read, "the calibration topic is not read to its end yet"),
            (not self.has_producer, "the transactional producer is not started yet"),
            (not self.can_answer, "a workload has no model server that is up; its queries wait"),
        )
        waits = () if self.broker_away is None else (f"waiting for the broker: {self.broker_away}",)
        return (*waits, *(line for holds, line in reasons if holds))


@dataclass(frozen=True, slots=True)
class Identity:
    """Which instance this is, since when it runs, with which settings, and where its queries come from."""

    instance_id: str
    started_at: datetime
    settings: Mapping[str, str] = field(default_factory=dict)
    serves: Served = "topic"


class Versions(NamedTuple):
    """What the calibration topics have brought, by workload: the versions in use, and how many were rejected."""

    in_use: Mapping[str, VersionInUse]
    rejected: Mapping[str, int]


class Backlog(NamedTuple):
    """What is not answered or not committed yet."""

    #: Queries being answered.
    in_flight: int
    #: How far the commits are behind the log's end.
    lag: Mapping[int, Lag]


def router_status(
    identity: Identity,
    *,
    now: datetime,
    readiness: Readiness,
    versions: Versions,
    models: Mapping[str, Mapping[str, ModelHealth]],
    backlog: Backlog,
    counters: Mapping[str, int],
) -> RouterStatus:
    """Return the status of a router as of ``now``."""
    lag = sorted(backlog.lag.items())
    return RouterStatus(
        instance_id=identity.instance_id,
        serves=identity.serves,
        started_at=identity.started_at,
        updated_at=now,
        ready=not readiness.missing,
        versions=dict(versions.in_use),
        rejected_versions=dict(versions.rejected),
        models={
            workload: {cast(Literal["small", "large"], role): health for role, health in roles.items()}
            for workload, roles in models.items()
        },
        lag={str(partition): behind.records for partition, behind in lag},
        in_flight=backlog.in_flight,
        counters=dict(counters),
        lag_s={str(partition): behind.seconds for partition, behind in lag if behind.seconds is not None},
        settings=dict(identity.settings),
    )
