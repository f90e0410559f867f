"""Every metric of the recalibrator: its name, kind, unit, help and labels."""

from __future__ import annotations

from ucci_runtime.metrics import MetricSpec

PREFIX = "ucci_recalibrator_"
LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

SPECS = (
    MetricSpec("results", "counter", "result", "Results taken by the join.", ("workload",)),
    MetricSpec(
        "examples",
        "counter",
        "example",
        "Labelled examples sent to the fit; retracted takes one back.",
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
    MetricSpec(
        "records_lost",
        "counter",
        "record",
        "Offsets that a topic's retention deleted before the stage took them.",
        ("stage",),
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
        "Deleted annotations of Label Studio unknown to this process; `label-studio sync` finds their query.",
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
    return PREFIX + spec.name + ("_total" if spec.kind == "counter" else "")
