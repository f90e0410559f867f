"""The headlines of all workloads: what they rest on, from the topics, and the one that is shown of each. No clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from threading import Lock

from recalibrator.api.read_model.dead_letter_log import DeadLetterLog
from recalibrator.api.read_model.history import begun, last_growth
from recalibrator.api.read_model.topic_cache import TopicCache
from recalibrator.headlines.facts import Facts
from recalibrator.headlines.hold import Shown, shown
from recalibrator.headlines.rules import headline
from schemas.happening import HappeningEvent
from schemas.settings import Settings
from schemas.status import Headline, WorkloadStatus
from ucci_runtime.broker.contact import Heard

_HOUR = timedelta(hours=1)


class Headlines:
    """What is shown of each workload; callable from any thread.

    ``heard``: returns when Kafka was last heard; None where nobody listens.
    """

    def __init__(
        self, settings: Settings, cache: TopicCache, letters: DeadLetterLog, heard: Callable[[], Heard | None]
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._letters = letters
        self.heard = heard
        self._shown: dict[str, Shown] = {}
        self._lock = Lock()

    def of(self, status: WorkloadStatus, now: datetime) -> Headline:
        """Return what to say first of a workload, which holds for a minute."""
        found = headline(status, self.facts(status, now))
        with self._lock:
            latest = self._shown[status.workload] = shown(self._shown.get(status.workload), found, now)
        return latest.headline

    def facts(self, status: WorkloadStatus, now: datetime) -> Facts:
        """Return what the headline of a workload rests on besides its status."""
        workload, points = status.workload, self._cache.points(status.workload)
        line = self._cache.line(workload, status.calibration_version)
        before = None if line is None else self._cache.line(workload, line.parent_version)
        return Facts(
            now=now,
            recalibrators=[one.status for one in self._cache.recalibrators()],
            state_since=begun(points, lambda point: point.state == status.state),
            outage_since=_last_outage(self._cache.happened(workload)) or begun(points, lambda point: point.has_outage),
            known_since=points[0].at if points else None,
            routers=[one.status for one in self._cache.routers() if workload in one.status.versions],
            last_query_at=last_growth(points),
            letters_last_hour=self._letters.count_since(workload, now - _HOUR),
            expected_rate=None if line is None else line.escalation_rate,
            expected_cost=None if line is None else line.cost,
            may_return=before is not None and before.is_sound,
            workload=self._settings.workloads[workload],
            kafka=self.heard(),
        )


def _last_outage(happened: Sequence[HappeningEvent]) -> datetime | None:
    """Return when the outage that lasts began; None where none lasts, as far as that was kept."""
    last = next((one for one in reversed(happened) if one.kind.startswith("outage")), None)
    return last.at if last is not None and last.kind == "outage" else None
