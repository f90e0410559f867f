"""Every metric of the recalibrator: its name, kind, unit, help and labels."""

from __future__ import annotations

from typing import NamedTuple

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
        "What the join noticed: duplicates, conflicting results, stale revisions, disagreement, skips, withdrawals, "
        "senders' clocks ahead (dated as of arrival then) or behind, logs recreated.",
        ("note",),
    ),
    MetricSpec("rows", "gauge", "row", "Rows in the join's store."),
    MetricSpec("row_bytes", "gauge", "byte", "Bytes that these rows take."),
    MetricSpec("disk_free_bytes", "gauge", "byte", "Bytes left on the disk of the join."),
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
        "What the fit noticed: versions of foreign writers, logs recreated, snapshots that the disk refused.",
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
        "producers_abandoned",
        "counter",
        "producer",
        "Producers replaced because a call hung, failed or was not answered.",
        ("stage",),
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
    MetricSpec(
        "notifications",
        "counter",
        "notification",
        "Notifications by webhook: delivered, retried, refused for good, given up, or dropped from a full queue.",
        ("webhook", "outcome"),
    ),
    MetricSpec("view_records_ignored", "counter", "record", "Records that the API could not show.", ("topic",)),
)


WORKLOAD_PREFIX = "ucci_workload_"
_W = ("workload",)

