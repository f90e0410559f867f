"""Every metric of the recalibrator: its name, kind, unit, help and labels."""

from __future__ import annotations

from ucci_runtime.metrics import metric_table

LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

SPECS = metric_table(
    "ucci_recalibrator_",
    """
results[workload] counter result: Results taken by the join.
examples[workload,retracted] counter example: Labelled examples sent to the fit; retracted takes one back.
join_notes[note] counter event: What the join noticed: duplicates, conflicting results, stale revisions, disagreement,
    skips, withdrawals, values that spell a null (spelt_null of labels, spelt_null_answer of models), senders' clocks
    ahead (dated as of arrival then) or behind, logs recreated.
records_forwarded[topic] counter record: Records of results or feedback that the join has sent on to the partition of
    their query, since their producer chose another one.
labels_without_result gauge query: Queries that the join has labels of, and no result yet.
labels_without_result_seconds gauge second: How long the one that waits longest has had no other label.
rows gauge row: Rows in the join's store.
row_bytes gauge byte: Bytes that these rows take.
disk_free_bytes gauge byte: Bytes left on the disk of the join; NaN in a process without one.
rows_expired[kind] counter row: Rows that the join forgot by age, number or size; joined ones lose nothing but
    corrections.
label_requests[workload,outcome] counter request: Label requests opened, answered (skips too), expired by age or
    number, or too large to ask.
label_requests_open gauge request: Label requests that the join holds for open.
observations[workload,kind] counter event: Observations folded.
versions[workload,trigger] counter version: Calibration versions published.
fit_notes[note] counter event: What the fit noticed: versions of foreign writers, logs recreated, snapshots that the
    disk refused.
dead_letters[stage,reason] counter record: Records set aside as malformed, or as more than one query may hold.
transactions[stage,outcome] counter transaction: Transactions by how they ended.
transaction_seconds[stage] histogram second: From begin to committed.
producers_abandoned[stage] counter producer: Producers replaced because a call hung, failed or was not answered.
records_lost[stage] counter record: Offsets that a topic's retention deleted before the stage took them.
rebalances[stage,kind] counter assignment: Assignments by the group.
client_errors[client,code] counter error: Errors that a Kafka client reported.
lag[stage,topic,partition] gauge offset: Offsets that a stage is behind.
lag_seconds[stage,topic,partition] gauge second: Age of the newest record that a stage has taken, where more are left.
ready[stage] gauge bool: 1 when a stage has caught up.
http_requests[route,status] counter request: HTTP requests answered.
feedback[source] counter event: Feedback events taken over HTTP and acknowledged.
deletions_unknown counter annotation: Deleted annotations of Label Studio unknown to this process; `label-studio sync`
    finds their query.
commands[action] counter command: Commands taken over HTTP and acknowledged.
notifications[webhook,outcome] counter notification: Notifications by webhook: delivered, retried, refused for good,
    given up, or dropped from a full queue.
view_records_ignored[topic] counter record: Records that the API could not show.
""",
)

#: What the status says of each workload, from every process that runs the API; names without prefix and ``_total``.
WORKLOAD_SPECS = metric_table(
    "ucci_workload_",
    """
state[state] gauge bool: 1 for the state that the workload is in, 0 for the others.
status_timestamp_seconds gauge second: When the fit wrote the status, in Unix time.
micro_f1 gauge 1: Micro-F1 that the version in force is expected to serve.
micro_f1_lower gauge 1: Lower bound of its 95% interval.
micro_f1_upper gauge 1: Upper bound of its 95% interval.
measured_micro_f1[window] gauge 1: Micro-F1 of what was served, by its labels.
measured_micro_f1_lower[window] gauge 1: Its lower bound, which holds at any time.
measured_micro_f1_upper[window] gauge 1: Its upper bound, which holds at any time.
measured_labels[window] gauge label: Labels behind it.
micro_f1_target gauge 1: The target.
field_micro_f1_target[field] gauge 1: The target of one field.
escalation_cap gauge 1: Largest share of queries that the large model may answer.
escalation_wanted gauge 1: Share that it would answer without the cap, while that binds.
cost_target gauge small call: The budget: mean sequential cost of a query.
cost_realised gauge small call: What the latest 10,000 queries have cost on average.
target_binds[limit] gauge bool: 1 for what keeps the threshold where it is: micro_f1, a field, max_escalation or cost;
    0 for the others.
field_micro_f1[field] gauge 1: Micro-F1 of the served answers in one field.
queries counter query: Queries routed, as the fit has counted them.
escalation_rate gauge 1: Share of recent queries for which the large model ran.
uncertainty_threshold gauge 1: Queries with u above it are escalated; -1 escalates all.
cost[accounting] gauge small call: Mean cost of recent queries: sequential, paper, and large_only for comparison.
saving[accounting] gauge 1: Share of the cost of large-only that is saved, sequential and paper; negative where
    large-only is cheaper.
calibration_error gauge 1: Prequential expected calibration error.
calibration_error_lower gauge 1: Lower bound of its 95% interval.
calibration_error_upper gauge 1: Upper bound of its 95% interval.
brier_score gauge 1: Prequential Brier score.
brier_score_lower gauge 1: Lower bound of its 95% interval.
brier_score_upper gauge 1: Upper bound of its 95% interval.
drift_state[state] gauge bool: 1 for what the detectors say together.
detector_state[detector,state] gauge bool: 1 for the state of one detector.
detector_alarms[detector] counter alarm: Alarms of one detector.
labels_requested counter label: Labels asked for.
labels_received counter label: Requested labels that have come in.
labels_pending gauge label: Requested labels that have not come in.
labels_effective gauge label: Effective sample size behind the estimate.
labels_per_hour gauge label: Labels that an hour of recent queries has brought.
label_requested_share gauge 1: Share of recent queries for which a label was asked.
label_delay_seconds[percentile] gauge second: Time from routing to label: p50 and p90.
labels_not_counted[why] counter label: Labels outside the estimates: duplicate, overruled, too_late, unrequested or
    withdrawn.
labels_set_aside[why] gauge label: Labels taken for slips after an audit, or of labelers who differ from all others.
labelers_set_aside gauge labeler: Labelers whose labels are set aside.
calibration_version gauge version: Version in force; 0 in a cold start.
calibration_timestamp_seconds gauge second: When the version in force was made, in Unix time; its age is time() less
    this.
trial_version gauge version: Version on trial; 0 while there is none.
model_failing[role] gauge 1: Share of recent calls that fail, during an outage; else 0.
routers[state] gauge router: Routers: ready, not_ready, or silent for 8 s.
routers_on_other_version gauge router: Routers that decide by another version than is in force.
model_servers[role,state] gauge router: Routers that see a model server up, probing or down.
model_servers_overloaded[role] gauge router: Routers that see a model server overloaded.
dead_letters[stage,reason] gauge record: Dead letters of the last day, at most the latest 5,000 of all.
""",
    "workload",
)

#: How far the services are behind, over all instances.
BACKLOG_SPECS = metric_table(
    "ucci_",
    """
backlog_records[topic] gauge record: Records on a topic that all its readers have yet to take.
backlog_seconds[topic] gauge second: How old the newest record taken of a topic is.
kafka_contact_timestamp_seconds gauge second: When this API last heard Kafka, in Unix time.
""",
)

#: What is scraped of the statuses.
STATUS_SPECS = (*WORKLOAD_SPECS, *BACKLOG_SPECS)
