"""The topics as one AsyncAPI 3.0 document: channels, keys, cleanup policies, messages, and who sends and receives.

It is made from the topic table and the names of the event schemas.
"""

from __future__ import annotations

from typing import Any

from schemas.topics import (
    DLQ_ERROR,
    DLQ_OFFSET,
    DLQ_PARTITION,
    DLQ_REASON,
    DLQ_STAGE,
    DLQ_TOPIC,
    DLQ_TRUNCATED,
    ROOMY_MAX_MESSAGE_BYTES,
    TOPICS,
    Topic,
)
from tools.docs.numpydoc import summary

ASYNCAPI_VERSION = "3.0.0"
SCHEMA_FORMAT = "application/schema+json;version=draft-2020-12"
DEAD_LETTER = "DeadLetter"

_KAFKA_BINDING = "0.5.0"
_DEAD_LETTER_HEADERS = {
    DLQ_TOPIC: "Topic of the record that could not be handled.",
    DLQ_PARTITION: "Its partition.",
    DLQ_OFFSET: "Its offset.",
    DLQ_STAGE: "Which stage gave it up.",
    DLQ_ERROR: "One line that names field, value and remedy.",
    DLQ_REASON: "A short word for counters.",
    DLQ_TRUNCATED: "Present when the value was cut to fit.",
}


def asyncapi(events: dict[str, type], *, prefix: str, version: str) -> dict[str, Any]:
    """Return the AsyncAPI document of all topics as plain JSON values.

    ``events``: by name; a message's payload refers to the file ``NAME.schema.json``. ``prefix``: of the topics' names.
    ``version``: of the contract.
    """
    return {
        "asyncapi": ASYNCAPI_VERSION,
        "info": {
            "title": "ucci-stream",
            "version": version,
            "description": "Streaming online recalibration for LLM cascades: queries in, exactly one committed "
            f"result each; labels in, calibration versions out. Topic names begin with a configured prefix, here "
            f"{prefix}.",
        },
        "defaultContentType": "application/json",
        "channels": {topic.suffix: _channel(topic, prefix) for topic in TOPICS},
        "operations": {name: operation for topic in TOPICS for name, operation in _operations(topic).items()},
        "components": {
            "messages": {
                **{name: _message(name, event) for name, event in sorted(events.items())},
                DEAD_LETTER: _dead_letter(),
            }
        },
    }


def _messages(topic: Topic) -> tuple[str, ...]:
    return topic.events or (DEAD_LETTER,)


def _channel(topic: Topic, prefix: str) -> dict[str, Any]:
    configuration: dict[str, Any] = {"cleanup.policy": list(topic.policies)}
    if topic.retention_ms is not None:
        configuration["retention.ms"] = topic.retention_ms
    if topic.tombstone_retention_ms is not None:
        configuration["delete.retention.ms"] = topic.tombstone_retention_ms
    if topic.roomy:
        configuration["max.message.bytes"] = ROOMY_MAX_MESSAGE_BYTES
    binding: dict[str, Any] = {"topicConfiguration": configuration, "bindingVersion": _KAFKA_BINDING}
    if topic.partitions is not None:
        binding["partitions"] = topic.partitions
    return {
        "address": topic.name(prefix),
        "description": f"Key: {topic.key}. Value: {topic.value}.",
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _messages(topic)},
        "bindings": {"kafka": binding},
    }


def _operations(topic: Topic) -> dict[str, Any]:
    """Return one operation for each party and direction, as seen from that party."""
    operations = {}
    for action, parties in (("send", topic.senders), ("receive", topic.receivers)):
        for party in parties:
            operations[f"{party.replace(' ', '-')}.{action}.{topic.suffix}"] = {
                "action": action,
                "channel": {"$ref": f"#/channels/{topic.suffix}"},
                "summary": f"{party}: {action} {topic.value}",
                "tags": [{"name": party}],
                "messages": [{"$ref": f"#/channels/{topic.suffix}/messages/{name}"} for name in _messages(topic)],
            }
    return operations


def _message(name: str, event: type) -> dict[str, Any]:
    keys = sorted({topic.key for topic in TOPICS if name in topic.events})
    return {
        "name": name,
        "summary": summary(event),
        "contentType": "application/json",
        "bindings": {
            "kafka": {"key": {"type": "string", "description": " or ".join(keys)}, "bindingVersion": _KAFKA_BINDING}
        },
        "payload": {"schemaFormat": SCHEMA_FORMAT, "schema": {"$ref": f"./{name}.schema.json"}},
    }


def _dead_letter() -> dict[str, Any]:
    return {
        "name": DEAD_LETTER,
        "summary": "A record that could not be handled: its own bytes, key and headers, and why.",
        "contentType": "application/octet-stream",
        "headers": {
            "type": "object",
            "properties": {
                name: {"type": "string", "description": text} for name, text in _DEAD_LETTER_HEADERS.items()
            },
            "required": sorted(set(_DEAD_LETTER_HEADERS) - {DLQ_TRUNCATED}),
        },
    }
