"""Who contributes to the estimates, and how old each contribution is.

Labelled examples flow in, in any order; columns of the latest contributions, one a query, flow out. Of one query the
highest (revision, labelled_at) counts, so that corrections replace, retractions remove and duplicates change nothing.
Age goes by routing time and never by arrival: any order of the same events gives the same columns up to their order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recalibrator.core.observe.cells import Grid
from recalibrator.core.observe.columns import pack, unpack
from recalibrator.core.observe.instants import to_us
from schemas.labelled import LabelledExample, OutcomeCounts

_Rank = tuple[int, int, bool]
"""Revision, time of labelling, withdrawn: of one query the highest counts."""
Change = Literal["added", "corrected", "withdrawn", "duplicate", "too_late"]

ONE, HITS_SMALL, SIZE_SMALL, SQUARE_SMALL, ERROR, PAIR, HITS_LARGE, SIZE_LARGE, SQUARE_LARGE = range(9)
OUTCOMES = 9
"""Columns of ``outcomes``: a, d and z² of the small answer, its error, whether both ran, a, d and z² of the large."""

GROUP, ROUTED_US, LABELLED_US, REVISION, COUNTS, PREDICTED, LABEL_PROBABILITY = range(7)
FACTS = 7
"""Columns of ``facts``; all integers among them are exact in a float."""

_SLACK = 0.25
_UNKNOWN = float("nan")
_COUNT_MOST = 2**31 - 1
_REVISION_MOST = 2**53
"""Cut there, no square or sum overflows whatever a labeler sends."""


class LabelWindow:
    """The latest contributions, one a query, of bounded number.

    Parameters
    ----------
    grid : Grid
    target : float
        τ, for z².
    fields : tuple of str
        The workload's fields, for the counts per field.
    capacity : int
        Contributions kept; a quarter more are held until the oldest are dropped at once, which keeps the cost of a
        label constant.

    Notes
    -----
    A contribution belongs to one of ``groups`` rows of a table of counts: its cell of u when the answers' agreement
    is unknown, ``cells`` later when they disagree, twice that when they agree; the last row is for failed small
    answers, which have no u.
    """

    def __init__(self, grid: Grid, target: float, fields: tuple[str, ...], capacity: int) -> None:
        self.grid, self.target, self.fields, self.capacity = grid, target, fields, capacity
        self.groups = 3 * grid.cells + 1
        self._room = capacity + max(1, int(capacity * _SLACK))
        self._outcomes = np.zeros((self._room, OUTCOMES))
        self._facts = np.zeros((self._room, FACTS))
        self._per_field = np.zeros((self._room, len(fields), 3), dtype=np.int32)
        self._ids: list[str] = []
        self._slots: dict[str, int] = {}
        self._known: list[tuple[_Rank, int]] = []
        self._fresh: dict[int, tuple[float, ...]] = {}
        self._floor_us = -1
        self._order = np.zeros(0, dtype=np.intp)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def outcomes(self) -> NDArray[np.float64]:
        """Outcome columns, shape (contributions, ``OUTCOMES``)."""
        self._settle()
        return self._outcomes[: len(self._ids)]

    @property
    def facts(self) -> NDArray[np.float64]:
        """Fact columns, shape (contributions, ``FACTS``)."""
        self._settle()
        return self._facts[: len(self._ids)]

    @property
    def per_field(self) -> NDArray[np.int32]:
        """TP, predicted and gold of the served answer, shape (contributions, fields, 3)."""
        return self._per_field[: len(self._ids)]

    def offer(self, example: LabelledExample) -> Change:
        """Take one example in; O(1) amortised.

        Returns
        -------
        str
            ``added``; ``corrected`` or ``withdrawn`` when the query had contributed before; ``duplicate`` when what
            is known is at least as new; ``too_late`` when its time has been dropped from the window.
        """
        routed_us, labelled_us = to_us(example.routed_at), to_us(example.labelled_at)
        rank: _Rank = (min(example.revision, _REVISION_MOST), labelled_us, example.retracted)
        slot = self._slots.get(example.query_id)
        change: Change = "added" if slot is None else "corrected"
        if slot is not None:
            held, held_routed_us = self._known[slot]
            if rank <= held:
                return "duplicate"
            if routed_us != held_routed_us:
                self._order = self._order[:0]
            self._known[slot] = (rank, routed_us)
            self._per_field[slot] = 0
        elif routed_us <= self._floor_us:
            return "too_late"
        else:
            slot = self._new_slot(example.query_id, rank, routed_us)
        self._write(slot, example, routed_us, rank)
        return "withdrawn" if example.retracted else change

    def labels_since(self, instant_us: int) -> int:
        """Return the number of contributions that count and were routed at or after a time."""
        facts = self.facts
        return int(np.count_nonzero((facts[:, COUNTS] > 0.0) & (facts[:, ROUTED_US] >= instant_us)))

    def _new_slot(self, query_id: str, rank: _Rank, routed_us: int) -> int:
        if len(self._ids) == self._room:
            self._drop_oldest()
        slot = len(self._ids)
        self._ids.append(query_id)
        self._slots[query_id] = slot
        self._known.append((rank, routed_us))
        return slot

    def _write(self, slot: int, example: LabelledExample, routed_us: int, rank: _Rank) -> None:
        """Note one contribution as numbers; :meth:`_settle` puts many into the columns at once."""
        large, uncertainty, predicted = example.large, example.uncertainty, example.error_probability
        a_small, d_small = _hits_and_size(example.small, example.gold_count)
        a_large = d_large = pair = 0.0
        # A degraded answer is the small one: the failed call says nothing of the large model's answers.
        if large is not None and example.reason != "degraded":
            a_large, d_large = _hits_and_size(large, example.gold_count)
            pair = 1.0
        if uncertainty is None:
            group = self.groups - 1
        else:
            relation = 0 if not pair or example.agree is None else 2 if example.agree else 1
            group = self.grid.index(uncertainty) + relation * self.grid.cells
        # -1 withdrawn, 0 label not requested (kept, but outside the estimates), 1 counts.
        counts = -1.0 if example.retracted else 1.0 if example.label_requested else 0.0
        error = 0.0 if example.small_exact else 1.0
        self._fresh[slot] = (
            *(1.0, a_small, d_small, 0.0, error, pair, a_large, d_large, 0.0),
            *(group, routed_us, rank[1], rank[0], counts),
            _UNKNOWN if predicted is None else predicted,
            example.label_probability,
        )
        if example.per_field is not None:
            row = self._per_field[slot]
            for index, name in enumerate(self.fields):
                found = example.per_field.get(name)
                if found is not None:
                    row[index] = [min(c, _COUNT_MOST) for c in (found.true_positives, found.predicted, found.gold)]

    def _settle(self) -> None:
        """Put what came since the last look into the columns, squares of the scores included."""
        if not self._fresh:
            return
        slots, rows = np.array(list(self._fresh), dtype=np.intp), np.array(list(self._fresh.values()))
        self._fresh.clear()
        self._outcomes[slots], self._facts[slots] = self._squared(rows[:, :OUTCOMES]), rows[:, OUTCOMES:]

    def _squared(self, outcomes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Fill in z² of both answers for the target in force."""
        for square, hits, size in (
            (SQUARE_SMALL, HITS_SMALL, SIZE_SMALL),
            (SQUARE_LARGE, HITS_LARGE, SIZE_LARGE),
        ):
            outcomes[:, square] = (outcomes[:, hits] - self.target * outcomes[:, size]) ** 2
        return outcomes

    def _drop_oldest(self) -> None:
        routed = self.facts[:, ROUTED_US]
        order = np.argsort(routed, kind="stable")
        dropped, kept = order[: -self.capacity], np.sort(order[-self.capacity :])
        self._floor_us = int(routed[dropped[-1]])
        for columns in (self._outcomes, self._facts, self._per_field):
            columns[: self.capacity] = columns[kept]
            columns[self.capacity :] = 0
        self._ids = [self._ids[slot] for slot in kept.tolist()]
        self._slots = {query_id: slot for slot, query_id in enumerate(self._ids)}
        self._known = [self._known[slot] for slot in kept.tolist()]
        self._order = self._order[:0]

    def newer(self) -> NDArray[np.intp]:
        """Return for each contribution how many that count were routed after it, shape (contributions,)."""
        order = self._sorted()
        facts = self.facts
        counting = facts[order, COUNTS] > 0.0
        after = int(counting.sum()) - np.cumsum(counting)
        times = facts[order, ROUTED_US]
        last = np.append(times[1:] != times[:-1], True)
        if not last.all():  # equal times share the age of the newest among them, so that their order is irrelevant
            after = after[last][np.cumsum(last) - last]
        result = np.empty(len(order), dtype=np.intp)
        result[order] = after
        return result

    def _sorted(self) -> NDArray[np.intp]:
        """Return the slots by routing time; merges what came since the last call, O(contributions)."""
        routed, known = self.facts[:, ROUTED_US], len(self._order)
        fresh = np.arange(known, len(self._ids))
        fresh = fresh[np.argsort(routed[fresh], kind="stable")]
        places = np.searchsorted(routed[self._order], routed[fresh], side="right")
        self._order = np.insert(self._order, places, fresh)
        return self._order

    def state(self) -> dict[str, Any]:
        """Return the window as JSON values, exact."""
        return {
            "ids": list(self._ids),
            "floor_us": self._floor_us,
            "outcomes": pack(self.outcomes),
            "facts": pack(self.facts),
            "per_field": pack(self.per_field),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the content by a former :meth:`state`; the target may have changed since."""
        self._ids = list(state["ids"])
        count = len(self._ids)
        self._slots = {query_id: slot for slot, query_id in enumerate(self._ids)}
        self._floor_us = int(state["floor_us"])
        self._outcomes[:count] = unpack(state["outcomes"], self.outcomes)
        self._facts[:count] = unpack(state["facts"], self.facts)
        self._per_field[:count] = unpack(state["per_field"], self.per_field)
        self._fresh.clear()
        self._known = [
            ((int(revision), int(labelled_us), counts < 0.0), int(routed_us))
            for routed_us, labelled_us, revision, counts in self.facts[:, ROUTED_US : COUNTS + 1].tolist()
        ]
        self._order = self._order[:0]
        self._squared(self.outcomes)


def _hits_and_size(answer: OutcomeCounts, gold: int) -> tuple[float, float]:
    """Return a = 2·TP and d = predicted + gold."""
    hits, size = min(answer.true_positives, _COUNT_MOST), min(answer.predicted + gold, 2 * _COUNT_MOST)
    return 2.0 * hits, float(size)


def weights(newer: NDArray[np.intp], counting: NDArray[np.bool_], half_life: float) -> NDArray[np.float64]:
    """Return exponentially forgetting weights: 1 for the newest, one half ``half_life`` labels before it.

    Parameters
    ----------
    newer : ndarray of int, shape (contributions,)
        Ages in labels, from :meth:`LabelWindow.newer`.
    counting : ndarray of bool, shape (contributions,)
        The others weigh nothing.
    half_life : float
        In labels.

    Examples
    --------
    >>> weights(np.array([0, 2, 4]), np.array([True, True, False]), 2.0).tolist()
    [1.0, 0.5, 0.0]
    """
    by_age = _weights_by_age(int(newer.max(initial=0)).bit_length(), half_life)
    return np.where(counting, by_age[newer], 0.0)


@lru_cache(maxsize=64)
def _weights_by_age(bits: int, half_life: float) -> NDArray[np.float64]:
    """Return the weight of every age of so many bits; a table for each power of two serves all refits."""
    table: NDArray[np.float64] = np.exp2(np.arange(2**bits) / -half_life)
    table.flags.writeable = False
    return table
