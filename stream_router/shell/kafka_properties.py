"""The ``[kafka]`` table → the properties of each client, with what exactly-once rests on laid over it.

The user's properties win wherever they cannot cost a query: addresses, security, buffers, time-outs. Group and
transactional ids, isolation, auto-commit and the like are the router's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.settings import Settings

Properties = dict[str, Any]
"""Values are text, numbers and, for ``error_cb``, a callable."""

TRANSACTION_TIMEOUT_S = 10.0
"""An open transaction of a dead router blocks its partitions' readers for this long, and up to 10 s more."""

# Without it a client that lost the broker forgets it, and a call in progress may block for good.
_EVERY_CLIENT: Properties = {"metadata.recovery.strategy": "none"}
_CONSUMER_DEFAULTS: Properties = {
    # A killed router that comes back within this time finds its partitions where it left them.
    "session.timeout.ms": 20_000,
    "heartbeat.interval.ms": 2_000,
    "queued.max.messages.kbytes": 16_384,
    "fetch.wait.max.ms": 50,
}
_CONSUMER_ONLY = frozenset(
    {"session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "queued.max.messages.kbytes"}
    | {"queued.min.messages", "fetch.wait.max.ms", "fetch.message.max.bytes", "max.partition.fetch.bytes"}
    | {"fetch.max.bytes", "fetch.min.bytes", "fetch.error.backoff.ms", "check.crcs", "client.rack"}
    | {"partition.assignment.strategy", "group.id", "group.instance.id", "isolation.level", "auto.offset.reset"}
    | {"enable.auto.commit", "auto.commit.interval.ms", "enable.auto.offset.store", "group.protocol"}
    | {"enable.partition.eof", "allow.auto.create.topics", "group.remote.assignor"}
)
_PRODUCER_ONLY = frozenset(
    {"transactional.id", "transaction.timeout.ms", "enable.idempotence", "linger.ms", "queue.buffering.max.ms"}
    | {"batch.size", "batch.num.messages", "acks", "request.required.acks", "compression.type", "compression.codec"}
    | {"compression.level", "message.timeout.ms", "delivery.timeout.ms", "retries", "message.send.max.retries"}
    | {"queue.buffering.max.messages", "queue.buffering.max.kbytes", "max.in.flight", "sticky.partitioning.linger.ms"}
    | {"max.in.flight.requests.per.connection", "partitioner", "request.timeout.ms", "enable.gapless.guarantee"}
)
_MILLISECONDS = 1_000


def admin_properties(settings: Settings) -> Properties:
    """Return the properties of a client that only asks."""
    given = _given(settings)
    return _EVERY_CLIENT | {k: v for k, v in given.items() if k not in _CONSUMER_ONLY | _PRODUCER_ONLY}


def group_name(settings: Settings) -> str:
    """Return the consumer group of all routers with this prefix."""
    return f"{settings.topics.prefix}-router"


def intake_properties(settings: Settings) -> Properties:
    """Return the properties of the group's consumer."""
    return (
        _consumer(settings)
        | {
            "group.id": group_name(settings),
            "group.instance.id": settings.router.instance_id,
            "group.protocol": "classic",
            "partition.assignment.strategy": "range",
            "client.id": settings.router.instance_id,
        }
        | _READ_EXACTLY
    )


def offsets_properties(settings: Settings) -> Properties:
    """Return the properties of a consumer that reads the group's offsets and joins nothing."""
    return _consumer(settings) | {"group.id": group_name(settings), "group.protocol": "classic"} | _READ_EXACTLY


def calibration_properties(settings: Settings) -> Properties:
    """Return the properties of the consumer that reads the calibration topic by itself."""
    return (
        _consumer(settings)
        | {
            "group.id": f"{group_name(settings)}-{settings.router.instance_id}-calibration",
            "group.protocol": "classic",
            "enable.partition.eof": True,
            # The end of the partition is told one wait after the last record.
            "fetch.wait.max.ms": 50,
            "fetch.min.bytes": 1,
        }
        | _READ_EXACTLY
    )


def transactional_properties(settings: Settings, max_record_bytes: int) -> Properties:
    """Return the properties of the transactional producer.

    Parameters
    ----------
    max_record_bytes : int
        Largest record, and batch, that every output topic takes.
    """
    given = {k: v for k, v in _given(settings).items() if k not in _CONSUMER_ONLY}
    batch_size = min(int(given.get("batch.size", 1_000_000)), max_record_bytes)
    return (
        _EVERY_CLIENT
        | given
        | {
            "transactional.id": transactional_id(settings),
            "client.id": settings.router.instance_id,
            "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_S * _MILLISECONDS),
            "enable.idempotence": True,
            "acks": "all",
            "message.max.bytes": max_record_bytes,
            # A batch above the topic's limit is refused whole, the small records in it included.
            "batch.size": batch_size,
        }
    )


def heartbeat_properties(settings: Settings) -> Properties:
    """Return the properties of the producer of status records."""
    given = {k: v for k, v in _given(settings).items() if k not in _CONSUMER_ONLY and k != "transactional.id"}
    return _EVERY_CLIENT | given | {"enable.idempotence": True, "acks": "all"}


def transactional_id(settings: Settings) -> str:
    """Return the id that fences a former router of the same name."""
    return f"{group_name(settings)}-{settings.router.instance_id}"


_READ_EXACTLY: Properties = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
}


def _consumer(settings: Settings) -> Properties:
    given = {k: v for k, v in _given(settings).items() if k not in _PRODUCER_ONLY}
    return _EVERY_CLIENT | _CONSUMER_DEFAULTS | given


def _given(settings: Settings) -> Mapping[str, str | int | float | bool]:
    return {k: v if isinstance(v, str | int | float | bool) else str(v) for k, v in settings.kafka.items()}
