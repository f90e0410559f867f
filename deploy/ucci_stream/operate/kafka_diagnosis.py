"""``ucci-stream doctor``: looks at all that a running service rests on, and says what to do; commits nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from rich.text import Text

from recalibrator.stage import StageName
from schemas.calibration import CalibrationVersion
from schemas.errors import UcciError
from schemas.event import from_ms
from schemas.routed import RoutedEvent
from schemas.settings import Settings, WorkloadSettings
from schemas.settings_text import settings_warnings
from schemas.status import RecalibratorStatus, RouterStatus, WorkloadStatus
from schemas.topics import (
    CALIBRATION,
    FEEDBACK,
    JOIN_REPARTITION,
    OBSERVATIONS,
    QUERIES,
    RECALIBRATORS,
    RESULTS,
    ROUTERS,
    STATUS,
    TOPICS,
    Topic,
)
from stream_router.model_client.http_probe import Probed, probe_workload
from stream_router.ports import GROUP
from ucci_runtime.broker.errors import AccessDenied, BrokerUnreachable, TopicsUnusable
from ucci_runtime.broker.kafka_errors import Side, kafka_error, translate
from ucci_runtime.broker.kafka_lifeline import COORDINATOR_S, group_members
from ucci_runtime.broker.kafka_properties import ClientNames, admin_properties, reader_properties, require_kafka
from ucci_runtime.broker.kafka_topics import check_topics, partition_counts
from ucci_runtime.broker.records import Read, event_of
from ucci_stream.operate import findings as rules
from ucci_stream.operate.findings import HARMFUL, Change, ClockFacts, Finding, Running, changes
from ucci_stream.options import Outcome
from ucci_stream.topics.access import diagnosing_group
from ucci_stream.topics.admin import ANSWER_TIMEOUT_S, broker_failures
from ucci_stream.topics.kafka_reading import tail_reader, topic_reader

_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
_CLIENT = "doctor"
_PATIENCE_S = 30.0
_PAUSE_S = 0.2

_SEVERITIES = {"fault": "red", "warning": "yellow", "ok": "green"}
_GRANTS = "grant it to the user that runs this command, or run it as an administrator"

Instance = TypeVar("Instance", RouterStatus, RecalibratorStatus)


def topic_findings(settings: Settings) -> list[Finding]:
    """Return what is wrong with the broker and its topics; the first is the broker's own."""
    try:
        checked = check_topics(settings, TOPICS, TOPICS)
    except (BrokerUnreachable, AccessDenied) as error:
        remedy = _GRANTS if isinstance(error, AccessDenied) else "start it, or correct [kafka]"
        return [Finding("broker", "fault", str(error), remedy)]
    except TopicsUnusable as error:
        # Before the semicolon of a line stands what is wrong, behind it what to do.
        faults = [Finding("topics", "fault", *line.partition("; ")[::2]) for line in error.faults]
        return [Finding("broker", "ok", "answers"), *faults]
    warnings = [Finding("topics", "warning", *line.partition("; ")[::2]) for line in checked.warnings]
    found = [Finding("broker", "ok", f"answers as cluster {checked.cluster_id}"), *warnings]
    return found if warnings else [*found, Finding("topics", "ok", f"all {len(TOPICS)} are as they must be")]


def group_findings(settings: Settings) -> Iterator[Finding]:
    """Yield how each group of the services stands, and which transactions hold back its readers."""
    admin = AdminClient(admin_properties(settings))
    prefix, counts = settings.topics.prefix, partition_counts(settings)
    router, recalibrator = (ClientNames(service, prefix, "") for service in ("router", "recalibrator"))
    for service, group_id, topics in (
        ("stream-router", router.group_id(GROUP), (QUERIES,)),
        ("recalibrator", recalibrator.group_id(StageName.JOIN), (RESULTS, FEEDBACK, JOIN_REPARTITION)),
        ("recalibrator", recalibrator.group_id(StageName.FIT), (OBSERVATIONS,)),
    ):
        names = [topic.name(prefix) for topic in topics]
        places = [TopicPartition(name, number) for name in names for number in range(counts.get(name, 0))]
        yield from _asked(group_id, partial(_of_group, settings, admin, service, group_id, places))


