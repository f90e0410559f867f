"""The status documents that are served: a workload's status from its topic, completed from the other topics.

Documents are cached as bytes and made again only when a part of them, or the second, has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import to_json

from recalibrator.api.read_model.dead_letter_log import DeadLetterLog
from recalibrator.api.read_model.headlines import Headlines
from recalibrator.api.read_model.topic_cache import Instance, TopicCache
from recalibrator.api.read_model.version_lines import VersionLine, changes
from recalibrator.headlines.facts import SILENT_AFTER, heard_until
from schemas.settings import Settings
from schemas.status import LabelsWithoutResult, RecalibratorStatus, RouterStatus, VersionSummary, WorkloadStatus
from schemas.topics import QUERIES
from ucci_runtime.broker.contact import Heard

#: From then on a silent instance is left out of a workload's status; the list of all still has it.
GONE_AFTER = timedelta(hours=1)

_MOST_LABELERS = 50

#: Members of the status that other topics complete.
_COMPLETED = frozenset({"labels", "lag", "version", "routers", "dead_letters", "headline"})
_COMPLETED_LABELS = frozenset({"by_labeler", "without_result"})


@dataclass(frozen=True, slots=True, eq=False)
class _Around:
    key: object
    now: datetime
    #: As JSON values, each with whether it has stopped sending.
    routers: Sequence[tuple[dict[str, Any], bool]]
    labelers: Sequence[dict[str, Any]]
    without_result: LabelsWithoutResult | None
    lag: dict[str, Any]
    instances: bytes


class StatusDocuments:
    """The documents behind ``/v1/status`` and the page. ``heard``: returns when Kafka was last heard."""

    def __init__(
        self,
        settings: Settings,
        cache: TopicCache,
        letters: DeadLetterLog,
        heard: Callable[[], Heard | None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._prefix = f"{settings.topics.prefix}."
        self._cache = cache
        self._letters = letters
        self.headlines = Headlines(settings, cache, letters, heard)
        self._whole: dict[str, tuple[object, bytes]] = {}
        self._begun: dict[str, tuple[object, bytes]] = {}
        self._around: _Around | None = None

    def workload_json(self, workload: str, now: datetime) -> bytes:
        """Return one workload's status as JSON."""
        return self._json(workload, self._surroundings(now), now)

    def workload(self, workload: str, now: datetime) -> WorkloadStatus:
        """Return one workload's status."""
        return WorkloadStatus.model_validate_json(self.workload_json(workload, now))

    def all_json(self, now: datetime) -> bytes:
        """Return all workloads and instances as JSON."""
        around = self._surroundings(now)
        workloads = b",".join(self._json(name, around, now) for name in self._cache.workloads)
        return b'{"workloads":[' + workloads + b"]," + around.instances

    def has_running(self, stage: str, now: datetime) -> bool:
        """Return whether a recalibrator that still reports runs a stage that is ready."""
        until = heard_until(self.headlines.heard(), now)
        known = (one.status for one in self._cache.recalibrators() if until - one.status.updated_at <= SILENT_AFTER)
        return any(stage in one.stages and one.stages[stage].ready for one in known)

    def _json(self, workload: str, around: _Around, now: datetime) -> bytes:
        heard, begun = self.headlines.heard(), self._completed(workload, around)
        key = (begun, now.replace(microsecond=0), heard is not None and heard.is_away)
        known = self._whole.get(workload)
        if known is None or known[0] != key:
            said = self.headlines.of(WorkloadStatus.model_validate_json(begun + b"}"), now)
            known = key, b"".join((begun, b',"headline":', said.model_dump_json().encode(), b"}"))
            self._whole[workload] = known
        return known[1]

    def _completed(self, workload: str, around: _Around) -> bytes:
        """Return the workload's own status with what other topics add to it, left open for the headline."""
        key = (self._cache.revision_of(workload), around)
        known = self._begun.get(workload)
        if known is not None and known[0] == key:
            return known[1]
        document = self._cache.document(workload)
        if document is None:
            target = self._settings.workloads[workload].target
            document = WorkloadStatus.cold_start(workload, target).model_dump(mode="json")
        line = self._cache.line(workload, document["calibration_version"])
        parent = None if line is None else self._cache.line(workload, line.parent_version)
        labels = {name: value for name, value in document.get("labels", {}).items() if name not in _COMPLETED_LABELS}
        if around.without_result is not None:
            labels["without_result"] = around.without_result
        routers = [(one, is_silent) for one, is_silent in around.routers if workload in one.get("versions", ())]
        completed = {
            **{name: value for name, value in document.items() if name not in _COMPLETED},
            "labels": labels | {"by_labeler": labelers(around.labelers, workload)},
            "lag": (document.get("lag") or {}) | around.lag,
            "version": None if line is None else _summary(line, parent),
            "routers": [_of_workload(one, workload, is_silent=is_silent) for one, is_silent in routers],
            "dead_letters": self._letters.status(workload, around.now),
        }
        begun = to_json(completed)[:-1]
        self._begun[workload] = (key, begun)
        return begun

    def _surroundings(self, now: datetime) -> _Around:
        """Return what every workload's document rests on; time counts as far as it silences someone."""
        routers, recalibrators = self._cache.routers(), self._cache.recalibrators()
        until = heard_until(self.headlines.heard(), now)
        last_seen = [*(one.status.updated_at for one in routers), *(one.status.updated_at for one in recalibrators)]
        quiet = tuple((until - at > SILENT_AFTER) + (now - at > GONE_AFTER) for at in last_seen)
        key = (self._cache.instances_revision, self._letters.revision, now.replace(second=0, microsecond=0), quiet)
        if self._around is not None and self._around.key == key:
            return self._around
        known = [
            (one, until - one.status.updated_at > SILENT_AFTER)
            for one in routers
            if now - one.status.updated_at <= GONE_AFTER
        ]
        live = [one for one in recalibrators if until - one.status.updated_at <= SILENT_AFTER]
        instances = {
            "routers": [one.document for one in routers],
            "recalibrators": [one.document for one in recalibrators],
            "dead_letters": self._letters.status(None, now),
        }
        joins = _joining(live) or _joining(recalibrators)
        waiting = [one.status.labels_without_result for one in joins]
        self._around = _Around(
            key=key,
            now=now,
            routers=[(one.document, is_silent) for one, is_silent in known],
            labelers=[one.document for one in joins],
            without_result=LabelsWithoutResult.total([one for one in waiting if one is not None]),
            lag=self._lag([one.status for one, is_silent in known if not is_silent], [one.status for one in live]),
            instances=to_json(instances)[1:],
        )
        return self._around

    def _lag(self, routers: Sequence[RouterStatus], recalibrators: Sequence[RecalibratorStatus]) -> dict[str, Any]:
        """Return lag by topic: records summed over readers, seconds of the one furthest behind."""
        records, seconds = dict[str, int](), dict[str, float]()
        for router in routers:
            records[QUERIES.suffix] = records.get(QUERIES.suffix, 0) + sum(router.lag.values())
            if router.lag_s:
                seconds[QUERIES.suffix] = max(seconds.get(QUERIES.suffix, 0.0), *router.lag_s.values())
        lags = (lag for one in recalibrators for stage in one.stages.values() for lag in stage.lag.items())
        for topic, behind in lags:
            name = topic.removeprefix(self._prefix)
            records[name] = records.get(name, 0) + behind.records
            if behind.seconds is not None:
                seconds[name] = max(seconds.get(name, 0.0), behind.seconds)
        return {"records": records, "seconds": {name: round(value, 3) for name, value in seconds.items()}}


