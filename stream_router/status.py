"""A router's status, and whether the router is ready, in words for people.

A :class:`~schemas.status.RouterStatus` reports the counts and states of the process; while it is not ready, it gives
the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast

from schemas.status import ModelHealth, RouterStatus, VersionInUse


@dataclass(frozen=True, slots=True)
class Readiness:
    """What has to be true before queries are answered."""

    is_assigned: bool
    is_calibration_read: bool
    has_producer: bool
    can_answer: bool
    is_draining: bool = False

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
        return tuple(line for holds, line in reasons if holds)


@dataclass(frozen=True, slots=True)
class Identity:
    """Which instance this is, and since when it runs."""

    instance_id: str
    started_at: datetime


def router_status(
    identity: Identity,
    *,
    now: datetime,
    readiness: Readiness,
    versions: Mapping[str, VersionInUse],
    rejected_versions: Mapping[str, int],
    models: Mapping[str, Mapping[str, ModelHealth]],
    lag: Mapping[int, int],
    lag_s: Mapping[int, float],
    in_flight: int,
    counters: Mapping[str, int],
) -> RouterStatus:
    """Put a status together.

    Parameters
    ----------
    lag : mapping of partition to offsets
        Between the log's end and the committed offset.
    lag_s : mapping of partition to seconds
        Age of the newest query taken, where more are left; 0 at the end.
    """
    return RouterStatus(
        instance_id=identity.instance_id,
        started_at=identity.started_at,
        updated_at=now,
        ready=not readiness.missing,
        versions=dict(versions),
        rejected_versions=dict(rejected_versions),
        models={
            workload: {cast(Literal["small", "large"], role): health for role, health in roles.items()}
            for workload, roles in models.items()
        },
        lag={str(partition): offsets for partition, offsets in sorted(lag.items())},
        in_flight=in_flight,
        counters=dict(counters),
        lag_s={str(partition): seconds for partition, seconds in sorted(lag_s.items())},
    )
