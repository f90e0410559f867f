"""The label desk of a messy stream: who labels, who errs, who lies, and what the join makes of it.

Opinions come in the order in which they arrive; of each labeler the last stands, among labelers the one labelled last,
and each change of what stands gives one example with a revision above all before it, as the service's join does.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from research.drift.mess import BLOCK, EXPERT, LABELERS, Habits, Lie
from research.drift.world import Answers

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NAMES = (*LABELERS, EXPERT)
_LIAR = len(LABELERS) - 1
"""The last of those who lie."""
TRUSTED = len(LABELERS)
"""Index of the expert in ``NAMES``."""

_MEAN_DELAY_S = 100.0
"""Until a correction, a withdrawal, a second opinion: 1,000 queries."""
_SPREAD_S = 200.0
"""Over which an attacker works off the old labels."""
_REACHED_QUERIES = 20_000
_FIELD_SHARE = 0.3
"""Of queries with something to find, those in which the field of the one who errs in one field occurs."""
_REMEMBERED = 12_000
_DESK = 2
"""A stream of chance of its own."""


class Said(NamedTuple):
    """Counts as one label has them: gold pairs, and hits of both answers."""

    gold: int
    small: int
    large: int


class _Opinion(NamedTuple):
    at_s: float
    order: int
    said: Said | None


class Standing(NamedTuple):
    """One example as the join hands it to the fit.

    ``number``: of the query. ``labeler``: index into ``NAMES``. ``said``: none where the label is withdrawn and no
    other stands. ``order``: as which of the query's opinions it was taken.
    """

    number: int
    labelled_at_s: float
    labeler: int
    revision: int
    said: Said | None
    order: int


class Join:
    """What stands of each query."""

    def __init__(self) -> None:
        self._opinions: dict[int, dict[int, _Opinion]] = {}
        self._received: dict[int, int] = {}
        self._told: dict[int, Standing] = {}

    def take(self, number: int, labeler: int, at_s: float, said: Said | None) -> Standing | None:
        """Take one opinion (None: a withdrawal); returns the example where what stands has changed."""
        received = self._received[number] = self._received.get(number, 0) + 1
        opinions = self._opinions.setdefault(number, {})
        opinions[labeler] = _Opinion(at_s, received, said)
        valid = [(one.at_s, one.order, name) for name, one in opinions.items() if one.said is not None]
        told = self._told.get(number)
        if valid:
            labelled_at_s, order, name = max(valid)
            if told is not None and told.order == order:
                return None
            example = Standing(number, labelled_at_s, name, received, opinions[name].said, order)
        elif told is None or told.said is None:
            return None
        else:
            example = Standing(number, at_s, labeler, received, None, received)
        self._told[number] = example
        return example

    def last(self, number: int) -> Standing | None:
        """Return the example that was handed over last."""
        return self._told.get(number)


@dataclass(frozen=True, slots=True)
class _Draws:
    """Chance for each query, shape (queries,): whatever a policy asks, the same people answer alike."""

    labeler: Ints
    wrong: Floats
    kind: Floats
    later_s: Floats
    withdrawn: Floats
    more: Floats
    noise: Floats
    resent: Floats
    relabelled: Floats
    relabelled_s: Floats
    field: Floats
    lie: Floats
    skipped: Floats

    @classmethod
    def of(cls, seed: list[int], queries: int) -> _Draws:
        rng = np.random.default_rng([*seed, _DESK])
        uniform = rng.uniform
        return cls(
            labeler=rng.integers(0, len(LABELERS), queries),
            wrong=uniform(size=queries),
            kind=uniform(size=queries),
            later_s=rng.exponential(_MEAN_DELAY_S, queries),
            withdrawn=uniform(size=queries),
            more=uniform(size=(3, queries)),
            noise=uniform(size=(4, queries)),
            resent=uniform(size=queries),
            relabelled=uniform(size=queries),
            relabelled_s=rng.exponential(_MEAN_DELAY_S, queries) + uniform(0.0, _SPREAD_S, queries),
            field=uniform(size=queries),
            lie=uniform(size=queries),
            skipped=uniform(size=queries),
        )


class Desk:
    """Everybody who labels in one walk.

    ``truth``: of the stream. ``at_s``, ``label_at_s``: ndarray, shape (queries,); when queries come, and their first
    labels where they are asked for (infinite: never). ``seed``: of the stream's own chance. ``doubt``: ndarray, shape
    (queries,), optional; chance that the small answer is wrong, given u; 0 if not given. ``lying``: queries whose
    standing label is not the truth, of the latest 12,000 labelled.
    """

    def __init__(
        self,
        habits: Habits,
        truth: Answers,
        at_s: Floats,
        label_at_s: Floats,
        seed: list[int],
        doubt: Floats | None = None,
    ) -> None:
        self._habits, self._truth, self._at_s, self._label_at_s = habits, truth, at_s, label_at_s
        self._doubt = np.zeros(len(at_s)) if doubt is None else doubt
        self._honest_until = habits.begin * len(at_s)
        self._draws = _Draws.of(seed, len(at_s))
        self._join = Join()
        self._heap: list[tuple[float, int, float, int, int, Said | None, bool]] = []
        self._serial = 0
        self.lying: set[int] = set()
        self._latest: dict[int, None] = {}
        self._backlog = (0, 0) if habits.backlog is None else habits.backlog.span(len(at_s))
        self._flood = (0, 0) if habits.flood is None else habits.flood.span(len(at_s))
        begin = 1.0 if habits.relabels is None else habits.relabels.begin
        self._attacked_from = round(begin * len(at_s) / BLOCK) * BLOCK

    def is_flooded(self, first: int) -> bool:
        """Whether the query of this number is labelled though nobody asked."""
        return self._flood[0] <= first < self._flood[1]

    def ask(self, numbers: Ints, by_expert: Bools, escalated: Bools) -> None:
        """Have queries labelled: some by the expert, the others by the labeler drawn for each, who may skip it."""
        for number, trusted, above in zip(numbers.tolist(), by_expert.tolist(), escalated.tolist(), strict=True):
            at_s = float(self._label_at_s[number])
            if np.isfinite(at_s) and (trusted or not self._skips(number, escalated=above)):
                self._label(number, TRUSTED if trusted else int(self._draws.labeler[number]), at_s)

    def _skips(self, number: int, *, escalated: bool) -> bool:
        if number < self._honest_until:
            return False
        wrong = self._truth.small[number] < self._truth.gold[number]
        one_sided = self._habits.kept_skipped and not escalated
        return one_sided or bool(wrong and self._draws.skipped[number] < self._habits.skipped)

    def _label(self, number: int, labeler: int, at_s: float) -> None:
        truth = self._said(number)
        if labeler == TRUSTED:
            said = truth
            if self._habits.trusted_err and self._draws.wrong[number] < self._habits.wrong:
                said = self._correct_later(number, labeler, at_s, truth)
            self._put(at_s, number, labeler, said)
        else:
            self._label_ordinarily(number, labeler, at_s, truth)
        habits, draws = self._habits, self._draws
        attack = habits.relabels
        reached = number >= self._attacked_from - _REACHED_QUERIES and self._attacked_from < len(self._at_s)
        if attack is not None and reached and draws.relabelled[number] < attack.share:
            begins_s = max(at_s, float(self._at_s[self._attacked_from]))
            lie = self._lie(number, attack.says, truth)
            self._put(begins_s + float(draws.relabelled_s[number]), number, _LIAR, lie)

    def _label_ordinarily(self, number: int, labeler: int, at_s: float, truth: Said) -> None:
        habits, draws = self._habits, self._draws
        said = truth
        if number < self._honest_until:
            pass
        elif habits.lies is not None and labeler > _LIAR - habits.liars:
            least, most = habits.lie_where
            if draws.lie[number] < habits.lie_share and least <= self._doubt[number] <= most:
                said = self._lie(number, habits.lies, truth)
        elif draws.wrong[number] < habits.wrong:
            said = self._correct_later(number, labeler, at_s, truth)
        elif draws.noise[0, number] < habits.noise + habits.doubted * self._doubt[number]:
            said = _careless(truth)
        self._put(at_s, number, labeler, said)
        if self._honest_until <= number and draws.withdrawn[number] < habits.withdrawn:
            self._put(at_s + float(draws.later_s[number]), number, labeler, None)
        if draws.more[0, number] < habits.shared:
            self._share(number, labeler, at_s, truth)
        if draws.resent[number] < habits.resent:
            self._put(at_s + 1.0, number, labeler, said, again=draws.resent[number] < 0.5 * habits.resent)

    def _correct_later(self, number: int, labeler: int, at_s: float, truth: Said) -> Said:
        """Let a labeler put a label right later; returns what is said at first."""
        draws = self._draws
        self._put(at_s + self._habits.later * float(draws.later_s[number]), number, labeler, truth)
        return _careless(truth) if draws.kind[number] < 0.5 else self._flattering(number, truth)

    def _share(self, number: int, labeler: int, at_s: float, truth: Said) -> None:
        """Let one further person, or two, label the same query."""
        draws = self._draws
        people = 1 + int(draws.more[1, number] < 0.5)
        for place in range(1, people + 1):
            said = _careless(truth) if draws.noise[place, number] < self._habits.noise else truth
            delay_s = float(draws.later_s[number]) * place
            self._put(at_s + delay_s, number, (labeler + place) % len(LABELERS), said)

    def _put(self, at_s: float, number: int, labeler: int, said: Said | None, *, again: bool = False) -> None:
        arrives_s = at_s
        if self._backlog[0] <= number < self._backlog[1]:
            arrives_s = max(at_s, float(self._at_s[self._backlog[1] - 1]))
        self._serial += 1
        heapq.heappush(self._heap, (arrives_s, self._serial, at_s, number, labeler, said, again))

    def deliver(self, until_s: float) -> list[Standing]:
        """Return the examples of what has arrived by a time, in order; what is delivered twice comes twice."""
        come: list[Standing] = []
        while self._heap and self._heap[0][0] <= until_s:
            _, _, at_s, number, labeler, said, again = heapq.heappop(self._heap)
            example = self._join.last(number) if again else self._join.take(number, labeler, at_s, said)
            if example is None:
                continue
            come.append(example)
            self._note(example)
        return come

    def _note(self, example: Standing) -> None:
        """Note whether the latest queries' labels are the truth; what the fit has forgotten misleads nobody."""
        number = example.number
        if number not in self._latest:
            self._latest[number] = None
            if len(self._latest) > _REMEMBERED:
                oldest = next(iter(self._latest))
                del self._latest[oldest]
                self.lying.discard(oldest)
        wrong = example.said is not None and example.said != self._said(number)
        (self.lying.add if wrong else self.lying.discard)(number)

    def _said(self, number: int) -> Said:
        truth = self._truth
        return Said(int(truth.gold[number]), int(truth.small[number]), int(truth.large[number]))

    def _flattering(self, number: int, truth: Said) -> Said:
        """Take the small answer for gold; the large one then lacks what the small one had wrong."""
        if self._truth.agree[number]:
            return truth._replace(small=truth.gold, large=truth.gold)
        differing = max(1, truth.gold - truth.small, truth.gold - truth.large)
        return truth._replace(small=truth.gold, large=max(0, truth.gold - differing))

    def _lie(self, number: int, kind: Lie, truth: Said) -> Said:
        if truth.gold == 0:
            return truth
        if kind == "small_right":
            return self._flattering(number, truth)
        if kind == "careless":
            return _careless(truth)
        if kind == "one_field":
            return _careless(truth) if self._draws.field[number] < _FIELD_SHARE else truth
        if truth.small < truth.gold:
            return truth
        # Where the answers differ, the large one passes for gold: the likeliest lie is the one that looks so.
        agree = bool(self._truth.agree[number])
        return truth._replace(small=truth.small - 1, large=truth.large - 1 if agree else truth.gold)


def _careless(truth: Said) -> Said:
    """Misname one gold pair, which each answer that held it then lacks."""
    return truth._replace(small=max(0, truth.small - (truth.gold > 0)), large=max(0, truth.large - (truth.gold > 0)))
