"""The object that the parts of the router count on."""

from __future__ import annotations

from schemas.status import ModelHealth
from stream_router.metrics import LATENCY_BUCKETS_S, PREFIX, SPECS
from ucci_runtime.prometheus_registry import MetricRegistry


class Metrics(MetricRegistry):
    """The router's metrics."""

    def __init__(self) -> None:
        super().__init__(SPECS, PREFIX, LATENCY_BUCKETS_S)

    def model_call(self, workload: str, role: str, outcome: str, seconds: float) -> None:
        """Count one attempt at a model; see :class:`~stream_router.ports.CascadeMetrics`."""
        self.count("model_calls", workload=workload, role=role, outcome=outcome)
        if outcome == "answered":
            self.count("model_call_seconds", seconds, workload=workload, role=role)

    def model_health(self, workload: str, role: str, health: str) -> None:
        """Take a change of a server's health: ``up``, ``probing`` or ``down``."""
        self.gauge("model_up", health == "up", workload=workload, role=role)

    def handed_over(self, workload: str, outcome: str) -> None:
        """Count the outcome of one handoff; see :class:`~stream_router.ports.CascadeMetrics`."""
        self.count("handoffs", workload=workload, outcome=outcome)

    def compared(self, workload: str, outcome: str) -> None:
        """Count one comparison of what handing over changes."""
        self.count("handoff_comparisons", workload=workload, outcome=outcome)

    def model_load(self, workload: str, role: str, health: ModelHealth) -> None:
        """Set the gauges of a server's load."""
        self.gauge("model_overloaded", health.overloaded, workload=workload, role=role)
        self.gauge("model_concurrency_limit", health.concurrency_limit or 0, workload=workload, role=role)
        self.gauge("model_in_flight", health.in_flight, workload=workload, role=role)
        self.gauge("model_queued", health.queued, workload=workload, role=role)
