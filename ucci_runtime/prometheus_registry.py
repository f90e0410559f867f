"""A service's metrics for Prometheus, made from its table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ucci_runtime.metrics import MetricSpec


class MetricRegistry:
    """The metrics of one table, in a registry of their own, so that two services in one process share no counts."""

    def __init__(self, specs: Iterable[MetricSpec], prefix: str, buckets: Sequence[float]) -> None:
        self.registry = CollectorRegistry()
        self.counters: dict[str, Counter] = {}
        self.gauges: dict[str, Gauge] = {}
        self.histograms: dict[str, Histogram] = {}
        for spec in specs:
            name = spec.name.removeprefix(prefix).removesuffix("_total")
            exposed = prefix + name
            if spec.kind == "counter":
                self.counters[name] = Counter(exposed, spec.help, spec.labels, registry=self.registry)
            elif spec.kind == "gauge":
                self.gauges[name] = Gauge(exposed, spec.help, spec.labels, registry=self.registry)
            else:
                self.histograms[name] = Histogram(
                    exposed, spec.help, spec.labels, registry=self.registry, buckets=buckets
                )

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
        samples = (sample for family in self.counters[name].collect() for sample in family.samples)
        return {
            one.labels[label]: int(one.value)
            for one in samples
            if one.name.endswith("_total") and one.labels == {label: one.labels[label], **labels}
        }

    def totals(self) -> dict[str, int]:
        """Return every counter's sum over its labels; one with labels that has counted nothing yet is left out."""
        totals: dict[str, int] = {}
        for name, counter in self.counters.items():
            for family in counter.collect():
                for sample in family.samples:
                    if sample.name.endswith("_total"):
                        totals[name] = totals.get(name, 0) + int(sample.value)
        return totals
