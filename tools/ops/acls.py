"""The rights that each user needs in Kafka, as the deployment files give them.

They are those of ``ucci-stream acls`` (:mod:`ucci_stream.topics.access`), so that both say the same. A router and a
recalibrator get what they read and write, and nothing else. The user of the operator is a producer, a labeler and an
operator in one; beside that it makes topics, and sends and reads all that ``ucci-stream`` has commands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from schemas.topics import TOPICS
from ucci_stream.topics.access import Grant, grants

PREFIX = "PREFIX"
"""Stands for the topics' prefix in what is generated."""

USERS = {
    "router": ("router", "gateway"),
    "recalibrator": ("recalibrator",),
    "operator": ("producer", "labeler", "label-tool", "operator"),
}
"""Which of :data:`~ucci_stream.topics.access.COMPONENTS` are one user of Kafka."""

COMMANDS = frozenset({"ucci-stream", "pipeline owners", "labelers", "operators"})
"""Senders and receivers of the topics' table who use the operator's commands."""

_KINDS = {"topic": "topic", "group": "group", "transactional-id": "transactionalId"}


class Rule(NamedTuple):
    """What a user may do on one resource."""

    #: ``topic``, ``group`` or ``transactionalId``.
    kind: str
    name: str
    #: ``literal`` or ``prefix``.
    pattern: str
    #: As Strimzi writes them.
    operations: tuple[str, ...]


def granted(user: str) -> tuple[Grant, ...]:
    """Return what one of :data:`USERS` may do, each grant once: topics, then groups, then transactional ids."""
    found = [grant for component in USERS[user] for grant in grants(component, PREFIX)]
    if user == "operator":
        found += _of_commands()
    order = list(_KINDS)
    return tuple(sorted(dict.fromkeys(found), key=lambda grant: order.index(grant.resource)))


def rules(user: str) -> tuple[Rule, ...]:
    """Return the same by resource."""
    by_resource: dict[tuple[str, str, bool], list[str]] = {}
    for grant in granted(user):
        by_resource.setdefault((grant.resource, grant.name, grant.is_prefix), []).append(grant.operation)
    return tuple(
        Rule(_KINDS[resource], name, "prefix" if is_prefix else "literal", tuple(operations))
        for (resource, name, is_prefix), operations in by_resource.items()
    )


def _of_commands() -> Iterator[Grant]:
    """Yield what ``topics create``, ``bootstrap``, ``calibrate``, ``dead-letters`` and the like need beside."""
    for topic in TOPICS:
        if COMMANDS.intersection(topic.receivers):
            yield Grant("topic", topic.name(PREFIX), False, "Read")
        if COMMANDS.intersection(topic.senders):
            yield Grant("topic", topic.name(PREFIX), False, "Write")
    for operation in ("DescribeConfigs", "Create", "Describe"):
        yield Grant("topic", f"{PREFIX}.", True, operation)
    yield Grant("group", f"{PREFIX}-", True, "Read")
    yield Grant("transactional-id", f"{PREFIX}-bootstrap-", True, "Write")
