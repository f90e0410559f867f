"""The times so far that were like now, found again when a drift is over.

Drift mostly ends: a release is rolled back, a campaign is over. What was learned before it then holds again at once,
and need not be learned again. Whether two times are alike can be told without labels, by the u of their queries and by
how often both models agreed given u. So traffic is remembered in blocks. When the latest queries are no longer like
those of the present world, but like earlier blocks, labels of these count again, and those from in between do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalibrator.fit.arrays import Floats
from recalibrator.fit.codec import Kept
from recalibrator.fit.data.label_columns import ERROR, GROUP, ROUTED_US, STANDING
from recalibrator.fit.data.label_table import LabelTable, Span, are_in
from recalibrator.fit.data.traffic_window import AGREEING, COUNT, PAIRS, Batch, TrafficWindow

_BINS = 32
_BLOCK, _BLOCKS_MOST = 1_000.0, 200
"""Queries of a block, and how many blocks are remembered."""
_LATEST = (500.0, 1_000.0, 2_000.0, 4_000.0)
"""Latest queries that are held against them; a change is sought at each of these distances."""
_LOOK_EVERY = 400.0
_LABELS_LEAST = 250
"""Of an earlier world; with fewer there is nothing to go back to."""
_UNLIKE = 2.5
"""Standard errors by which a block of another world differs."""
_SAME = 0.5
"""Of the present world's blocks; where so many of them are like the latest queries, it goes on."""
_BOUND, _BY_LABELS_LEAST = 4.0, -2.0
"""Of the log Bayes factor: what speaks for an earlier world, and what labels alone may say against it."""
_MIX, _OUTCOMES = 200.0, 20.0
"""How firmly an unknown world is expected to resemble known ones: in queries, and in outcomes a bin."""
_FILLED = 5.0
"""Observations in a bin that is worth a degree of freedom."""
_SCATTER_BLOCKS, _SCATTER_LEAST = 60, 5
_PLACES = 12
"""Of labels: three relations of both answers by quarter of the grid."""


@dataclass(slots=True)
class Block:
    """Some consecutive queries: when they came, and by u their number, pairs and agreeing pairs, shape (3, bins)."""

    begins_us: int
    ends_us: int
    table: Floats


