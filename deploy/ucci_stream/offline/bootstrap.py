"""``ucci-stream bootstrap`` and ``replay``: an offline calibration becomes a first version, or is tried without Kafka.

``bootstrap`` reads a JSONL file of labelled examples or a ``router.json`` of the PyPI package ``ucci-router``, and
writes records to the observations topic, a command last. The fit stage, the only writer of versions, publishes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from confluent_kafka import Producer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from recalibrator.core import Recalibrator
from recalibrator.decoding import Observation
from schemas.basis import handoff_name, is_of_basis
from schemas.calibration import CalibrationMap, CalibrationVersion
from schemas.command import Command
from schemas.errors import DecodeError
from schemas.event import DEFAULT_SIGNAL, Many, decode_error, decoded
from schemas.labelled import LabelledExample
from schemas.settings import Settings, WorkloadSettings
from schemas.topics import OBSERVATIONS
from schemas.traffic import TrafficSummary
from ucci_stream.topics import admin
from ucci_stream.topics.admin import broker_failures, client_properties, require_broker, transaction
from ucci_stream.topics.feed import FeedStopped, Sends, decoded_lines, holds_nothing

ISSUED_BY = "ucci-stream bootstrap"
_SHOWN_CHARS = 60
_KINDS: dict[str, type[LabelledExample | TrafficSummary | Command]] = {
    "labelled": LabelledExample,
    "traffic": TrafficSummary,
    "command": Command,
}


class Bootstrapped(NamedTuple):
    """What was sent: the examples, and the command behind them."""

    topic: str
    examples: int
    command: Command


def _examples(ours: WorkloadSettings, path: Path) -> Iterator[LabelledExample]:
    workload, signal, mark = ours.name, ours.uncertainty, ours.basis_mark
    handoff = handoff_name(ours.offered_handoff)
    for number, example in decoded_lines(path, lambda line: LabelledExample.from_json(line.strip())):
        if example.workload != workload:
            raise FeedStopped(f"{path}:{number}: workload: is {example.workload!r}, not {workload!r}")
        if example.signal != signal:
            raise FeedStopped(f"{path}:{number}: signal: is {example.signal!r}, configured is {signal!r}")
        if example.handoff != handoff:
            found, here = (json.dumps(name) for name in (example.handoff, handoff))
            raise FeedStopped(
                f"{path}:{number}: handoff: is {found}, configured is {here}; bootstrap with labels made under it"
            )
        if mark is not None and not is_of_basis(example.basis, mark):
            raise FeedStopped(
                f"{path}:{number}: basis: is {example.basis}, configured is {mark}: the answers are to another prompt, "
                "of other models or in other fields; make the examples again with `ucci-stream calibrate`"
            )
        yield example


def bootstrap_events(ours: WorkloadSettings, path: Path, issued_at: datetime) -> Iterator[LabelledExample | Command]:
    """Read the file and yield what belongs into the log, the command last.

    Examples of another workload, uncertainty signal or handoff, or of answers to another prompt or of other models, are
    refused. Raises FeedStopped, naming what is wrong with the file, a bad line by its number.
    """
    document = _whole_document(path)
    if isinstance(document, dict) and document.get("format") == "ucci-router":
        if ours.uncertainty != DEFAULT_SIGNAL:
            raise FeedStopped(f"{path}: is a map of {DEFAULT_SIGNAL}, configured is uncertainty = {ours.uncertainty!r}")
        try:
            offline = read_router_file(path.read_text(encoding="utf-8-sig"))
        except DecodeError as error:
            raise FeedStopped(f"{path}: {error}") from None
        yield _command(ours.name, issued_at, f"router file {path.name}", **offline._asdict())
        return
    count = 0
    for example in _examples(ours, path):
        count += 1
        yield example
    if not count:
        raise FeedStopped(f"{path}: holds no labelled example")
    yield _command(ours.name, issued_at, f"{count} offline examples of {path.name}", examples=count)


def _command(workload: str, issued_at: datetime, reason: str, **more: Any) -> Command:
    made = {"workload": workload, "action": "bootstrap", "issued_by": ISSUED_BY, "issued_at": issued_at}
    return Command(**made, reason=reason, **more)


def preview(settings: WorkloadSettings, path: Path, issued_at: datetime) -> CalibrationVersion:
    """Return what the file would make the first version.

    Raises FeedStopped, naming what is wrong with the file, standard input included: it could be read only once.
    """
    if str(path) == "-":
        raise FeedStopped("-: a picture needs a file, since it is read twice")
    return _version_of(settings, bootstrap_events(settings, path, issued_at), str(path))


def first_version(
    settings: WorkloadSettings, examples: Sequence[LabelledExample], issued_at: datetime, source: str
) -> CalibrationVersion:
    """Return the version that the fit would make of these examples alone. Raises FeedStopped when they are too few."""
    reason = f"{len(examples)} offline examples of {source}"
    command = _command(settings.name, issued_at, reason, examples=len(examples))
    return _version_of(settings, [*examples, command], source)


def _version_of(
    settings: WorkloadSettings, events: Iterable[LabelledExample | Command], source: str
) -> CalibrationVersion:
    """Return the last version that the core makes of these events. Raises FeedStopped when it makes none."""
    core, version = Recalibrator(settings), None
    for event in events:
        version = core.observe(event) or version
    if version is None:
        least = core.constants.minimum_bootstrap_labels
        raise FeedStopped(f"{source}: makes no version: it needs {least} labels, some of them with both models run")
    return version


def bootstrap(settings: Settings, path: Path, workload: str, issued_at: datetime) -> Bootstrapped:
    """Send the file's calibration to the observations topic; blocks until all is acknowledged.

    All records travel in one transaction, so that a bad line leaves nothing behind. Raises FeedStopped, naming the bad
    line, or the broker's refusal.
    """
    return send_events(settings, workload, bootstrap_events(settings.workloads[workload], path, issued_at))


def send_events(settings: Settings, workload: str, events: Iterable[LabelledExample | Command]) -> Bootstrapped:
    """Send examples and the command behind them to the observations topic, all in one transaction; blocks.

    Raises FeedStopped when no command is among them; whatever ``events`` raises aborts the transaction. Raises
    BrokerUnreachable, AccessDenied or Fenced when the broker does not answer in time, or not to us.
    """
    topic = OBSERVATIONS.name(settings.topics.prefix)
    identity = f"{settings.topics.prefix}-bootstrap-{workload}"
    require_broker(settings, OBSERVATIONS)
    producer = Producer(client_properties(settings, transactional_id=identity, transaction_timeout_ms=60_000))
    sends = Sends(producer, topic)
    with broker_failures(settings):
        producer.init_transactions(admin.ANSWER_TIMEOUT_S)
        with transaction(producer):
            examples, command = _send_all(sends, workload, events)
    return Bootstrapped(topic, examples, command)


def _send_all(sends: Sends, workload: str, events: Iterable[LabelledExample | Command]) -> tuple[int, Command]:
    command, examples = None, 0
    for event in events:
        if isinstance(event, Command):
            command = event
        else:
            examples += 1
        sends.send(workload, event.to_json())
    if command is None:
        raise FeedStopped(f"{workload}: nothing to bootstrap from")
    sends.finish()
    return examples, command


def _whole_document(path: Path) -> object:
    """Return the file as one JSON document, or None where it is not one."""
    if str(path) == "-":
        return None
    try:
        # As UTF-8, as it is read again: by itself the parser would take UTF-16 as well.
        return json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise FeedStopped(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        return None


class _Knots(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)
    x: Annotated[Many[float], Field(min_length=1)]
    y: Annotated[Many[float], Field(min_length=1)]


class _RouterFile(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)
    format: Literal["ucci-router"]
    version: Literal[1]
    calibrator: _Knots
    theta: float
    c_small: Annotated[float, Field(gt=0)]
    c_large: Annotated[float, Field(gt=0)]
    tau: float | None = None


class OfflineCalibration(NamedTuple):
    """What a ``router.json`` says, in the terms of the service."""

    map: CalibrationMap
    uncertainty_threshold: float
    error_probability_threshold: float


def read_router_file(text: str) -> OfflineCalibration:
    """Parse the text of a ``router.json``, format version 1. Raises DecodeError, naming the faulty field.

    The file holds knots of g and a threshold theta on g; the service decides on u. ``g(u) > theta`` and
    ``u > uncertainty_threshold`` are the same rule where the latter is the largest u with ``g(u) <= theta``.
    """
    parsed: _RouterFile = decoded(_RouterFile.__pydantic_validator__, text.encode())
    try:
        knots = CalibrationMap(uncertainty=parsed.calibrator.x, error_probability=parsed.calibrator.y)
    except ValidationError as error:
        raise decode_error(error) from None
    if not 0.0 <= parsed.theta <= 1.0:
        raise DecodeError("invalid_field", f"theta: must lie in [0, 1] (got {parsed.theta})", "theta")
    return OfflineCalibration(knots, knots.inverse(parsed.theta), parsed.theta)


def _observation(line: bytes) -> Observation:
    """Decode one line by its ``kind``; one without is an example."""
    try:
        document = json.loads(line)
    except RecursionError:
        raise DecodeError("not_json", "not valid JSON: nested too deeply") from None
    except ValueError as error:
        raise DecodeError("not_json", f"not valid JSON: {error}") from None
    kind = document.get("kind", "labelled") if isinstance(document, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        fault = f"kind: must be one of {', '.join(_KINDS)} (got {repr(kind)[:_SHOWN_CHARS]})"
        raise DecodeError("invalid_field", fault, "kind")
    return _KINDS[kind].from_json(line)


def replay(settings: WorkloadSettings, path: Path) -> Iterator[tuple[int, CalibrationVersion]]:
    """Feed a JSONL file of labelled examples through the pure core.

    Traffic summaries and commands are taken too, by their ``kind``; observations of other workloads are passed over.
    Yields line number and the version that this line brought about. Raises FeedStopped, naming the bad line.
    """
    core, number = Recalibrator(settings), 0
    for number, observation in decoded_lines(path, _observation):
        if observation.workload == settings.name and (version := core.observe(observation)) is not None:
            yield number, version
    if not number:
        raise FeedStopped(holds_nothing(path))
