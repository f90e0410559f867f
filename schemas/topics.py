"""The topics: one table of name, key, value, partitions and cleanup policy that every service shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CleanupPolicy = Literal["delete", "compact", "compact,delete"]


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic."""

    #: The name after the prefix and a dot.
    suffix: str
    #: What the record's key holds, and the type of its value.
    key: str
    value: str
    #: ``delete``, ``compact`` or both: the last record of each key, for as long as the retention says.
    cleanup: CleanupPolicy
    #: None: as configured.
    partitions: int | None = None
    #: Whether the topic must take records larger than the largest input, since headers and answers are added.
    roomy: bool = False
    #: None: as the broker's default.
    retention_ms: int | None = None
    #: How long a compacted topic keeps records without value; None: as the broker's default, a day.
    tombstone_retention_ms: int | None = None
    #: Whether the broker dates its records (``LogAppendTime``): where a sender's wrong clock would do harm.
    by_broker: bool = False
    #: Whether the join rebuilds its rows from it: kept at least as long as they are (``join_retention_s``).
    joined: bool = False
    #: Who writes and who reads it, in words.
    senders: tuple[str, ...] = ()
    receivers: tuple[str, ...] = ()

    @property
    def policies(self) -> tuple[str, ...]:
        """The cleanup policies, one word each."""
        return tuple(self.cleanup.split(","))

    @property
    def events(self) -> tuple[str, ...]:
        """The types of its values; none where they are foreign bytes."""
        names = tuple(self.value.split(" | "))
        return names if all(name.isidentifier() for name in names) else ()

    def name(self, prefix: str) -> str:
        """Return the full name."""
        return f"{prefix}.{self.suffix}"


_THIRTY_DAYS_MS = 30 * 24 * 3600 * 1000
_ONE_HOUR_MS = 3600 * 1000

_ROUTER, _GATEWAY, _JOIN, _FIT, _API = "router", "gateway", "join", "fit", "api"
_OWNERS, _LABELERS, _PEOPLE, _TOOL = "pipeline owners", "labelers", "operators", "ucci-stream"


def _latest(suffix: str, key: str, value: str, senders: tuple[str, ...], receivers: tuple[str, ...]) -> Topic:
    """Return a topic of one partition that keeps the last record of each key."""
    return Topic(suffix, key, value, "compact", partitions=1, senders=senders, receivers=receivers)


QUERIES = Topic("queries", "query_id", "QueryEvent", "delete", senders=(_OWNERS, _TOOL), receivers=(_ROUTER,))
RESULTS = Topic(
    "results",
    "query_id",
    "RoutedEvent",
    "delete",
    roomy=True,
    by_broker=True,
    joined=True,
    senders=(_ROUTER,),
    receivers=(_OWNERS, _LABELERS, _JOIN, _API, _TOOL),
)
FEEDBACK = Topic(
    "feedback",
    "query_id",
    "FeedbackEvent",
    "delete",
    by_broker=True,
    joined=True,
    senders=(_LABELERS, _API, _GATEWAY, _TOOL),
    receivers=(_JOIN,),
)
JOIN_REPARTITION = Topic(
    "join-repartition",
    "query_id",
    "RoutedEvent | FeedbackEvent",
    "delete",
    roomy=True,
    by_broker=True,
    joined=True,
    senders=(_JOIN,),
    receivers=(_JOIN,),
)
OBSERVATIONS = Topic(
    "observations",
    "workload",
    "LabelledExample | TrafficSummary | Command",
    "delete",
    retention_ms=_THIRTY_DAYS_MS,
    senders=(_JOIN, _API, _TOOL),
    receivers=(_FIT,),
)
CALIBRATION = _latest("calibration", "workload", "CalibrationVersion", (_FIT,), (_ROUTER, _FIT, _TOOL))
CALIBRATION_HISTORY = _latest("calibration-history", "workload:version", "CalibrationVersion", (_FIT,), (_FIT, _API))
CALIBRATION_TRIAL = _latest("calibration-trial", "workload", "CalibrationTrial", (_FIT,), (_ROUTER, _FIT))
STATUS = _latest("status", "workload", "WorkloadStatus", (_FIT,), (_API, _TOOL))
ROUTERS = _latest("routers", "instance_id", "RouterStatus", (_ROUTER,), (_API,))
RECALIBRATORS = _latest("recalibrators", "instance_id", "RecalibratorStatus", (_JOIN, _FIT, _API), (_API,))
LABEL_REQUESTS = Topic(
    "label-requests",
    "query_id",
    "LabelRequested",
    "compact,delete",
    partitions=1,
    roomy=True,
    retention_ms=_THIRTY_DAYS_MS,
    # Nearly every request ends: kept for a day, the ends alone would be most of what a new replica reads.
    tombstone_retention_ms=_ONE_HOUR_MS,
    senders=(_JOIN,),
    receivers=(_API, _TOOL, _LABELERS),
)
HAPPENINGS = Topic(
    "happenings",
    "workload",
    "HappeningEvent",
    "delete",
    partitions=1,
    retention_ms=_THIRTY_DAYS_MS,
    senders=(_FIT,),
    receivers=(_API,),
)
DEAD_LETTERS = Topic(
    "dead-letters",
    "as the source",
    "the original bytes",
    "delete",
    roomy=True,
    senders=(_ROUTER, _JOIN, _FIT),
    receivers=(_API, _PEOPLE),
)

TOPICS = (
    QUERIES,
    RESULTS,
    FEEDBACK,
    JOIN_REPARTITION,
    OBSERVATIONS,
    CALIBRATION,
    CALIBRATION_HISTORY,
    CALIBRATION_TRIAL,
    STATUS,
    ROUTERS,
    RECALIBRATORS,
    LABEL_REQUESTS,
    HAPPENINGS,
    DEAD_LETTERS,
)

TIMESTAMP_TYPE = "message.timestamp.type"
#: The value of ``message.timestamp.type`` by which the broker dates records as it appends them.
BROKERS_TIME = "LogAppendTime"

#: ``max.message.bytes`` of roomy topics: the largest record a producer may send by default, twice over.
ROOMY_MAX_MESSAGE_BYTES = 2_097_152

DLQ_TOPIC = "dlq.topic"
DLQ_PARTITION = "dlq.partition"
DLQ_OFFSET = "dlq.offset"
DLQ_STAGE = "dlq.stage"
DLQ_ERROR = "dlq.error"
DLQ_REASON = "dlq.reason"
DLQ_TRUNCATED = "dlq.truncated"

#: Headers of a record that the join forwarded to the partition of its query: where it was read, its key, when it was
#: written and by whose clock, and whether an earlier release has counted it in its traffic.
ORIGIN_TOPIC = "join.origin.topic"
ORIGIN_PARTITION = "join.origin.partition"
ORIGIN_OFFSET = "join.origin.offset"
ORIGIN_KEY = "join.origin.key"
ORIGIN_TIMESTAMP_MS = "join.origin.timestamp_ms"
ORIGIN_DATED_BY = "join.origin.dated_by"
ORIGIN_COUNTED = "join.origin.counted"

#: Header of a record that was replayed from a dead letter: that letter's topic, partition and offset.
REPLAY_OF = "replay.of"
