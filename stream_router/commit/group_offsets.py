"""What the group has committed: offsets, and in their metadata the offsets done beyond them.

Read with stable offsets only (``read_committed``): while another instance's transaction is open over a partition,
the broker makes us wait for its end instead of telling us a state that is about to change.
"""

from __future__ import annotations

from collections.abc import Collection

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from stream_router.commit.done_offsets import decode
from stream_router.commit.ledger import Committed
from stream_router.prometheus_metrics import Metrics

_log = structlog.get_logger()
_METADATA_SHOWN_CHARS = 40


def read_committed_offsets(
    consumer: Consumer, topic: str, partitions: Collection[int], timeout_s: float, metrics: Metrics
) -> dict[int, Committed]:
    """Read the group's committed offsets of some partitions.

    Called by the consumer's thread in an assignment, and by the transaction's thread when a transaction's end was
    not seen. Blocks up to ``timeout_s``.

    Returns
    -------
    dict of partition to Committed
        For every partition asked for.

    Raises
    ------
    confluent_kafka.KafkaException
        When the coordinator does not answer in time.
    """
    if not partitions:
        return {}
    asked = [TopicPartition(topic, partition) for partition in partitions]
    return {found.partition: _committed(found, metrics) for found in consumer.committed(asked, timeout=timeout_s)}


def _committed(found: TopicPartition, metrics: Metrics) -> Committed:
    if found.error is not None:
        raise KafkaException(found.error)
    if found.offset < 0:
        return Committed(None)
    done = decode(found.offset, found.metadata)
    if done is None:
        metrics.foreign_metadata.inc()
        _log.warning(
            "offset metadata is not this router's; nothing beyond the committed offset counts as done",
            partition=found.partition,
            offset=found.offset,
            metadata=str(found.metadata)[:_METADATA_SHOWN_CHARS],
        )
    return Committed(found.offset, done or ())
