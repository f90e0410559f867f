"""The latest labels as named columns, one row a query, in whatever order they come.

Of one query the highest (revision, labelled_at) counts, so that corrections replace, retractions remove and duplicates
change nothing. Age goes by routing time and never by arrival: any order of the same events gives the same rows up to
their order.
"""

from __future__ import annotations

import struct
from math import inf
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalibrator.fit.codec import Floats, Ints, Kept, Numbers
from recalibrator.fit.data import label_columns as at
from recalibrator.fit.data.label_columns import COLUMNS, LEAST_PROPENSITY, NOBODY, OTHERS, OUTCOMES, Standing
from recalibrator.fit.data.slips import Flips, Revisions, Slips
from recalibrator.grid import Grid
from schemas.event import to_us
from schemas.labelled import LabelledExample, OutcomeCounts

Change = Literal["added", "corrected", "withdrawn", "duplicate", "too_late", "overruled"]
Span = tuple[int, int | None]
"""Routing times from the first on and before the second; None: without end."""

Distrust = dict[int, tuple[Span, ...]]
"""By a labeler's number, when the queries were routed whose labels by them are set aside."""

_SLACK = 0.25
_UNKNOWN = float("nan")
_COUNT_MOST = 2**31 - 1
_REVISION_MOST = 2**53
"""Cut there, no square or sum overflows whatever a labeler sends."""

LABELERS_MOST = 256
"""Labelers who have a number of their own; those beyond share one."""

_SAID = [*range(OUTCOMES), at.GROUP, at.STANDING, at.LABELER]
"""What a label says, as far as the estimates go."""

_SERVED, _OF_SMALL = 3, 2
"""Counts of a field: TP, predicted and gold of the served answer; then TP and predicted of the small one."""

_NOT_KNOWN = (-1, -1)

_Row = tuple[float, ...]

_ROW = struct.Struct(f"{COLUMNS}d")
_STANDINGS = {float(one): one for one in Standing}


class Contribution(NamedTuple):
    """One label as the table keeps it: its row, and its counts by field."""

    row: Floats
    per_field: Numbers


