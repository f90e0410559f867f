"""The headline shown of each workload: what it rests on; it stands for a minute, unless something graver comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import NamedTuple

from recalibrator.api.read_model.dead_letter_log import DeadLetterLog
from recalibrator.api.read_model.history import begun, last_growth
from recalibrator.api.read_model.topic_cache import TopicCache
from recalibrator.api.read_model.version_lines import escalating_since, has_held
from recalibrator.headlines.facts import Facts
from recalibrator.headlines.rules import ESCALATION_JUMP, OBSERVED, gravity, headline
from schemas.settings import Settings
from schemas.status import WORRYING, HappeningEvent, Headline, WorkloadStatus
from ucci_runtime.broker.contact import Heard

_HOUR = timedelta(hours=1)
HOLD = timedelta(seconds=60)


class Shown(NamedTuple):
    """A headline, since when it is shown, and when what it says was first found to be over."""

    found: Headline
    at: datetime
    over_at: datetime | None = None

    @property
    def headline(self) -> Headline:
        """What to show: of what is over, that it is, and no act."""
        one = self.found
        if self.over_at is None:
            return one
        effect = f"this is over since {self.over_at:%H:%M:%S} UTC"
        said = f"{one.sentence.removesuffix('.').removesuffix(f': {one.effect}')}: {effect}."
        return one.model_copy(update={"severity": "calm", "effect": effect, "act": "", "link": None, "sentence": said})


def shown(before: Shown | None, found: Headline, now: datetime) -> Shown:
    """Return what is shown once this was found.

    Examples
    --------
    >>> from datetime import UTC
    >>> def at(second): return datetime(2026, 3, 1, 12, 0, second, tzinfo=UTC)
    >>> dear = Headline(kind="dear", severity="bad", cause="It is dear", sentence="It is dear.")
    >>> jump = dear.model_copy(update={"kind": "escalation_jump"})
    >>> kafka = dear.model_copy(update={"kind": "kafka"})
    >>> first = shown(None, dear, at(0))
    >>> shown(first, jump, at(10)).found.kind, shown(first, kafka, at(10)).found.kind
    ('dear', 'kafka')
    >>> well = Headline(kind="well", severity="good", cause="All is well", sentence="All is well.")
    >>> shown(first, well, at(20)).headline.sentence
    'It is dear: this is over since 12:00:20 UTC.'
    """
    if before is None or before.found.severity not in WORRYING or now - before.at >= HOLD:
        return Shown(found, before.at if before is not None and before.found == found else now)
    # What a person has just commanded is no flicker either.
    if found.kind == "held" or gravity(found) < gravity(before.found):
        return Shown(found, now)
    if found.kind == before.found.kind:
        return Shown(found if found.kind in OBSERVED else before.found, before.at)
    if found.severity in WORRYING and before.found.kind not in OBSERVED:
        return before._replace(over_at=None)
    return before._replace(over_at=before.over_at or now)


#: How long after a server is back results of before may still come in; and how much earlier than the fit names an
#: outage a server may be back from it.
LATE = timedelta(seconds=60)


class _Falling(NamedTuple):
    """The share of failed calls since a server is back, and whether it has only fallen."""

    up_since: datetime
    share: float
    is_over: bool = True


class Recoveries:
    """Tells servers that are back, whose failed calls the fit still counts, from those that go on failing calls.

    A server that answers again lets the share of failed calls fall with each call; one that answers without a valid
    answer lets it rise.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _Falling] = {}

    def of(self, status: WorkloadStatus, outage_since: datetime | None, now: datetime) -> frozenset[str]:
        """Return the models whose server is back, as every router that reports sees it."""
        out = status.outage
        shares = {} if out is None else {"small": out.small_failing, "large": out.large_failing}
        return frozenset(
            role for role, share in shares.items() if self._is_back(status, role, share, outage_since, now)
        )

    def _is_back(
        self, status: WorkloadStatus, role: str, share: float, outage_since: datetime | None, now: datetime
    ) -> bool:
        seen = [server.up_since for name, server in status.servers if name == role]
        times = [at for at in seen if at is not None]
        if not times or len(times) < len(seen):
            return False
        up_since, key = max(times), (status.workload, role)
        if outage_since is not None and up_since < outage_since - LATE:
            return False
        before = self._seen.get(key)
        is_over = before is None or before.up_since != up_since or now - up_since < LATE or share < before.share
        if before is not None and share == before.share:
            is_over |= before.is_over
        self._seen[key] = _Falling(up_since, share, is_over)
        return is_over


class Headlines:
    """What is shown of each workload, from any thread; ``heard``: when Kafka was last heard, None: nobody listens."""

    def __init__(
        self, settings: Settings, cache: TopicCache, letters: DeadLetterLog, heard: Callable[[], Heard | None]
    ) -> None:
        self._settings = settings
        self._cache = cache
        self._letters = letters
        self.heard = heard
        self._shown: dict[str, Shown] = {}
        self._recoveries = Recoveries()
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
        expected = None if line is None else line.escalation_rate
        jumped_since = None
        if expected is not None and status.escalation_rate is not None:
            rate = status.escalation_rate + ESCALATION_JUMP
            # All versions are sorted for it: only where the one in force escalates that much.
            jumped_since = escalating_since(self._cache.versions(workload), rate) if expected > rate else None
        outage_since = _last_outage(self._cache.happened(workload)) or begun(points, lambda point: point.has_outage)
        with self._lock:
            recovered = self._recoveries.of(status, outage_since, now)
        return Facts(
            now=now,
            recalibrators=[one.status for one in self._cache.recalibrators()],
            state_since=begun(points, lambda point: point.state == status.state),
            outage_since=outage_since,
            recovered=recovered,
            routers=[one.status for one in self._cache.routers() if workload in one.status.versions],
            last_query_at=last_growth(points),
            letters_last_hour=self._letters.count_since(workload, now - _HOUR),
            expected_rate=expected,
            expected_cost=None if line is None else line.cost,
            jumped_since=jumped_since,
            may_return=line is not None and before is not None and has_held(before, line.created_at),
            workload=self._settings.workloads[workload],
            kafka=self.heard(),
        )


def _last_outage(happened: Sequence[HappeningEvent]) -> datetime | None:
    """Return when the outage that lasts began; None where none lasts, as far as that was kept."""
    last = next((one for one in reversed(happened) if one.kind.startswith("outage")), None)
    return last.at if last is not None and last.kind == "outage" else None
