"""What is served of a workload: its status from the topic, completed by what other topics tell of it.

The view, the dead letters and a time flow in, documents flow out; what has not changed is not put together again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

from recalibrator.api.dead_letter_log import DeadLetterLog
from recalibrator.api.versions import summary
from recalibrator.api.view import View
from recalibrator.core.labelers import add
from schemas.settings import Settings, WorkloadSettings
from schemas.status import (
    DriftStatus,
    LabelerCounts,
    LabelerStatus,
    RecalibratorStatus,
    RouterStatus,
    WorkloadRouter,
    WorkloadStatus,
)
from schemas.topics import QUERIES

SILENT_AFTER = timedelta(seconds=30)
"""An instance tells its status every 2 s."""

GONE_AFTER = timedelta(hours=1)
"""From then on a silent instance is left out of a workload's status; the list of all still has it."""

_MOST_LABELERS = 50
_NONE_SECONDS = 0.0


class Served:
    """The documents behind ``/v1/status`` and the page.

    Parameters
    ----------
    settings : Settings
    view : View
    letters : DeadLetterLog
    """

    def __init__(self, settings: Settings, view: View, letters: DeadLetterLog) -> None:
        self._settings = settings
        self._prefix = f"{settings.topics.prefix}."
        self._view = view
        self._letters = letters
        self._made: dict[str, tuple[object, bytes]] = {}

    def workload_json(self, workload: str, now: datetime) -> bytes:
        """Return one workload's status as JSON."""
        key = (self._view.revision_of(workload), *self._surroundings(now))
        known = self._made.get(workload)
        if known is not None and known[0] == key:
            return known[1]
        made = to_json(self._document(workload, now))
        self._made[workload] = (key, made)
        return made

    def workload(self, workload: str, now: datetime) -> WorkloadStatus:
        """Return one workload's status."""
        return WorkloadStatus.model_validate_json(self.workload_json(workload, now))

    def all_json(self, now: datetime) -> bytes:
        """Return all workloads and instances as JSON."""
        workloads = b",".join(self.workload_json(name, now) for name in self._view.workloads)
        key = self._surroundings(now)
        known = self._made.get("")
        if known is None or known[0] != key:
            known = self._made[""] = (key, self._instances_json(now))
        return b'{"workloads":[' + workloads + b"]," + known[1]

    def _instances_json(self, now: datetime) -> bytes:
        routers = b",".join(router.to_json() for router in self._view.routers())
        recalibrators = b",".join(one.to_json() for one in self._view.recalibrators())
        letters = self._letters.status(None, now).model_dump_json().encode()
        return b'"routers":[' + routers + b'],"recalibrators":[' + recalibrators + b'],"dead_letters":' + letters + b"}"

    def _surroundings(self, now: datetime) -> tuple[object, ...]:
        """Return what every document rests on beside its own workload; time counts as far as it silences someone."""
        heard = [*(one.updated_at for one in self._view.routers()), *(o.updated_at for o in self._view.recalibrators())]
        quiet = tuple((now - at > SILENT_AFTER) + (now - at > GONE_AFTER) for at in heard)
        hour = now.replace(minute=0, second=0, microsecond=0)
        return self._view.instances_revision, self._letters.revision, hour, quiet

    def _document(self, workload: str, now: datetime) -> dict[str, Any]:
        document = self._view.document(workload)
        if document is None:
            document = unseen(self._settings.workloads[workload]).model_dump(mode="json")
        routers = [one for one in self._view.routers() if now - one.updated_at <= GONE_AFTER]
        live_routers = [one for one in routers if now - one.updated_at <= SILENT_AFTER]
        recalibrators = [one for one in self._view.recalibrators() if now - one.updated_at <= SILENT_AFTER]
        line = self._view.line(workload, document["calibration_version"])
        parent = None if line is None else self._view.line(workload, line.parent_version)
        told = labelers(self._view.recalibrators(), workload)
        return document | {
            "labels": document["labels"] | {"by_labeler": [_json(one) for one in told]},
            "lag": (document.get("lag") or {}) | self._lag(live_routers, recalibrators),
            "version": None if line is None else _json(summary(line, parent)),
            "routers": [
                _json(_of_workload(one, workload, is_silent=now - one.updated_at > SILENT_AFTER))
                for one in routers
                if workload in one.versions
            ],
            "dead_letters": _json(self._letters.status(workload, now)),
        }

    def _lag(self, routers: Sequence[RouterStatus], recalibrators: Sequence[RecalibratorStatus]) -> dict[str, Any]:
        """Return lag by topic: records summed over readers, seconds of the one furthest behind."""
        records: dict[str, int] = {}
        seconds: dict[str, float] = {}
        for router in routers:
            records[QUERIES.suffix] = records.get(QUERIES.suffix, 0) + sum(router.lag.values())
            if router.lag_s:
                seconds[QUERIES.suffix] = max(seconds.get(QUERIES.suffix, _NONE_SECONDS), *router.lag_s.values())
        for one in recalibrators:
            for stage in one.stages.values():
                for topic, behind in stage.lag.items():
                    name = topic.removeprefix(self._prefix)
                    records[name] = records.get(name, 0) + behind.records
                    if behind.seconds is not None:
                        seconds[name] = max(seconds.get(name, _NONE_SECONDS), behind.seconds)
        return {"records": records, "seconds": {name: round(value, 3) for name, value in seconds.items()}}


def labelers(recalibrators: Sequence[RecalibratorStatus], workload: str) -> list[LabelerStatus]:
    """Return a workload's labelers, the busiest first, summed over all recalibrators."""
    found: dict[str | None, LabelerCounts] = {}
    for one in recalibrators:
        for told in one.labelers.get(workload, ()):
            found[told.labeler] = add(found.get(told.labeler), told)
    busiest = sorted(found.items(), key=lambda item: (-item[1].labels, item[0] or ""))[:_MOST_LABELERS]
    return [LabelerStatus(**(dict(counts) | {"labeler": labeler})) for labeler, counts in busiest]


def unseen(settings: WorkloadSettings) -> WorkloadStatus:
    """Return the status of a workload of which nothing has come yet."""
    return WorkloadStatus(
        workload=settings.name,
        state="cold_start",
        sentence="Nothing has come in yet; both models will answer every query until a first version is fitted.",
        target=settings.target,
        drift=DriftStatus(state="insufficient_labels"),
    )


def _of_workload(router: RouterStatus, workload: str, *, is_silent: bool) -> WorkloadRouter:
    in_use = router.versions[workload]
    return WorkloadRouter(
        instance_id=router.instance_id,
        ready=router.ready and not is_silent,
        silent=is_silent,
        version=in_use.version,
        since=in_use.since,
        models=router.models.get(workload, {}),
        updated_at=router.updated_at,
    )


def _json(part: BaseModel) -> Any:
    return part.model_dump(mode="json")
