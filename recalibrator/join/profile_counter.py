"""Counts of what queries are like, of all and by segment; they add up over summaries, partitions and machines."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from heapq import nsmallest
from operator import itemgetter
from typing import NamedTuple

from recalibrator.join.query_traits import OTHER, QueryTraits, buckets_of, segments_of, words_of
from schemas.routed import RoutedEvent
from schemas.settings import WorkloadSettings
from schemas.traffic import MAX_SAMPLED_WORDS, SEGMENT, SampledQuery, SampledWords, TrafficProfile

MAX_VALUES = 8
"""Of a segment, in one summary: the most frequent ones; the others are counted together."""

_MOST_VALUES = 64
_MOST_DRAWN = 1_024
_ANY_RANK = 2**32
SAMPLES = 4
"""Queries that a summary names as examples."""

_Key = tuple[str, str]
"""A trait and a category."""


class _Profile:
    """Counts of one segment, or of all: of the queries that did not escalate, and of those that did."""

    __slots__ = ("queries", "seen")

    def __init__(self) -> None:
        self.queries = [0, 0]
        self.seen: tuple[defaultdict[_Key, int], defaultdict[_Key, int]] = (defaultdict(int), defaultdict(int))

    def add(self, keys: Sequence[_Key], *, escalated: bool) -> None:
        self.queries[escalated] += 1
        # Of some ten keys, a loop takes half the time of Counter.update, which asks first what it was given.
        seen = self.seen[escalated]
        for key in keys:
            seen[key] += 1

    def merge(self, other: _Profile) -> None:
        for escalated in (False, True):
            self.queries[escalated] += other.queries[escalated]
            for key, count in other.seen[escalated].items():
                self.seen[escalated][key] += count

    def taken(self, segment: str | None, value: str | None) -> TrafficProfile:
        kept, escalated = self.seen
        traits: dict[str, dict[str, tuple[int, int]]] = {}
        for key in sorted({*kept, *escalated}):
            trait, category = key
            risen = escalated.get(key, 0)
            traits.setdefault(trait, {})[category] = (kept.get(key, 0) + risen, risen)
        return TrafficProfile(
            segment=segment,
            value=value,
            queries=sum(self.queries),
            escalated=self.queries[True],
            traits=traits,
        )


class _Drawn(NamedTuple):
    """One query as it may be sampled; smaller ranks first."""

    rank: int
    query_id: str
    escalated: bool
    traits: tuple[_Key, ...]
    segments: dict[str, str]
    words: list[str]


def _merged(profiles: Iterable[_Profile]) -> _Profile:
    whole = _Profile()
    for one in profiles:
        whole.merge(one)
    return whole


class Profiles(NamedTuple):
    """What a summary says of its queries."""

    profiles: tuple[TrafficProfile, ...]
    words: SampledWords
    samples: tuple[SampledQuery, ...]


NO_PROFILES = Profiles((), SampledWords(), ())
"""Of a workload with ``explain_drift = false``."""


class ProfileCounter:
    """Adds up what the queries of one workload are like between two takes.

    Parameters
    ----------
    settings : WorkloadSettings
        Fields and segments.
    """

    def __init__(self, settings: WorkloadSettings) -> None:
        self._segments = settings.segments
        self._traits = QueryTraits(settings.fields)
        self._begin()

    def _begin(self) -> None:
        self._all = _Profile()
        self._by_segment: dict[str, dict[str, _Profile]] = {name: {} for name in self._segments}
        self._drawn: list[_Drawn] = []
        self._last_rank = _ANY_RANK

    def add(self, routed: RoutedEvent) -> None:
        """Count one routed query."""
        words = words_of(routed.text)
        traits = self._traits.of(routed, words)
        segments = segments_of(routed.metadata, self._segments)
        escalated = routed.decision.escalated
        if not segments:
            self._all.add(traits, escalated=escalated)
        for name, value in segments.items():
            self._profile(name, value).add(traits, escalated=escalated)
        rank = zlib.crc32(routed.query_id.encode("utf-8", "surrogatepass"))
        if rank > self._last_rank:
            return
        self._drawn.append(_Drawn(rank, routed.query_id, escalated, traits, segments, words))
        if len(self._drawn) > _MOST_DRAWN:
            self._drawn = self._sampled()
            self._last_rank = self._drawn[-1].rank

    def _sampled(self) -> list[_Drawn]:
        """Return the queries whose ids have the smallest hashes, whichever came first."""
        return nsmallest(MAX_SAMPLED_WORDS, self._drawn, key=itemgetter(0, 1))

    def _profile(self, name: str, value: str) -> _Profile:
        values = self._by_segment[name]
        if value not in values:
            # A key that differs from query to query is no segment; it must not fill the memory before the next take.
            value = value if len(values) < _MOST_VALUES else OTHER
            values.setdefault(value, _Profile())
        return values[value]

    def take(self) -> Profiles:
        """Return what was added since the last take, and start anew."""
        # Each query has one value of each segment: those of the first one are all queries.
        whole = _merged(self._by_segment[self._segments[0]].values()) if self._segments else self._all
        profiles = [whole.taken(None, None)]
        for name in self._segments:
            found = self._by_segment[name]
            ranked = sorted(found, key=lambda value: (-sum(found[value].queries), value))
            kept = [value for value in ranked if value != OTHER][:MAX_VALUES]
            rest = _merged(found[value] for value in ranked if value not in kept)
            profiles += [found[value].taken(name, value) for value in sorted(kept)]
            profiles += [rest.taken(name, OTHER)] if any(rest.queries) else []
        words, samples = self._samples()
        self._begin()
        return Profiles(tuple(profiles), words, samples)

    def _samples(self) -> tuple[SampledWords, tuple[SampledQuery, ...]]:
        drawn = self._sampled()
        buckets = [buckets_of(one.words) for one in drawn]
        words = SampledWords(
            escalated=tuple(one.escalated for one in drawn),
            segments={name: tuple(one.segments[name] for one in drawn) for name in self._segments},
            words=tuple(buckets),
        )
        examples = (
            (one.query_id, {**dict(one.traits), **{SEGMENT + name: value for name, value in one.segments.items()}})
            for one in drawn[:SAMPLES]
        )
        samples = (
            SampledQuery(query_id=query_id, traits=traits, word=word)
            for (query_id, traits), word in zip(examples, buckets, strict=False)
        )
        return words, tuple(samples)
