"""``ucci-stream label-queue``: shows what to label next, and what labels would buy; nothing but the broker need run."""

from __future__ import annotations

from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import NamedTuple

from rich.table import Table

from recalibrator.labelling.queue import LabelBudget, LabelQueue, QueuePage, audits_of, label_budget, queue_document
from schemas.entities import Entities
from schemas.errors import DecodeError
from schemas.label_requested import RequestReason
from schemas.settings import Settings
from schemas.status import WorkloadStatus
from schemas.topics import LABEL_REQUESTS, STATUS
from ucci_runtime.broker.kafka_topics import check_topics
from ucci_stream.options import Outcome
from ucci_stream.topics.access import labeling_group
from ucci_stream.topics.kafka_reading import topic_reader

_TEXT_CHARS = 80
_HOUR_S, _MINUTE_S = 3_600.0, 60.0


class Queue(NamedTuple):
    """The queue of one workload, its budget, and whose answers to audits decide."""

    page: QueuePage
    budget: LabelBudget
    trusted_labelers: tuple[str, ...]


def read_queue(settings: Settings, workload: str, limit: int, reason: RequestReason | None) -> Queue:
    """Read from the topics what to label next; blocks. Raises BrokerError when none answers, or topics are missing."""
    prefix, options = settings.topics.prefix, settings.recalibrator
    check_topics(settings, (STATUS, LABEL_REQUESTS), (LABEL_REQUESTS,))
    queue = LabelQueue([workload], prefix, most=options.label_requests_max)
    status = WorkloadStatus.cold_start(workload, settings.workloads[workload].target)
    topics = [STATUS.name(prefix), LABEL_REQUESTS.name(prefix)]
    with closing(topic_reader(settings, "label-queue", topics, labeling_group(prefix))) as reader:
        for record in reader.up_to_end():
            key, value = record.key, record.value
            if queue.take(record.source.topic, key, value) or key != workload.encode() or value is None:
                continue
            with suppress(DecodeError):  # written by a later release; the queue can be shown without the budget
                status = WorkloadStatus.from_json(value)
    page = queue.page(workload, datetime.now(UTC), limit, reason=reason)
    return Queue(page, label_budget(status), settings.workloads[workload].trusted_labelers)


def outcome(queue: Queue) -> Outcome:
    """Return the queue and the budget."""
    page, budget, trusted_labelers = queue
    table = Table("requested", "reason", "query_id", "text", "served")
    for request in page.requests:
        text = request.text if len(request.text) <= _TEXT_CHARS else request.text[: _TEXT_CHARS - 1] + "…"
        moment = request.requested_at.strftime("%m-%d %H:%M:%S")
        table.add_row(moment, request.reason, request.query_id, _plain(text), _plain(_entities(request.entities)))
    reasons = ", ".join(f"{count} {reason}" for reason, count in page.by_reason.items())
    counts = f"{page.open} open{f' ({reasons})' if reasons else ''}, {len(page.requests)} shown"
    audits = audits_of(page, trusted_labelers)
    lines = [counts, *([audits.note] if audits.open else []), *_budget_lines(budget)]
    return Outcome(queue_document(page, budget, trusted_labelers), [table, *lines])


def _budget_lines(budget: LabelBudget) -> list[str]:
    lines = []
    if budget.requested_per_day is not None and budget.received_share is not None:
        lines.append(
            f"{budget.requested_per_day:,.0f} labels requested a day, {budget.received_share:.0%} of them received; "
            f"median delay {_duration(budget.delay_p50_s)}"
        )
    if budget.interval_width is not None:
        lines.append(f"the expected micro-F1 is known to ±{budget.interval_width / 2:.4f} (95%)")
    return lines or ["no labels have been requested yet"]


def _entities(entities: Entities) -> str:
    given = {field: [value] if isinstance(value, str) else value for field, value in entities.items() if value}
    return ", ".join(f"{field}={'|'.join(values)}" for field, values in given.items())


def _plain(text: str) -> str:
    """Keep a query's brackets from being read as the table's markup."""
    return text.replace("[", "\\[")


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds >= _HOUR_S:
        return f"{seconds / _HOUR_S:.1f} h"
    return f"{seconds / _MINUTE_S:.1f} min" if seconds >= _MINUTE_S else f"{seconds:.1f} s"
