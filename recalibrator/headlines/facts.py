"""What a headline rests on besides the status, and the figures that it quotes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import sqrt
from typing import NamedTuple

from pydantic import JsonValue

from schemas.costs import CostRate
from schemas.settings import WorkloadSettings
from schemas.status import RecalibratorStatus, RouterStatus, WorkloadStatus
from ucci_runtime.broker.contact import Heard

#: An instance sends its status every 2 s: three in a row did not come.
SILENT_AFTER = timedelta(seconds=8)

#: From then on it is silent whatever else is heard; and as long has everybody time to report once Kafka is back.
LONG_SILENT = timedelta(seconds=30)

#: Labels on either side below which a model is not judged, and standard errors from which it counts as moved.
_LEAST_LABELS, _NORMAL = 30, 2.0


class Facts(NamedTuple):
    """What the headline rests on besides the status document."""

    now: datetime
    #: All that have reported, silent ones included; None where the fit itself speaks.
    recalibrators: Sequence[RecalibratorStatus] | None = None
    #: Since when the workload has been in its state.
    state_since: datetime | None = None
    #: Since when the fit has named an outage.
    outage_since: datetime | None = None
    #: The models whose server is back while the fit, which goes by the latest hundreds of calls, still counts those
    #: that failed before.
    recovered: frozenset[str] = frozenset()
    #: All that have reported of this workload, those included that have been silent for so long that its status leaves
    #: them out.
    routers: Sequence[RouterStatus] = ()
    #: When the count of queries last grew, as far as the history goes back.
    last_query_at: datetime | None = None

    letters_last_hour: int = 0
    #: Share of queries that the version in force was expected to escalate when it was made, in [0, 1].
    expected_rate: float | None = None

    expected_cost: CostRate | None = None
    #: Since when each version escalates by far more than recent queries did.
    jumped_since: datetime | None = None
    #: Whether the version before the one in force was made while nothing was in doubt, and decided for an hour.
    may_return: bool = False
    #: Names the model servers, and the unit of costs.
    workload: WorkloadSettings | None = None
    #: None where nobody listens.
    kafka: Heard | None = None

    @property
    def prices_tokens(self) -> bool:
        """Whether costs are those of tokens; else they are in calls of the small model."""
        prices = None if self.workload is None else self.workload.cost
        return prices is not None and prices.unit == "token"

    def server(self, role: str) -> str:
        """Return a model's name and address; that of its role where they are not known."""
        found = None if self.workload is None else self.workload.small if role == "small" else self.workload.large
        return f"the {role} model" if found is None else f"{found.model} at {found.public_url}"

    @property
    def heard_until(self) -> datetime:
        """Until when services could be heard."""
        return heard_until(self.kafka, self.now)

    @property
    def may_be_silent(self) -> bool:
        """Whether Kafka has answered for long enough that who has not been heard since is silent."""
        return self.kafka is None or self.now - self.kafka.since > LONG_SILENT


def heard_until(kafka: Heard | None, now: datetime) -> datetime:
    """Return until when services could be heard: while Kafka itself does not answer, nobody else is silent."""
    return now if kafka is None else min(kafka.at, now)


class InForce(NamedTuple):
    """What the version in force does to today's queries: share escalated, and cost of a query."""

    escalation_rate: float | None
    cost: float | None


def in_force(status: WorkloadStatus, facts: Facts) -> InForce:
    """Return what the version in force does: to today's mix of queries where that is known, else as it was fitted."""
    rate, curve = facts.expected_rate, status.frontier
    cost = None if facts.expected_cost is None else facts.expected_cost.sequential
    if curve is not None and curve.chosen is not None and curve.chosen < len(curve.escalation_rate):
        rate = curve.escalation_rate[curve.chosen]
        cost = curve.sequential_cost[curve.chosen] if curve.chosen < len(curve.sequential_cost) else cost
    return InForce(rate, cost)


class Moved(NamedTuple):
    """How often labels call one model's answers wrong, before a change and since; shares of labelled queries."""

    before: float
    since: float
    #: The standard error of their difference.
    error: float

    @property
    def is_worse(self) -> bool:
        """Whether it has grown by more than chance would have it."""
        return self.since - self.before > _NORMAL * self.error

    @property
    def is_better(self) -> bool:
        """Whether it has fallen by as much."""
        return self.before - self.since > _NORMAL * self.error

    def is_spared(self, other: Moved) -> bool:
        """Whether labels find it as good as ever, which labels that are wrong about the other would not."""
        mistaken = (other.since - other.before) / max(1.0 - other.before, 1e-9) * (1.0 - self.before)
        grown = self.since - self.before
        return not (self.is_worse or self.is_better) and mistaken - grown > _NORMAL * self.error


class Change(NamedTuple):
    """The last change of outcomes, and what labels say of each model; None where they are too few."""

    since: datetime | None
    small: Moved | None
    large: Moved | None


def change(status: WorkloadStatus, what: str = "outcomes_changed") -> Change:
    """Return what the fit says of the last change of outcomes, or of the large model by labels alone."""
    told = status.detail(what)
    return Change(moment(told.get("since")), _moved(told.get("small")), _moved(told.get("large")))


def _moved(told: JsonValue) -> Moved | None:
    """Compare the share of wrong answers before and since, given with the labels behind each."""
    if not isinstance(told, list) or [type(one) for one in told] != [float, int, float, int]:
        return None
    before, labels_before, since, labels = (float(str(one)) for one in told)
    if min(labels_before, labels) < _LEAST_LABELS:
        return None
    pooled = (before * labels_before + since * labels + 1.0) / (labels_before + labels + 2.0)
    return Moved(before, since, sqrt(max(0.0, pooled * (1.0 - pooled)) * (1.0 / labels_before + 1.0 / labels)))


class TrafficSpan(NamedTuple):
    """The recent queries behind what was realised: how many, and when the oldest was routed."""

    queries: int
    since: datetime | None

    @property
    def words(self) -> str:
        """The span as a phrase."""
        since = "" if self.since is None else f", since {self.since:%d %b %H:%M} UTC"
        return f"the latest {self.queries:,} queries{since}"


def traffic_span(status: WorkloadStatus) -> TrafficSpan | None:
    """Return the span of escalation, cost and saving; None where an earlier fit wrote the status.

    Examples
    --------
    >>> from schemas.calibration import Target
    >>> traffic_span(WorkloadStatus.cold_start("photo", Target(micro_f1=0.9))) is None
    True
    """
    window = status.detail("traffic_window")
    queries = window.get("queries")
    return TrafficSpan(queries, moment(window.get("since"))) if isinstance(queries, int) else None


def moment(value: JsonValue) -> datetime | None:
    """Return a time of the free-form details; None where there is none that can be read.

    Examples
    --------
    >>> moment("2026-01-01T00:00:00+00:00").year, moment("yesterday"), moment(None)
    (2026, None, None)
    """
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
