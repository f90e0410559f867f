"""Topics that cannot work are told before anything is consumed, all faults at once."""

from __future__ import annotations

import pytest

from schemas.topics import FEEDBACK, RESULTS, TOPICS
from ucci_runtime.broker.kafka_topics import TopicFacts, topic_faults, topic_warnings, unequal_counts

JOIN_RETENTION_S = 14 * 24 * 3600.0


FACTS = {t.name("u"): TopicFacts(t.partitions or 6, {"cleanup.policy": t.cleanup}) for t in TOPICS}


def having(config: str, **found: str) -> dict[str, TopicFacts]:
    """Return the facts where these topics have another value in their configuration."""
    changed = {f"u.{name}": TopicFacts(6, {"cleanup.policy": "delete", config: value}) for name, value in found.items()}
    assert topic_faults("u", TOPICS, FACTS | changed) == ()
    return FACTS | changed


@pytest.mark.parametrize(
    ("topic", "found", "said"),
    [
        ("u.calibration", TopicFacts(1, {"cleanup.policy": "delete"}), "u.calibration: cleanup.policy is delete"),
        ("u.results", TopicFacts(6, {"cleanup.policy": "compact"}), "u.results: cleanup.policy is compact"),
        ("u.calibration", TopicFacts(3, {"cleanup.policy": "compact"}), "u.calibration: has 3 partitions, needs 1"),
    ],
)
def test_a_fault_names_topic_value_and_need(topic: str, found: TopicFacts, said: str) -> None:
    (fault,) = topic_faults("u", TOPICS, FACTS | {topic: found})
    assert fault.startswith(said)


def test_unequal_partition_counts_are_named_with_both_numbers() -> None:
    (line,) = unequal_counts("u", FACTS | {"u.feedback": TopicFacts(5, {"cleanup.policy": "delete"})})
    assert line.startswith("u.results has 6 partitions and u.feedback 5")
    assert unequal_counts("u", FACTS) == ()


def test_sender_timestamps_cause_a_warning_only() -> None:
    """Topics made otherwise date results by the router's clock, which may be wrong; they are no fault."""
    found = having("message.timestamp.type", results="CreateTime", feedback="LogAppendTime")
    (warning,) = topic_warnings("u", TOPICS, found, JOIN_RETENTION_S)
    assert warning.startswith("u.results: message.timestamp.type is CreateTime")
    assert warning.endswith("alter the topic to message.timestamp.type=LogAppendTime")


def test_a_retention_below_that_of_the_join_is_warned_of() -> None:
    """A lost store could not be rebuilt whole; without limit, or where the join reads nothing, all is well."""
    found = having("retention.ms", results="604800000", feedback="-1")
    (warning,) = topic_warnings("u", TOPICS, found, JOIN_RETENTION_S)
    assert warning.startswith("u.results: retention.ms is 604800000")
    assert warning.endswith("alter the topic to retention.ms=1209600000, or lower recalibrator.join_retention_s")
    assert topic_warnings("u", [RESULTS], found, JOIN_RETENTION_S) == ()
    assert topic_warnings("u", [RESULTS, FEEDBACK], found, 604_800.0) == ()