def _joining(recalibrators: Sequence[Instance[RecalibratorStatus]]) -> list[Instance[RecalibratorStatus]]:
    """Return those that run a join: the one that takes over from one that is gone counts its labelers again."""
    return [one for one in recalibrators if "join" in one.status.stages]


def labelers(recalibrators: Sequence[dict[str, Any]], workload: str) -> list[dict[str, Any]]:
    """Return a workload's labelers, the busiest first, summed over all recalibrators; all as JSON values."""
    found: dict[str | None, dict[str, Any]] = {}
    for one in recalibrators:
        for counts in one.get("labelers", {}).get(workload, ()):
            known = found.get(counts["labeler"])
            found[counts["labeler"]] = dict(counts) if known is None else _sum(known, counts)
    return sorted(found.values(), key=lambda counts: (-counts["labels"], counts["labeler"] or ""))[:_MOST_LABELERS]


def _sum(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    counts = {name: value + other.get(name, 0) for name, value in one.items() if isinstance(value, int)}
    # RFC 3339 in UTC: the later text is the later time, to the second.
    return one | counts | {"last_at": max(one["last_at"] or "", other["last_at"] or "") or None}


def _summary(line: VersionLine, parent: VersionLine | None) -> VersionSummary:
    shown = {name: getattr(line, name) for name in ("version", "created_at", "trigger", "parent_version")}
    return VersionSummary(**shown, changed=changes(line, parent))


def _of_workload(document: dict[str, Any], workload: str, *, is_silent: bool) -> dict[str, Any]:
    """Return what one router does for one workload: a :class:`~schemas.status.WorkloadRouter` as JSON values."""
    in_use = document["versions"][workload]
    return {
        "instance_id": document["instance_id"],
        "serves": document.get("serves", "topic"),
        "ready": document["ready"] and not is_silent,
        "silent": is_silent,
        "version": in_use.get("version"),
        "since": in_use.get("since"),
        "trial": in_use.get("trial"),
        "models": document.get("models", {}).get(workload, {}),
        "updated_at": document["updated_at"],
    }
