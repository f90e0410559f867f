"""Which labelers are set aside, and since when: each is compared with all others before the crowd is suspected.

Once a block of labels, everybody is held against all others in the same latest blocks. The one who differs most is set
aside from the start of the window that shows it best, and the rest are looked at again without that person's labels.
Who fits in every window is believed again, and so are all labels since the longest began.

Labels are held against each other where they are alike: of one kind (one model answered, both gave the same answer,
the answers differ) and of one place, by u. In each of these cells a person's errors and everybody else's have one rate
or two, each with Jeffreys' prior (Gunel and Dickey, 1974). A person may differ in one cell alone, in all cells of a
kind or of a place, or in all: each alternative is as probable as any other, and their average is a Bayes factor again.
Of a person who is like the others it exceeds b with a probability of at most 1 / b (Markov).
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import numpy as np
from pydantic import JsonValue

from recalibrator.fit.codec import Bools, Floats, Ints, Kept
from recalibrator.fit.data import label_columns as at
from recalibrator.fit.data.label_columns import Standing
from recalibrator.fit.data.label_table import Distrust, LabelTable
from schemas.event import from_us

BLOCK = 64
"""Labels."""

WINDOWS = np.array((2, 3, 4, 6, 8, 12, 16, 24, 32))
"""Of the latest blocks."""

_PLACES = 4
_KINDS, _APART, _LARGE_APART = 4, 1, 3
"""Small answers by relation (alone, different, equal), then large answers that differ from the small one."""

_JEFFREYS = 0.5


class Tally(NamedTuple):
    """Labels and errors of everybody in each window, shape (windows, labelers, kinds, places).

    ``score`` holds sums of the small answer's z; the status shows how they differ between people.
    """

    labels: Floats
    errors: Floats
    score: Floats

    def of(self, labeler: int) -> Tally:
        """Return one person's."""
        return Tally(*(part[:, labeler] for part in self))

    def of_all(self, labelers: Bools) -> Tally:
        """Return what some people have together."""
        return Tally(*(part[:, labelers].sum(axis=1) for part in self))

    @property
    def given(self) -> Floats:
        """How many labels each has given in the longest window, shape (labelers,)."""
        return np.asarray(self.labels[-1, :, :_LARGE_APART].sum(axis=(1, 2)))


def tally(rows: Floats, cells: int, labelers: int, target: float) -> Tally:
    """Count the labels and errors of the latest 2, 3, …, 32 blocks, of labelers whose numbers run from 1.

    ``rows``, shape (labels, ``COLUMNS``): by routing time, of queries with u. ``target``: τ, for z.
    """
    rows = rows[-WINDOWS[-1] * BLOCK :]
    kind, cell = np.divmod(rows[:, at.GROUP].astype(np.intp), cells)
    ranks = np.empty(len(rows), dtype=np.intp)
    ranks[np.argsort(cell, kind="stable")] = np.arange(len(rows))
    block = np.arange(len(rows))[::-1] // BLOCK
    window = np.searchsorted(WINDOWS, block + 1)
    one = (window * labelers + rows[:, at.LABELER].astype(np.intp) - 1) * _KINDS
    place = ranks * _PLACES // max(len(rows), 1)
    apart = kind == _APART
    where = np.concatenate(((one + kind) * _PLACES + place, ((one + _LARGE_APART) * _PLACES + place)[apart]))
    wrong = np.concatenate((rows[:, at.ERROR], (rows[:, at.HITS_LARGE] < rows[:, at.SIZE_LARGE])[apart]))
    z = np.concatenate((rows[:, at.HITS_SMALL] - target * rows[:, at.SIZE_SMALL], np.zeros(np.count_nonzero(apart))))
    return Tally(*(_cumulated(where, value, labelers) for value in (None, wrong, z)))


def _cumulated(where: Ints, value: Floats | None, labelers: int) -> Floats:
    shape = (len(WINDOWS), labelers, _KINDS, _PLACES)
    sums: Floats = np.bincount(where, value, int(np.prod(shape))).reshape(shape).astype(np.float64)
    return np.asarray(sums.cumsum(axis=0))


