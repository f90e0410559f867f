"""Every metric of the router: its name, kind, unit, help and labels."""

from __future__ import annotations

from ucci_runtime.metrics import MetricSpec

PREFIX = "ucci_router_"
LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)

SPECS = (
    MetricSpec("ucci_router_queries_total", "counter", "query", "Queries taken from the topic to be answered."),
    MetricSpec(
        "ucci_router_results_total", "counter", "result", "Results committed.", ("workload", "answered_by", "reason")
    ),
    MetricSpec("ucci_router_dead_letters_total", "counter", "record", "Dead letters committed.", ("reason",)),
    MetricSpec(
        "ucci_router_skipped_total",
        "counter",
        "record",
        "Deliveries not asked of the models: committed before a restart, or answered before a rebalance.",
    ),
    MetricSpec(
        "ucci_router_given_up_total", "counter", "query", "Queries in flight that a rebalance gave to another instance."
    ),
    MetricSpec(
        "ucci_router_transactions_total", "counter", "transaction", "Transactions by how they ended.", ("outcome",)
    ),
    MetricSpec(
        "ucci_router_transaction_seconds", "histogram", "second", "From begin to committed, of committed transactions."
    ),
    MetricSpec(
        "ucci_router_producers_abandoned_total",
        "counter",
        "producer",
        "Producers replaced because a call hung, failed or was not answered.",
    ),
    MetricSpec(
        "ucci_router_records_lost_total",
        "counter",
        "record",
        "Offsets of queries that the topic's retention deleted before any router took them.",
    ),
    MetricSpec("ucci_router_rebalances_total", "counter", "assignment", "Assignments by the group.", ("kind",)),
    MetricSpec(
        "ucci_router_client_errors_total",
        "counter",
        "error",
        "Errors that a Kafka client reported.",
        ("client", "code"),
    ),
    MetricSpec(
        "ucci_router_foreign_offset_metadata_total",
        "counter",
        "commit",
        "Committed offsets whose metadata is not ours.",
    ),
    MetricSpec(
        "ucci_router_calibrations_adopted_total",
        "counter",
        "version",
        "Calibration versions taken into force.",
        ("workload",),
    ),
    MetricSpec(
        "ucci_router_calibrations_rejected_total", "counter", "version", "Calibration versions refused.", ("reason",)
    ),
    MetricSpec(
        "ucci_router_calibration_version", "gauge", "version", "Version in force; 0 in a cold start.", ("workload",)
    ),
    MetricSpec(
        "ucci_router_trial_version", "gauge", "version", "Version on trial; 0 while there is none.", ("workload",)
    ),
    MetricSpec(
        "ucci_router_trials_rejected_total", "counter", "record", "Trials refused: malformed, or of another signal."
    ),
    MetricSpec(
        "ucci_router_trial_decisions_total",
        "counter",
        "result",
        "Results committed while a version was on trial, by whose decision was acted on, and how both compare: same, "
        "trial_escalates or base_escalates.",
        ("workload", "mode", "decided_by", "compared"),
    ),
    MetricSpec(
        "ucci_router_model_calls_total",
        "counter",
        "attempt",
        "Attempts at a model: answered, refused, misconfigured, overloaded or failed; probes included.",
        ("workload", "role", "outcome"),
    ),
    MetricSpec(
        "ucci_router_model_call_seconds", "histogram", "second", "Of the attempts answered.", ("workload", "role")
    ),
    MetricSpec(
        "ucci_router_model_up", "gauge", "bool", "1 while calls are let through to the server.", ("workload", "role")
    ),
    MetricSpec(
        "ucci_router_model_overloaded",
        "gauge",
        "bool",
        "1 while calls wait because slow answers, time-outs or rejections have lowered the server's limit.",
        ("workload", "role"),
    ),
    MetricSpec(
        "ucci_router_model_concurrency_limit",
        "gauge",
        "call",
        "Calls that the server is given at a time.",
        ("workload", "role"),
    ),
    MetricSpec(
        "ucci_router_model_in_flight", "gauge", "call", "Calls at the server, probes apart.", ("workload", "role")
    ),
    MetricSpec(
        "ucci_router_model_queued",
        "gauge",
        "call",
        "Calls that wait in the router for the server.",
        ("workload", "role"),
    ),
    MetricSpec(
        "ucci_router_handoffs_total",
        "counter",
        "query",
        "Queries whose large model ran under a handoff: continued, asked_again (going on gave no valid answer) or "
        "nothing_certain.",
        ("workload", "outcome"),
    ),
    MetricSpec(
        "ucci_router_handoff_comparisons_total",
        "counter",
        "query",
        "Queries that the large model answered without handoff as well, unserved: same, different or failed.",
        ("workload", "outcome"),
    ),
    MetricSpec("ucci_router_in_flight", "gauge", "query", "Queries being answered."),
    MetricSpec("ucci_router_uncommitted", "gauge", "query", "Queries answered and not yet committed."),
    MetricSpec(
        "ucci_router_lag",
        "gauge",
        "offset",
        "Offsets between the log's end and the commit. One straggler holds the committed offset back, though what "
        "comes after it is answered: for the work that is left see ucci_router_backlog.",
        ("partition",),
    ),
    MetricSpec(
        "ucci_router_backlog",
        "gauge",
        "query",
        "Queries left to do: not yet taken from this router's partitions (in offsets), in flight, or uncommitted.",
    ),
    MetricSpec(
        "ucci_router_gateway_requests_total",
        "counter",
        "request",
        "Requests for an answer to a gateway, by HTTP status; 499: the caller left. Without a workload where it is not "
        "known.",
        ("workload", "status"),
    ),
    MetricSpec(
        "ucci_router_gateway_request_seconds",
        "histogram",
        "second",
        "From request to answer, of those that were answered; the broker's acknowledgement is part of it.",
        ("workload",),
    ),
    MetricSpec("ucci_router_ready", "gauge", "bool", "1 when queries are being answered."),
)
