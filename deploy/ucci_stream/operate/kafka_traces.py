"""What committed records say: of one query, for ``explain``, and of two spans of time, for ``what-moved``.

A query's records are known by the ``query_id`` in their value, as the join knows them: producers choose keys and
partitions as they like.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

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
    JOIN_REPARTITION,
    LABEL_REQUESTS,
    OBSERVATIONS,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TOPIC,
    RESULTS,
    STATUS,
    Topic,
)
from ucci_runtime.broker.records import Record, event_of
from ucci_stream.operate.explanation import Forwarded, Said, Traces, explanation, is_similar
from ucci_stream.operate.kafka_letters import letter_of
from ucci_stream.topics.admin import broker_failures
from ucci_stream.topics.kafka_reading import records_since

_CLOCKS_DIFFER = timedelta(hours=1)
_MOST_SIMILAR = 3


class QueryNotFound(UcciError):
    """No topic names the query."""


def explain(settings: Settings, wanted: str, since: datetime) -> dict[str, Any]:
    """Return what the topics say of a query; blocks while they are read.

    Raises QueryNotFound, NotRead, BrokerUnreachable or AccessDenied.
    """
    with broker_failures(settings):
        traces = _traces(settings, wanted, since)
    if not traces.results and not traces.letters and not traces.feedback:
        similar = f" (results are there of {', '.join(traces.similar_ids)})" if traces.similar_ids else ""
        raise QueryNotFound(
            f"{wanted}: no result, label or dead letter since {rfc3339(since)}{similar}; give an earlier --since, or "
            "look whether it is still to be answered (GET /v1/status)"
        )
    names = [*(one.workload for one in traces.results), *(one.workload for one in traces.examples)]
    workload = settings.workloads.get(names[0]) if names else None
    signal, mark = (DEFAULT_SIGNAL, None) if workload is None else (workload.uncertainty, workload.basis_mark)
    return explanation(wanted, traces, signal, mark, settings.router.draw_with)


class _Results(NamedTuple):
    found: Sequence[RoutedEvent]
    #: Ids of other results that may be the same id, spelt otherwise.
    similar: Sequence[str]


def _traces(settings: Settings, wanted: str, since: datetime) -> Traces:
    kept_s = settings.recalibrator.join_retention_s
    results = _results(settings, wanted, since)
    # A label without a result waits for as long as the join keeps it, and labels are few.
    labelled = min(since, _earliest(results.found) if results.found else _later(datetime.now(UTC), -kept_s))
    feedback = _feedback(settings, wanted, labelled)
    arrivals = [said.arrived_at for said in feedback if said.arrived_at is not None]
    begun = min([since, *arrivals])
    if feedback and not results.found:
        # Only a look at all that the join could have joined them with tells that there is none.
        results = _results(settings, wanted, _later(begun, -kept_s))
    key = wanted.encode()
    letters = [
        letter_of(record)
        for record in _scan(settings, DEAD_LETTERS, begun)
        if record.key in (key, to_json(wanted)) or text_member(record.value, "query_id") == wanted
    ]
    traces = Traces(
        results.found,
        feedback,
        letters=letters,
        forwarded=_forwarded(settings, wanted, begun),
        kept_until=_later(max(arrivals), kept_s) if arrivals else None,
        similar_ids=results.similar,
    )
    if results.found:
        return _with_label(settings, traces, results.found[0])
    return traces._replace(examples=_examples(settings, wanted, begun - _CLOCKS_DIFFER)) if feedback else traces


def _later(moment: datetime, seconds: float) -> datetime:
    """Return a time moved by a setting, of any size."""
    return from_ms(int((moment.timestamp() + seconds) * 1_000.0))


def _earliest(results: Sequence[RoutedEvent]) -> datetime:
    return min(routed.routed_at for routed in results) - _CLOCKS_DIFFER


def _results(settings: Settings, wanted: str, since: datetime) -> _Results:
    found, similar = list[RoutedEvent](), dict[str, None]()
    for record in _scan(settings, RESULTS, since):
        if _names(record, wanted):
            found += filter(None, [event_of(record, RoutedEvent)])
        elif len(similar) < _MOST_SIMILAR and is_similar(wanted, other := (record.key or b"").decode(errors="replace")):
            similar[other] = None
    return _Results(found, () if found else tuple(similar))


def _feedback(settings: Settings, wanted: str, since: datetime) -> list[Said]:
    return [
        Said(event, from_ms(record.timestamp_ms) if record.timestamp_ms > 0 else None, _place(record))
        for record in _scan(settings, FEEDBACK, since)
        if _names(record, wanted)
        if (event := event_of(record, FeedbackEvent))
    ]


def _forwarded(settings: Settings, wanted: str, since: datetime) -> list[Forwarded]:
    found = []
    for record in _scan(settings, JOIN_REPARTITION, since):
        headers = dict(record.headers)
        origin = [headers.get(name) for name in (ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET)]
        # Without them it is somebody else's, and the join sets it aside.
        if _names(record, wanted) and all(origin):
            topic, partition, offset = ((part or b"").decode(errors="replace") for part in origin)
            what = "label" if topic == FEEDBACK.name(settings.topics.prefix) else "result"
            found.append(Forwarded(what, f"{topic}/{partition}/{offset}", _place(record)))
    return found


def _examples(settings: Settings, wanted: str, since: datetime) -> list[LabelledExample]:
    return [
        example
        for record in _scan(settings, OBSERVATIONS, since)
        if _names(record, wanted)
        if (example := event_of(record, LabelledExample))
    ]


def _with_label(settings: Settings, traces: Traces, routed: RoutedEvent) -> Traces:
    """Return the same with what came of a result's label, and with the version and the workload behind it."""
    key, after = routed.query_id.encode(), routed.routed_at - _CLOCKS_DIFFER
    examples = [one for one in _examples(settings, routed.query_id, after) if one.workload == routed.workload]
    request = _last_of_key(settings, LABEL_REQUESTS, key)
    version_key = f"{routed.workload}:{routed.decision.calibration_version}".encode()
    version = _last_of_key(settings, CALIBRATION_HISTORY, version_key)
    status = _last_of_key(settings, STATUS, routed.workload.encode())
    return traces._replace(
        examples=examples,
        is_open=request is not None and request.value is not None,
        version=version and event_of(version, CalibrationVersion),
        status=status and event_of(status, WorkloadStatus),
    )


def _names(record: Record, wanted: str) -> bool:
    """Return whether a record's value names a query; most are of others, and parsing them would be most of the work."""
    value = record.value or b""
    # A character of the id may be written as an escape.
    return (wanted.encode() in value or b"\\" in value) and text_member(value, "query_id") == wanted


def _place(record: Record) -> str:
    return f"{record.source.topic}/{record.source.partition}/{record.offset}"


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
