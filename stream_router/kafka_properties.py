"""The router's clients by name: which group, which transactional id, which limits."""

from __future__ import annotations

from schemas.settings import Settings
from ucci_runtime.broker import kafka_properties as properties
from ucci_runtime.broker.kafka_properties import Properties

_HEARTBEAT_TIMEOUT_S = 10.0
_HEARTBEATS_QUEUED = 10


def group_name(settings: Settings) -> str:
    """Return the consumer group of all routers with this prefix."""
    return f"{settings.topics.prefix}-router"


def intake_properties(settings: Settings) -> Properties:
    """Return the properties of the group's consumer."""
    instance_id = settings.router.instance_id
    return properties.group_properties(settings, group_name(settings), instance_id, instance_id)


def offsets_properties(settings: Settings) -> Properties:
    """Return the properties of a consumer that reads the group's offsets and joins nothing."""
    return properties.offsets_properties(settings, group_name(settings))


def calibration_properties(settings: Settings) -> Properties:
    """Return the properties of the consumer that reads the calibration topic by itself."""
    return properties.reader_properties(settings, f"{group_name(settings)}-{settings.router.instance_id}-calibration")


def transactional_properties(settings: Settings, max_record_bytes: int) -> Properties:
    """Return the properties of the transactional producer.

    Parameters
    ----------
    max_record_bytes : int
        Largest record, and batch, that every output topic takes.
    """
    return properties.transactional_properties(
        settings, transactional_id(settings), settings.router.instance_id, max_record_bytes
    )


def heartbeat_properties(settings: Settings) -> Properties:
    """Return the properties of the producer of status records; a short queue, since the next one tells more."""
    given = properties.producer_properties(settings, _HEARTBEAT_TIMEOUT_S)
    return given | {"queue.buffering.max.messages": _HEARTBEATS_QUEUED}


def transactional_id(settings: Settings) -> str:
    """Return the id that fences a former router of the same name."""
    return f"{group_name(settings)}-{settings.router.instance_id}"
