"""The times so far that were like now, found again when a drift is over.

Drift mostly ends: a release is rolled back, a campaign is over. What was learned before it then holds again at once,
and need not be learned again. Whether two times are alike can be told without labels, by the u of their queries and by
how often both models agreed given u. So traffic is remembered in blocks. When the latest queries are no longer like
those of the present world, but like earlier blocks, labels of these count again, and those from in between do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np

from recalibrator.fit.codec import Bools, Counts, Floats, Ints, Kept
from recalibrator.fit.data import label_columns as at
from recalibrator.fit.data.label_table import LabelTable, Span, are_in
from recalibrator.fit.data.traffic_window import AGREEING, COUNT, MIX, PAIRS, Batch, TrafficWindow

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
_RATE_LEAST = 1e-12
_SCATTER_BLOCKS, _SCATTER_LEAST = 60, 5
_PLACES = 12
"""Of labels: three relations of both answers by quarter of the grid."""


@dataclass(slots=True)
class Block:
    """Some consecutive queries: when they came, and by u their number, pairs and agreeing pairs, shape (3, bins)."""

    begins_us: int
    ends_us: int
    table: Floats


class Past(NamedTuple):
    """Full blocks by time, with what is compared again and again."""

    #: Shape (blocks,). No block ended later than one after it.
    begins_us: Ints
    ends_us: Ints
    #: Shape (blocks, 3, bins).
    tables: Floats
    #: The information in u, shape (blocks,), and in agreement by bin, shape (blocks, bins).
    of_mix: Floats
    of_outcomes: Floats
    #: Shape (blocks - 1,): G statistic by degree of freedom of the u of one block and that of the next.
    apart: Floats

    @property
    def scatter(self) -> float:
        """By how much u scatters more from block to block than that of independent queries; at least 1.

        A median, so that the few blocks at which something has changed do not count: the detectors' own factor in its
        place holds .899 of blocks at +4.4% on twenty streams of real answers, this one .906 at +3.5%.
        """
        apart = self.apart[1 - _SCATTER_BLOCKS :].tolist()
        return 1.0 if len(apart) < _SCATTER_LEAST - 1 else max(1.0, median(apart))

    def until(self, instant_us: int) -> Past:
        """Return the blocks that ended before a time."""
        known = int(np.searchsorted(self.ends_us, instant_us))
        if known == len(self.ends_us):
            return self
        parts = {name: getattr(self, name)[:known] for name in self._fields}
        return Past(**parts | {"apart": self.apart[: max(0, known - 1)]})


def past(blocks: list[Block]) -> Past:
    """Return what is known of some full blocks, in the order of time."""
    tables = np.array([one.table for one in blocks]).reshape(-1, 3, _BINS)
    of_mix, together = _of_mix(tables), tables[:-1] + tables[1:]
    apart = _g(of_mix[:-1], of_mix[1:], _of_mix(together)) / np.maximum(_freedom(together[:, COUNT]), 1.0)
    begins_us, ends_us = (
        np.array([getattr(one, name) for one in blocks], np.intp) for name in ("begins_us", "ends_us")
    )
    return Past(begins_us, np.maximum.accumulate(ends_us), tables, of_mix, _of_outcomes(tables), apart)


class KnownWorlds:
    """What traffic was like so far, and which times were like now."""

    #: When the present world has been in force, where it is one that came back; labels of other times say nothing of
    #: it. None: labels count whenever their queries were routed.
    spans: Kept[tuple[Span, ...] | None] = None
    #: ``since_us`` and ``back_us``: when it began, or came back; and when one came back last.
    since_us: Kept[int] = 0
    back_us: Kept[int] = 0
    _blocks: Kept[list[Block]]
    _left: Kept[tuple[Span, ...]] = ()
    _by_labels: Kept[bool] = False
    _unseen: Kept[float] = 0.0

    def __init__(self, cells: int) -> None:
        self._place = np.arange(cells) * _BINS // cells
        self._blocks = []
        self.restored()

    def restored(self) -> None:
        """Compute what follows from the blocks."""
        self._past = past(self._blocks[:-1])

    def on_traffic(self, batch: Batch) -> None:
        """Take one summary in."""
        last = self._blocks[-1] if self._blocks else None
        if last is None or last.table[COUNT].sum() >= _BLOCK:
            last = Block(batch.first_us, batch.last_us, np.zeros((3, _BINS)))
            self._blocks = [*self._blocks, last][-_BLOCKS_MOST:]
            self.restored()
        last.begins_us, last.ends_us = min(last.begins_us, batch.first_us), max(last.ends_us, batch.last_us)
        found = _binned(self._place[batch.cell], batch.counts[:MIX])
        last.table += found
        self._unseen += float(found[COUNT].sum())

    def begin(self, since_us: int, *, by_mix: bool = False, by_labels: bool = False) -> None:
        """Begin another world.

        ``by_mix``: the mix of queries alone has changed, so that labels from before go on to count. ``by_labels``:
        labels alone report it, so that traffic cannot say that it was none.
        """
        present = self._present
        if _are_in(past(self._blocks), present).any():
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
        since_us, latest = list[int](), list[Floats]()
        for batches in traffic.latest(_LATEST, self.since_us):
            # Empty where the summaries before hold as many queries as this distance needs, too.
            cells = np.concatenate([np.zeros(0, np.intp), *(one.cell for one in batches)])
            counts = np.concatenate([np.zeros((3, 0), np.int64), *(one.counts[:MIX] for one in batches)], axis=1)
            since_us.append(batches[-1].first_us if batches else since_us[-1])
            latest.append(_binned(self._place[cells], counts) + (latest[-1] if latest else 0.0))
        if not latest:
            return False
        before = [self._past.until(one) for one in since_us]
        scatter = np.array([one.scatter for one in before])
        alike = unlikeness(np.array(latest), self._past, scatter[:, None]) < _UNLIKE
        for place, past in enumerate(before):
            spans = self._found(since_us[place], latest[place], past, alike[place, : len(past.tables)], labels)
            if spans is not None:
                self.since_us = self.back_us = since_us[place]
                self.spans = (*spans, (self.since_us, None))
                return True
        return False

    def _found(
        self, since_us: int, latest: Floats, before: Past, alike: Bools, labels: LabelTable
    ) -> tuple[Span, ...] | None:
        """Return when the world was in force that the latest queries are from, where it is an earlier one."""
        here = _are_in(before, self._present)
        is_new = not here.any()
        if is_new:
            here = _are_in(before, self._left)
        goes_on = here.any() and (alike & here).sum() >= _SAME * here.sum()
        if goes_on or not alike.any() or (is_new and self._by_labels):
            return None
        pooled = np.stack([before.tables[some].sum(axis=0) for some in (alike, here)])
        as_known, as_here = fit(latest, pooled, before.scatter).tolist()
        # What has just begun must be better explained than by the world before it, what has lasted than by itself.
        least = min(max(-_BOUND, as_here + _BOUND), _BOUND) if is_new else max(0.0, as_here) + _BOUND
        spans = _joined(before, alike)
        rows = _rows(labels, spans)
        if as_known < least + _BY_LABELS_LEAST or len(rows) < _LABELS_LEAST:
            return None
        groups = labels.groups - 1
        by_labels = _outcomes(*_errors(_rows(labels, ((since_us, None),)), groups), *_errors(rows, groups))
        return spans if by_labels >= _BY_LABELS_LEAST and as_known + by_labels >= least else None


def _binned(place: Ints, counts: Counts) -> Floats:
    """Return counts by cell, shape (3, cells), by bin."""
    return np.array([np.bincount(place, row, _BINS) for row in counts])


def _are_in(blocks: Past, spans: tuple[Span, ...]) -> Bools:
    found = np.zeros(len(blocks.begins_us), np.bool_)
    for begins, ends in spans:
        found |= (blocks.begins_us >= begins) & (True if ends is None else blocks.ends_us <= ends)
    return found


def _joined(blocks: Past, alike: Bools) -> tuple[Span, ...]:
    """Return the times of similar blocks; offline labels, which lie before all traffic, go with the first one."""
    spans: list[tuple[int, int]] = []
    begins_us = 0
    for ends_us, is_alike in zip((blocks.ends_us + 1).tolist(), alike.tolist(), strict=True):
        if is_alike and spans and spans[-1][1] == begins_us:
            spans[-1] = spans[-1][0], ends_us
        elif is_alike:
            spans.append((begins_us, ends_us))
        begins_us = ends_us
    return tuple(spans)


def _rows(labels: LabelTable, spans: tuple[Span, ...]) -> Floats:
    table = labels.table
    return table[(table[:, at.STANDING] > 0.0) & are_in(table[:, at.ROUTED_US], spans)]


def _errors(rows: Floats, groups: int) -> tuple[Floats, Floats]:
    """Return errors and labels by relation and by quarter of the grid."""
    place = rows[:, at.GROUP].astype(np.intp) * _PLACES // groups
    errors, count = np.bincount(place, rows[:, at.ERROR], _PLACES + 1), np.bincount(place, minlength=_PLACES + 1)
    return errors.astype(np.float64), count.astype(np.float64)


def unlikeness(latest: Floats, known: Past, scatter: Floats) -> Floats:
    """Return by how many standard errors each block differs from the latest queries, by its G statistic.

    ``latest`` has shape (distances, 3, bins); ``scatter``, shape (distances, 1), is the overdispersion of u. What is
    returned has shape (distances, blocks).

    Examples
    --------
    >>> quiet, harder = np.zeros((2, 3, 32))
    >>> quiet[:, :2], harder[:, :2] = [[80.0, 20.0], [0.0, 20.0], [0.0, 10.0]], [[50.0, 50.0], [0.0, 50.0], [0.0, 25.0]]
    >>> known = past([Block(0, 1, quiet), Block(2, 3, harder)])
    >>> unlikeness(quiet[None], known, np.ones((1, 1))).round(1).tolist()
    [[-1.0, 9.1]]
    """
    latest = latest[:, None]
    together = known.tables + latest
    mix = _g(_of_mix(latest), known.of_mix, _of_mix(together))
    outcomes = _g(_of_outcomes(latest), known.of_outcomes, _of_outcomes(together)).sum(axis=-1)
    both = (together[:, :, PAIRS] >= _FILLED) & (latest[:, :, PAIRS] > 0.0) & (known.tables[:, PAIRS] > 0.0)
    freedom = _freedom(together[:, :, COUNT]) + both.sum(axis=-1)
    return np.asarray((mix / scatter + outcomes - freedom) / np.sqrt(2.0 * np.maximum(freedom, 1.0)))


def _freedom(together: Floats) -> Floats:
    """Return the degrees of freedom of a comparison of two counts by u."""
    return np.asarray((together >= _FILLED).sum(axis=-1) - 1.0)


def _of_mix(tables: Floats) -> Floats:
    """Return the information in u, without the bins' axis."""
    return _information(tables[..., COUNT, :], axis=-1)