class LabelTable:
    """The latest contributions, one a query, of bounded number.

    Beyond ``capacity`` a quarter more are held until the oldest are dropped at once, which keeps the cost of a label
    constant. ``target`` is τ, for z²; corrections are remembered by ``half_life``, in labels; ``by_model`` keeps the
    small answer's counts by field beside those of the served one, for :meth:`of_field`.

    A contribution belongs to one of ``groups`` rows of a table of counts: its cell of u when the answers' agreement
    is unknown, ``cells`` later when they disagree, twice that when they agree; the last row is for failed small
    answers, which have no u.
    """

    _ids: Kept[list[str]]
    _floor_us: Kept[int] = -1
    _table: Kept[Floats]
    _per_field: Kept[Numbers]
    slips: Kept[tuple[Slips, ...]] = ()
    _labelers: Kept[dict[str, int]]
    distrust: Kept[Distrust]
    #: By query, the latest label that another labeler's stands before. Of several opinions the latest counts; where
    #: its labeler is set aside, the one before it has to count again.
    overruled: Kept[dict[str, Contribution]]
    revisions: Kept[Revisions]

    def __init__(
        self,
        grid: Grid,
        target: float,
        fields: tuple[str, ...],
        capacity: int,
        *,
        half_life: float = 1e9,
        by_model: bool = False,
    ) -> None:
        self.grid, self.target, self.fields, self.capacity = grid, target, fields, capacity
        self.groups = 3 * grid.cells + 1
        self.room = capacity + max(1, int(capacity * _SLACK))
        self._table = np.zeros((self.room, COLUMNS))
        self._counts_of_field = _SERVED + (_OF_SMALL if by_model else 0)
        self._per_field = np.zeros((self.room, len(fields), self._counts_of_field), dtype=np.int32)
        self._use_bytes()
        self._by_time: tuple[Ints, Floats] | None = None
        self._field_row = struct.Struct(f"{self._counts_of_field * len(fields)}i")
        self._ids = []
        self._slots: dict[str, int] = {}
        self._labelers = {}
        self.distrust = {}
        self.overruled = {}
        self.revisions = Revisions(half_life)

    def __len__(self) -> int:
        return len(self._ids)

    def _use_bytes(self) -> None:
        # Rows are written as bytes: one label costs a fraction of what an assignment to an array does.
        self._table_bytes, self._per_field_bytes = self._table.data.cast("B"), self._per_field.data.cast("B")

    @property
    def table(self) -> Floats:
        """One row a contribution, shape (contributions, ``COLUMNS``)."""
        return self._table[: len(self._ids)]

    @property
    def counting(self) -> int:
        """How many of them count."""
        return int(np.count_nonzero(self.table[:, at.STANDING] > 0.0))

    def by_time(self) -> tuple[Ints, Floats]:
        """Return where the contributions that count are, by routing time, and their columns; to read.

        Those of equal times stand as they came. Until something changes they are sorted once.
        """
        if self._by_time is None:
            counting = np.flatnonzero(self.table[:, at.STANDING] > 0.0)
            order = counting[np.argsort(self.table[counting, at.ROUTED_US], kind="stable")]
            self._by_time = order, np.ascontiguousarray(self.table.take(order, axis=0).T)
        return self._by_time

    @property
    def per_field(self) -> NDArray[np.int32]:
        """TP, predicted and gold of the served answer, shape (contributions, fields, 3)."""
        return self._per_field[: len(self._ids), :, :_SERVED]

    def of_field(self, name: str, target: float) -> LabelTable:
        """Return the same labels with the outcomes of one field, scored by its target; as of now.

        Labels that do not say what both models gave in this field do not count. Where both ran it is the small model's
        answer that they lack, and whether both ran is drawn at any u: a fair sample of either model's answers is left.
        """
        found, place = LabelTable(self.grid, target, (name,), max(1, len(self))), self.fields.index(name)
        found._ids = self._ids  # read, never written
        table, counts = found.table, self._per_field[: len(self), place].astype(np.float64).T
        table[:] = self.table
        hits, predicted, gold, small_hits, small_predicted = counts
        is_pair = table[:, at.PAIR] > 0.0
        table[:, at.HITS_SMALL], table[:, at.SIZE_SMALL] = 2.0 * small_hits, small_predicted + gold
        table[:, at.HITS_LARGE] = np.where(is_pair, 2.0 * hits, 0.0)
        table[:, at.SIZE_LARGE] = np.where(is_pair, predicted + gold, 0.0)
        table[small_hits < 0.0, at.STANDING] = Standing.UNREQUESTED
        found.slips = self.slips
        found._score_anew()
        return found

    def offer(self, example: LabelledExample, explored: float | None = None) -> Change:
        """Take one example in; O(1) amortised.

        ``explored`` is the exploration probability of the version that routed it, where that draws an atom as well.
        Returns ``added``; ``corrected`` or ``withdrawn`` when the query had contributed before; ``overruled`` when
        another labeler's contribution stays in place; ``duplicate`` when what is known is at least as new; ``too_late``
        when its time has been dropped from the window.
        """
        row, counts = self._row(example, explored), self._counts(example)
        slot = self._slots.get(example.query_id)
        self._by_time = None
        if slot is not None:
            return self._take_another(slot, example.query_id, row, counts)
        if row[at.ROUTED_US] <= self._floor_us:
            return "too_late"
        if len(self._ids) == self.room:
            self._drop_oldest()
        slot = self._slots[example.query_id] = len(self._ids)
        self._ids.append(example.query_id)
        self._write(slot, row, counts)
        if row[at.STANDING] > 0.0:
            self.revisions.first(row[at.ERROR])
        return "withdrawn" if example.retracted else "added"

    def _take_another(self, slot: int, query_id: str, row: _Row, counts: list[int]) -> Change:
        # Two questions at once. Which of both labels is the query's by its number: the higher revision, of equal ones
        # the later. And may the newer be believed: one labeler's word is not to outweigh everybody else's where that
        # labeler is set aside. What loses stays known, in case the winner is set aside later.
        held, kept = self._held(slot), self.overruled.get(query_id)
        labeler, revision, labelled_us = row[at.LABELER], row[at.REVISION], row[at.LABELLED_US]
        held_labeler, held_revision, held_us = held.row[[at.LABELER, at.REVISION, at.LABELLED_US]].tolist()
        retracted, was_retracted = (one[at.STANDING] == Standing.WITHDRAWN for one in (row, held.row))
        another = not retracted and NOBODY not in (labeler, held_labeler) and labeler != held_labeler
        # Of one query the highest counts; when all else is equal, withdrawing does.
        stale = (revision, labelled_us, retracted) <= (held_revision, held_us, was_retracted)
        if another and revision != held_revision and (stale or self._is_believed_less(row, held.row)):
            made = Contribution(np.array(row), np.zeros_like(held.per_field))
            made.row[at.SERIAL] = held.row[at.SERIAL]
            made.per_field.reshape(-1)[: len(counts)] = counts
            self._overrule(query_id, made)
            return "overruled"
        if stale:
            return "duplicate"
        # Where that labeler speaks again, nothing older is kept.
        if kept is not None and kept.row[at.LABELER] == labeler:
            del self.overruled[query_id]
        elif another and not was_retracted:
            self._overrule(query_id, held)
        self._per_field[slot] = 0
        self._write(slot, row, counts)
        self._follow(slot, held.row)
        # A label sent again for something that changes no outcome, such as who disagrees with it, corrects nothing.
        is_same = np.array_equal(held.row[_SAID], self._table[slot, _SAID])
        return "withdrawn" if retracted else "duplicate" if is_same else "corrected"

    def _number(self, labeler: str | None) -> float:
        if labeler is None:
            return NOBODY
        number = self._labelers.get(labeler)
        if number is None and len(self._labelers) < LABELERS_MOST:
            number = self._labelers[labeler] = len(self._labelers) + 1
        return OTHERS if number is None else float(number)

    def _overrule(self, query_id: str, label: Contribution) -> None:
        kept = self.overruled.get(query_id)
        if kept is None or kept.row[at.REVISION] < label.row[at.REVISION]:
            self.overruled[query_id] = label

    def _held(self, slot: int) -> Contribution:
        return Contribution(self._table[slot].copy(), self._per_field[slot].copy())

    def _follow(self, slot: int, before: Floats) -> None:
        """Note what a correction changes, or a withdrawal."""
        row = self._table[slot]
        heard, heard_before = row[at.STANDING] > 0.0, before[at.STANDING] > 0.0
        if heard and not heard_before:
            self.revisions.first(row.item(at.ERROR))
            return
        row[at.SERIAL] = before[at.SERIAL]
        if heard_before:
            self.revisions.moved(row.item(at.SERIAL), row.item(at.ERROR) if heard else None)

    @property
    def flips(self) -> Flips:
        """How first labels differ from what will stand."""
        return self.revisions.flips()

    def standing(self, query_id: str) -> Standing:
        """Return as what the label of a query stands in the estimates."""
        slot = self._slots.get(query_id)
        return Standing.UNREQUESTED if slot is None else _STANDINGS[self._table.item(slot, at.STANDING)]

    @property
    def labelers(self) -> tuple[str, ...]:
        """Names of the labelers with a number of their own; the first has number 1."""
        return tuple(self._labelers)

    @property
    def distrusted(self) -> tuple[str, ...]:
        """Names of the labelers who are set aside."""
        aside = {number for number, spans in self.distrust.items() if spans[-1][1] is None}
        return tuple(name for name, number in self._labelers.items() if number in aside)

    def set_distrust(self, distrust: Distrust) -> None:
        """Set labels of some labelers aside by when their queries were routed, and take back those of all others.

        Where one of them has superseded somebody else, the earlier label counts again; where such a one is believed
        again, the later does.
        """
        self.distrust = distrust
        for query_id, kept in self.overruled.items():
            slot = self._slots[query_id]
            here = self._held(slot)
            ranks = [
                (not self._is_distrusted(row[at.LABELER], row[at.ROUTED_US]), row[at.REVISION])
                for row in (here.row, kept.row)
            ]
            if here.row[at.STANDING] != Standing.WITHDRAWN and ranks[1] > ranks[0]:
                self.overruled[query_id] = here
                self._table[slot], self._per_field[slot] = kept
        table, self._by_time = self.table, None
        counts, routed_us = table[:, at.STANDING], table[:, at.ROUTED_US]
        counts[counts == Standing.DISTRUSTED] = Standing.COUNTED
        believed = (counts > Standing.UNREQUESTED) & (counts != Standing.AUDITED)
        for labeler, spans in distrust.items():
            counts[believed & (table[:, at.LABELER] == labeler) & are_in(routed_us, spans)] = Standing.DISTRUSTED

    def _is_distrusted(self, labeler: float, routed_us: float) -> bool:
        spans = self.distrust.get(int(labeler), ()) if self.distrust else ()
        return any(begins <= routed_us and (ends is None or routed_us < ends) for begins, ends in spans)

    def _is_believed_less(self, row: _Row | Floats, other: Floats) -> bool:
        """Whether a label's labeler is set aside, and that of another label is not."""
        mine, theirs = (self._is_distrusted(one[at.LABELER], one[at.ROUTED_US]) for one in (row, other))
        return mine and not theirs

    def worth(self, rows: Floats) -> Floats:
        """Return what each of some labels is worth, since a crowd may slip, shape (labels,)."""
        found = np.ones(len(rows))
        for one in self.slips:
            found *= one.weights(rows)
        return found

    def truth(self, cell: int | None, agree: bool | None, error: float, routed_us: int) -> float:
        """Return how likely the small answer is wrong where a label by the crowd says so, or does not."""
        if cell is not None:
            for one in self.slips:
                if one.covers(routed_us):
                    relation = 0 if agree is None else 1 + agree
                    error = one.truth(relation * self.grid.cells + cell, error)
        return error

    @property
    def slipped(self) -> float:
        """How many of the labels are slips, in expectation."""
        counting = self.table[self.table[:, at.STANDING] > 0.0]
        return float(np.maximum(0.0, 1.0 - self.worth(counting)).sum())

    def labels_since(self, instant_us: int) -> int:
        """Return the number of contributions that count and were routed at or after a time."""
        standing, routed_us = self.table[:, at.STANDING], self.table[:, at.ROUTED_US]
        return int(np.count_nonzero((routed_us >= instant_us) & (standing > 0.0)))

    def earlier(self, instant_us: int, labels: int) -> int:
        """Return the routing time that lies so many contributions before a time; that time, where these are half."""
        routed_us = np.sort(self.table[:, at.ROUTED_US])
        place = int(np.searchsorted(routed_us, instant_us, side="left"))
        return int(routed_us[place - labels]) if place > 2 * labels else instant_us

    def distrusted_labels(self) -> dict[str, int]:
        """Return by name how many contributions of each labeler are set aside."""
        table = self.table
        theirs = table[table[:, at.STANDING] == Standing.DISTRUSTED, at.LABELER]
        return {name: int(np.count_nonzero(theirs == self._labelers[name])) for name in self.distrusted}

    def errors_since(
        self, since_us: int, *, audited: bool, suspected_us: int | None = None
    ) -> tuple[Ints, Ints, Floats]:
        """Return of queries with u that were routed since a time what is known of agreement, the cell and the error.

        Of agreement: 0 where only one model answered, 1 where the answers differ, 2 where they are equal; the error is
        1 where the small answer is wrong. They are labelled by answers to audits, or else by ordinary labels.
        ``suspected_us``: answers to audits by who has given ordinary labels since then decide nothing, unless they are
        trusted by name.
        """
        table = self.table
        standing, routed_us, labeler = table[:, at.STANDING], table[:, at.ROUTED_US], table[:, at.LABELER]
        wanted = standing == Standing.COUNTED
        if audited:
            since = inf if suspected_us is None else suspected_us
            suspects = labeler[wanted & (routed_us >= since) & (labeler != NOBODY)]
            wanted = (standing == Standing.ANSWERED) & ~np.isin(labeler, suspects) | (standing == Standing.AUDITED)
        rows = wanted & (routed_us >= since_us) & (table[:, at.GROUP] < self.groups - 1)
        relation, cell = np.divmod(table[rows, at.GROUP].astype(np.intp), self.grid.cells)
        return relation, cell, table[rows, at.ERROR]

    def _write(self, slot: int, row: _Row, counts: list[int]) -> None:
        _ROW.pack_into(self._table_bytes, slot * _ROW.size, *row)
        if counts:
            self._field_row.pack_into(self._per_field_bytes, slot * self._field_row.size, *counts)

    def _row(self, example: LabelledExample, explored: float | None) -> _Row:
        """Return one label as numbers, z² of both answers for the target in force included."""
        large, uncertainty, predicted = example.large, example.uncertainty, example.error_probability
        target, gold, small, labeler = self.target, example.gold_count, example.small, self._number(example.labeler)
        routed_us, labelled_us = to_us(example.routed_at), to_us(example.labelled_at)
        assert small is not None
        assert gold is not None
        a_small, d_small = _hits_and_size(small, gold)
        z_small = a_small - target * d_small
        a_large = d_large = z_large = pair = 0.0
        # A degraded answer is the small one: the failed call says nothing of the large model's answers.
        if large is not None and example.reason != "degraded":
            a_large, d_large = _hits_and_size(large, gold)
            z_large = a_large - target * d_large
            pair = 1.0
        group = self.groups - 1
        if uncertainty is not None:
            group = self.grid.index(uncertainty)
            if pair and example.agree is not None:
                group += 2 * self.grid.cells if example.agree else self.grid.cells
        return (
            *(1.0, a_small, d_small, z_small * z_small, 0.0 if example.small_exact else 1.0),
            *(pair, a_large, d_large, z_large * z_large),
            *(group, routed_us, labelled_us, min(example.revision, _REVISION_MOST)),
            self._standing_of(example, routed_us, labeler),
            _UNKNOWN if predicted is None else predicted,
            example.label_probability,
            *(labeler, self.revisions.serial, *_served(example, explored)),
        )

    def _standing_of(self, example: LabelledExample, routed_us: int, labeler: float) -> Standing:
        if example.retracted:
            return Standing.WITHDRAWN
        if not example.label_requested:
            return Standing.UNREQUESTED
        audited = example.label_reason == "audit"
        # Where nobody is named and nobody is said to be trusted, an audit's answer is all there is.
        if audited and (example.trusted or (example.trusted is None and labeler == NOBODY)):
            return Standing.AUDITED
        if self._is_distrusted(labeler, routed_us):
            return Standing.DISTRUSTED
        return Standing.ANSWERED if audited and example.trusted is None else Standing.COUNTED

    def _counts(self, example: LabelledExample) -> list[int]:
        """Return the counts by field, if there are any."""
        by_model = self._counts_of_field > _SERVED
        if example.per_field is None and not by_model:
            return []
        counts = list[int]()
        is_pair = example.large is not None and example.reason != "degraded"
        for name in self.fields:
            found = None if example.per_field is None else example.per_field.get(name)
            counts += (0, 0, 0) if found is None else (found.true_positives, found.predicted, found.gold)
            if by_model:
                # Of a pair the large answer was served; without one the small answer was.
                small = found if not is_pair else (example.small_per_field or {}).get(name)
                counts += _NOT_KNOWN if found is None or small is None else (small.true_positives, small.predicted)
        return [min(count, _COUNT_MOST) for count in counts]

    def _drop_oldest(self) -> None:
        order = np.argsort(self.table[:, at.ROUTED_US], kind="stable")
        self._floor_us = int(self._table[order[-self.capacity - 1], at.ROUTED_US])
        kept = np.sort(order[-self.capacity :])
        for columns in (self._table, self._per_field):
            columns[: self.capacity] = columns[kept]
            columns[self.capacity :] = 0
        self._ids = [self._ids[slot] for slot in kept.tolist()]
        self._slots = {query_id: slot for slot, query_id in enumerate(self._ids)}
        self.overruled = {query_id: one for query_id, one in self.overruled.items() if query_id in self._slots}
        self.slips = tuple(one for one in self.slips if one.ended_us is None or one.ended_us > self._floor_us)

    def retarget(self, target: float) -> None:
        """Score all answers by another τ from now on."""
        if target != self.target:
            self.target = target
            self._score_anew()

    def _score_anew(self) -> None:
        table, self._by_time = self.table, None
        for model in (at.SMALL, at.LARGE):
            table[:, model.squares] = np.square(table[:, model.hits] - self.target * table[:, model.size])

    def restored(self) -> None:
        """Compute what follows from the state; the target, and which counts are kept, may have changed since."""
        self._per_field = self._with_counts(self._per_field)
        kept = self.overruled.items()
        self.overruled = {one: Contribution(row, self._with_counts(held)) for one, (row, held) in kept}
        self._slots = {query_id: slot for slot, query_id in enumerate(self._ids)}
        self._use_bytes()
        self._score_anew()

    def _with_counts(self, held: Numbers) -> Numbers:
        """Return counts by field as they are kept now; those that were not kept are -1, not known."""
        if held.shape[-1] == self._counts_of_field:
            return held
        found = np.full((*held.shape[:-1], self._counts_of_field), -1, dtype=np.int32)
        kept = min(held.shape[-1], self._counts_of_field)
        found[..., :kept] = held[..., :kept]
        return found


