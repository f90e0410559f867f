"""Targets of the broker's records: every event, and every decoder of a topic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any

from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import ValidationError

import schemas
from recalibrator.api.http_requests import parse_object
from recalibrator.core import Recalibrator
from recalibrator.decoding import decode_observation
from recalibrator.join.joining import Joining, JoinTopics
from recalibrator.join.query_state import NOTHING_KNOWN
from recalibrator.labelling.field_names import FieldNames
from recalibrator.labelling.label_studio_config import config_faults
from recalibrator.labelling.label_studio_regions import entities_of
from recalibrator.labelling.label_tool import InvalidAnnotation
from schemas.command import Command
from schemas.errors import ConfigError, DecodeError
from schemas.event import Event
from schemas.feedback import FeedbackEvent
from schemas.made_for import MadeFor
from schemas.settings import WorkloadSettings
from schemas.signature import signed
from stream_router.calibration.active_versions import ActiveVersions, Rejected
from stream_router.intake_thread import decode_query
from tests.fuzz.targets import PART, Target, Violation, generic, parts_of, refused, require_line
from tests.support.recalibrator_events import FIELDS, feedback, routed, workload
from tests.support.strategies import EVENTS, labelled_examples
from tests.support.versions import sealed_version
from ucci_runtime.broker.dead_letters import reason_of
from ucci_runtime.broker.records import Input, Record
from ucci_runtime.refusals import RequestRefused
from ucci_stream.label_tools.label_studio_project import labeling_config

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1_000)
WORKLOAD = "photo"
SEEDS_OF_EACH = 8
_KEYS = (b"one signing key of thirty-two characters", b"a former signing key, as long as the other")
_RECORD_BYTES = 1_048_576
_TOPICS = JoinTopics(
    "ucci.results",
    "ucci.feedback",
    "ucci.join-repartition",
    "ucci.observations",
    "ucci.dead-letters",
    "ucci.label-requests",
)
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
    yield Target("Label Studio annotation", _ANNOTATIONS, _annotation)
    yield Target("Label Studio configuration", (_CONFIG,), _label_config, 0.5)
    trials = tuple(WORKLOAD.encode() + PART + event for event in seeds["CalibrationTrial"])
    yield Target("trial topic", trials, _trial)


_SPAN = {"type": "labels", "from_name": "label", "id": "r1", "value": {"text": "canon", "labels": ["camera"]}}
_ANSWERS: tuple[tuple[str, Any], ...] = (
    *(("choices", ["a"]), ("taxonomy", [["a"]]), ("number", 2.5), ("rating", 4), ("datetime", "2026-01-31")),
    *(("ranker", {"lens": ["a"]}), ("hypertextlabels", ["lens"]), ("rectanglelabels", ["lens"])),
)
_ANNOTATIONS = tuple(
    json.dumps([_SPAN, {"type": kind, "from_name": "lens", "id": "r1", "value": {kind: value}}]).encode()
    for kind, value in _ANSWERS
)
_CONFIG = labeling_config(FIELDS).encode()


def _annotation(data: bytes) -> str:
    """Read a result as the hook does; what is taken of it is feedback, and a refusal names its region."""
    try:
        result = parse_object(b'{"result":' + data + b"}")["result"]
        entities = entities_of(result, FieldNames(FIELDS))
        FeedbackEvent(query_id="q", entities=entities)
    except RequestRefused:
        return "no JSON"
    except ValidationError:
        # More or longer values than feedback may have: the caller refuses it.
        return "too large"
    except InvalidAnnotation as error:
        require_line(str(error), error.field)
        return generic(error.field)
    return "taken"


def _label_config(data: bytes) -> str:
    faults = config_faults(data.decode("utf-8", "replace"), FIELDS)
    for fault in ConfigError(faults).faults:
        require_line(fault)
    return "fits" if not faults else faults[0][:24]


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
        NOTHING_KNOWN,
        _JOINING.read(Record(Input(_TOPICS.results, 0), n, None, routed(n).to_json(), NOW_MS)),
        NOW_MS,
        is_live=True,
    ).state
    for n in range(4)
}


def _joined(topic: str, data: bytes) -> str:
    """Decode a record as the join does, and join it with nothing, and with a result of that number."""
    record = Record(Input(topic, 0), len(data), b"q-1", data, NOW_MS)
    arrived = _JOINING.read(record)
    if isinstance(arrived.event, DecodeError):
        letter, _ = _JOINING.dead_letter(record, arrived.event.reason, str(arrived.event))
        if reason_of(letter) != arrived.event.reason:
            raise Violation("the dead letter gives another reason")
        return refused(arrived.event)
    outcome = ["taken"]
    for before in (NOTHING_KNOWN, _KNOWN[len(data) % len(_KNOWN)]):
        found = _JOINING.join(before, arrived, NOW_MS, is_live=True)
        outcome += [count.labels.get("note", count.name) for count in found.counts]
        for output in found.outputs:
            if output.topic == _TOPICS.observations:
                decode_observation(output.value, WORKLOADS)
    return " ".join(outcome)


def _observation(data: bytes) -> str:
    try:
        decode_observation(data, WORKLOADS)
    except DecodeError as error:
        return refused(error)
    return "taken"


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