class KnownWorlds:
    """What traffic was like so far, and which times were like now.

    Parameters
    ----------
    cells : int
        Of the grid of u.

    Attributes
    ----------
    spans : tuple of Span or None
        When the present world has been in force, where it is one that came back; labels of other times say nothing
        of it. None: labels count whenever their queries were routed.
    since_us, back_us : int
        When it began, or came back; and when one came back last.
    """

    spans: Kept[tuple[Span, ...] | None] = None
    since_us: Kept[int] = 0
    back_us: Kept[int] = 0
    _blocks: Kept[list[Block]]
    _left: Kept[tuple[Span, ...]] = ()
    _by_labels: Kept[bool] = False
    _unseen: Kept[float] = 0.0

    def __init__(self, cells: int) -> None:
        self._cells = cells
        self._blocks = []

    def on_traffic(self, batch: Batch) -> None:
        """Take one summary in."""
        last = self._blocks[-1] if self._blocks else None
        if last is None or last.table[COUNT].sum() >= _BLOCK:
            last = Block(batch.first_us, batch.last_us, np.zeros((3, _BINS)))
            self._blocks = [*self._blocks, last][-_BLOCKS_MOST:]
        last.begins_us, last.ends_us = min(last.begins_us, batch.first_us), max(last.ends_us, batch.last_us)
        place = batch.cell * _BINS // self._cells
        for row, values in zip(last.table, batch.counts, strict=True):
            np.add.at(row, place, values)
        self._unseen += float(batch.counts[COUNT].sum())

    def begin(self, since_us: int, *, by_mix: bool = False, by_labels: bool = False) -> None:
        """Begin another world.

        Parameters
        ----------
        by_mix : bool
            Whether the mix of queries alone has changed, so that labels from before go on to count.
        by_labels : bool
            Whether labels alone report it, so that traffic cannot say that it was none.
        """
        present = self._present
        if any(_is_in(one, present) for one in self._blocks):
            self._left = tuple((begins, since_us if ends is None else ends) for begins, ends in present)
        self.since_us, self._by_labels = since_us, by_labels
        if not by_mix:
            self.spans = None

    @property
    def _present(self) -> tuple[Span, ...]:
        return ((self.since_us, None),) if self.spans is None else self.spans

    def is_back(self, labels: LabelTable, traffic: TrafficWindow) -> bool:
        """Look whether an earlier world is back; if it is, :attr:`spans` are those of that one."""
        if self._unseen < _LOOK_EVERY:
            return False
        self._unseen = 0.0
        for wanted in _LATEST:
            since_us, counts = traffic.latest(wanted, self.since_us)
            if counts[COUNT].sum() < wanted:
                return False
            place = np.arange(self._cells) * _BINS // self._cells
            latest = np.stack([np.bincount(place, row, _BINS) for row in counts]).astype(np.float64)
            spans = self._found(since_us, latest, labels)
            if spans is not None:
                self.since_us = self.back_us = since_us
                self.spans = (*spans, (since_us, None))
                return True
        return False

    def _found(self, since_us: int, latest: Floats, labels: LabelTable) -> tuple[Span, ...] | None:
        """Return when the world was in force that the latest queries are from, where it is an earlier one."""
        before = [one for one in self._blocks if one.ends_us < since_us and one.table[COUNT].sum() >= _BLOCK]
        if not before:
            return None
        tables = np.stack([one.table for one in before])
        scatter = overdispersion(tables)
        alike = unlikeness(latest, tables, scatter) < _UNLIKE
        here = np.array([_is_in(one, self._present) for one in before])
        is_new = not here.any()
        if is_new:
            here = np.array([_is_in(one, self._left) for one in before])
        goes_on = here.any() and (alike & here).sum() >= _SAME * here.sum()
        if goes_on or not alike.any() or (is_new and self._by_labels):
            return None
        pooled = np.stack([tables[some].sum(axis=0) for some in (alike, here)])
        as_known, as_here = fit(latest, pooled, scatter).tolist()
        # What has just begun must be better explained than by the world before it, what has lasted than by itself.
        least = min(max(-_BOUND, as_here + _BOUND), _BOUND) if is_new else max(0.0, as_here) + _BOUND
        spans = _joined(before, alike)
        rows = _rows(labels, spans)
        if as_known < least + _BY_LABELS_LEAST or len(rows) < _LABELS_LEAST:
            return None
        groups = labels.groups - 1
        by_labels = _outcomes(*_errors(_rows(labels, ((since_us, None),)), groups), *_errors(rows, groups))
        return spans if by_labels >= _BY_LABELS_LEAST and as_known + by_labels >= least else None


def _is_in(block: Block, spans: tuple[Span, ...]) -> bool:
    return any(begins <= block.begins_us and (ends is None or block.ends_us <= ends) for begins, ends in spans)


def _joined(blocks: list[Block], alike: NDArray[np.bool_]) -> tuple[Span, ...]:
    """Return the times of similar blocks; offline labels, which lie before all traffic, go with the first one."""
    spans: list[tuple[int, int]] = []
    begins_us = 0
    for one, is_alike in zip(blocks, alike, strict=True):
        if is_alike and spans and spans[-1][1] == begins_us:
            spans[-1] = spans[-1][0], one.ends_us + 1
        elif is_alike:
            spans.append((begins_us, one.ends_us + 1))
        begins_us = one.ends_us + 1
    return tuple(spans)


def _rows(labels: LabelTable, spans: tuple[Span, ...]) -> Floats:
    table = labels.table
    return table[(table[:, STANDING] > 0.0) & are_in(table[:, ROUTED_US], spans)]


def _errors(rows: Floats, groups: int) -> tuple[Floats, Floats]:
    """Return errors and labels by relation and by quarter of the grid."""
    place = rows[:, GROUP].astype(np.intp) * _PLACES // groups
    errors, count = np.bincount(place, rows[:, ERROR], _PLACES + 1), np.bincount(place, minlength=_PLACES + 1)
    return errors.astype(np.float64), count.astype(np.float64)


