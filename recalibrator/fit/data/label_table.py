"""Who contributes to the estimates, and how old each contribution is.

Labelled examples flow in, in any order; columns of the latest contributions, one a query, flow out. Of one query the
highest (revision, labelled_at) counts, so that corrections replace, retractions remove and duplicates change nothing.
Age goes by routing time and never by arrival: any order of the same events gives the same columns up to their order.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recalibrator.fit.arrays import pack, unpack
from recalibrator.fit.data.decayed_sums import Forgetting, Forgotten, HalfLives, latest
from recalibrator.fit.data.instants import to_us
from recalibrator.fit.data.order import Order
from recalibrator.fit.data.overruled import Contribution, Overruled
from recalibrator.fit.data.revisions import Revisions
from recalibrator.fit.data.table import (
    ANSWERED,
    AUDITED,
    COLUMNS,
    COUNTED,
    COUNTS,
    DISTRUSTED,
    ERROR,
    FIRST_ERROR,
    GROUP,
    HITS_LARGE,
    HITS_SMALL,
    LABELER,
    LABELLED_US,
    NOBODY,
    OTHERS,
    OUTCOMES,
    PREDICTED,
    REVISION,
    ROUTED_US,
    SERIAL,
    SET_ASIDE,
    SIZE_LARGE,
    SIZE_SMALL,
    SQUARE_LARGE,
    SQUARE_SMALL,
    UNREQUESTED,
    WITHDRAWN,
)
from recalibrator.grid import Grid
from schemas.labelled import FieldCounts, LabelledExample, OutcomeCounts

Change = Literal["added", "corrected", "withdrawn", "duplicate", "too_late", "overruled"]
Span = tuple[int, int | None]
"""Routing times from the first on and before the second; None: without end."""

_SLACK = 0.25
_UNKNOWN = float("nan")
_COUNT_MOST = 2**31 - 1
_REVISION_MOST = 2**53
"""Cut there, no square or sum overflows whatever a labeler sends."""

LABELERS_MOST = 256
"""Labelers told apart by name; those beyond share a number."""

_SAID = [*range(OUTCOMES), GROUP, COUNTS, LABELER]
"""What a label says, as far as the estimates go."""

_RELATIONS = 4
"""Agreement unknown, disagreeing, agreeing; and queries without u."""

_NO_LABELERS: NDArray[np.float64] = np.zeros(0)
_ROW = struct.Struct(f"{COLUMNS}d")
_UNTOUCHED = float("inf")


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
    half_life : float
        In labels: how long corrections are remembered.

    Notes
    -----
    A contribution belongs to one of ``groups`` rows of a table of counts: its cell of u when the answers' agreement
    is unknown, ``cells`` later when they disagree, twice that when they agree; the last row is for failed small
    answers, which have no u.
    """

    def __init__(
        self,
        grid: Grid,
        target: float,
        fields: tuple[str, ...],
        capacity: int,
        *,
        half_life: float = 1e9,
    ) -> None:
        self.grid, self.target, self.fields, self.capacity = grid, target, fields, capacity
        self.groups = 3 * grid.cells + 1
        self._room = capacity + max(1, int(capacity * _SLACK))
        # Rows are written as bytes: one label costs a fraction of what an assignment to an array does.
        self._table = np.zeros((self._room, COLUMNS))
        self._table_bytes = self._table.data.cast("B")
        self._per_field = np.zeros((self._room, len(fields), 3), dtype=np.int32)
        self._per_field_bytes = self._per_field.data.cast("B")
        self._field_row = struct.Struct(f"{3 * len(fields)}i")
        self._ids: list[str] = []
        self._slots: dict[str, int] = {}
        self._counting = 0
        self._floor_us = -1
        self._spans: tuple[Span, ...] = ()
        # Since the last look: rows from here on are new, and the earliest of those replaced was routed then.
        self._looked_at, self._touched_us = 0, _UNTOUCHED
        self._by_time, self._by_prediction = Order(self._room), Order(self._room)
        self._forgetting = Forgetting(self.groups)
        self._labelers: dict[str, int] = {}
        self._distrusted: frozenset[int] = frozenset()
        self.overruled = Overruled(len(fields))
        self.revisions = Revisions(_RELATIONS, half_life)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def table(self) -> NDArray[np.float64]:
        """One row a contribution, shape (contributions, ``COLUMNS``)."""
        return self._table[: len(self._ids)]

    @property
    def per_field(self) -> NDArray[np.int32]:
        """TP, predicted and gold of the served answer, shape (contributions, fields, 3)."""
        return self._per_field[: len(self._ids)]

    def offer(self, example: LabelledExample) -> Change:
        """Take one example in; O(1) amortised.

        Returns
        -------
        str
            ``added``; ``corrected`` or ``withdrawn`` when the query had contributed before; ``overruled`` when another
            labeler's contribution stays in place; ``duplicate`` when what is known is at least as new; ``too_late``
            when its time has been dropped from the window.
        """
        times = to_us(example.routed_at), to_us(example.labelled_at)
        slot, labeler = self._slots.get(example.query_id), self._number(example.labeler)
        if slot is None:
            return self._take_first(example, *times, labeler)
        return self._take_another(slot, example, *times, labeler)

    def _take_first(self, example: LabelledExample, routed_us: int, labelled_us: int, labeler: float) -> Change:
        if routed_us <= self._floor_us:
            return "too_late"
        if len(self._ids) == self._room:
            self._drop_oldest()
        slot = self._slots[example.query_id] = len(self._ids)
        self._ids.append(example.query_id)
        self._write(slot, example, routed_us, labelled_us, labeler)
        self._begin(slot)
        return "withdrawn" if example.retracted else "added"

    def _take_another(
        self, slot: int, example: LabelledExample, routed_us: int, labelled_us: int, labeler: float
    ) -> Change:
        held_routed_us, *held, counts, held_labeler = self._table[
            slot, [ROUTED_US, REVISION, LABELLED_US, COUNTS, LABELER]
        ].tolist()
        revision, retracted = min(example.revision, _REVISION_MOST), example.retracted
        another = not retracted and NOBODY not in (labeler, held_labeler) and labeler != held_labeler
        # Of one query the highest counts; when all else is equal, withdrawing does.
        stale = (revision, labelled_us, retracted) <= (*held, counts == WITHDRAWN)
        overruled = stale or (labeler in self._distrusted and held_labeler not in self._distrusted)
        if another and overruled and revision != held[0]:
            self.overruled.put(example.query_id, self._contribution(slot, example, routed_us, labelled_us, labeler))
            return "overruled"
        if stale:
            return "duplicate"
        self._keep_overruled(slot, example.query_id, labeler, another=another and counts != WITHDRAWN)
        before = self._table[slot].copy()
        self._take_out(slot, held_routed_us, routed_us)
        self._write(slot, example, routed_us, labelled_us, labeler)
        self._follow(slot, before)
        # A label sent again for something that changes no outcome, such as who disagrees with it, corrects nothing.
        alike = np.array_equal(before[_SAID], self._table[slot, _SAID])
        return "withdrawn" if retracted else "duplicate" if alike else "corrected"

    def _number(self, labeler: str | None) -> float:
        if labeler is None:
            return NOBODY
        number = self._labelers.get(labeler)
        if number is None:
            if len(self._labelers) >= LABELERS_MOST:
                return OTHERS
            number = self._labelers[labeler] = len(self._labelers) + 1
        return float(number)

    def _keep_overruled(self, slot: int, query_id: str, labeler: float, *, another: bool) -> None:
        """Keep what another labeler said before; where that labeler speaks again, nothing older is kept."""
        kept = self.overruled.get(query_id)
        if kept is not None and kept.labeler == labeler:
            self.overruled.drop(query_id)
        elif another:
            self.overruled.put(query_id, self._held(slot))

    def _held(self, slot: int) -> Contribution:
        return Contribution(self._table[slot].copy(), self._per_field[slot].copy())

    def _contribution(
        self, slot: int, example: LabelledExample, routed_us: int, labelled_us: int, labeler: float
    ) -> Contribution:
        """Return an example as it would stand in a slot, which keeps what it holds."""
        standing = self._held(slot)
        counting = self._counting
        self._per_field[slot] = 0
        self._write(slot, example, routed_us, labelled_us, labeler)
        made = self._held(slot)
        made.row[[FIRST_ERROR, SERIAL]] = standing.row[[FIRST_ERROR, SERIAL]]
        self._table[slot], self._per_field[slot], self._counting = standing.row, standing.per_field, counting
        return made

    def _begin(self, slot: int) -> None:
        """Note what the first label of a query says."""
        row = self._table[slot]
        row[SERIAL], row[FIRST_ERROR] = self.revisions.serial, row[ERROR]
        if row[COUNTS] > 0.0:
            self.revisions.first(self._relation(row), float(row[ERROR]))

    def _follow(self, slot: int, before: NDArray[np.float64]) -> None:
        """Note what a correction changes, or a withdrawal."""
        row = self._table[slot]
        row[FIRST_ERROR], row[SERIAL] = before[FIRST_ERROR], before[SERIAL]
        if before[COUNTS] > 0.0 and row[COUNTS] > 0.0:
            self.revisions.moved(self._relation(before), row[SERIAL], before[ERROR], row[ERROR])
        elif before[COUNTS] > 0.0:
            self.revisions.withdrawn(self._relation(before), row[SERIAL], before[FIRST_ERROR], before[ERROR])
        elif row[COUNTS] > 0.0:
            self._begin(slot)

    def _relation(self, row: NDArray[np.float64]) -> int:
        return int(row[GROUP]) // self.grid.cells

    def standing(self, query_id: str) -> float:
        """Return as what the contribution of a query counts; see :mod:`recalibrator.fit.data.table`."""
        slot = self._slots.get(query_id)
        return UNREQUESTED if slot is None else float(self._table[slot, COUNTS])

    @property
    def labelers(self) -> tuple[str, ...]:
        """Names of the labelers told apart; the first has number 1."""
        return tuple(self._labelers)

    @property
    def distrusted(self) -> tuple[str, ...]:
        """Names of the labelers who are set aside."""
        return tuple(name for name, number in self._labelers.items() if number in self._distrusted)

    def distrust(self, labelers: frozenset[int]) -> None:
        """Set all labels of these labelers aside, and take back those of all others.

        Where one of them has overruled somebody else, the earlier label stands again; where such a one is believed
        again, the later does.
        """
        self._distrusted = labelers
        for query_id in self.overruled.queries():
            slot, kept = self._slots[query_id], self.overruled.get(query_id)
            assert kept is not None
            here = self._held(slot)
            ranks = [(one.labeler not in labelers, one.revision) for one in (here, kept)]
            if here.row[COUNTS] != WITHDRAWN and ranks[1] > ranks[0]:
                self.overruled.replace(query_id, here)
                self._table[slot], self._per_field[slot] = kept
        self._set_standing()

    def quarantine(self, spans: tuple[Span, ...]) -> None:
        """Set ordinary labels aside that were routed in these spans of time, and take back all others.

        What is set aside stays known and weighs nothing; trusted answers always count.
        """
        self._spans = tuple(span for span in spans if span[1] is None or span[1] > self._floor_us)
        self._set_standing()

    def _set_standing(self) -> None:
        table = self.table
        counts, routed_us = table[:, COUNTS], table[:, ROUTED_US]
        inside = np.zeros(len(table), dtype=bool)
        for begins, ends in self._spans:
            inside |= (routed_us >= begins) & (routed_us < (_UNTOUCHED if ends is None else ends))
        ordinary = (counts == COUNTED) | (counts == SET_ASIDE) | (counts == DISTRUSTED)
        counts[ordinary] = np.where(inside[ordinary], SET_ASIDE, COUNTED)
        if self._distrusted:
            theirs = np.isin(table[:, LABELER], sorted(self._distrusted)) & (counts > UNREQUESTED) & (counts != AUDITED)
            counts[theirs] = DISTRUSTED
        self._rearranged()

    def labels_since(self, instant_us: int) -> int:
        """Return the number of contributions that count and were routed at or after a time."""
        return int(np.count_nonzero(self.table[self._routed_since(instant_us), COUNTS] > 0.0))

    @property
    def spans(self) -> tuple[Span, ...]:
        """Spans in quarantine, those aside that end before the window begins."""
        return self._spans

    def sets_aside(self, routed_us: int) -> bool:
        """Whether an ordinary label of a query routed then is in quarantine."""
        spans = self._spans
        return bool(spans) and any(a <= routed_us and (b is None or routed_us < b) for a, b in spans)

    def set_aside_since(self, instant_us: int) -> int:
        """Return the number of contributions in quarantine that were routed at or after a time."""
        table = self.table
        return int(np.count_nonzero((table[:, COUNTS] == SET_ASIDE) & (table[:, ROUTED_US] >= instant_us)))

    def earlier(self, instant_us: int, labels: int) -> int:
        """Return the routing time that lies so many contributions before a time; that time, where these are half."""
        routed_us = np.sort(self.table[:, ROUTED_US])
        place = int(np.searchsorted(routed_us, instant_us, side="left"))
        return int(routed_us[place - labels]) if place > 2 * labels else instant_us

    def distrusted_labels(self) -> dict[str, int]:
        """Return by name how many contributions of each labeler are set aside."""
        table = self.table
        theirs = table[table[:, COUNTS] == DISTRUSTED, LABELER]
        return {name: int(np.count_nonzero(theirs == self._labelers[name])) for name in self.distrusted}

    def labelers_since(self, instant_us: int) -> NDArray[np.float64]:
        """Return the numbers of the labelers of ordinary labels that were routed at or after a time."""
        table = self.table
        ordinary = (table[:, COUNTS] == COUNTED) | (table[:, COUNTS] == SET_ASIDE)
        numbers = np.unique(table[ordinary & (table[:, ROUTED_US] >= instant_us), LABELER])
        named: NDArray[np.float64] = numbers[numbers != NOBODY]
        return named

    def errors_since(
        self, since_us: int, *, audited: bool, suspects: NDArray[np.float64] | None = None
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
        """Return of queries with u that were routed since a time what is known of agreement, the cell and the error.

        Parameters
        ----------
        since_us : int
        audited : bool
            Whether by answers to audits; else by ordinary labels, those in quarantine included.
        suspects : ndarray, shape (labelers,), optional
            Numbers of labelers whose answers to audits decide nothing, unless they are trusted by name.

        Returns
        -------
        relation : ndarray of int, shape (labels,)
            0 where only one model answered, 1 where the answers differ, 2 where they are equal.
        cell : ndarray of int, shape (labels,)
        error : ndarray, shape (labels,)
            1 where the small answer is wrong.
        """
        table = self.table
        counts = table[:, COUNTS]
        if audited:
            wanted = (counts == AUDITED) | (
                (counts == ANSWERED) & ~np.isin(table[:, LABELER], _NO_LABELERS if suspects is None else suspects)
            )
        else:
            wanted = (counts == COUNTED) | (counts == SET_ASIDE)
        rows = wanted & (table[:, ROUTED_US] >= since_us) & (table[:, GROUP] < self.groups - 1)
        relation, cell = np.divmod(table[rows, GROUP].astype(np.intp), self.grid.cells)
        return relation, cell, table[rows, ERROR]

    def _take_out(self, slot: int, held_routed_us: float, routed_us: int) -> None:
        """Make room for what replaces a contribution; it may have another time, or another prediction."""
        self._counting -= int(self._table[slot, COUNTS] > 0.0)
        self._per_field[slot] = 0
        self._touched_us = min(self._touched_us, held_routed_us, routed_us)
        self._by_prediction.forget()
        if routed_us != held_routed_us:
            self._by_time.forget()

    def _write(self, slot: int, example: LabelledExample, routed_us: int, labelled_us: int, labeler: float) -> None:
        """Note one contribution as numbers, z² of both answers for the target in force included."""
        large, uncertainty, predicted = example.large, example.uncertainty, example.error_probability
        target, gold = self.target, example.gold_count
        a_small, d_small = _hits_and_size(example.small, gold)
        z_small = a_small - target * d_small
        a_large = d_large = z_large = pair = 0.0
        # A degraded answer is the small one: the failed call says nothing of the large model's answers.
        if large is not None and example.reason != "degraded":
            a_large, d_large = _hits_and_size(large, gold)
            z_large = a_large - target * d_large
            pair = 1.0
        if uncertainty is None:
            group = self.groups - 1
        else:
            group = self.grid.index(uncertainty)
            if pair and example.agree is not None:
                group += 2 * self.grid.cells if example.agree else self.grid.cells
        counts = self._standing_of(example, routed_us, labeler)
        if counts > 0.0:
            self._counting += 1
        _ROW.pack_into(
            self._table_bytes,
            slot * _ROW.size,
            *(1.0, a_small, d_small, z_small * z_small, 0.0 if example.small_exact else 1.0),
            *(pair, a_large, d_large, z_large * z_large),
            *(group, routed_us, labelled_us, min(example.revision, _REVISION_MOST), counts),
            _UNKNOWN if predicted is None else predicted,
            example.label_probability,
            *(labeler, 0.0, 0.0),
        )
        if example.per_field is not None:
            self._write_fields(slot, example.per_field)

    def _standing_of(self, example: LabelledExample, routed_us: int, labeler: float) -> float:
        if example.retracted:
            return WITHDRAWN
        if not example.label_requested:
            return UNREQUESTED
        audited = example.label_reason == "audit"
        # Records of earlier releases name nobody: every answer to an audit was trusted then.
        if audited and (example.trusted or (example.trusted is None and labeler == NOBODY)):
            return AUDITED
        if labeler in self._distrusted:
            return DISTRUSTED
        if audited and example.trusted is None:
            return ANSWERED
        return SET_ASIDE if self.sets_aside(routed_us) else COUNTED

    def _write_fields(self, slot: int, per_field: dict[str, FieldCounts]) -> None:
        counts: list[int] = []
        for name in self.fields:
            found = per_field.get(name)
            counts += (0, 0, 0) if found is None else (found.true_positives, found.predicted, found.gold)
        if max(counts) > _COUNT_MOST:
            counts = [min(count, _COUNT_MOST) for count in counts]
        self._field_row.pack_into(self._per_field_bytes, slot * self._field_row.size, *counts)

    def _drop_oldest(self) -> None:
        order = self._by_time.merge(self.table[:, ROUTED_US])
        self._floor_us = int(self._table[order[-self.capacity - 1], ROUTED_US])
        kept = np.sort(order[-self.capacity :])
        for columns in (self._table, self._per_field):
            columns[: self.capacity] = columns[kept]
            columns[self.capacity :] = 0
        self._ids = [self._ids[slot] for slot in kept.tolist()]
        self._slots = {query_id: slot for slot, query_id in enumerate(self._ids)}
        self.overruled.keep_only(self._slots)
        self._rearranged()

    def _rearranged(self) -> None:
        """Begin all that is kept from look to look anew."""
        self._looked_at, self._touched_us = 0, _UNTOUCHED
        self._counting = int(np.count_nonzero(self.table[:, COUNTS] > 0.0))
        self._by_time.forget()
        self._by_prediction.forget()
        self._forgetting.forget()

    def forgotten(self, half_lives: HalfLives, changed_us: int | None) -> Forgotten:
        """Return the sums by group of all that counts, older contributions weighing less.

        Parameters
        ----------
        half_lives : HalfLives
        changed_us : int or None
            Contributions routed before then are added up apart.
        """
        table = self.table
        touched_us = table[self._looked_at :, ROUTED_US].min(initial=self._touched_us)
        self._looked_at, self._touched_us = len(table), _UNTOUCHED
        order = self._by_time.merge(table[:, ROUTED_US])
        return self._forgetting.look(table, order, self._counting, half_lives, changed_us, touched_us)

    def latest(self, since_us: float, half_life: float) -> NDArray[np.float64]:
        """Return by group the forgotten weight of what was routed since a time: of all that counts, and of pairs.

        Parameters
        ----------
        since_us : float
        half_life : float
            In labels.

        Returns
        -------
        ndarray, shape (2, groups)
        """
        return latest(self.table.take(self._routed_since(since_us), axis=0), half_life, self.groups)

    def _routed_since(self, instant_us: float) -> NDArray[np.intp]:
        """Return the contributions that were routed at or after a time, by that time."""
        order = self._by_time.merge(self.table[:, ROUTED_US])
        return order[int(np.searchsorted(self._by_time.keys, instant_us, side="left")) :]

    def newer(self) -> NDArray[np.intp]:
        """Return for each contribution how many that count were routed after it, shape (contributions,)."""
        table = self.table
        order = self._by_time.merge(table[:, ROUTED_US])
        counts = np.ones(len(order)) if self._counting == len(order) else table[order, COUNTS] > 0.0
        after = self._counting - np.cumsum(counts, dtype=np.intp)
        times = self._by_time.keys
        last = np.append(times[1:] != times[:-1], True)
        if not last.all():  # equal times share the age of the newest among them, so that their order is irrelevant
            after = after[last][np.cumsum(last) - last]
        result = np.empty(len(order), dtype=np.intp)
        result[order] = after
        return result

    def by_prediction(self) -> NDArray[np.intp]:
        """Return the contributions by g(u) as routed, those where it is unknown last; shape (contributions,)."""
        return self._by_prediction.merge(self.table[:, PREDICTED])

    def state(self) -> dict[str, Any]:
        """Return the window as JSON values, exact."""
        return {
            "ids": list(self._ids),
            "floor_us": self._floor_us,
            "outcomes": pack(self.table[:, :OUTCOMES]),
            "facts": pack(self.table[:, OUTCOMES:]),
            "per_field": pack(self.per_field),
            "spans": [list(span) for span in self._spans],
            "labelers": list(self._labelers),
            "distrusted": sorted(self._distrusted),
            "overruled": self.overruled.state(),
            "revisions": self.revisions.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the content by a former :meth:`state`; the target may have changed since."""
        self._ids = list(state["ids"])
        self._slots = {query_id: slot for slot, query_id in enumerate(self._ids)}
        self._floor_us = int(state["floor_us"])
        table = self.table
        table[:, :OUTCOMES] = unpack(state["outcomes"], table[:, :OUTCOMES])
        table[:, OUTCOMES:] = unpack(state["facts"], table[:, OUTCOMES:])
        self.per_field[:] = unpack(state["per_field"], self.per_field)
        for square, hits, size in ((SQUARE_SMALL, HITS_SMALL, SIZE_SMALL), (SQUARE_LARGE, HITS_LARGE, SIZE_LARGE)):
            table[:, square] = np.square(table[:, hits] - self.target * table[:, size])
        self._spans = tuple((begins_us, ends_us) for begins_us, ends_us in state["spans"])
        self._labelers = {name: number for number, name in enumerate(state["labelers"], start=1)}
        self._distrusted = frozenset(state["distrusted"])
        self.overruled.load(state["overruled"])
        self.revisions.load(state["revisions"])
        self._rearranged()


def _hits_and_size(answer: OutcomeCounts, gold: int) -> tuple[float, float]:
    """Return a = 2·TP and d = predicted + gold."""
    hits, size = answer.true_positives, answer.predicted + gold
    if size > _COUNT_MOST:
        hits, size = min(hits, _COUNT_MOST), min(size, 2 * _COUNT_MOST)
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
