"""The statuses of all workloads for Prometheus: read at each scrape from what the page shows.

Labels take their values from the configuration and from fixed lists; what others may write at will is counted as
``other``, so that no record on a topic can make a series of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, get_args

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import JsonValue

from recalibrator.api.read_model.status_documents import StatusDocuments
from recalibrator.metrics import STATUS_SPECS
from schemas.calibration import BUDGET, CAP, FIELD_PREFIX, QUALITY, Interval
from schemas.event import Part
from schemas.status import DriftState, ModelHealth, WorkloadState, WorkloadStatus, that_answer
from schemas.topics import TOPICS
from ucci_runtime.metrics import MetricSpec


class StatusMetrics(Collector):
    """Makes the metrics of all workloads; safe to call from any thread."""

    def __init__(self, workloads: Iterable[str], documents: StatusDocuments, now: Callable[[], datetime]) -> None:
        self._workloads = tuple(workloads)
        self._documents = documents
        self._now = now
        self._known: dict[str, tuple[bytes, list[Sample], list[Sample]]] = {}

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format; takes about a millisecond a workload."""
        return generate_latest(self)

    def collect(self) -> Iterable[Metric]:
        """Yield every metric of the tables, with a sample for each workload of which it is known."""
        now = self._now()
        families = {spec.name: _family(spec) for spec in STATUS_SPECS}
        for number, workload in enumerate(self._workloads):
            own, backlog = self._samples(workload, now)
            for sample in own:
                families[sample.name].add_metric((workload, *sample.labels), sample.value)
            # The same in every workload's status.
            for sample in backlog if number == 0 else ():
                families[sample.name].add_metric(sample.labels, sample.value)
        if (heard := self._documents.headlines.heard()) is not None:
            families["kafka_contact_timestamp_seconds"].add_metric((), heard.at.timestamp())
        yield from families.values()

    def _samples(self, workload: str, now: datetime) -> tuple[list[Sample], list[Sample]]:
        """Return a workload's samples; a document that is the same bytes is not parsed again."""
        document = self._documents.workload_json(workload, now)
        known = self._known.get(workload)
        if known is None or known[0] != document:
            status = WorkloadStatus.model_validate_json(document)
            known = self._known[workload] = document, [*workload_samples(status)], [*backlog_samples(status.lag)]
        return known[1:]


def _family(spec: MetricSpec) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if spec.kind == "counter" else GaugeMetricFamily
    return kind(spec.prefix + spec.name, spec.help, labels=spec.labels)


_MOST_DETECTORS, _MOST_REASONS = 32, 20
_STAGES = frozenset({"route", "join", "fit"})
_WORD = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TOPIC_NAMES = frozenset(topic.suffix for topic in TOPICS)
_NOT_COUNTED = ("duplicate", "overruled", "too_late", "unrequested", "withdrawn")
_ROLES = ("small", "large")


class Sample(NamedTuple):
    """One number of a workload."""

    #: Of the metric, without prefix and ``_total``.
    name: str
    #: Their values, but for the workload's own.
    labels: tuple[str, ...]

    value: float


#: What the status says in numbers, by metric; what is not known has no sample.
_NUMBERS = {
    "queries": "queries",
    "status_timestamp_seconds": "updated_at",
    "escalation_rate": "escalation_rate",
    "uncertainty_threshold": "uncertainty_threshold",
    "micro_f1": "micro_f1",
    "micro_f1_target": "target.micro_f1",
    "escalation_cap": "target.max_escalation",
    "cost_target": "target.cost",
    "escalation_wanted": "standing.wanted_escalation",
    "cost_realised": "standing.budget.realised",
    "cost": "cost",
    "saving": "saving",
    "labels_requested": "labels.requested",
    "labels_received": "labels.received",
    "labels_pending": "labels.pending",
    "labels_effective": "labels.effective",
    "labels_per_hour": "labels.per_hour",
    "label_requested_share": "labels.requested_share",
    "label_delay_seconds": "labels.delay_s",
    "calibration_timestamp_seconds": "version.created_at",
    "calibration_error": "calibration_error.ece",
    "brier_score": "calibration_error.brier",
}


