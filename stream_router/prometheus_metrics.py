"""The object that the parts of the router count on."""

from __future__ import annotations

from schemas.status import ModelHealth
from stream_router.metrics import LATENCY_BUCKETS_S, PREFIX, SPECS
from ucci_runtime.prometheus_registry import MetricRegistry


class Metrics(MetricRegistry):
    """The router's metrics, each an attribute too."""

    def __init__(self) -> None:
        super().__init__(SPECS, PREFIX, LATENCY_BUCKETS_S)
        self.queries = self.counters["queries"]
        self.results = self.counters["results"]
        self.dead_letters = self.counters["dead_letters"]
        self.skipped = self.counters["skipped"]
        self.given_up = self.counters["given_up"]
        self.transactions = self.counters["transactions"]
        self.transaction_seconds = self.histograms["transaction_seconds"]
        self.producers_abandoned = self.counters["producers_abandoned"]
        self.rebalances = self.counters["rebalances"]
        self.client_errors = self.counters["client_errors"]
        self.foreign_metadata = self.counters["foreign_offset_metadata"]
        self.adopted = self.counters["calibrations_adopted"]
        self.rejected = self.counters["calibrations_rejected"]
        self.version = self.gauges["calibration_version"]
        self.trial_version = self.gauges["trial_version"]
        self.trials_rejected = self.counters["trials_rejected"]
        self.trial_decisions = self.counters["trial_decisions"]
        self.model_calls = self.counters["model_calls"]
        self.model_seconds = self.histograms["model_call_seconds"]
        self.model_up = self.gauges["model_up"]
        self.model_overloaded = self.gauges["model_overloaded"]
        self.model_limit = self.gauges["model_concurrency_limit"]
        self.model_in_flight = self.gauges["model_in_flight"]
        self.model_queued = self.gauges["model_queued"]
        self.in_flight = self.gauges["in_flight"]
        self.uncommitted = self.gauges["uncommitted"]
        self.lag = self.gauges["lag"]
        self.ready = self.gauges["ready"]

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