#: What the status says of each workload, from every process that runs the API; names without prefix and ``_total``.
WORKLOAD_SPECS = (
    MetricSpec("state", "gauge", "bool", "1 for the state that the workload is in, 0 for the others.", (*_W, "state")),
    MetricSpec("status_timestamp_seconds", "gauge", "second", "When the fit wrote the status, in Unix time.", _W),
    MetricSpec("micro_f1", "gauge", "1", "Micro-F1 that the version in force is expected to serve.", _W),
    MetricSpec("micro_f1_lower", "gauge", "1", "Lower bound of its 95 % interval.", _W),
    MetricSpec("micro_f1_upper", "gauge", "1", "Upper bound of its 95 % interval.", _W),
    MetricSpec("measured_micro_f1", "gauge", "1", "Micro-F1 of what was served, by its labels.", (*_W, "window")),
    MetricSpec("measured_micro_f1_lower", "gauge", "1", "Its lower bound, which holds at any time.", (*_W, "window")),
    MetricSpec("measured_micro_f1_upper", "gauge", "1", "Its upper bound, which holds at any time.", (*_W, "window")),
    MetricSpec("measured_labels", "gauge", "label", "Labels behind it.", (*_W, "window")),
    MetricSpec("micro_f1_target", "gauge", "1", "The target.", _W),
    MetricSpec("field_micro_f1_target", "gauge", "1", "The target of one field.", (*_W, "field")),
    MetricSpec("escalation_cap", "gauge", "1", "Largest share of queries that the large model may answer.", _W),
    MetricSpec("escalation_wanted", "gauge", "1", "Share that it would answer without the cap, while that binds.", _W),
    MetricSpec("cost_target", "gauge", "small call", "The budget: mean sequential cost of a query.", _W),
    MetricSpec("cost_realised", "gauge", "small call", "What the latest 10,000 queries have cost on average.", _W),
    MetricSpec(
        "target_binds",
        "gauge",
        "bool",
        "1 for what keeps the threshold where it is: micro_f1, a field, max_escalation or cost; 0 for the others.",
        (*_W, "limit"),
    ),
    MetricSpec("field_micro_f1", "gauge", "1", "Micro-F1 of the served answers in one field.", (*_W, "field")),
    MetricSpec("queries", "counter", "query", "Queries routed, as the fit has counted them.", _W),
    MetricSpec("escalation_rate", "gauge", "1", "Share of recent queries for which the large model ran.", _W),
    MetricSpec("uncertainty_threshold", "gauge", "1", "Queries with u above it are escalated; -1 escalates all.", _W),
    MetricSpec(
        "cost",
        "gauge",
        "small call",
        "Mean cost of recent queries: sequential, paper, and large_only for comparison.",
        (*_W, "accounting"),
    ),
    MetricSpec(
        "saving",
        "gauge",
        "1",
        "Share of the cost of large-only that is saved, sequential and paper; negative where large-only is cheaper.",
        (*_W, "accounting"),
    ),
    MetricSpec("calibration_error", "gauge", "1", "Prequential expected calibration error.", _W),
    MetricSpec("calibration_error_lower", "gauge", "1", "Lower bound of its 95 % interval.", _W),
    MetricSpec("calibration_error_upper", "gauge", "1", "Upper bound of its 95 % interval.", _W),
    MetricSpec("brier_score", "gauge", "1", "Prequential Brier score.", _W),
    MetricSpec("brier_score_lower", "gauge", "1", "Lower bound of its 95 % interval.", _W),
    MetricSpec("brier_score_upper", "gauge", "1", "Upper bound of its 95 % interval.", _W),
    MetricSpec("drift_state", "gauge", "bool", "1 for what the detectors say together.", (*_W, "state")),
    MetricSpec("detector_state", "gauge", "bool", "1 for the state of one detector.", (*_W, "detector", "state")),
    MetricSpec("detector_alarms", "counter", "alarm", "Alarms of one detector.", (*_W, "detector")),
    MetricSpec("labels_requested", "counter", "label", "Labels asked for.", _W),
    MetricSpec("labels_received", "counter", "label", "Requested labels that have come in.", _W),
    MetricSpec("labels_pending", "gauge", "label", "Requested labels that have not come in.", _W),
    MetricSpec("labels_effective", "gauge", "label", "Effective sample size behind the estimate.", _W),
    MetricSpec("labels_per_hour", "gauge", "label", "Labels that an hour of recent queries has brought.", _W),
    MetricSpec("label_requested_share", "gauge", "1", "Share of recent queries for which a label was asked.", _W),
    MetricSpec(
        "label_delay_seconds", "gauge", "second", "Time from routing to label: p50 and p90.", (*_W, "percentile")
    ),
    MetricSpec(
        "labels_not_counted",
        "counter",
        "label",
        "Labels outside the estimates: duplicate, overruled, too_late, unrequested or withdrawn.",
        (*_W, "why"),
    ),
    MetricSpec(
        "labels_set_aside",
        "gauge",
        "label",
        "Labels taken for slips after an audit, or of labelers who differ from all others.",
        (*_W, "why"),
    ),
    MetricSpec("labelers_set_aside", "gauge", "labeler", "Labelers whose labels are set aside.", _W),
    MetricSpec("calibration_version", "gauge", "version", "Version in force; 0 in a cold start.", _W),
    MetricSpec(
        "calibration_timestamp_seconds",
        "gauge",
        "second",
        "When the version in force was made, in Unix time; its age is time() less this.",
        _W,
    ),
    MetricSpec("trial_version", "gauge", "version", "Version on trial; 0 while there is none.", _W),
    MetricSpec(
        "model_failing", "gauge", "1", "Share of recent calls that fail, during an outage; else 0.", (*_W, "role")
    ),
    MetricSpec("routers", "gauge", "router", "Routers: ready, not_ready, or silent for 30 s.", (*_W, "state")),
    MetricSpec(
        "routers_on_other_version", "gauge", "router", "Routers that decide by another version than is in force.", _W
    ),
    MetricSpec(
        "model_servers",
        "gauge",
        "router",
        "Routers that see a model server up, probing or down.",
        (*_W, "role", "state"),
    ),
    MetricSpec(
        "model_servers_overloaded", "gauge", "router", "Routers that see a model server overloaded.", (*_W, "role")
    ),
    MetricSpec(
        "dead_letters",
        "gauge",
        "record",
        "Dead letters of the last day, at most the latest 5,000 of all.",
        (*_W, "stage", "reason"),
    ),
)

SERVICE_PREFIX = "ucci_"

#: How far the services are behind, over all instances.
BACKLOG_SPECS = (
    MetricSpec(
        "backlog_records", "gauge", "record", "Records on a topic that all its readers have yet to take.", ("topic",)
    ),
    MetricSpec("backlog_seconds", "gauge", "second", "How old the newest record taken of a topic is.", ("topic",)),
    MetricSpec("kafka_contact_timestamp_seconds", "gauge", "second", "When this API last heard Kafka, in Unix time."),
)


class AlertSpec(NamedTuple):
    """What an alert may rest on."""

    #: What is wrong, for people.
    condition: str
    #: In PromQL; several processes that run the API tell the same, hence ``max by``.
    expression: str
    #: Alerts of ``deploy/monitoring/rules.yml`` that fire for it; none where a threshold depends on the deployment.
    rules: tuple[str, ...] = ()


