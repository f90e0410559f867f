"""Topics: created as the table says, left alone afterwards, and refused when they cannot serve."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from schemas.settings import Settings
from schemas.topics import CALIBRATION, FEEDBACK, JOIN_REPARTITION, QUERIES, RESULTS, TOPICS, Topic
from tests.support.broker import create
from tests.support.recalibrator_processes import recalibrator_settings
from ucci_runtime.broker.errors import TopicsUnusable
from ucci_runtime.broker.kafka_topic_creation import topic_config
from ucci_runtime.broker.kafka_topics import partition_counts
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.topics.admin import check_topics, create_topics


@pytest.fixture
def settings(broker: LocalBroker, topic_prefix: str) -> Settings:
    return recalibrator_settings(broker.bootstrap, topic_prefix, partitions=3)


@pytest.mark.broker
def test_create_makes_every_topic_once_and_check_is_content(broker: LocalBroker, settings: Settings) -> None:
    first, second = create_topics(settings), create_topics(settings)
    assert (len(first.created), first.existing, second.created) == (len(TOPICS), (), ())
    assert check_topics(settings) == ()
    results = ConfigResource(ResourceType.TOPIC, RESULTS.name(settings.topics.prefix))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = admin.describe_configs([results])[results].result()
    assert int(config["max.message.bytes"].value) > 1_500_000
    assert config["message.timestamp.type"].value == "LogAppendTime"
    assert int(config["retention.ms"].value) == 14 * 24 * 3600 * 1000


@pytest.mark.broker
def test_repartition_topic_is_made_for_the_topics_there_are(broker: LocalBroker, settings: Settings) -> None:
    """Where results and feedback came before it, with as many partitions as the smaller of them."""
    prefix = settings.topics.prefix
    create(broker.bootstrap, {RESULTS.name(prefix): 8, FEEDBACK.name(prefix): 4})
    with pytest.raises(TopicsUnusable, match=r"has 8 partitions and .* 4: the join reads both"):
        create_topics(settings)
    assert partition_counts(settings)[JOIN_REPARTITION.name(prefix)] == 4


@pytest.mark.broker
def test_wrong_cleanup_policy_is_named_and_left_as_it_is(broker: LocalBroker, settings: Settings) -> None:
    create(broker.bootstrap, {CALIBRATION.name(settings.topics.prefix): 1}, {"cleanup.policy": "delete"})
    with pytest.raises(TopicsUnusable) as caught:
        create_topics(settings)
    assert caught.value.exit_code == 1
    assert f"{settings.topics.prefix}.calibration: cleanup.policy is delete, needs compact" in str(caught.value)


@pytest.mark.parametrize("topic", [RESULTS, FEEDBACK])
def test_a_lost_join_store_was_rebuilt_from_7_of_its_14_days(topic: Topic) -> None:
    """What the join rebuilds its rows from is kept as long as they are, and never less than by Kafka's default."""
    day_s = 24 * 3600.0
    assert topic_config(topic, 14 * day_s)["retention.ms"] == str(14 * 24 * 3600 * 1000)
    assert topic_config(topic, day_s)["retention.ms"] == str(7 * 24 * 3600 * 1000)
    assert "retention.ms" not in topic_config(QUERIES, 14 * day_s)
