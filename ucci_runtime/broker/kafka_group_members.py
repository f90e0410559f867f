"""Who else is in a group, asked of its coordinator."""

from __future__ import annotations

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ucci_runtime.broker.kafka_errors import kafka_error
from ucci_runtime.broker.kafka_properties import Properties

_log = structlog.get_logger()
_ASK_TIMEOUT_S = 1.0


def has_other_members(properties: Properties, group_id: str, instance_id: str) -> bool:
    """Return whether a group has members beside this instance; True where the broker does not say. Blocks up to 1 s.

    ``properties``: see :func:`~ucci_runtime.broker.kafka_properties.admin_properties`.
    """
    try:
        admin = AdminClient(properties)
        asked = admin.describe_consumer_groups([group_id], request_timeout=_ASK_TIMEOUT_S)
        members = asked[group_id].result(_ASK_TIMEOUT_S).members
    except KafkaException as error:
        _log.info("the group's members are not known", group=group_id, error=str(kafka_error(error)))
    except TimeoutError:
        _log.info("the group's members are not known", group=group_id, error="no answer")
    else:
        return any(member.group_instance_id != instance_id for member in members)
    return True
