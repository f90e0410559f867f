"""Targets of the broker's records: every event, every decoder of a topic, keys, headers and offset metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any

from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import schemas
from recalibrator.core import Recalibrator
from recalibrator.decoding import decode_feedback, decode_observation, decode_result
from recalibrator.join.joining import Joining, JoinTopics
from recalibrator.join.query_state import NOTHING_KNOWN
from schemas.command import Command
from schemas.errors import DecodeError
from schemas.event import Event
from schemas.made_for import MadeFor
from schemas.settings import WorkloadSettings
from schemas.signature import signed
from stream_router.calibration.active_versions import ActiveVersions, Rejected
from stream_router.commit.done_offsets import OffsetRange, decode, encode
from stream_router.intake_thread import decode_query
from stream_router.otel_tracing import as_headers, trace_context
from tests.fuzz.targets import PART, Target, Violation, parts_of, refused, require_line
from tests.support.recalibrator_events import feedback, routed, workload
from tests.support.strategies import EVENTS, labelled_examples
from tests.support.versions import sealed_version
from ucci_runtime.broker.dead_letters import cut_to, dead_letter, reason_of
from ucci_runtime.broker.records import Header, Input, Record

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1_000)
WORKLOAD = "photo"
SEEDS_OF_EACH = 8
_KEYS = (b"one signing key of thirty-two characters", b"a former signing key, as long as the other")
_RECORD_BYTES = 1_048_576
_ERROR_HEADER_BYTES = 4_000
_TOPICS = JoinTopics("ucci.results", "ucci.feedback", "ucci.observations", "ucci.dead-letters", "ucci.label-requests")
SETTINGS = workload(cost={"small": 1.0, "large": 3.0})
WORKLOADS: Mapping[str, WorkloadSettings] = MappingProxyType({WORKLOAD: SETTINGS})


def record_targets() -> Iterator[Target]:
    seeds = {name: drawn(strategy) for name, strategy in EVENTS.items()}
    for name, events in seeds.items():
        yield Target(f"event {name}", events, partial(_event, getattr(schemas, name)))
    results, labels = tuple(routed(n).to_json() for n in range(4)), tuple(feedback(n).to_json() for n in range(4))
    examples = drawn(labelled_examples(workload=WORKLOAD))
    observations = tuple(event for name in ("LabelledExample", "TrafficSummary", "Command") for event in seeds[name])
    yield Target("queries topic", seeds["QueryEvent"], _query, 2.0)
    yield Target("results topic", results, partial(_joined, _TOPICS.results))
    yield Target("feedback topic", labels, partial(_joined, _TOPICS.feedback))
    yield Target("observations topic", observations + examples, _observation)
    yield Target("observations to a version", examples, _folded, 0.2)
    versions = tuple(sealed_version(version=n, uncertainty_threshold=n / 10) for n in range(1, 4))
    sealed = tuple(WORKLOAD.encode() + PART + version.to_json() for version in versions)
    signatures = tuple(WORKLOAD.encode() + PART + signed(version, _KEYS[0]).to_json() for version in versions)
    yield Target("calibration topic", (*sealed, *seeds["CalibrationVersion"]), partial(_calibration, ()))
    yield Target("calibration topic, signed", signatures, partial(_calibration, _KEYS))
    trials = tuple(WORKLOAD.encode() + PART + event for event in seeds["CalibrationTrial"])
    yield Target("trial topic", trials, _trial)
    yield Target("keys and headers", tuple(_HEADER_SEEDS), _headers)
    yield Target("offset metadata", tuple(_METADATA_SEEDS), _metadata)


def drawn(strategy: st.SearchStrategy[Any], count: int = SEEDS_OF_EACH) -> tuple[bytes, ...]:
    """Return the JSON of so many events of a strategy, the same every time."""
    found: list[bytes] = []

    @hypothesis_settings(
        max_examples=count,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def keep(event: Event) -> None:
        found.append(event.to_json())

    keep()
    return tuple(found)


def _event(kind: type[Event], data: bytes) -> str:
    try:
        event = kind.from_json(data)
    except DecodeError as error:
        return refused(error)
    _require_same(event, data)
    return "taken"


def _require_same(event: Event, data: bytes) -> None:
    """Require what is written of an event to be read as the same event, and as the same bytes again."""
    written = event.to_json()
    again = type(event).from_json(written)
    if again.to_json() != written:
        raise Violation(f"what is written of {type(event).__name__} is read as another one")


def _query(data: bytes) -> str:
    try:
        query, workload = decode_query(data, WORKLOADS.keys() | {"other"}, WORKLOAD)
    except DecodeError as error:
        return refused(error)
    _require_same(query, data)
    return f"taken {workload}"


_JOINING = Joining(WORKLOADS, _TOPICS, _RECORD_BYTES)
_KNOWN = {
    n: _JOINING.join(
        NOTHING_KNOWN, routed(n), Record(Input(_TOPICS.results, 0), n, None, None, NOW_MS), NOW_MS, is_live=True
    ).state
    for n in range(4)
}


def _joined(topic: str, data: bytes) -> str:
    """Decode a record as the join does, and join it with nothing, and with a result of that number."""
    record = Record(Input(topic, 0), len(data), b"q-1", data, NOW_MS)
    event = _JOINING.decode(record)
    if isinstance(event, DecodeError):
        letter, _ = _JOINING.dead_letter(record, event.reason, str(event))
        if reason_of(letter) != event.reason:
            raise Violation("the dead letter gives another reason")
        return refused(event)
    outcome = ["taken"]
    for before in (NOTHING_KNOWN, _KNOWN[len(data) % len(_KNOWN)]):
        found = _JOINING.join(before, event, record, NOW_MS, is_live=True)
        outcome += [count.labels.get("note", count.name) for count in found.counts]
        for output in found.outputs:
            if output.topic == _TOPICS.observations:
                decode_observation(output.value, WORKLOADS)
    return " ".join(outcome)


def _observation(data: bytes) -> str:
    for reader in (decode_result, decode_observation):
        try:
            reader(data, WORKLOADS)
        except DecodeError as error:
            outcome = refused(error)
        else:
            outcome = "taken"
    try:
        decode_feedback(data)
    except DecodeError as error:
        refused(error)
    return outcome


def _folded(data: bytes) -> str:
    """Fold an observation and refit: what is valid must not stop the fit, nor its status or its snapshot."""
    try:
        event = decode_observation(data, WORKLOADS)
    except DecodeError as error:
        return refused(error)
    core = Recalibrator(SETTINGS)
    core.observe(event)
    core.observe(Command(workload=WORKLOAD, action="refit", issued_by="fuzz", issued_at=NOW))
    core.status().to_json()
    Recalibrator.restore(SETTINGS, core.snapshot())
    return f"folded {type(event).__name__}"


def _calibration(keys: tuple[bytes, ...], data: bytes) -> str:
    """Offer a record to a router that has a version in force."""
    key, value = parts_of(data, 2)
    active = ActiveVersions({WORKLOAD: MadeFor(sealed_version().signal)}, keys)
    good = sealed_version(version=2)
    active.offer(WORKLOAD.encode(), (signed(good, keys[0]) if keys else good).to_json(), NOW)
    outcome = active.offer(key, value, NOW)
    present = active.in_force(WORKLOAD)
    if present is None or present.version < good.version:
        raise Violation("a record took the version in force away")
    if not isinstance(outcome, Rejected):
        return "in force"
    require_line(outcome.error)
    return outcome.reason.value


def _trial(data: bytes) -> str:
    key, value = parts_of(data, 2)
    outcome = []
    for keys in ((), _KEYS):
        change = ActiveVersions({WORKLOAD: MadeFor(sealed_version().signal)}, keys).trials.offer(key, value)
        if change is None:
            outcome.append("other workload")
        elif change.problem is None:
            outcome.append("taken")
        else:
            require_line(change.problem)
            outcome.append(change.problem.partition(":")[0][:20])
    return " ".join(outcome)


_PARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
_HEADER_SEEDS = (
    PART.join((b"key", b"value", b"traceparent", _PARENT, b"tracestate", b"a=1")),
    PART.join((b"", b"", b"dlq.reason", b"not_json", b"x", b"")),
    PART.join((b"k" * 40, b"{}", b"tracestate", b"a=1", b"traceparent", _PARENT, b"tracestate", b"b=2")),
)


def _headers(data: bytes) -> str:
    """Read a record's headers, make its dead letter, and cut it to what a topic takes."""
    key, value, *rest = (*data.split(PART)[:200], b"", b"")
    names = [name.decode("utf-8", "ignore") for name in rest[::2]]
    headers: tuple[Header, ...] = tuple(zip(names, rest[1::2], strict=False))
    context = trace_context(headers)
    if context is not None and trace_context(as_headers(context)) != context:
        raise Violation("a trace context changes on the way")
    record = Record(Input("ucci.queries", 3), 7, key, value, NOW_MS, headers)
    letter = dead_letter(
        "ucci.dead-letters", record, stage="route", reason="not_json", error=value.decode("utf-8", "replace")
    )
    if reason_of(letter) != "not_json":
        raise Violation("an older header hides the reason of a dead letter")
    size = letter.size_bytes
    for limit in (size, max(size // 2, _ERROR_HEADER_BYTES + 600), _ERROR_HEADER_BYTES + 600):
        if (cut := cut_to(letter, limit).size_bytes) > limit:
            raise Violation(f"a dead letter of {size} bytes is cut to {cut}, not to {limit}")
    return f"{len(headers)} headers {None if context is None else len(context)}"


_METADATA_SEEDS = (
    PART.join((b"100", encode(100, [OffsetRange(101, 5_000), OffsetRange(5_002, 5_002)]).encode())),
    PART.join((b"0", encode(0, [OffsetRange(2 * n + 1, 2 * n + 1) for n in range(1_000)]).encode())),
    PART.join((b"9223372036854775807", b"")),
)


def _metadata(data: bytes) -> str:
    """Read what a broker returned beside an offset; ranges that it yields must be written as the same text."""
    offset, text = parts_of(data, 2)
    committed = int.from_bytes(offset[-8:], "big") >> 1 if not offset.isdigit() else min(int(offset[:18]), 2**63 - 1)
    written = text.decode("utf-8", "replace")
    ranges = decode(committed, written)
    if ranges is None:
        return "foreign"
    if ranges and decode(committed, encode(committed, ranges)) != ranges:
        raise Violation("ranges change on the way")
    return f"{len(ranges).bit_length()} bits of ranges"
