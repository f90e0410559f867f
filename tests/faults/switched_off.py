"""The mechanisms that exactly-once rests on, each of which can be switched off in one process.

A checker that finds nothing proves something only if it finds what is wrong without them. Each function takes one
mechanism out of the process that it is called in, and nothing else; the product has no such switch.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer

from recalibrator.join import query_state
from recalibrator.join.home_inputs import HomeInputs
from schemas.feedback import FeedbackEvent
from stream_router.commit import ledger
from ucci_runtime.broker import kafka_properties
from ucci_runtime.broker.kafka_group_reader import KafkaGroupReader
from ucci_runtime.broker.kafka_producer import TransactionalProducer


def done_offsets() -> None:
    """Commit offsets without the offsets done beyond them, as a plain consumer would."""
    module: Any = ledger
    module.encode = lambda _committed, _ranges: ""


def fencing() -> None:
    """Take a transactional id of one's own, and commit as a stranger to the group: nobody is fenced."""
    original = kafka_properties.ClientNames.transactional_id
    mark = uuid.uuid4().hex

    def transactional_id(names: kafka_properties.ClientNames, name: str) -> str:
        return f"{original(names, name)}-{mark}"

    strangers: dict[int, Consumer] = {}

    def group(reader: KafkaGroupReader) -> object:
        stranger = strangers.get(id(reader))
        if stranger is None:
            stranger = strangers[id(reader)] = Consumer(dict(_CLIENTS[id(reader)]))
        return stranger.consumer_group_metadata()

    made = KafkaGroupReader.__init__

    def remember(reader: KafkaGroupReader, name: str, topics: Any, properties: Any, *args: Any, **more: Any) -> None:
        kept = ("bootstrap.servers", "group.id")
        _CLIENTS[id(reader)] = {key: properties[key] for key in kept}
        made(reader, name, topics, properties, *args, **more)

    names_of_clients: Any = kafka_properties.ClientNames
    names_of_clients.transactional_id = transactional_id
    readers: Any = KafkaGroupReader
    readers.__init__, readers.group = remember, group


_CLIENTS: dict[int, dict[str, Any]] = {}


def feedback_ids() -> None:
    """Take each record of feedback for a new one, whatever its id says."""
    count = itertools.count()

    def identity(_feedback: FeedbackEvent) -> str:
        return f"{next(count):016x}"

    module: Any = query_state
    module._identity = identity


def held_back_outputs() -> None:
    """Let the join write again what it computes again after a crash."""
    go_live: Callable[[HomeInputs], None] = HomeInputs.go_live
    made = HomeInputs.__init__

    def live(partition: HomeInputs, positions: Any, limits: Any, note: Any, **more: Any) -> None:
        # What is stored is where it goes on, instead of where the group stands.
        made(partition, positions, dict(positions), note, **more)
        go_live(partition)

    partitions: Any = HomeInputs
    partitions.__init__ = live


def forwarding() -> None:
    """Leave records where their producers put them, as a join does that knows queries by their partition."""
    partitions: Any = HomeInputs
    partitions.forwards = lambda _partition, _source: False


def raised_epoch() -> None:
    """Begin the next transaction under the same epoch, whatever of the one before may still arrive."""
    producers: Any = TransactionalProducer
    producers.has_unanswered = property(lambda _producer: False)


MECHANISMS: dict[str, Callable[[], None]] = {
    "done offsets": done_offsets,
    "fencing": fencing,
    "feedback ids": feedback_ids,
    "forwarding": forwarding,
    "held-back outputs": held_back_outputs,
    "raised epoch": raised_epoch,
}
