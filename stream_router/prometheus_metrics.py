"""Every metric of the router (``ucci_router_…``), and the object that its parts count on."""

from __future__ import annotations

from schemas.status import ModelHealth
from ucci_runtime.metrics import MetricSpec
from ucci_runtime.prometheus_registry import MetricRegistry

PREFIX = "ucci_router_"
LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)

_SERVER = ("workload", "role")


def _counter(name: str, unit: str, help_text: str, *labels: str) -> MetricSpec:
    return MetricSpec(f"{PREFIX}{name}_total", "counter", unit, help_text, labels)


def _gauge(name: str, unit: str, help_text: str, *labels: str) -> MetricSpec:
    return MetricSpec(PREFIX + name, "gauge", unit, help_text, labels)


def _seconds(name: str, help_text: str, *labels: str) -> MetricSpec:
    return MetricSpec(PREFIX + name, "histogram", "second", help_text, labels)


SPECS = (
    _counter("queries", "query", "Queries taken from the topic to be answered."),
    _counter("results", "result", "Results committed.", "workload", "answered_by", "reason"),
    _counter("dead_letters", "record", "Dead letters committed.", "reason"),
    _counter(
        "skipped",
        "record",
        "Deliveries not asked of the models: committed before a restart, or answered before a rebalance.",
    ),
    _counter("given_up", "query", "Queries in flight that a rebalance gave to another instance."),
    _counter("transactions", "transaction", "Transactions by how they ended.", "outcome"),
    _seconds("transaction_seconds", "From begin to committed, of committed transactions."),
    _counter("producers_abandoned", "producer", "Producers replaced because a call hung, failed or was not answered."),
    _counter(
        "records_lost", "record", "Offsets of queries that the topic's retention deleted before any router took them."
    ),
    _counter("rebalances", "assignment", "Assignments by the group.", "kind"),
    _counter("client_errors", "error", "Errors that a Kafka client reported.", "client", "code"),
    _counter("foreign_offset_metadata", "commit", "Committed offsets whose metadata is not ours."),
    _counter("calibrations_adopted", "version", "Calibration versions taken into force.", "workload"),
    _counter("calibrations_rejected", "version", "Calibration versions refused.", "reason"),
    _gauge("calibration_version", "version", "Version in force; 0 in a cold start.", "workload"),
    _gauge("trial_version", "version", "Version on trial; 0 while there is none.", "workload"),
    _counter("trials_rejected", "record", "Trials refused: malformed, or of another signal."),
    _counter(
        "trial_decisions",
        "result",
        "Results committed while a version was on trial, by whose decision was acted on, and how both compare: same, "
        "trial_escalates or base_escalates.",
        "workload",
        "mode",
        "decided_by",
        "compared",
    ),
    _counter(
        "model_calls",
        "attempt",
        "Attempts at a model: answered, refused, misconfigured, overloaded or failed; probes included.",
        "workload",
        "role",
        "outcome",
    ),
    _seconds("model_call_seconds", "Of the attempts answered.", *_SERVER),
    _gauge("model_up", "bool", "1 while calls are let through to the server.", *_SERVER),
    _gauge(
        "model_overloaded",
        "bool",
        "1 while calls wait because slow answers, time-outs or rejections have lowered the server's limit.",
        *_SERVER,
    ),
    _gauge("model_concurrency_limit", "call", "Calls that the server is given at a time.", *_SERVER),
    _gauge("model_in_flight", "call", "Calls at the server, probes apart.", *_SERVER),
    _gauge("model_queued", "call", "Calls that wait in the router for the server.", *_SERVER),
    _counter(
        "handoffs",
        "query",
        "Queries whose large model ran under a handoff: continued, asked_again (going on gave no valid answer) or "
        "nothing_certain.",
        "workload",
        "outcome",
    ),
    _counter(
        "handoff_comparisons",
        "query",
        "Queries that the large model answered without handoff as well, unserved: same, different or failed.",
        "workload",
        "outcome",
    ),
    _gauge("in_flight", "query", "Queries being answered."),
    _gauge("uncommitted", "query", "Queries answered and not yet committed."),
    _gauge(
        "lag",
        "offset",
        "Offsets between the log's end and the commit. One straggler holds the committed offset back, though what "
        "comes after it is answered: for the work that is left see ucci_router_backlog.",
        "partition",
    ),
    _gauge(
        "backlog",
        "query",
        "Queries left to do: not yet taken from this router's partitions (in offsets), in flight, or uncommitted.",
    ),
    _counter(
        "gateway_requests",
        "request",
        "Requests for an answer to a gateway, by HTTP status; 499: the caller left. Without a workload where it is "
        "not known.",
        "workload",
        "status",
    ),
    _seconds(
        "gateway_request_seconds",
        "From request to answer, of those that were answered; the broker's acknowledgement is part of it.",
        "workload",
    ),
    _gauge("ready", "bool", "1 when queries are being answered."),
)


class Metrics(MetricRegistry):
    """The router's metrics."""

    def __init__(self) -> None:
        super().__init__(SPECS, PREFIX, LATENCY_BUCKETS_S)

    def model_load(self, workload: str, role: str, health: ModelHealth) -> None:
        """Set the gauges of a server's load."""
        self.gauge("model_overloaded", health.overloaded, workload=workload, role=role)
        self.gauge("model_concurrency_limit", health.concurrency_limit or 0, workload=workload, role=role)
        self.gauge("model_in_flight", health.in_flight, workload=workload, role=role)
        self.gauge("model_queued", health.queued, workload=workload, role=role)
