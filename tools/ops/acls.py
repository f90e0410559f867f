"""The rights that each user needs in Kafka, derived from the table of topics.

A router and a recalibrator get what they read and write, and nothing else. The operator's user makes topics, sends
queries and labels, and reads all that ``ucci-stream`` shows.
"""

from __future__ import annotations

from typing import NamedTuple

from schemas.topics import TOPICS, Topic

PREFIX = "PREFIX"
"""Stands for the topics' prefix in what is generated."""

USERS = {
    "router": frozenset({"router"}),
    "recalibrator": frozenset({"join", "fit", "api"}),
    "operator": frozenset({"ucci-stream", "pipeline owners", "labelers", "operators"}),
}
"""Which senders and receivers of the topics' table are one user of Kafka."""


class Rule(NamedTuple):
    """One thing that a user may do.

    Parameters
    ----------
    kind : str
        ``topic``, ``group`` or ``transactionalId``.
    name : str
    pattern : str
        ``literal`` or ``prefix``.
    operations : tuple of str
        As Strimzi writes them.
    """

    kind: str
    name: str
    pattern: str
    operations: tuple[str, ...]


_GROUPS = {"router": "router", "recalibrator": "", "operator": ""}
_TRANSACTIONS = {"router": ("router-",), "recalibrator": ("join-", "fit-"), "operator": ("bootstrap-",)}


def rules(user: str) -> tuple[Rule, ...]:
    """Return what one of :data:`USERS` needs."""
    parts = USERS[user]
    of_topics = (Rule("topic", topic.name(PREFIX), "literal", _operations(topic, parts)) for topic in TOPICS)
    # The services ask for the topics' sizes and policies at their start.
    on_all = ("DescribeConfigs", "Create", "Describe") if user == "operator" else ("DescribeConfigs",)
    return (
        *(rule for rule in of_topics if rule.operations),
        Rule("topic", f"{PREFIX}.", "prefix", on_all),
        Rule("group", f"{PREFIX}-{_GROUPS[user]}", "prefix", ("Read",)),
        *(Rule("transactionalId", f"{PREFIX}-{name}", "prefix", ("Write", "Describe")) for name in _TRANSACTIONS[user]),
    )


def _operations(topic: Topic, parts: frozenset[str]) -> tuple[str, ...]:
    reads = ("Read", "Describe") if parts & set(topic.receivers) else ()
    writes = ("Write", "Describe") if parts & set(topic.senders) else ()
    return tuple(dict.fromkeys((*reads, *writes)))