def workload_samples(status: WorkloadStatus) -> Iterator[Sample]:
    """Yield what a workload's status says; what is not known has no sample."""
    for name, place in _NUMBERS.items():
        yield from _samples_of(name, _at(status, place))
    for window, measured in status.measured.items():
        yield from _samples_of("measured_micro_f1", measured, (window,))
        yield Sample("measured_labels", (window,), measured.labels)
    yield from (Sample("field_micro_f1", (field,), value) for field, value in status.per_field.items())
    yield from (Sample("field_micro_f1_target", (field,), value) for field, value in status.target.fields.items())
    yield from _one_of("state", (), status.state, get_args(WorkloadState))
    if status.standing is not None:
        limits = (QUALITY, CAP, BUDGET, *(FIELD_PREFIX + field for field in status.target.fields))
        yield from _one_of("target_binds", (), status.standing.binds or "", limits)
    yield Sample("trial_version", (), status.on_trial or 0)
    yield Sample("calibration_version", (), status.calibration_version or 0)
    for role in _ROLES:
        yield Sample("model_failing", (role,), _at(status, f"outage.{role}_failing") or 0.0)
    yield from _drift(status)
    yield from _labels(status)
    yield from _routers(status)
    yield from _dead_letters(status)


def _at(found: Any, place: str) -> Any:
    """Return what stands there; None where it, or what it is part of, is not known."""
    for name in place.split("."):
        found = None if found is None else getattr(found, name)
    return found


def backlog_samples(lag: Mapping[str, JsonValue] | None) -> Iterator[Sample]:
    """Yield how far all services together are behind on each topic, from the ``lag`` of any workload's status."""
    for name, kind in (("backlog_records", "records"), ("backlog_seconds", "seconds")):
        by_topic = (lag or {}).get(kind)
        for topic, value in by_topic.items() if isinstance(by_topic, dict) else ():
            if topic in _TOPIC_NAMES and isinstance(value, int | float):
                yield Sample(name, (topic,), float(value))


def _samples_of(name: str, value: Any, labels: tuple[str, ...] = ()) -> Iterator[Sample]:
    """Yield a number or a time, an estimate with its bounds, or each number of a part under its name."""
    if isinstance(value, Interval):
        yield Sample(name, labels, value.estimate)
        yield Sample(f"{name}_lower", labels, value.lower)
        yield Sample(f"{name}_upper", labels, value.upper)
    elif isinstance(value, Part):
        for label, number in value:
            yield from _samples_of(name, number, (label,))
    elif value is not None:
        yield Sample(name, labels, value.timestamp() if isinstance(value, datetime) else value)


def _one_of(name: str, labels: tuple[str, ...], state: str, states: tuple[str, ...]) -> Iterator[Sample]:
    """Yield 1 for the state that holds and 0 for the others."""
    return (Sample(name, (*labels, one), float(one == state)) for one in states)


def _drift(status: WorkloadStatus) -> Iterator[Sample]:
    states = get_args(DriftState)
    yield from _one_of("drift_state", (), status.drift.state, states)
    for detector in status.drift.detectors[:_MOST_DETECTORS]:
        yield from _one_of("detector_state", (detector.name,), detector.state, states)
        yield Sample("detector_alarms", (detector.name,), detector.alarms)


def _labels(status: WorkloadStatus) -> Iterator[Sample]:
    for why in _NOT_COUNTED:
        yield Sample("labels_not_counted", (why,), _number(status.details.get(f"labels_{why}")))
    counts = [one.get("labels") for one in status.detail("labelers_set_aside").values() if isinstance(one, dict)]
    yield Sample("labels_set_aside", ("audit",), _number(status.detail("label_audit").get("quarantined")))
    yield Sample("labels_set_aside", ("labeler",), sum(map(_number, counts)))
    yield Sample("labelers_set_aside", (), len(counts))


def _number(value: JsonValue) -> float:
    """Return a number of the free-form details; 0 where there is none."""
    return float(value) if isinstance(value, int | float) else 0.0


def _routers(status: WorkloadStatus) -> Iterator[Sample]:
    answering, live = that_answer(status.routers), [one for one in status.routers if not one.silent]
    states = Counter("silent" if one.silent else "ready" if one.ready else "not_ready" for one in answering)
    yield from (Sample("routers", (state,), states[state]) for state in ("ready", "not_ready", "silent"))
    yield Sample("routers_on_other_version", (), sum(one.version != status.calibration_version for one in live))
    for role in _ROLES:
        servers = [server for name, server in status.servers if name == role]
        for state in get_args(ModelHealth.model_fields["state"].annotation):
            yield Sample("model_servers", (role, state), sum(one.state == state for one in servers))
        yield Sample("model_servers_overloaded", (role,), sum(one.overloaded for one in servers))


def _dead_letters(status: WorkloadStatus) -> Iterator[Sample]:
    counts = Counter[tuple[str, str]]()
    for rank, one in enumerate(() if status.dead_letters is None else status.dead_letters.by_reason):
        is_word = rank < _MOST_REASONS and _WORD.fullmatch(one.reason) is not None
        counts[one.stage if one.stage in _STAGES else "other", one.reason if is_word else "other"] += one.count
    return (Sample("dead_letters", labels, count) for labels, count in sorted(counts.items()))