def _of_outcomes(tables: Floats) -> Floats:
    """Return the information in agreement by bin."""
    hits = tables[..., AGREEING, :]
    return _information(np.stack((hits, tables[..., PAIRS, :] - hits), axis=-2), axis=-2)


def _information(counts: Floats, axis: int) -> Floats:
    """Return Σ n ln n less that of the sum of all n, along an axis of whole numbers."""
    total = counts.sum(axis=axis)
    # Of 0 and of 1 alike it is 0.
    terms, whole = counts * np.log(np.maximum(counts, 1.0)), total * np.log(np.maximum(total, 1.0))
    return np.asarray(terms.sum(axis=axis) - whole)


def _g(one: Floats, other: Floats, together: Floats) -> Floats:
    """Return the likelihood ratio statistic of homogeneity from the information of two counts and of their sum."""
    return np.asarray(2.0 * (one + other - together))


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
    # Here and below: a process without the fit has no scipy.
    from scipy.special import gammaln

    whole = prior.sum(axis=-1)
    terms = gammaln(prior + counts) - gammaln(prior)
    return np.asarray(gammaln(whole) - gammaln(whole + counts.sum()) + terms.sum(axis=-1))


def _outcomes(hits: Floats, trials: Floats, known_hits: Floats, known: Floats) -> Floats:
    """Return the log Bayes factors of outcomes by bin: with the known ones' rates, or with others near both."""
    from scipy.special import betaln

    # Of more than 10^15 outcomes that are all alike the rate would round to 1, and no prior has one outcome alone.
    rate = np.clip((hits + known_hits + 0.5) / (trials + known + 1.0), _RATE_LEAST, 1.0 - _RATE_LEAST)
    priors = (known_hits + rate, known - known_hits + 1.0 - rate), (_OUTCOMES * rate, _OUTCOMES * (1.0 - rate))
    as_known, as_unknown = (betaln(a + hits, b + (trials - hits)) - betaln(a, b) for a, b in priors)
    return np.asarray((as_known - as_unknown).sum(axis=-1))
