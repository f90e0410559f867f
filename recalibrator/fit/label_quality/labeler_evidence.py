"""How strongly labels of the same time say that one person labels differently from all others: Bayes factors.

Labels are held against each other where they are alike: of one kind (one model answered, both gave the same answer,
the answers differ) and of one place, by u. In each of these cells a person's errors and everybody else's have one rate
or two, each with Jeffreys' prior (Gunel and Dickey, 1974). A person may differ in one cell alone, in all cells of a
kind or of a place, or in all: each alternative is as probable as any other, and their average is a Bayes factor again.
Of a person who is like the others it exceeds b with a probability of at most 1 / b (Markov).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recalibrator.fit.arrays import Bools, Floats, Ints
from recalibrator.fit.data.label_columns import ERROR, GROUP, HITS_LARGE, HITS_SMALL, LABELER, SIZE_LARGE, SIZE_SMALL

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
        count: Floats = self.labels[-1, :, :_LARGE_APART].sum(axis=(1, 2))
        return count


def tally(rows: Floats, cells: int, labelers: int, target: float) -> Tally:
    """Count the labels and errors of the latest 2, 3, …, 32 blocks.

    Parameters
    ----------
    rows : ndarray, shape (labels, ``COLUMNS``)
        By routing time, of queries with u.
    cells : int
        Of the grid.
    labelers : int
        Whose numbers run from 1.
    target : float
        τ, for z.
    """
    rows = rows[-WINDOWS[-1] * BLOCK :]
    kind, cell = np.divmod(rows[:, GROUP].astype(np.intp), cells)
    ranks = np.empty(len(rows), dtype=np.intp)
    ranks[np.argsort(cell, kind="stable")] = np.arange(len(rows))
    block = np.arange(len(rows))[::-1] // BLOCK
    window = np.searchsorted(WINDOWS, block + 1)
    one = (window * labelers + rows[:, LABELER].astype(np.intp) - 1) * _KINDS
    place = ranks * _PLACES // max(len(rows), 1)
    apart = kind == _APART
    where = np.concatenate(((one + kind) * _PLACES + place, ((one + _LARGE_APART) * _PLACES + place)[apart]))
    wrong = np.concatenate((rows[:, ERROR], (rows[:, HITS_LARGE] < rows[:, SIZE_LARGE])[apart]))
    z = np.concatenate((rows[:, HITS_SMALL] - target * rows[:, SIZE_SMALL], np.zeros(np.count_nonzero(apart))))
    return Tally(*(_cumulated(where, value, labelers) for value in (None, wrong, z)))


def _cumulated(where: Ints, value: Floats | None, labelers: int) -> Floats:
    shape = (len(WINDOWS), labelers, _KINDS, _PLACES)
    sums: Floats = np.bincount(where, value, int(np.prod(shape))).reshape(shape).astype(np.float64)
    return np.asarray(sums.cumsum(axis=0))


def log_evidence(own: Tally, others: Tally) -> Floats:
    """Return the log of the Bayes factor of "differs from the others" over "is like them" in each window.

    Parameters
    ----------
    own, others : Tally
        Parts of shape (windows, kinds, places).

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
    found: Floats = logsumexp(all_of_them, axis=(1, 2)) - np.log(alternatives)
    return found


def difference(own: Tally, others: Tally, window: int) -> float:
    """Return by how much a person's mean z of small answers lies off the others' in a window, like cells compared.

    Parameters
    ----------
    own, others : Tally
        Parts of shape (windows, kinds, places).
    """
    parts = (own.labels, others.labels, own.score, others.score)
    mine, theirs, score, usual = (part[window, :_LARGE_APART] for part in parts)
    shared = (mine > 0.0) & (theirs > 0.0)
    labels = mine[shared].sum()
    return float((score[shared] - mine[shared] * usual[shared] / theirs[shared]).sum() / labels) if labels else 0.0
