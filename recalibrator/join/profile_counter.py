"""Counts of what queries are like, of all and by segment; they add up over summaries, partitions and machines."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import NamedTuple

from recalibrator.join.query_traits import OTHER, query_traits, segments_of, word_bucket, words_of
from schemas.routed import RoutedEvent
from schemas.settings import WorkloadSettings
from schemas.traffic import MAX_SAMPLED_WORDS, SampledQuery, SampledWords, TrafficProfile

MAX_VALUES = 8
"""Of a segment, in one summary: the most frequent ones; the others are counted together."""

_MOST_VALUES = 64
_MOST_DRAWN = 1_024
SAMPLES = 4
"""Queries that a summary names as examples."""

_Key = tuple[str, str]
"""A trait and a category."""


@dataclass(slots=True)
class _Profile:
    """Counts of one segment, or of all."""

    queries: int = 0
    escalated: int = 0
    seen: Counter[_Key] = field(default_factory=Counter)
    seen_escalated: Counter[_Key] = field(default_factory=Counter)

    def add(self, keys: Iterable[_Key], *, escalated: bool) -> None:
        self.queries += 1
        self.seen.update(keys)
        if escalated:
            self.escalated += 1
            self.seen_escalated.update(keys)

    def merge(self, other: _Profile) -> None:
        self.queries += other.queries
        self.escalated += other.escalated
        self.seen.update(other.seen)
        self.seen_escalated.update(other.seen_escalated)

    def taken(self, segment: str | None, value: str | None) -> TrafficProfile:
        traits: dict[str, dict[str, tuple[int, int]]] = {}
        for (trait, category), count in sorted(self.seen.items()):
            traits.setdefault(trait, {})[category] = (count, self.seen_escalated[trait, category])
        return TrafficProfile(
            segment=segment,
            value=value,
            queries=self.queries,
            escalated=self.escalated,
            traits=traits,
        )


class _Drawn(NamedTuple):
    """One query as it may be sampled; smaller ranks first."""

    rank: int
    query_id: str
    escalated: bool
    traits: dict[str, str]
    segments: dict[str, str]
    words: tuple[int, ...]


class Profiles(NamedTuple):
    """What a summary says of its queries."""

    profiles: tuple[TrafficProfile, ...]
    words: SampledWords
    samples: tuple[SampledQuery, ...]


class ProfileCounter:
    """Adds up what the queries of one workload are like between two takes.

    Parameters
    ----------
    settings : WorkloadSettings
        Fields and segments.
    """

    def __init__(self, settings: WorkloadSettings) -> None:
        self._fields, self._segments = settings.fields, settings.segments
        self._begin()

    def _begin(self) -> None:
        self._all = _Profile()
        self._by_segment: dict[str, dict[str, _Profile]] = {name: {} for name in self._segments}
        self._drawn: list[_Drawn] = []

    def add(self, routed: RoutedEvent) -> None:
        """Count one routed query."""
        words = words_of(routed.text)
        traits = query_traits(routed, self._fields, words)
        segments = segments_of(routed.metadata, self._segments)
        escalated = routed.decision.escalated
        self._all.add(traits.items(), escalated=escalated)
        for name, value in segments.items():
            self._profile(name, value).add(traits.items(), escalated=escalated)
        rank = zlib.crc32(routed.query_id.encode("utf-8", "surrogatepass"))
        buckets = tuple(sorted(set(map(word_bucket, words))))
        self._drawn.append(_Drawn(rank, routed.query_id, escalated, traits, segments, buckets))
        if len(self._drawn) > _MOST_DRAWN:
            self._drawn = self._sampled()

    def _sampled(self) -> list[_Drawn]:
        """Return the queries whose ids have the smallest hashes, whichever came first."""
        return nsmallest(MAX_SAMPLED_WORDS, self._drawn, key=lambda one: (one.rank, one.query_id))

    def _profile(self, name: str, value: str) -> _Profile:
        values = self._by_segment[name]
        if value not in values:
            # A key that differs from query to query is no segment; it must not fill the memory before the next take.
            value = value if len(values) < _MOST_VALUES else OTHER
            values.setdefault(value, _Profile())
        return values[value]

    def take(self) -> Profiles:
        """Return what was added since the last take, and start anew."""
        profiles = [self._all.taken(None, None)]
        for name in self._segments:
            found = self._by_segment[name]
            ranked = sorted(found, key=lambda value: (-found[value].queries, value))
            kept = [value for value in ranked if value != OTHER][:MAX_VALUES]
            rest = _Profile()
            for value in ranked:
                if value not in kept:
                    rest.merge(found[value])
            profiles += [found[value].taken(name, value) for value in sorted(kept)]
            profiles += [rest.taken(name, OTHER)] if rest.queries else []
        words, samples = self._samples()
        self._begin()
        return Profiles(tuple(profiles), words, samples)

    def _samples(self) -> tuple[SampledWords, tuple[SampledQuery, ...]]:
        drawn = self._sampled()
        words = SampledWords(
            escalated=tuple(one.escalated for one in drawn),
            segments={name: tuple(one.segments[name] for one in drawn) for name in self._segments},
            words=tuple(one.words for one in drawn),
        )
        examples = (
            (one, {**one.traits, **{f"segment:{name}": value for name, value in one.segments.items()}})
            for one in drawn[:SAMPLES]
        )
        samples = (SampledQuery(query_id=one.query_id, traits=traits, word=one.words) for one, traits in examples)
        return words, tuple(samples)
