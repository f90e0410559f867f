"""The monitors of one workload: they learn what is usual, test for what moves, and say it in the status.

The first queries teach which words and values of segments are usual. Then every 250 queries make a block, and after
each block all series are tested for a change that began with one of the latest blocks. What is found is compared before
and after until enough is known; then the time after it is what later blocks are compared with. Deterministic, no clock:
equal events give equal states, across restarts too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np

from recalibrator.fit.arrays import Floats, pack, unpack
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.movement.causes import Compared, escalation, information, material, moved_traits
from recalibrator.fit.movement.dispersion import Dispersion, dispersion, log_evidence
from recalibrator.fit.movement.evidence import detector, discoveries, log_bayes_factor
from recalibrator.fit.movement.examples import Samples
from recalibrator.fit.movement.label_scores import QualityChange, answer_category
from recalibrator.fit.movement.sentence import say
from recalibrator.fit.movement.series_table import OTHER, RECENT_BLOCKS, Counts, Series, SeriesTable
from recalibrator.fit.movement.vocabulary import Vocabulary
from schemas.event import from_us, to_us
from schemas.labelled import LabelledExample
from schemas.movement import MovedTrait, Movement, MovementStatus
from schemas.settings import WorkloadSettings
from schemas.traffic import ANSWERS, SEGMENT, TEXT_TRAITS, SampledWords, TrafficProfile, TrafficSummary

ALPHA = 1e-4
"""False share of discoveries by block of 250 queries: .04 by 100,000 queries."""

BLOCK_QUERIES = 250
SETTLED_QUERIES = 5_000
"""After a movement; then its figures are final."""

WATCHED_VALUES = 8
"""Of a segment: the most frequent ones among the first queries; the others count as ``other``."""

_LEAST_BLOCKS = 8
_LEAST_FACTOR = 3.0
"""Of a log Bayes factor. Weaker ones add less to a detector than 1 / ALPHA, below which nothing is ever found."""

_LEAST_BEFORE = 200
_KEPT_MOVEMENTS = 5
_TALLIED_VALUES = 100
_STRANGE_QUERIES = 0.5
"""Share of queries with mostly rare words after a movement from which all is learned anew."""

_WORDS, _ANSWERS, _LABELER, _DELAY = Series("words"), Series(ANSWERS), Series("labeler"), Series("label_delay")
_MOST = "most"
_LONGEST_DELAY_S = 1 << 24
_DELAYS = tuple(str(1 << power) for power in range(_LONGEST_DELAY_S.bit_length()))
_COUNT_MOST = 2**31
_QUIET = "Nothing that is monitored has moved."
OFF = MovementStatus(sentence="What moved is not watched: explain_drift is false for this workload.")
_LEARNING = "The monitors do not know enough queries yet to say what moves."


def labelled_traits(settings: WorkloadSettings) -> tuple[str, ...]:
    """Return the traits that are kept of labelled queries: by them a change of micro-F1 is taken apart."""
    if not settings.explain_drift:
        return ()
    return (*TEXT_TRAITS, _WORDS.trait, *(SEGMENT + name for name in settings.segments))


@dataclass(slots=True)
class _Open:
    """A movement whose figures still grow.

    Parameters
    ----------
    since_us, noticed_us : int
    before, after : ndarray, shape (series, categories, 2)
    spread : Dispersion, shape (series, categories)
    whole, escalated : ndarray, shape (2,)
        Queries before and after, and those that escalated.
    """

    since_us: int
    noticed_us: int
    before: Counts
    after: Counts
    spread: Dispersion
    whole: Floats
    escalated: Floats


@dataclass(slots=True)
class _Block:
    """When the queries of a block were routed, how many they are, and how many escalated."""

    first_us: int = 0
    last_us: int = 0
    queries: int = 0
    escalated: int = 0


@dataclass(slots=True)
class _Learned:
    """What the first queries teach: usual words, and the frequent values of each segment."""

    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    tallies: dict[str, Counter[str]] = field(default_factory=dict)
    _watched: dict[str, frozenset[str]] = field(default_factory=dict)

    def learn(self, summary: TrafficSummary) -> None:
        self.vocabulary.learn(summary.words.words)
        for profile in summary.profiles:
            if profile.segment is not None and profile.value is not None:
                tally = self.tallies.setdefault(profile.segment, Counter())
                if profile.value in tally or len(tally) < _TALLIED_VALUES:
                    tally[profile.value] += profile.queries

    def lacks(self, summary: TrafficSummary) -> bool:
        """Return whether a summary has a segment of which nothing was learned."""
        return any(one.segment is not None and one.segment not in self.tallies for one in summary.profiles)

    def watched(self, segment: str) -> frozenset[str]:
        """Return the values of a segment that are counted by name; called once all is learned."""
        if segment not in self._watched:
            tally = self.tallies.get(segment, Counter())
            ranked = sorted(tally, key=lambda value: (-tally[value], value))
            self._watched[segment] = frozenset(ranked[:WATCHED_VALUES])
        return self._watched[segment]


class MovementMonitor:
    """Watches one workload's traffic and labels for what moves.

    Parameters
    ----------
    alpha : float, optional
        False share of discoveries by block.
    """

    def __init__(self, alpha: float = ALPHA) -> None:
        self._alpha = alpha
        self._begin()
        self._moved: _Open | None = None
        self._samples = Samples()
        self._settled: list[dict[str, Any]] = []

    def _begin(self) -> None:
        self._learned = _Learned()
        self._table = SeriesTable()
        self._blocks: list[_Block] = []
        self._block = _Block()
        self._older = _Block()

    @property
    def table(self) -> SeriesTable:
        """The counts under watch."""
        return self._table

    def on_traffic(self, summary: TrafficSummary) -> None:
        """Take one summary in."""
        whole = next((one for one in summary.profiles if one.segment is None), None)
        if whole is None:
            return
        if self._learned.vocabulary.is_known and self._learned.lacks(summary):
            # A segment that the workload names from now on: nothing is known of its values.
            self._begin()
            self._moved = None
        if not self._learned.vocabulary.is_known:
            self._learned.learn(summary)
            return
        for profile in summary.profiles:
            self._count(profile)
        self._count_words(summary.words)
        block = self._block
        block.queries += min(whole.queries, _COUNT_MOST)
        block.escalated += min(whole.escalated, whole.queries, _COUNT_MOST)
        first, last = to_us(summary.first_routed_at), to_us(summary.last_routed_at)
        block.first_us = min(block.first_us, first) if block.first_us else first
        block.last_us = max(block.last_us, last)
        self._samples.take(summary.samples, last, self._learned.vocabulary)
        if block.queries >= BLOCK_QUERIES:
            self._close_block()

    def with_words(self, example: LabelledExample) -> LabelledExample:
        """Return a labelled example whose traits say how strange its query's words are, once that is known."""
        if example.traits is None or not self._learned.vocabulary.is_known:
            return example
        strange = self._learned.vocabulary.strangeness(example.word)
        return example.model_copy(update={"traits": {**example.traits, _WORDS.trait: strange}})

    def on_label(self, example: LabelledExample, *, counts: bool) -> None:
        """Take the first label of a query in.

        Parameters
        ----------
        example : LabelledExample
        counts : bool
            Whether it counts in the estimates, rather than being set aside.
        """
        if not self._learned.vocabulary.is_known:
            return
        # Audits are drawn where labels are suspected: they are no sample of the answers.
        if counts and example.label_reason != "audit":
            self._count_answer(example)
        self._table.add_one(_LABELER, (example.labeler or "unnamed")[:64])
        delay = example.labelled_at - example.routed_at
        delay_s = 86_400 * delay.days + delay.seconds
        self._table.add_one(_DELAY, _DELAYS[max(0, min(delay_s, _LONGEST_DELAY_S) - 1).bit_length()])

    def _count_answer(self, example: LabelledExample) -> None:
        said = answer_category(example)
        if said is None:
            return
        self._table.add_one(_ANSWERS, said)
        for trait, value in (example.traits or {}).items():
            if trait.startswith(SEGMENT):
                segment = trait.removeprefix(SEGMENT)
                self._table.add_one(Series(ANSWERS, segment, self._watched(segment, value)), said)

    def _count(self, profile: TrafficProfile) -> None:
        segment, value, table = profile.segment, profile.value, self._table
        if segment is not None:
            # A value that comes up later still has a name among the categories, while there is room.
            table.add(Series(SEGMENT + segment), {value or OTHER: (profile.queries, profile.escalated)})
            value = self._watched(segment, value)
        for trait, categories in profile.traits.items():
            table.add(Series(trait, segment, value), categories)

    def _count_words(self, sampled: SampledWords) -> None:
        """Count sampled queries by how strange their words are."""
        strange = self._learned.vocabulary.strangeness_of_each(sampled.words)
        seen, risen = Counter(strange), Counter(compress(strange, sampled.escalated))
        self._table.add(_WORDS, {category: (seen[category], risen[category]) for category in sorted(seen)})
        for segment, values in sampled.segments.items():
            pairs = list(zip(values, strange, strict=True))
            seen_in, risen_in = Counter(pairs), Counter(compress(pairs, sampled.escalated))
            for (value, category), queries in sorted(seen_in.items()):
                series = Series("words", segment, self._watched(segment, value))
                self._table.add(series, {category: (queries, risen_in[value, category])})

    def _watched(self, segment: str, value: str | None) -> str:
        return value if value is not None and value in self._learned.watched(segment) else OTHER

    def _close_block(self) -> None:
        if len(self._blocks) == RECENT_BLOCKS:
            oldest = self._blocks.pop(0)
            self._older.queries += oldest.queries
            self._older.escalated += oldest.escalated
        self._table.close_block()
        self._blocks.append(self._block)
        self._block = _Block()
        if self._moved is None:
            self._test()
        else:
            self._grow(self._moved)

    def _test(self) -> None:
        """Look for a change that began with one of the latest blocks."""
        table = self._table
        if table.filled < _LEAST_BLOCKS:
            return
        before, after, sizes = table.splits()
        allowed = (sizes[0] >= _LEAST_BEFORE) & material(before, after, sizes)
        # Only what is material takes part, and only what the counts show clearly: in quiet traffic that is nothing.
        factors = np.full(allowed.shape, -np.inf)
        factors[allowed] = log_bayes_factor(before[allowed], after[allowed])
        allowed = factors >= _LEAST_FACTOR
        if not allowed.any():
            return
        spread = dispersion(*table.scatter())
        there = Dispersion(*(one[allowed] for one in spread))
        factors[allowed] = log_evidence(factors[allowed], before[allowed], after[allowed], there)
        flagged = discoveries(detector(factors, allowed), self._alpha)
        if not flagged.any():
            return
        began = np.where(allowed, factors, -np.inf).argmax(axis=1)
        best, telling = 0, -1.0
        for at in np.flatnonzero(flagged).tolist():
            found = float(information(self._compared(int(began[at]), spread))[at])
            best, telling = (at, found) if found > telling else (best, telling)
        self._begin_movement(int(began[best]), spread)

    def _compared(self, block: int, spread: Dispersion) -> Compared:
        before, after = self._table.part(block)
        late = self._blocks[block:]
        early = [self._older, *self._blocks[:block]]
        whole = np.array([sum(one.queries for one in part) for part in (early, late)], dtype=np.float64)
        escalated = np.array([sum(one.escalated for one in part) for part in (early, late)], dtype=np.float64)
        there = Dispersion(*(one[:, block] for one in spread))
        return Compared(self._table.series, self._table.categories, before, after, there, whole, escalated)

    def _begin_movement(self, block: int, spread: Dispersion) -> None:
        found = self._compared(block, spread)
        since_us = self._blocks[block].first_us
        noticed_us = self._blocks[-1].last_us
        self._moved = _Open(since_us, noticed_us, found.before, found.after, found.spread, found.whole, found.escalated)
        self._samples.split(since_us)

    def _grow(self, moved: _Open) -> None:
        size, block = len(moved.after), self._blocks[-1]
        moved.after = moved.after + self._table.recent[:size, -1]
        moved.whole[1] += block.queries
        moved.escalated[1] += block.escalated
        if moved.whole[1] >= SETTLED_QUERIES:
            self._settle(moved)

    def _settle(self, moved: _Open) -> None:
        found = self._movement(moved, is_settled=True)
        if found is not None:
            self._settled = [found.model_dump(mode="json"), *self._settled][:_KEPT_MOVEMENTS]
        self._moved = None
        self._samples.join()
        words = self._table.series.index(_WORDS) if _WORDS in self._table.series else None
        if words is not None and words < len(moved.after) and self._is_strange(words, moved.after):
            self._begin()
            return
        self._table.begin_with(moved.after)
        self._blocks = []
        self._older = _Block(queries=int(moved.whole[1]), escalated=int(moved.escalated[1]))

    def _is_strange(self, words: int, after: Counts) -> bool:
        names = self._table.categories[words]
        rare = int(after[words, names.index(_MOST), 0]) if _MOST in names else 0
        return rare > _STRANGE_QUERIES * max(1, int(after[words, :, 0].sum()))

    def _moved_traits(self, compared: Compared) -> list[MovedTrait]:
        return moved_traits(compared, self._alpha)

    def _movement(self, moved: _Open, *, is_settled: bool) -> Movement | None:
        size = len(moved.after)
        compared = Compared(
            self._table.series[:size],
            self._table.categories[:size],
            moved.before,
            moved.after,
            moved.spread,
            moved.whole,
            moved.escalated,
        )
        traits = tuple(self._moved_traits(compared))
        if not traits:
            return None
        rates, since = escalation(compared), from_us(moved.since_us)
        before, after = self._samples.examples(traits[0])
        return Movement(
            sentence=say(traits, rates, since),
            since=since,
            noticed_at=from_us(moved.noticed_us),
            is_settled=is_settled,
            queries_before=int(moved.whole[0]),
            queries_after=int(moved.whole[1]),
            traits=traits,
            escalation=rates,
            examples_before=before,
            examples_after=after,
        )

    def status(self, labels: LabelTable) -> MovementStatus:
        """Return what moved, newest first; micro-F1 of the newest by the labels that are known now."""
        movements = [Movement.model_validate(one) for one in self._settled]
        growing = None if self._moved is None else self._movement(self._moved, is_settled=False)
        if growing is not None:
            movements = [growing, *movements][:_KEPT_MOVEMENTS]
        if movements:
            movements[0] = _with_quality(movements[0], labels)
        is_watching = self._learned.vocabulary.is_known and self._table.filled + bool(self._older.queries) > 0
        sentence = movements[0].sentence if movements else _QUIET if is_watching else _LEARNING
        return MovementStatus(
            sentence=sentence, series=len(self._table), is_watching=is_watching, movements=tuple(movements)
        )

    def state(self) -> dict[str, Any]:
        """Return everything as JSON values, exact."""
        moved = self._moved
        return {
            "vocabulary": self._learned.vocabulary.state(),
            "tallies": {name: dict(tally) for name, tally in self._learned.tallies.items()},
            "table": self._table.state(),
            "blocks": [_numbers(one) for one in (*self._blocks, self._block, self._older)],
            "samples": self._samples.state(),
            "settled": self._settled,
            "moved": None
            if moved is None
            else {
                "times": [moved.since_us, moved.noticed_us],
                "size": len(moved.after),
                "counts": pack(np.stack([moved.before, moved.after])),
                "spread": pack(np.stack(moved.spread)),
                "rates": pack(np.stack([moved.whole, moved.escalated])),
            },
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take a former :meth:`state` back."""
        self._learned.vocabulary.load(state["vocabulary"])
        self._learned.tallies = {name: Counter(tally) for name, tally in state["tallies"].items()}
        self._table.load(state["table"])
        *self._blocks, self._block, self._older = (_Block(*numbers) for numbers in state["blocks"])
        self._samples.load(state["samples"])
        self._settled = list(state["settled"])
        moved = state["moved"]
        if moved is not None:
            size = moved["size"]
            like = np.zeros((2, size, *self._table.recent.shape[2:]), dtype=np.int64)
            before, after = unpack(moved["counts"], like)
            whole, escalated = unpack(moved["rates"], np.zeros((2, 2)))
            spread = Dispersion(*unpack(moved["spread"], np.zeros((2, *like.shape[1:3]))))
            since_us, noticed_us = moved["times"]
            self._moved = _Open(since_us, noticed_us, before, after, spread, whole.copy(), escalated.copy())


def _with_quality(movement: Movement, labels: LabelTable) -> Movement:
    """Return a movement with what labels say of it now; they come late, so that it is said of the newest alone."""
    quality = QualityChange(labels, to_us(movement.since))
    rate = quality.rate()
    if rate is None:
        return movement
    traits = tuple(one.model_copy(update={"micro_f1_explained": quality.explained(one)}) for one in movement.traits)
    sentence = say(traits, movement.escalation, movement.since, rate)
    return movement.model_copy(update={"sentence": sentence, "traits": traits, "micro_f1": rate})


def _numbers(block: _Block) -> list[int]:
    return [block.first_us, block.last_us, block.queries, block.escalated]