#: What operators want to be alerted of, in one place for the rules of Prometheus and for the documents.
ALERTS = (
    AlertSpec(
        "What was served is below its target with confidence",
        "min by (workload) (ucci_workload_measured_micro_f1_upper) < max by (workload) (ucci_workload_micro_f1_target)",
        ("UcciTargetMissed", "UcciTargetAtRisk", "UcciTargetCapped"),
    ),
    AlertSpec(
        "A workload is in a state that needs somebody",
        "max by (workload, state) "
        '(ucci_workload_state{state=~"infeasible|bad_labels_suspected|label_starved|labels_one_sided|stale"}) == 1',
        ("UcciTargetInfeasible", "UcciBadLabels", "UcciLabelStarvation"),
    ),
    AlertSpec(
        "Drift has been detected",
        'max by (workload) (ucci_workload_drift_state{state="drifted"}) == 1',
        ("UcciDrift",),
    ),
    AlertSpec(
        "New versions have been held back for a day",
        'min_over_time(ucci_workload_state{state=~"pinned|paused"}[1d]) == 1',
        ("UcciHeldBack",),
    ),
    AlertSpec("Large-only would be cheaper", 'max by (workload) (ucci_workload_saving{accounting="sequential"}) < 0'),
    AlertSpec("Predicted errors are off", "max by (workload) (ucci_workload_calibration_error_lower) > 0.05"),
    AlertSpec(
        "No label has come in for six hours",
        "increase(ucci_workload_labels_received_total[6h]) == 0 "
        "and increase(ucci_workload_labels_requested_total[6h]) > 0",
        ("UcciLabelStarvation",),
    ),
    AlertSpec(
        "Labels take longer than a day",
        'max by (workload) (ucci_workload_label_delay_seconds{percentile="p90"}) > 86400',
    ),
    AlertSpec("Labels are set aside", "max by (workload, why) (ucci_workload_labels_set_aside) > 0"),
    AlertSpec("Versions follow each other too fast", "changes(ucci_workload_calibration_version[1h]) > 20"),
    AlertSpec(
        "The version in force is a week old",
        "time() - max by (workload) (ucci_workload_calibration_timestamp_seconds) > 604800",
        ("UcciNoNewVersion",),
    ),
    AlertSpec(
        "The fit no longer reports, though there is traffic to report on",
        "time() - max by (workload) (ucci_workload_status_timestamp_seconds) > 900",
        ("UcciFitSilent",),
    ),
    AlertSpec("Kafka does not answer", "time() - ucci_kafka_contact_timestamp_seconds > 30", ("UcciKafkaAway",)),
    AlertSpec(
        "A stage falls behind",
        "max by (topic) (ucci_backlog_seconds) > 60",
        ("UcciStageBehind",),
    ),
    AlertSpec(
        "A router decides by an old version",
        "min_over_time(ucci_workload_routers_on_other_version[5m]) > 0",
        ("UcciRoutersDisagree",),
    ),
    AlertSpec(
        "A router is silent",
        'max by (workload) (ucci_workload_routers{state="silent"}) > 0',
        ("UcciRouterNotReady", "UcciTargetDown"),
    ),
    AlertSpec(
        "A model server is down",
        'max by (workload, role) (ucci_workload_model_servers{state="down"}) > 0',
        ("UcciModelDown",),
    ),
    AlertSpec("Model calls fail", "max by (workload, role) (ucci_workload_model_failing) > 0"),
    AlertSpec(
        "Records are set aside",
        "max by (workload, stage, reason) (ucci_workload_dead_letters) > 0",
        ("UcciDeadLetters",),
    ),
    AlertSpec("The join's disk is nearly full", "ucci_recalibrator_disk_free_bytes < 1e9", ("UcciDiskNearlyFull",)),
    AlertSpec(
        "A notification was given up",
        'increase(ucci_recalibrator_notifications_total{outcome=~"refused|given_up|dropped"}[1h]) > 0',
    ),
)


def exposed_name(spec: MetricSpec, prefix: str = PREFIX) -> str:
    """Return the name under which a metric is scraped.

    Examples
    --------
    >>> exposed_name(SPECS[0])
    'ucci_recalibrator_results_total'
    """
    return prefix + spec.name + ("_total" if spec.kind == "counter" else "")


def status_metrics() -> dict[str, MetricSpec]:
    """Return what is scraped of the statuses, by name."""
    tables = ((WORKLOAD_PREFIX, WORKLOAD_SPECS), (SERVICE_PREFIX, BACKLOG_SPECS))
    return {exposed_name(spec, prefix): spec for prefix, specs in tables for spec in specs}