def unlikeness(latest: Floats, tables: Floats, scatter: float) -> Floats:
    """Return by how many standard errors each of some tables differs from the latest one, by its G statistic.

    Parameters
    ----------
    latest : ndarray, shape (3, bins)
    tables : ndarray, shape (tables, 3, bins)
    scatter : float
        As of :func:`overdispersion`.

    Examples
    --------
    >>> quiet, harder = np.array([[[80.0, 20.0], [0.0, 20.0], [0.0, 10.0]], [[50.0, 50.0], [0.0, 50.0], [0.0, 25.0]]])
    >>> unlikeness(quiet, np.stack((quiet, harder)), 1.0).round(1).tolist()
    [-1.0, 9.1]
    """
    mix, freedom = _mix_apart(latest[COUNT], tables[:, COUNT])
    hits, trials = tables[:, AGREEING], tables[:, PAIRS]
    seen = np.stack((latest[AGREEING], latest[PAIRS] - latest[AGREEING]))
    outcomes = _g(seen, np.stack((hits, trials - hits), axis=1), axis=1).sum(axis=-1)
    both = (latest[PAIRS] + trials >= _FILLED) & (latest[PAIRS] > 0.0) & (trials > 0.0)
    freedom = freedom + np.count_nonzero(both, axis=-1)
    return np.asarray((mix / scatter + outcomes - freedom) / np.sqrt(2.0 * np.maximum(freedom, 1.0)))


def overdispersion(tables: Floats) -> float:
    """Return by how much u scatters more from block to block than that of independent queries; at least 1.

    A median, so that the few blocks at which something has changed do not count.
    """
    latest = tables[-_SCATTER_BLOCKS:, COUNT]
    if len(latest) < _SCATTER_LEAST:
        return 1.0
    apart, freedom = _mix_apart(latest[:-1], latest[1:])
    return max(1.0, float(np.median(apart / np.maximum(freedom, 1.0))))


def _mix_apart(one: Floats, others: Floats) -> tuple[Floats, Floats]:
    """Return the G statistics of counts by u, and their degrees of freedom."""
    return _g(one, others, axis=-1), np.count_nonzero(one + others >= _FILLED, axis=-1) - 1.0


def _g(one: Floats, others: Floats, axis: int) -> Floats:
    """Return the likelihood ratio statistic of homogeneity; the categories lie along an axis of ``others``."""
    # Here and below: a process without the fit has no scipy.
    from scipy.special import xlogy

    one = np.broadcast_to(one, others.shape)

    def information(counts: Floats) -> Floats:
        total = counts.sum(axis=axis)
        return np.asarray(xlogy(counts, counts).sum(axis=axis) - xlogy(total, total))

    return np.asarray(2.0 * (information(one) + information(others) - information(one + others)))


def fit(latest: Floats, known: Floats, scatter: float) -> Floats:
    """Return the log Bayes factors of traffic: as in each of some known tables, against an unknown world.

    Counts by u are Dirichlet-multinomial, agreement in each bin is beta-binomial (Gunel and Dickey, 1974).
    """
    counts, prior = latest[COUNT], known[:, COUNT] + 0.5
    unknown = prior + counts
    unknown = _MIX * unknown / unknown.sum(axis=-1, keepdims=True)
    mix = _drawn(counts, prior) - _drawn(counts, unknown)
    return mix / scatter + _outcomes(latest[AGREEING], latest[PAIRS], known[:, AGREEING], known[:, PAIRS])


def _drawn(counts: Floats, prior: Floats) -> Floats:
    from scipy.special import gammaln

    whole = prior.sum(axis=-1)
    terms = gammaln(prior + counts) - gammaln(prior)
    return np.asarray(gammaln(whole) - gammaln(whole + counts.sum()) + terms.sum(axis=-1))


def _outcomes(hits: Floats, trials: Floats, known_hits: Floats, known: Floats) -> Floats:
    """Return the log Bayes factors of outcomes by bin: with the known ones' rates, or with others near both."""
    from scipy.special import betaln

    rate = (hits + known_hits + 0.5) / (trials + known + 1.0)
    priors = (known_hits + rate, known - known_hits + 1.0 - rate), (_OUTCOMES * rate, _OUTCOMES * (1.0 - rate))
    as_known, as_unknown = (betaln(a + hits, b + trials - hits) - betaln(a, b) for a, b in priors)
    return np.asarray((as_known - as_unknown).sum(axis=-1))