def _served(example: LabelledExample, explored: float | None) -> tuple[float, float]:
    """Return how many queries a label stands for by whose answer they were served.

    Of queries of one u that are labelled, those that explore are a far larger share than of all, since the same draw
    decides both. So every label is evidence on the small answer, which all queries have, and labels of pairs are
    evidence on the large one, each by the inverse of its own propensity. Within an atom a second draw sends queries to
    the large model.
    """
    labelled, large = max(example.label_probability, LEAST_PROPENSITY), example.large_probability
    small = (1.0 - large) / labelled
    if example.large is None or large <= 0.0:
        return small, 0.0
    both = min(large, labelled)
    if explored is not None and explored < large < 1.0:
        both = explored + max(0.0, labelled - explored) * (large - explored) / (1.0 - explored)
    stands_for = large / max(both, LEAST_PROPENSITY)
    return (small + stands_for, 0.0) if example.reason == "degraded" else (small, stands_for)


def _hits_and_size(answer: OutcomeCounts, gold: int) -> tuple[float, float]:
    """Return a = 2·TP and d = predicted + gold."""
    hits, size = answer.true_positives, answer.predicted + gold
    if size > _COUNT_MOST:
        hits, size = min(hits, _COUNT_MOST), min(size, 2 * _COUNT_MOST)
    return 2.0 * hits, float(size)


def are_in(instants_us: Floats, spans: tuple[Span, ...]) -> NDArray[np.bool_]:
    """Return which times lie in some spans."""
    found = np.zeros(len(instants_us), dtype=np.bool_)
    for begins, ends in spans:
        found |= (instants_us >= begins) & (instants_us < (np.inf if ends is None else ends))
    return found
