"""Every metric of the router: one table of name, kind, unit and help, and the object that the parts count on."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from schemas.status import ModelHealth
from ucci_runtime.metrics import MetricSpec

_LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)

QUERIES = MetricSpec("ucci_router_queries_total", "counter", "query", "Queries taken from the topic to be answered.")
RESULTS = MetricSpec(
    "ucci_router_results_total", "counter", "result", "Results committed.", ("workload", "answered_by", "reason")
)
DEAD_LETTERS = MetricSpec("ucci_router_dead_letters_total", "counter", "record", "Dead letters committed.", ("reason",))
SKIPPED = MetricSpec(
    "ucci_router_skipped_total",
    "counter",
    "record",
    "Deliveries not asked of the models: committed before a restart, or answered before a rebalance.",
)
GIVEN_UP = MetricSpec(
    "ucci_router_given_up_total", "counter", "query", "Queries in flight that a rebalance gave to another instance."
)
TRANSACTIONS = MetricSpec(
    "ucci_router_transactions_total", "counter", "transaction", "Transactions by how they ended.", ("outcome",)
)
TRANSACTION_SECONDS = MetricSpec(
    "ucci_router_transaction_seconds", "histogram", "second", "From begin to committed, of committed transactions."
)
PRODUCERS = MetricSpec(
    "ucci_router_producers_abandoned_total", "counter", "producer", "Producers replaced because a call hung or failed."
)
REBALANCES = MetricSpec("ucci_router_rebalances_total", "counter", "assignment", "Assignments by the group.", ("kind",))
CLIENT_ERRORS = MetricSpec(
    "ucci_router_client_errors_total", "counter", "error", "Errors that a Kafka client reported.", ("client", "code")
)
FOREIGN_METADATA = MetricSpec(
    "ucci_router_foreign_offset_metadata_total", "counter", "commit", "Committed offsets whose metadata is not ours."
)
ADOPTED = MetricSpec(
    "ucci_router_calibrations_adopted_total",
    "counter",
    "version",
    "Calibration versions taken into force.",
    ("workload",),
)
REJECTED = MetricSpec(
    "ucci_router_calibrations_rejected_total", "counter", "version", "Calibration versions refused.", ("reason",)
)
VERSION = MetricSpec(
    "ucci_router_calibration_version", "gauge", "version", "Version in force; 0 in a cold start.", ("workload",)
)
TRIAL_VERSION = MetricSpec(
    "ucci_router_trial_version", "gauge", "version", "Version on trial; 0 while there is none.", ("workload",)
)
TRIALS_REJECTED = MetricSpec(
    "ucci_router_trials_rejected_total", "counter", "record", "Trials refused: malformed, or of another signal."
)
TRIAL_DECISIONS = MetricSpec(
    "ucci_router_trial_decisions_total",
    "counter",
    "result",
    "Results committed while a version was on trial, by whose decision was acted on, and how both compare: same, "
    "trial_escalates or base_escalates.",
    ("workload", "mode", "decided_by", "compared"),
)
MODEL_CALLS = MetricSpec(
    "ucci_router_model_calls_total",
    "counter",
    "attempt",
    "Attempts at a model: answered, refused, misconfigured, overloaded or failed; probes included.",
    ("workload", "role", "outcome"),
)
MODEL_SECONDS = MetricSpec(
    "ucci_router_model_call_seconds", "histogram", "second", "Of the attempts answered.", ("workload", "role")
)
MODEL_UP = MetricSpec(
    "ucci_router_model_up", "gauge", "bool", "1 while calls are let through to the server.", ("workload", "role")
)
MODEL_OVERLOADED = MetricSpec(
    "ucci_router_model_overloaded",
    "gauge",
    "bool",
    "1 while calls wait because slow answers, time-outs or rejections have lowered the server's limit.",
    ("workload", "role"),
)
MODEL_LIMIT = MetricSpec(
    "ucci_router_model_concurrency_limit",
    "gauge",
    "call",
    "Calls that the server is given at a time.",
    ("workload", "role"),
)
MODEL_IN_FLIGHT = MetricSpec(
    "ucci_router_model_in_flight", "gauge", "call", "Calls at the server, probes apart.", ("workload", "role")
)
MODEL_QUEUED = MetricSpec(
    "ucci_router_model_queued", "gauge", "call", "Calls that wait in the router for the server.", ("workload", "role")
)
IN_FLIGHT = MetricSpec("ucci_router_in_flight", "gauge", "query", "Queries being answered.")
UNCOMMITTED = MetricSpec("ucci_router_uncommitted", "gauge", "query", "Queries answered and not yet committed.")
LAG = MetricSpec("ucci_router_lag", "gauge", "offset", "Offsets between the log's end and the commit.", ("partition",))
READY = MetricSpec("ucci_router_ready", "gauge", "bool", "1 when queries are being answered.")

SPECS = (
    QUERIES,
    RESULTS,
    DEAD_LETTERS,
    SKIPPED,
    GIVEN_UP,
    TRANSACTIONS,
    TRANSACTION_SECONDS,
    PRODUCERS,
    REBALANCES,
    CLIENT_ERRORS,
    FOREIGN_METADATA,
    ADOPTED,
    REJECTED,
    VERSION,
    TRIAL_VERSION,
    TRIALS_REJECTED,
    TRIAL_DECISIONS,
    MODEL_CALLS,
    MODEL_SECONDS,
    MODEL_UP,
    MODEL_OVERLOADED,
    MODEL_LIMIT,
    MODEL_IN_FLIGHT,
    MODEL_QUEUED,
    IN_FLIGHT,
    UNCOMMITTED,
    LAG,
    READY,
)


class Metrics:
    """The router's metrics in a registry of their own.

    Parameters
    ----------
    registry : CollectorRegistry, optional
        A new one by default, so that two routers in one process do not share counts.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.queries = self._counter(QUERIES)
        self.results = self._counter(RESULTS)
        self.dead_letters = self._counter(DEAD_LETTERS)
        self.skipped = self._counter(SKIPPED)
        self.given_up = self._counter(GIVEN_UP)
        self.transactions = self._counter(TRANSACTIONS)
        self.transaction_seconds = self._histogram(TRANSACTION_SECONDS)
        self.producers_abandoned = self._counter(PRODUCERS)
        self.rebalances = self._counter(REBALANCES)
        self.client_errors = self._counter(CLIENT_ERRORS)
        self.foreign_metadata = self._counter(FOREIGN_METADATA)
        self.adopted = self._counter(ADOPTED)
        self.rejected = self._counter(REJECTED)
        self.version = self._gauge(VERSION)
        self.trial_version = self._gauge(TRIAL_VERSION)
        self.trials_rejected = self._counter(TRIALS_REJECTED)
        self.trial_decisions = self._counter(TRIAL_DECISIONS)
        self.model_calls = self._counter(MODEL_CALLS)
        self.model_seconds = self._histogram(MODEL_SECONDS)
        self.model_up = self._gauge(MODEL_UP)
        self.model_overloaded = self._gauge(MODEL_OVERLOADED)
        self.model_limit = self._gauge(MODEL_LIMIT)
        self.model_in_flight = self._gauge(MODEL_IN_FLIGHT)
        self.model_queued = self._gauge(MODEL_QUEUED)
        self.in_flight = self._gauge(IN_FLIGHT)
        self.uncommitted = self._gauge(UNCOMMITTED)
        self.lag = self._gauge(LAG)
        self.ready = self._gauge(READY)

    def count(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter, or observe a duration in a histogram, by its name without prefix and suffix.

        Raises
        ------
        AttributeError
            When the table has no such metric.
        """
        metric: Counter | Histogram = getattr(self, name)
        one = metric.labels(**labels) if labels else metric
        if isinstance(one, Histogram):
            one.observe(amount)
        else:
            one.inc(amount)

    def model_call(self, workload: str, role: str, outcome: str, seconds: float) -> None:
        """Count one attempt at a model; see :class:`~stream_router.model_client.http_client.ModelCallMetrics`."""
        self.model_calls.labels(workload, role, outcome).inc()
        if outcome == "answered":
            self.model_seconds.labels(workload, role).observe(seconds)

    def model_health(self, workload: str, role: str, health: str) -> None:
        """Take a change of a server's health: ``up``, ``probing`` or ``down``."""
        self.model_up.labels(workload, role).set(health == "up")

    def model_load(self, workload: str, role: str, health: ModelHealth) -> None:
        """Set the gauges of a server's load."""
        self.model_overloaded.labels(workload, role).set(health.overloaded)
        self.model_limit.labels(workload, role).set(health.concurrency_limit or 0)
        self.model_in_flight.labels(workload, role).set(health.in_flight)
        self.model_queued.labels(workload, role).set(health.queued)

    def totals(self) -> dict[str, int]:
        """Return every counter's sum over its labels, by name without prefix and suffix."""
        totals: dict[str, int] = {}
        counters = {spec.name for spec in SPECS if spec.kind == "counter"}
        for family in self.registry.collect():
            for sample in family.samples:
                if sample.name in counters:
                    name = sample.name.removeprefix("ucci_router_").removesuffix("_total")
                    totals[name] = totals.get(name, 0) + int(sample.value)
        return totals

    def dead_letters_by_reason(self) -> dict[str, int]:
        """Return how many dead letters are committed, by reason."""
        samples = (sample for family in self.dead_letters.collect() for sample in family.samples)
        return {one.labels["reason"]: int(one.value) for one in samples if one.name == DEAD_LETTERS.name}

    def _counter(self, spec: MetricSpec) -> Counter:
        return Counter(spec.name, spec.help, spec.labels, registry=self.registry)

    def _histogram(self, spec: MetricSpec) -> Histogram:
        return Histogram(spec.name, spec.help, spec.labels, registry=self.registry, buckets=_LATENCY_BUCKETS_S)

    def _gauge(self, spec: MetricSpec) -> Gauge:
        return Gauge(spec.name, spec.help, spec.labels, registry=self.registry)
