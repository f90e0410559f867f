"""A service's metrics for Prometheus, made from its table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.samples import Sample

from ucci_runtime.metrics import MetricSpec


class MetricRegistry:
    """The metrics of one table, in a registry of their own, so that two services in one process share no counts."""

    def __init__(self, specs: Iterable[MetricSpec], buckets: Sequence[float]) -> None:
        self.registry = CollectorRegistry()
        self.counters: dict[str, Counter] = {}
        self.gauges: dict[str, Gauge] = {}
        self.histograms: dict[str, Histogram] = {}
        for spec in specs:
            described = (spec.prefix + spec.name, spec.help, spec.labels)
            if spec.kind == "counter":
                self.counters[spec.name] = Counter(*described, registry=self.registry)
            elif spec.kind == "gauge":
                self.gauges[spec.name] = Gauge(*described, registry=self.registry)
            else:
                self.histograms[spec.name] = Histogram(*described, registry=self.registry, buckets=buckets)

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter, or observe a duration in a histogram. Raises KeyError when the table has no such metric."""
        if name in self.histograms:
            histogram = self.histograms[name]
            (histogram.labels(**labels) if labels else histogram).observe(amount)
            return
        counter = self.counters[name]
        (counter.labels(**labels) if labels else counter).inc(amount)

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge. Raises KeyError when the table has no such metric."""
        gauge = self.gauges[name]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def counts_by(self, label: str, name: str, **labels: str) -> dict[str, int]:
        """Return what a counter has counted by one of its labels, where its other labels are those given."""
        return {
            one.labels[label]: int(one.value)
            for one in self._samples(name)
            if one.labels == {label: one.labels[label], **labels}
        }

    def totals(self) -> dict[str, int]:
        """Return every counter's sum over its labels; one with labels that has counted nothing yet is left out."""
        counted = {name: [int(one.value) for one in self._samples(name)] for name in self.counters}
        return {name: sum(counts) for name, counts in counted.items() if counts}

    def _samples(self, counter: str) -> list[Sample]:
        """Return what a counter has counted, without when it began to."""
        families = self.counters[counter].collect()
        return [one for family in families for one in family.samples if one.name.endswith("_total")]
