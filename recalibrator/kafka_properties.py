"""The stages' clients by name: which group, which transactional id, which limits."""

from __future__ import annotations

from schemas.settings import Settings
from ucci_runtime.broker import kafka_properties as properties
from ucci_runtime.broker.kafka_properties import Properties

DELIVERY_TIMEOUT_S = 5.0
"""How long one HTTP request waits for the broker's acknowledgement."""

_LINGER_MS = 2


def group_properties(settings: Settings, stage: str, instance_id: str) -> Properties:
    """Return the properties of a stage's consumer; it reports the ends of its partitions."""
    group_id, client_id = f"{settings.topics.prefix}-{stage}", f"{stage}-{instance_id}"
    return properties.group_properties(settings, group_id, instance_id, client_id, tell_ends=True)


def reader_properties(settings: Settings, name: str) -> Properties:
    """Return the properties of a consumer that reads whole topics by itself, in no group."""
    return properties.reader_properties(settings, f"{settings.topics.prefix}-{name}")


def transactional_properties(settings: Settings, stage: str, instance_id: str, max_record_bytes: int) -> Properties:
    """Return the properties of a stage's transactional producer.

    Parameters
    ----------
    max_record_bytes : int
        Largest record, and batch, that every output topic takes.
    """
    client_id = f"{stage}-{instance_id}"
    return properties.transactional_properties(
        settings, f"{settings.topics.prefix}-{client_id}", client_id, max_record_bytes
    )


def producer_properties(settings: Settings) -> Properties:
    """Return the properties of the producer behind the HTTP API."""
    return properties.producer_properties(settings, DELIVERY_TIMEOUT_S, _LINGER_MS)
