"""Every metric of the router (``ucci_router_…``), and the object that its parts count on."""

from __future__ import annotations

from schemas.status import ModelHealth
from ucci_runtime.metrics import metric_table
from ucci_runtime.prometheus_registry import MetricRegistry

LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)

SPECS = metric_table(
    "ucci_router_",
    """
queries counter query: Queries taken from the topic to be answered.
results[workload,answered_by,reason] counter result: Results committed.
dead_letters[reason] counter record: Dead letters committed.
skipped counter record: Deliveries not asked of the models: committed before a restart, or answered before a rebalance.
given_up counter query: Queries in flight that a rebalance gave to another instance.
transactions[outcome] counter transaction: Transactions by how they ended.
transaction_seconds histogram second: From begin to committed, of committed transactions.
producers_abandoned counter producer: Producers replaced because a call hung, failed or was not answered.
records_lost counter record: Offsets of queries that the topic's retention deleted before any router took them.
rebalances[kind] counter assignment: Assignments by the group.
client_errors[client,code] counter error: Errors that a Kafka client reported.
foreign_offset_metadata counter commit: Committed offsets whose metadata is not ours.
calibrations_adopted[workload] counter version: Calibration versions taken into force.
calibrations_rejected[reason] counter version: Calibration versions refused.
calibration_version[workload] gauge version: Version in force; 0 in a cold start.
trial_version[workload] gauge version: Version on trial; 0 while there is none.
trials_rejected counter record: Trials refused: malformed, or of another signal.
trial_decisions[workload,mode,decided_by,compared] counter result: Results committed while a version was on trial, by
    whose decision was acted on, and how both compare: same, trial_escalates or base_escalates.
model_calls[workload,role,outcome] counter attempt: Attempts at a model: answered, refused, misconfigured, overloaded or
    failed; probes included.
model_call_seconds[workload,role] histogram second: Of the attempts answered.
unusable_answers[workload,role,why] counter answer: Answers that came and cannot be used, by why: cut, signal (no
    log-probabilities that give u), text (none, or too much), json, value, or keys (not the workload's fields).
model_up[workload,role] gauge bool: 1 while calls are let through to the server.
model_overloaded[workload,role] gauge bool: 1 while calls wait because slow answers, time-outs or rejections have
    lowered the server's limit.
model_concurrency_limit[workload,role] gauge call: Calls that the server is given at a time.
model_in_flight[workload,role] gauge call: Calls at the server, probes apart.
model_queued[workload,role] gauge call: Calls that wait in the router for the server.
handoffs[workload,outcome] counter query: Queries whose large model ran under a handoff: continued, asked_again (going
    on gave no valid answer) or nothing_certain.
handoff_comparisons[workload,outcome] counter query: Queries that the large model answered without handoff as well,
    unserved: same, different or failed.
in_flight gauge query: Queries being answered.
uncommitted gauge query: Queries answered and not yet committed.
lag[partition] gauge offset: Offsets between the log's end and the commit. One straggler holds the committed offset
    back, though what comes after it is answered: for the work that is left see ucci_router_backlog.
backlog gauge query: Queries left to do: not yet taken from this router's partitions (in offsets), in flight, or
    uncommitted.
gateway_requests[workload,status] counter request: Requests for an answer to a gateway, by HTTP status; 499: the caller
    left. Without a workload where it is not known.
gateway_request_seconds[workload] histogram second: From request to answer, of those that were answered; the broker's
    acknowledgement is part of it.
ready gauge bool: 1 when queries are being answered.
""",
)


class Metrics(MetricRegistry):
    """The router's metrics."""

    def __init__(self) -> None:
        super().__init__(SPECS, LATENCY_BUCKETS_S)

    def model_load(self, workload: str, role: str, health: ModelHealth) -> None:
        """Set the gauges of a server's load."""
        self.gauge("model_overloaded", health.overloaded, workload=workload, role=role)
        self.gauge("model_concurrency_limit", health.concurrency_limit or 0, workload=workload, role=role)
        self.gauge("model_in_flight", health.in_flight, workload=workload, role=role)
        self.gauge("model_queued", health.queued, workload=workload, role=role)