def log_evidence(own: Tally, others: Tally) -> Floats:
    """Return the log of the Bayes factor of "differs from the others" over "is like them" in each window.

    The tallies' parts have shape (windows, kinds, places).

    Examples
    --------
    >>> def counts(labels, errors):
    ...     return Tally(np.full((1, 1, 1), labels), np.full((1, 1, 1), errors), np.zeros((1, 1, 1)))
    >>> log_evidence(counts(30.0, 15.0), counts(120.0, 6.0)).round(1).tolist()
    [14.3]
    """
    from scipy.special import betaln, logsumexp

    errors, labels = (np.array((a, b, a + b)) for a, b in zip(own[1::-1], others[1::-1], strict=True))
    by_person, by_others, together = betaln(errors + _JEFFREYS, labels - errors + _JEFFREYS)
    cells = by_person + by_others - together - betaln(_JEFFREYS, _JEFFREYS)
    by_kind = np.concatenate((cells, cells.sum(axis=1, keepdims=True)), axis=1)
    all_of_them = np.concatenate((by_kind, by_kind.sum(axis=2, keepdims=True)), axis=2)
    alternatives = all_of_them.shape[1] * all_of_them.shape[2]
    return np.asarray(logsumexp(all_of_them, axis=(1, 2)) - np.log(alternatives))


def difference(own: Tally, others: Tally, window: int) -> float:
    """Return by how much a person's mean z of small answers lies off the others' in a window, like cells compared."""
    parts = (own.labels, others.labels, own.score, others.score)
    mine, theirs, score, usual = (part[window, :_LARGE_APART] for part in parts)
    shared = (mine > 0.0) & (theirs > 0.0)
    labels = mine[shared].sum()
    return float((score[shared] - mine[shared] * usual[shared] / theirs[shared]).sum() / labels) if labels else 0.0


_LONGEST = int(WINDOWS[-1]) * BLOCK

_BEYOND = 8.0
"""Log of the Bayes factor beyond which a labeler is set aside: odds of 1 to 3,000 that chance shows as much."""

_LEAST_LABELS = 30
"""In the longest window, below which a labeler is neither judged nor one of three."""

_LEAST_LABELERS = 3
"""Of fewer, none is the odd one out."""


class Labelers:
    """Compares the labelers of one workload with each other; trusted ones are right by definition.

    Who is believed by command is neither compared nor one whom others are compared with.
    """

    _since_look: Kept[int] = 0
    _found: Kept[dict[str, tuple[float, float]]]
    believed: Kept[set[str]]
    """By command."""

    def __init__(self, trusted: tuple[str, ...]) -> None:
        self._trusted = frozenset(trusted)
        self._found, self.believed = {}, set()

    def on_label(self, labels: LabelTable) -> Distrust | None:
        """Count a label; return whose labels are to be set aside from now on, or None for no change."""
        self._since_look += 1
        return None if self._since_look < BLOCK else self.look(labels)

    def look(self, labels: LabelTable) -> Distrust | None:
        """Compare all labelers; return whose labels are to be set aside from now on, or None for no change."""
        self._since_look = 0
        names = labels.labelers
        found = {number: spans for number, spans in labels.distrust.items() if names[number - 1] not in self.believed}
        if len(names) < (1 if self._trusted else 2) or not len(rows := _rows(labels)):
            return None if found == labels.distrust else found
        trusted = np.array([name in self._trusted for name in names])
        crowd = _Crowd(tally(rows, labels.grid.cells, len(names), labels.target), trusted)
        size = max(float(rows[:, at.SIZE_SMALL].mean()), 1e-12)
        now_aside = {number - 1 for number, spans in found.items() if spans[-1][1] is None}
        crowd.aside[sorted(now_aside)] = True
        crowd.aside |= ~trusted & np.array([name in self.believed for name in names])
        while (worst := crowd.worst()) is not None:
            labeler, window, evidence = worst
            begins_us = self._began(rows, labels, labeler, window, crowd)
            found[labeler + 1] = (*found.get(labeler + 1, ()), (begins_us, None))
            self._found[names[labeler]] = crowd.difference(labeler, window) / size, evidence
            crowd.aside[labeler] = True
        since_us = int(rows[-_LONGEST:][0, at.ROUTED_US])
        for labeler in now_aside:
            if trusted[labeler] or crowd.fits(labeler):
                *former, (begins_us, _) = found.pop(labeler + 1)
                ended = tuple(span for span in (*former, (begins_us, since_us)) if span[0] < since_us)
                if ended and not trusted[labeler]:
                    found[labeler + 1] = ended
        return None if found == labels.distrust else found

    def _began(self, rows: Floats, labels: LabelTable, labeler: int, window: int, crowd: _Crowd) -> int:
        """Return when the window begins, or the stretches before the longest one that say the same by themselves."""
        begins = max(len(rows) - int(WINDOWS[window]) * BLOCK, 0)
        while window == len(WINDOWS) - 1 and begins > 0:
            earlier = tally(rows[:begins], labels.grid.cells, len(crowd.aside), labels.target)
            if _Crowd(earlier, crowd.trusted, crowd.aside).evidence(labeler)[-1] <= _BEYOND:
                break
            begins = max(begins - _LONGEST, 0)
        return int(rows[begins, at.ROUTED_US])

    def details(self, labels: LabelTable) -> dict[str, JsonValue]:
        """Return who is set aside: how many labels, how far they move micro-F1, and that in standard errors."""
        found: dict[str, JsonValue] = {}
        for name, count in labels.distrusted_labels().items():
            micro_f1, evidence = self._found.get(name, (0.0, 0.0))
            # As many standard errors of one normal value say as much.
            began = from_us(labels.distrust[labels.labelers.index(name) + 1][-1][0]).isoformat()
            found[name] = {"labels": count, "micro_f1": micro_f1, "errors": sqrt(2.0 * evidence), "since": began}
        return found


