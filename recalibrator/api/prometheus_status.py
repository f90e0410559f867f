"""The statuses of all workloads for Prometheus: read at each scrape from what the page shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from recalibrator.api.read_model.status_documents import StatusDocuments
from recalibrator.api.read_model.status_samples import Sample, backlog_samples, workload_samples
from recalibrator.metrics import BACKLOG_SPECS, SERVICE_PREFIX, WORKLOAD_PREFIX, WORKLOAD_SPECS
from schemas.status import WorkloadStatus
from ucci_runtime.metrics import MetricSpec


class StatusMetrics(Collector):
    """Makes the metrics of all workloads; safe to call from any thread."""

    def __init__(self, workloads: Iterable[str], documents: StatusDocuments, now: Callable[[], datetime]) -> None:
        self._workloads = tuple(workloads)
        self._documents = documents
        self._now = now
        self._known: dict[str, tuple[bytes, list[Sample], list[Sample]]] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format; takes about a millisecond a workload."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the names are in the table, and no status need be read for them."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield every metric of the tables, with a sample for each workload of which it is known."""
        now = self._now()
        families = {spec.name: _family(WORKLOAD_PREFIX, spec) for spec in WORKLOAD_SPECS}
        behind = {spec.name: _family(SERVICE_PREFIX, spec) for spec in BACKLOG_SPECS}
        for number, workload in enumerate(self._workloads):
            own, backlog = self._samples(workload, now)
            for sample in own:
                families[sample.name].add_metric((workload, *sample.labels), sample.value)
            # The same in every workload's status.
            for sample in backlog if number == 0 else ():
                behind[sample.name].add_metric(sample.labels, sample.value)
        if (heard := self._documents.headlines.heard()) is not None:
            behind["kafka_contact_timestamp_seconds"].add_metric((), heard.at.timestamp())
        yield from families.values()
        yield from behind.values()

    def _samples(self, workload: str, now: datetime) -> tuple[list[Sample], list[Sample]]:
        """Return a workload's samples; a document that is the same bytes is not parsed again."""
        document = self._documents.workload_json(workload, now)
        known = self._known.get(workload)
        if known is None or known[0] != document:
            status = WorkloadStatus.model_validate_json(document)
            known = document, list(workload_samples(status)), list(backlog_samples(status.lag))
            self._known[workload] = known
        return known[1], known[2]


def _family(prefix: str, spec: MetricSpec) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if spec.kind == "counter" else GaugeMetricFamily
    return kind(prefix + spec.name, spec.help, labels=spec.labels)
