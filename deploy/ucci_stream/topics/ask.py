"""``ucci-stream ask``: one query through the running service, and both models' answers side by side."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Producer
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from schemas.entities import normalise
from schemas.errors import ConfigError, DecodeError, UcciError
from schemas.event import decode_error
from schemas.routed import ModelRun, QueryEvent, RoutedEvent
from schemas.settings import Settings, WorkloadSettings
from schemas.topics import QUERIES, RESULTS
from stream_router.errors import CallError
from stream_router.model_client.answer import failed_run, judge_answer
from stream_router.model_client.http_client import ModelClient
from stream_router.model_client.request import build_request
from ucci_runtime.broker.records import Record
from ucci_runtime.process import SystemClock
from ucci_stream.options import Outcome
from ucci_stream.topics.access import asking_group
from ucci_stream.topics.admin import client_properties
from ucci_stream.topics.outcomes import follow, uncertainty_words

_REASONS = {
    "threshold": "u lies above the threshold, so the large model was asked",
    "exploration": "u lies below the threshold; the large model was asked to keep learning from both",
    "cold_start": "no calibration yet, so both models are asked",
    "infeasible": "no threshold meets the target; escalated because a gain is expected",
    "small_failed": "the small model gave no usable answer",
    "kept": "u lies below the threshold, so the small answer is served",
    "large_only": "the large model answers alone for now, since the cascade would cost more",
    "degraded": "the large model failed, so the small answer is served",
}


class NoAnswer(UcciError):
    """No result came in time; says what to look at."""


class Asked(NamedTuple):
    """A result and how long it took from sending to reading it committed, in seconds."""

    routed: RoutedEvent
    seconds: float


def ask(settings: Settings, text: str, workload: str | None, timeout_s: float) -> Asked:
    """Send one query and wait for its committed result.

    ``timeout_s``: how long to wait for the result, in seconds. Raises ConfigError when the text is none that a query
    may have; raises NoAnswer when the query was not acknowledged, or no result came in time. Raises NotRead;
    raises BrokerUnreachable or AccessDenied when the broker does not answer, or not to us.
    """
    try:
        query = QueryEvent(query_id=f"ask-{uuid.uuid4()}", text=text, workload=workload)
    except ValidationError as error:
        raise ConfigError([str(decode_error(error))]) from None
    prefix = settings.topics.prefix
    with follow(settings, [RESULTS], group_id=asking_group(prefix, query.query_id)) as follower:
        producer = Producer(client_properties(settings, linger_ms=0))
        sent = time.monotonic()
        _send(producer, QUERIES.name(prefix), query, timeout_s)
        while (left := sent + timeout_s - time.monotonic()) > 0:
            for record in follower.records(min(left, 0.5)):
                if record.key == query.query_id.encode():
                    return Asked(_result(record, query.query_id), time.monotonic() - sent)
    raise NoAnswer(
        f"no result within {timeout_s:g} s: is a router running on {settings.kafka['bootstrap.servers']} with prefix "
        f"{prefix!r}, and is it ready (GET /readyz)? The query stays in the topic and will be answered"
    )


def _send(producer: Producer, topic: str, query: QueryEvent, timeout_s: float) -> None:
    reports: list[KafkaError | None] = []
    producer.produce(
        topic,
        key=query.query_id.encode(),
        value=query.to_json(),
        on_delivery=lambda error, _message: reports.append(error),
    )
    producer.flush(timeout_s)
    if reports != [None]:
        why = f" ({reports[0].str()})" if reports and reports[0] is not None else ""
        raise NoAnswer(
            f"{topic}: the query was not acknowledged within {timeout_s:g} s{why}; it may have come in all the same. "
            "The cluster may be failing over: run this again"
        )


def _result(record: Record, query_id: str) -> RoutedEvent:
    try:
        return RoutedEvent.from_record(record.value or b"")
    except DecodeError as error:
        raise NoAnswer(f"the result of {query_id} cannot be read: {error}") from None


async def ask_large_directly(workload: WorkloadSettings, text: str) -> ModelRun | None:
    """Ask the large model past the service: None where none is configured, an invalid run where it did not answer."""
    endpoint = workload.large
    if endpoint is None:
        return None
    async with ModelClient(workload, "large", endpoint, clock=SystemClock()) as server:
        try:
            answered = await server.call(build_request(workload, endpoint, text))
        except CallError as error:
            return failed_run(endpoint.model, str(error))
    judged = judge_answer(endpoint.model, answered.reply, workload.fields, answered.latency_s, nulls=workload.nulls)
    return judged.run


def outcome(settings: Settings, asked: Asked) -> Outcome:
    """Return a result; where the large model did not run it is asked directly, to compare (JSON: ``comparison``)."""
    routed, comparison = asked.routed, None
    if routed.large is None:
        comparison = asyncio.run(ask_large_directly(settings.workloads[routed.workload], routed.text))
    document: dict[str, Any] = {
        **json.loads(routed.to_json()),
        "seconds": round(asked.seconds, 4),
        "comparison": comparison and {"large": json.loads(comparison.model_dump_json())},
    }
    lines = [Text.assemble((f"{name:>18}", "bold"), f"  {value}") for name, value in _decision(asked)]
    note = [] if comparison is None else ["large: asked directly for comparison, no part of the result"]
    return Outcome(document, [*lines, _answers(routed, comparison), *note])


def _decision(asked: Asked) -> Iterator[tuple[str, str]]:
    routed, decision = asked.routed, asked.routed.decision
    yield "decision", f"{'escalated' if decision.escalated else 'kept'}: {_REASONS[decision.reason]}"
    yield "answered by", f"{routed.answered_by}, {asked.seconds * 1000:.0f} ms from query to committed result"
    yield "u", uncertainty_words(routed, 5)
    if decision.error_probability is not None:
        yield "error probability", f"{decision.error_probability:.1%}"
    if decision.threshold is not None:
        yield "theta", f"{decision.threshold:.1%}, of calibration version {decision.calibration_version}"
    yield "cost", f"{routed.cost.sequential:g} sequential, {routed.cost.paper:g} paper (small call = 1)"
    yield "label", f"requested ({routed.label.reason})" if routed.label.requested else "not requested"


def _answers(routed: RoutedEvent, comparison: ModelRun | None) -> Table:
    small, large = routed.small, routed.large or comparison
    table = Table("field", "small", "large", title=None)
    for field in routed.entities:
        left, right = _cell(small, field), _cell(large, field)
        style = None if normalise(left) == normalise(right) else "yellow"
        table.add_row(field, left, right, style=style)
    table.add_section()
    table.add_row("latency", _latency(small), _latency(large))
    return table


def _cell(run: ModelRun | None, field: str) -> str:
    if run is None:
        return "not asked"
    if not run.valid:
        return f"failed: {run.error}"
    if (value := (run.entities or {}).get(field)) is None:
        return "–"
    return value if isinstance(value, str) else ", ".join(value)


def _latency(run: ModelRun | None) -> str:
    return "–" if run is None else f"{run.latency_s * 1000:.0f} ms"
