"""The ``[kafka]`` table → the properties of each kind of client, with what exactly-once rests on laid over it.

The user's properties win wherever they cannot cost or double a record: addresses, security, buffers, time-outs. Group
and transactional ids, isolation, auto-commit and the like are the services'.
"""

from __future__ import annotations

from typing import Any

from schemas.settings import Settings

Properties = dict[str, Any]
"""Values are text, numbers and, for ``error_cb``, a callable."""

TRANSACTION_TIMEOUT_S = 10.0
"""An open transaction of a dead process hides what comes after it from readers for this long, and up to 10 s more."""

# Without it a client that lost the broker forgets it, and a call in progress may block for good.
_EVERY_CLIENT: Properties = {"metadata.recovery.strategy": "none"}
_CONSUMER_DEFAULTS: Properties = {
    # A killed instance that comes back within this time finds its partitions where it left them.
    "session.timeout.ms": 20_000,
    "heartbeat.interval.ms": 2_000,
    "queued.max.messages.kbytes": 16_384,
    "fetch.wait.max.ms": 50,
}
_READ_EXACTLY: Properties = {
    "isolation.level": "read_committed",
    "group.protocol": "classic",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
}
_TELL_ENDS: Properties = {
    "enable.partition.eof": True,
    # The end of a partition is told one wait after its last record.
    "fetch.wait.max.ms": 50,
    "fetch.min.bytes": 1,
}
_PRODUCER_PREFIXES = ("transactional.", "transaction.", "queue.buffering.", "batch.", "compression.", "message.timeout")
_PRODUCER_ONLY = frozenset(
    {"enable.idempotence", "linger.ms", "acks", "request.required.acks", "delivery.timeout.ms", "retries"}
    | {"message.send.max.retries", "max.in.flight", "max.in.flight.requests.per.connection", "partitioner"}
    | {"sticky.partitioning.linger.ms", "request.timeout.ms", "enable.gapless.guarantee", "retry.backoff.ms"}
)
_CONSUMER_PREFIXES = (
    "fetch.",
    "group.",
    "queued.",
    "auto.",
    "enable.auto.",
    "max.partition.",
    "session.",
    "heartbeat.",
)
_CONSUMER_ONLY = frozenset(
    {"max.poll.interval.ms", "partition.assignment.strategy", "isolation.level", "enable.partition.eof", "check.crcs"}
    | {"client.rack", "allow.auto.create.topics"}
)
_MILLISECONDS = 1_000


def admin_properties(settings: Settings) -> Properties:
    """Return the properties of a client that only asks."""
    given = user_properties(settings)
    # What goes wrong is raised or reported to error_cb; the client's own lines would stand between ours.
    return (
        _EVERY_CLIENT
        | {"log_level": 2}
        | {k: v for k, v in given.items() if not _is_consumers(k) and not _is_producers(k)}
    )


def group_properties(
    settings: Settings, group_id: str, instance_id: str, client_id: str, *, tell_ends: bool = False
) -> Properties:
    """Return the properties of a group's consumer: static membership, so that a restart finds its partitions again.

    Parameters
    ----------
    tell_ends : bool
        Whether the consumer reports the ends of its partitions.
    """
    return (
        _consumer(settings)
        | {
            "group.id": group_id,
            "group.instance.id": instance_id,
            "client.id": client_id,
            # Partition n of every topic goes to the same instance.
            "partition.assignment.strategy": "range",
        }
        | _READ_EXACTLY
        | (_TELL_ENDS if tell_ends else {})
    )


def offsets_properties(settings: Settings, group_id: str) -> Properties:
    """Return the properties of a consumer that reads a group's offsets and joins nothing."""
    return _consumer(settings) | {"group.id": group_id} | _READ_EXACTLY


def reader_properties(settings: Settings, group_id: str) -> Properties:
    """Return the properties of a consumer that reads whole topics by itself; its group is a name without members."""
    return offsets_properties(settings, group_id) | _TELL_ENDS


def transactional_properties(
    settings: Settings, transactional_id: str, client_id: str, max_record_bytes: int
) -> Properties:
    """Return the properties of a transactional producer.

    Parameters
    ----------
    transactional_id : str
        Fences a former process of the same name.
    client_id : str
    max_record_bytes : int
        Largest record, and batch, that every output topic takes.
    """
    given = {k: v for k, v in user_properties(settings).items() if not _is_consumers(k)}
    return (
        _EVERY_CLIENT
        | given
        | {
            "transactional.id": transactional_id,
            "client.id": client_id,
            "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_S * _MILLISECONDS),
            "enable.idempotence": True,
            "acks": "all",
            "message.max.bytes": max_record_bytes,
            # A batch above the topic's limit is refused whole, the small records in it included.
            "batch.size": min(int(given.get("batch.size", 1_000_000)), max_record_bytes),
        }
    )


def producer_properties(settings: Settings, delivery_timeout_s: float, linger_ms: int = 5) -> Properties:
    """Return the properties of an idempotent producer outside transactions.

    Parameters
    ----------
    delivery_timeout_s : float
        After which a record that was not acknowledged is given up.
    linger_ms : int
        How long a record waits for company, unless ``[kafka]`` says otherwise.
    """
    given = {
        k: v
        for k, v in user_properties(settings).items()
        if not _is_consumers(k) and not k.startswith(("transact", "message.t"))
    }
    return (
        _EVERY_CLIENT
        | {"linger.ms": linger_ms}
        | given
        | {"enable.idempotence": True, "acks": "all", "message.timeout.ms": int(delivery_timeout_s * _MILLISECONDS)}
    )


def _is_producers(key: str) -> bool:
    return key in _PRODUCER_ONLY or key.startswith(_PRODUCER_PREFIXES)


def _is_consumers(key: str) -> bool:
    return key in _CONSUMER_ONLY or key.startswith(_CONSUMER_PREFIXES)


def _consumer(settings: Settings) -> Properties:
    given = {k: v for k, v in user_properties(settings).items() if not _is_producers(k)}
    return _EVERY_CLIENT | _CONSUMER_DEFAULTS | given


def user_properties(settings: Settings) -> dict[str, str | int | float | bool]:
    """Return the ``[kafka]`` table as the client library takes it, whatever client it is for."""
    return {k: v if isinstance(v, str | int | float | bool) else str(v) for k, v in settings.kafka.items()}