class _Crowd:
    """Everybody's labels, and who of them is set aside."""

    def __init__(self, counts: Tally, trusted: Bools, aside: Bools | None = None) -> None:
        self._counts, self.trusted = counts, trusted
        self.aside: Bools = np.zeros(len(trusted), dtype=bool) if aside is None else aside

    def _others(self, labeler: int) -> Tally | None:
        """Return what a labeler is held against: all others, or trusted ones where too few are left for the rest."""
        ample = self._counts.given >= _LEAST_LABELS
        others = ~self.aside
        others[labeler] = False
        if not ample[labeler]:
            return None
        if np.count_nonzero(others & ample & ~self.trusted) < _LEAST_LABELERS - 1:
            others &= self.trusted
            if not (others & ample).any():
                return None
        return self._counts.of_all(others)

    def evidence(self, labeler: int) -> Floats:
        """Return the log of the Bayes factor that a labeler differs in each window; 0 where nobody can be compared."""
        others = self._others(labeler)
        return np.zeros(len(WINDOWS)) if others is None else log_evidence(self._counts.of(labeler), others)

    def worst(self) -> tuple[int, int, float] | None:
        """Return who differs most and is to be set aside, in which window that shows best, and how strongly."""
        judged = np.flatnonzero(~(self.aside | self.trusted))
        if not len(judged):
            return None
        found = np.array([self.evidence(int(one)) for one in judged])
        place, window = np.unravel_index(int(found.argmax()), found.shape)
        evidence = float(found[place, window])
        return (int(judged[place]), int(window), evidence) if evidence > _BEYOND else None

    def fits(self, labeler: int) -> bool:
        """Whether a labeler is more likely like the others in every window."""
        return bool((self.evidence(labeler) <= 0.0).all())

    def difference(self, labeler: int, window: int) -> float:
        """Return by how much a labeler's mean z lies off the others' in a window."""
        others = self._others(labeler)
        return 0.0 if others is None else difference(self._counts.of(labeler), others, window)


def _rows(labels: LabelTable) -> Floats:
    """Return the labels of named labelers, those set aside or overruled included, by routing time."""
    table = np.concatenate((labels.table, *(one.row[None] for one in labels.overruled.values())))
    counts = table[:, at.STANDING]
    known = (
        (counts != Standing.WITHDRAWN)
        & (counts != Standing.UNREQUESTED)
        & (table[:, at.LABELER] > 0.0)
        & (table[:, at.GROUP] < labels.groups - 1)
    )
    rows = table[known]
    return np.asarray(rows[np.argsort(rows[:, at.ROUTED_US], kind="stable")])
