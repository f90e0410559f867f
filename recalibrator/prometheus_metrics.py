"""Every metric of the recalibrator: one table of name, kind, unit and help, and the object that the parts count on."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ucci_runtime.metrics import MetricSpec

_PREFIX = "ucci_recalibrator_"
_LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

SPECS = (
    MetricSpec("results", "counter", "result", "Results taken by the join.", ("workload",)),
    MetricSpec(
        "examples",
        "counter",
        "example",
        "Labelled examples told to the fit; retracted takes one back.",
        ("workload", "retracted"),
    ),
    MetricSpec(
        "join_notes",
        "counter",
        "event",
        "What the join noticed: duplicates, stale revisions, disagreement, skips, withdrawals, "
        "senders' clocks ahead (dated as of arrival then) or behind, logs made anew.",
        ("note",),
    ),
    MetricSpec("rows", "gauge", "row", "Rows in the join's store."),
    MetricSpec("row_bytes", "gauge", "byte", "Bytes that these rows take."),
    MetricSpec(
        "rows_expired",
        "counter",
        "row",
        "Rows that the join forgot by age, number or size; joined ones lose nothing but corrections.",
        ("kind",),
    ),
    MetricSpec(
        "label_requests",
        "counter",
        "request",
        "Label requests opened, answered (skips too), expired by age or number, or too large to ask.",
        ("workload", "outcome"),
    ),
    MetricSpec("label_requests_open", "gauge", "request", "Label requests that the join holds for open."),
    MetricSpec("observations", "counter", "event", "Observations folded.", ("workload", "kind")),
    MetricSpec("versions", "counter", "version", "Calibration versions published.", ("workload", "trigger")),
    MetricSpec(
        "fit_notes",
        "counter",
        "event",
        "What the fit noticed: versions of foreign writers, logs made anew, snapshots that the disk refused.",
        ("note",),
    ),
    MetricSpec(
        "dead_letters",
        "counter",
        "record",
        "Records set aside as malformed, or as more than one query may hold.",
        ("stage", "reason"),
    ),
    MetricSpec("transactions", "counter", "transaction", "Transactions by how they ended.", ("stage", "outcome")),
    MetricSpec("transaction_seconds", "histogram", "second", "From begin to committed.", ("stage",)),
    MetricSpec(
        "producers_abandoned", "counter", "producer", "Producers replaced because a call hung or failed.", ("stage",)
    ),
    MetricSpec("rebalances", "counter", "assignment", "Assignments by the group.", ("stage", "kind")),
    MetricSpec("client_errors", "counter", "error", "Errors that a Kafka client reported.", ("client", "code")),
    MetricSpec("lag", "gauge", "offset", "Offsets that a stage is behind.", ("stage", "topic", "partition")),
    MetricSpec(
        "lag_seconds",
        "gauge",
        "second",
        "Age of the newest record that a stage has taken, where more are left.",
        ("stage", "topic", "partition"),
    ),
    MetricSpec("ready", "gauge", "bool", "1 when a stage has caught up.", ("stage",)),
    MetricSpec("http_requests", "counter", "request", "HTTP requests answered.", ("route", "status")),
    MetricSpec("feedback", "counter", "event", "Feedback events taken over HTTP and acknowledged.", ("source",)),
    MetricSpec(
        "deletions_unknown",
        "counter",
        "annotation",
        "Deleted annotations of Label Studio that this process was not told of; `label-studio sync` finds their query.",
    ),
    MetricSpec("commands", "counter", "command", "Commands taken over HTTP and acknowledged.", ("action",)),
    MetricSpec("view_records_ignored", "counter", "record", "Records that the API could not show.", ("topic",)),
)


def exposed_name(spec: MetricSpec) -> str:
    """Return the name under which a metric is scraped.

    Examples
    --------
    >>> exposed_name(SPECS[0])
    'ucci_recalibrator_results_total'
    """
    return _PREFIX + spec.name + ("_total" if spec.kind == "counter" else "")


class Metrics:
    """The recalibrator's metrics in a registry of their own.

    Parameters
    ----------
    registry : CollectorRegistry, optional
        A new one by default, so that two services in one process do not share counts.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for spec in SPECS:
            name = _PREFIX + spec.name
            if spec.kind == "counter":
                self._counters[spec.name] = Counter(name, spec.help, spec.labels, registry=self.registry)
            elif spec.kind == "gauge":
                self._gauges[spec.name] = Gauge(name, spec.help, spec.labels, registry=self.registry)
            else:
                self._histograms[spec.name] = Histogram(
                    name, spec.help, spec.labels, registry=self.registry, buckets=_LATENCY_BUCKETS_S
                )

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter, or observe a duration in a histogram.

        Raises
        ------
        KeyError
            When the table has no such metric.
        """
        if name in self._histograms:
            self._histograms[name].labels(**labels).observe(amount)
            return
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(amount)

    def dead_letters_by_reason(self, stage: str) -> dict[str, int]:
        """Return how many dead letters a stage has written, by reason."""
        samples = (sample for family in self._counters["dead_letters"].collect() for sample in family.samples)
        return {
            one.labels["reason"]: int(one.value)
            for one in samples
            if one.name.endswith("_total") and one.labels["stage"] == stage
        }

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge.

        Raises
        ------
        KeyError
            When the table has no such metric.
        """
        gauge = self._gauges[name]
        (gauge.labels(**labels) if labels else gauge).set(value)
