"""What committed records say: of one query, for ``explain``, and of two spans of time, for ``what-moved``."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import to_json

from schemas.calibration import CalibrationVersion
from schemas.errors import UcciError
from schemas.event import DEFAULT_SIGNAL, from_ms, rfc3339
from schemas.feedback import FeedbackEvent
from schemas.json_bytes import text_member
from schemas.labelled import LabelledExample
from schemas.routed import RoutedEvent
from schemas.settings import Settings
from schemas.status import WorkloadStatus
from schemas.topics import (
    CALIBRATION_HISTORY,
    DEAD_LETTERS,
    FEEDBACK,
    LABEL_REQUESTS,
    OBSERVATIONS,
    RESULTS,
    STATUS,
    Topic,
)
from ucci_runtime.broker.records import Record, event_of
from ucci_stream.operate.explanation import Said, Traces, explanation
from ucci_stream.operate.kafka_letters import letter_of
from ucci_stream.topics.admin import broker_failures
from ucci_stream.topics.kafka_reading import records_since

_CLOCKS_DIFFER = timedelta(hours=1)


class QueryNotFound(UcciError):
    """No topic names the query."""


def explain(settings: Settings, wanted: str, since: datetime) -> dict[str, Any]:
    """Return what the topics say of a query; blocks while they are read.

    Raises QueryNotFound, NotRead, BrokerUnreachable or AccessDenied.
    """
    with broker_failures(settings):
        traces = _traces(settings, wanted, since)
    if not traces.results and not traces.letters:
        raise QueryNotFound(
            f"{wanted}: no result and no dead letter since {rfc3339(since)}; give an earlier --since, or look whether "
            "it is still to be answered (GET /v1/status)"
        )
    workload = settings.workloads.get(traces.results[0].workload) if traces.results else None
    signal, mark = (DEFAULT_SIGNAL, None) if workload is None else (workload.uncertainty, workload.basis_mark)
    return explanation(wanted, traces, signal, mark, settings.router.draw_with)


def _traces(settings: Settings, wanted: str, since: datetime) -> Traces:
    key = wanted.encode()
    results = [routed for record in _of_key(settings, RESULTS, since, key) if (routed := event_of(record, RoutedEvent))]
    letters = [
        letter_of(record)
        for record in _scan(settings, DEAD_LETTERS, since)
        if record.key == key or text_member(record.value, "query_id") == wanted
    ]
    traces = Traces(results, letters=letters)
    return _with_label(settings, traces, results[0]) if results else traces


def _with_label(settings: Settings, traces: Traces, routed: RoutedEvent) -> Traces:
    """Return the same with what came of a result's label, and with the version and the workload behind it."""
    key, after = routed.query_id.encode(), routed.routed_at - _CLOCKS_DIFFER
    feedback = [
        Said(event, from_ms(record.timestamp_ms) if record.timestamp_ms > 0 else None)
        for record in _of_key(settings, FEEDBACK, after, key)
        if (event := event_of(record, FeedbackEvent))
    ]
    examples = [
        example
        for record in _scan(settings, OBSERVATIONS, after)
        # Most observations are of other queries, and parsing them most of the work.
        if record.value is not None and to_json(routed.query_id) in record.value
        if (example := event_of(record, LabelledExample))
        if (example.query_id, example.workload) == (routed.query_id, routed.workload)
    ]
    request = _last_of_key(settings, LABEL_REQUESTS, key)
    version_key = f"{routed.workload}:{routed.decision.calibration_version}".encode()
    version = _last_of_key(settings, CALIBRATION_HISTORY, version_key)
    status = _last_of_key(settings, STATUS, routed.workload.encode())
    return traces._replace(
        feedback=feedback,
        examples=examples,
        is_open=request is not None and request.value is not None,
        version=version and event_of(version, CalibrationVersion),
        status=status and event_of(status, WorkloadStatus),
    )


def _last_of_key(settings: Settings, topic: Topic, key: bytes) -> Record | None:
    return next(iter(deque(_of_key(settings, topic, from_ms(0), key), maxlen=1)), None)


def _of_key(settings: Settings, topic: Topic, since: datetime, key: bytes) -> Iterator[Record]:
    return (record for record in _scan(settings, topic, since) if record.key == key)


def _scan(settings: Settings, topic: Topic, since: datetime) -> Iterator[Record]:
    return records_since(settings, topic.name(settings.topics.prefix), since, "explain")


def what_moved(settings: Settings, workload: str, since: datetime, until: datetime, most: int) -> dict[str, Any]:
    """Return what differs between the results from a time on and those of as long a span before; blocks.

    The parameters are those of :class:`~recalibrator.movement.Sides`. Raises TooFewQueries, NotRead, BrokerUnreachable
    or AccessDenied.
    """
    from recalibrator.file_languages import language_identifier
    from recalibrator.movement import Sides  # it needs SciPy, which the other commands do not

    sides = Sides(workload, since, until, most)
    with broker_failures(settings):
        for record in records_since(settings, RESULTS.name(settings.topics.prefix), sides.start, "what-moved"):
            sides.offer(record)
    return sides.compared(sides.start, language_identifier())