def _asked(group_id: str, ask: Callable[[], list[Finding]]) -> list[Finding]:
    """Ask again while the group's coordinator is on its way; then say why it did not answer."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return ask()
        except (KafkaException, TimeoutError) as error:
            reason = translate(kafka_error(error), Side.CONSUMER) if isinstance(error, KafkaException) else "no answer"
            if isinstance(reason, AccessDenied):
                return [Finding("groups", "fault", f"{group_id}: {reason}", _GRANTS)]
            if time.monotonic() > deadline_s:
                return [Finding("groups", "fault", f"{group_id}: {reason}", "run this again; see the broker's log")]
            time.sleep(_PAUSE_S)


def _of_group(
    settings: Settings, admin: AdminClient, service: str, group_id: str, places: list[TopicPartition]
) -> list[Finding]:
    members = len(group_members(admin, group_id, ANSWER_TIMEOUT_S))
    asked = [ConsumerGroupTopicPartitions(group_id, places)]
    found = admin.list_consumer_group_offsets(asked, request_timeout=COORDINATOR_S)[group_id]
    committed = {(tp.topic, tp.partition): tp.offset for tp in found.result(ANSWER_TIMEOUT_S).topic_partitions}
    starts = _offsets(admin, places, _EARLIEST, IsolationLevel.READ_COMMITTED)
    stable = _offsets(admin, places, _LATEST, IsolationLevel.READ_COMMITTED)
    behind = sum(max(end - max(committed.get(place, -1), starts[place]), 0) for place, end in stable.items())
    ends = _offsets(admin, places, _LATEST, IsolationLevel.READ_UNCOMMITTED)
    hidden = {place: ends[place] - offset for place, offset in stable.items() if ends[place] > offset}
    # By the record that stands where committed ones end.
    began = {place: _dated(settings, TopicPartition(*place, stable[place])) for place in hidden}
    return [
        rules.of_group(group_id, members, behind, service),
        *(
            rules.of_transaction(*place, hidden[place], max(time.time() - began_ms / 1_000.0, 0.0))
            for place, began_ms in began.items()
            if began_ms is not None
        ),
    ]


def _offsets(
    admin: AdminClient, places: Iterable[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
) -> dict[tuple[str, int], int]:
    futures = admin.list_offsets(dict.fromkeys(places, spec), isolation_level=isolation)
    return {(place.topic, place.partition): future.result(ANSWER_TIMEOUT_S).offset for place, future in futures.items()}


def _dated(settings: Settings, place: TopicPartition) -> int | None:
    """Return when the record at a place was written, in milliseconds since 1970; None where it is gone."""
    made = reader_properties(settings, diagnosing_group(settings.topics.prefix))
    made |= {"isolation.level": "read_uncommitted", "enable.partition.eof": False}
    with closing(Consumer(made)) as consumer:
        consumer.assign([place])
        message = consumer.poll(ANSWER_TIMEOUT_S)
    return None if message is None or message.error() is not None else message.timestamp()[1]


def read_running(settings: Settings) -> Running:
    """Read which versions are published and what services say that they run with; blocks up to some 30 s a topic.

    Raises BrokerError, or TopicsUnusable where there are no topics of this prefix.
    """
    read = (CALIBRATION, ROUTERS)
    checked = check_topics(settings, read, read, (RECALIBRATORS,))
    found = [] if RECALIBRATORS in checked.missing else _instances(settings, RECALIBRATORS, RecalibratorStatus)
    return Running(_versions(settings), _instances(settings, ROUTERS, RouterStatus), found)


def _versions(settings: Settings) -> dict[str, CalibrationVersion]:
    found = sorted(_events(settings, CALIBRATION, CalibrationVersion), key=lambda version: version.version)
    return {version.workload: version for version in found}


def _instances(settings: Settings, topic: Topic, kind: type[Instance]) -> list[Instance]:
    """Return the last report of each instance."""
    return list({report.instance_id: report for report in _events(settings, topic, kind)}.values())


def _events(settings: Settings, topic: Topic, kind: type[Read]) -> Iterator[Read]:
    prefix = settings.topics.prefix
    with closing(topic_reader(settings, _CLIENT, [topic.name(prefix)], diagnosing_group(prefix))) as reader:
        for record in reader.up_to_end():
            if (event := event_of(record, kind)) is not None:
                yield event


def _clocks(settings: Settings) -> ClockFacts | None:
    """Return when the newest result was dated; None where there is none yet."""
    prefix = settings.topics.prefix
    name = RESULTS.name(prefix)
    most = 2 * partition_counts(settings)[name]
    newest: ClockFacts | None = None
    with closing(tail_reader(settings, _CLIENT, name, diagnosing_group(prefix), most)) as reader:
        deadline_s = time.monotonic() + _PATIENCE_S
        while not reader.has_reached_ends and time.monotonic() < deadline_s:
            for record in reader.poll(0.1):
                routed, appended = event_of(record, RoutedEvent), from_ms(record.timestamp_ms)
                if routed is not None and (newest is None or appended > newest.appended_at):
                    newest = ClockFacts(routed.routed_by, routed.routed_at, appended, datetime.now(UTC))
    return newest


_STYLES = {"moved": "yellow", "unknown": "yellow", "refit": "yellow", "restart": "yellow", "none": "green"}


def compare(settings: Settings) -> Outcome:
    """Return what the file changes for the services that run; blocks up to a minute.

    Raises UcciError when the broker does not answer, or has no topics of this prefix.
    """
    with broker_failures(settings):
        running = read_running(settings)
    found = changes(settings, running, datetime.now(UTC))
    # Queries that would become dead letters, and workloads that would start cold.
    code = int(any(change.effect in HARMFUL for change in found))
    return Outcome({"safe": not code, "changes": [change._asdict() for change in found]}, _lines(found), code)


def _lines(found: Iterable[Change]) -> Iterator[Text]:
    for change in found:
        style = "red" if change.effect in HARMFUL else _STYLES.get(change.effect, "")
        mark = (f"{change.effect.replace('_', ' '):<13}", style)
        yield Text.assemble(mark, f" {change.subject}: {change.message}")
        if change.act:
            yield Text(f"{'':<14}→ {change.act}", style="dim")


_UNANSWERED = "start the server, or correct base_url, model or api_key"
_UNUSABLE = "correct what the line names, in the configuration or at the server"


async def _probe_all(settings: Settings) -> list[Finding]:
    workloads = list(settings.workloads.values())
    probed = await asyncio.gather(*map(probe_workload, workloads))
    pairs = zip(workloads, probed, strict=True)
    return [found for workload, servers in pairs for one in servers for found in _of_server(workload, one)]


def _of_server(workload: WorkloadSettings, probed: Probed) -> Iterator[Finding]:
    """Yield what a probe found; a server without answer is a fault here, though services wait for it."""
    for found in probed.findings:
        is_fault = found.kind == "fault" or probed.reply is None
        remedy = _UNANSWERED if probed.reply is None else _UNUSABLE
        yield Finding("models", "fault" if is_fault else "warning", found.line, remedy)
    if not probed.findings:
        yield Finding("models", "ok", f"workloads.{workload.name}.{probed.role}: answers {_measured(probed)}")


def _measured(probed: Probed) -> str:
    """Return what a reply that can be used was like."""
    speed = f"in {probed.latency_s:.2f} s"
    if (reply := probed.reply) is None:
        return speed
    seen = f"with log-probabilities of {reply.measured_tokens} of {reply.completion_tokens} tokens"
    return f"{seen} {speed}, finish_reason {reply.finish_reason}"


def diagnose(settings: Settings) -> list[Finding]:
    """Look at everything, in the order in which one thing rests on the other; blocks up to a minute.

    Raises ConfigError when librdkafka refuses the ``[kafka]`` table.
    """
    require_kafka(settings)
    found = [Finding("settings", "warning", line) for line in settings_warnings(settings)]
    topics = topic_findings(settings)
    found += topics
    # Without the broker, or with topics missing, every further question to it would end in the same fault.
    if all(finding.severity != "fault" for finding in topics):
        found += [*_guarded("groups", group_findings(settings)), *_guarded("versions", report_findings(settings))]
    return [*found, *asyncio.run(_probe_all(settings)), _of_disk(settings)]


def _guarded(area: str, found: Iterable[Finding]) -> Iterator[Finding]:
    """Yield what is found, and as a fault why the rest is not."""
    try:
        yield from found
    except UcciError as error:
        yield Finding(area, "fault", str(error), "run this again; if it stays, see the broker's log")


def report_findings(settings: Settings) -> Iterator[Finding]:
    """Yield what reports and the newest result tell; blocks up to some 30 s a topic. Raises BrokerError."""
    statuses = {status.workload: status for status in _events(settings, STATUS, WorkloadStatus)}
    versions, routers = _versions(settings), _instances(settings, ROUTERS, RouterStatus)
    clocks, now = _clocks(settings), datetime.now(UTC)
    yield from () if clocks is None else rules.of_clocks(clocks)
    yield from rules.of_routers(routers, now)
    yield from rules.of_joins(_instances(settings, RECALIBRATORS, RecalibratorStatus), now)
    for name, workload in settings.workloads.items():
        yield rules.of_version(workload, versions.get(name), now)
        yield from rules.of_status(statuses.get(name), workload, now)


def _of_disk(settings: Settings) -> Finding:
    """Judge the disk of the recalibrator's state, as seen from this machine."""
    path = Path(settings.recalibrator.state_dir).absolute()
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    return rules.of_disk(str(path), shutil.disk_usage(there).free, os.access(there, os.W_OK))


def finding_lines(found: Iterable[Finding]) -> Iterator[Text]:
    """Yield a line for each finding and one for its remedy."""
    for finding in found:
        mark = (f"{finding.severity:<8}", _SEVERITIES[finding.severity])
        yield Text.assemble(mark, f" {finding.area:<12} {finding.message}")
        if finding.remedy:
            yield Text(f"{'':<22}→ {finding.remedy}", style="dim")
