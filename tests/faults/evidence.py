"""What a fault left behind: every record that the topics hold, and what the senders know to be acknowledged."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Entities = Mapping[str, str | None]


class Place(NamedTuple):
    """Where a record stands; ``topic`` is the name without the prefix."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Kept:
    place: Place
    key: str
    value: bytes | None
    timestamp_ms: int
    headers: Mapping[str, str] = field(default_factory=dict)


class Answer(NamedTuple):
    """What a model says to a query, whoever asks and however often."""

    entities: Entities
    uncertainty: float


@dataclass(frozen=True)
class Evidence:
    #: Committed records of all topics.
    records: Mapping[Place, Kept]
    #: Text of each query sent, by id.
    queries: Mapping[str, str]
    #: Queries whose record the broker acknowledged.
    acknowledged: Collection[str]
    #: Ids of the feedback that the broker acknowledged.
    labels: Collection[str]
    #: What a model (``small`` or ``large``) says to a text.
    answer: Callable[[str, str], Answer]
    #: Inputs that the topic's retention took away before they were read: nothing need follow from them.
    excused: Collection[Place] = ()
    #: Whether partitions were added to topics: from then on the same key leads elsewhere.
    has_grown: bool = False

    def of(self, topic: str) -> Iterator[Kept]:
        for place in sorted(place for place in self.records if place.topic == topic):
            yield self.records[place]

    def by_key(self, topic: str) -> Mapping[str, list[Kept]]:
        found: dict[str, list[Kept]] = defaultdict(list)
        for record in self.of(topic):
            found[record.key].append(record)
        return found


def event_of(record: Kept) -> Any:
    """Return what a record's JSON says."""
    return json.loads(record.value or b"null")
