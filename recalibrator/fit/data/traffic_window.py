"""What unlabelled traffic looks like now: the current distribution of u and of agreement, from summaries.

Summaries come from several join instances in any order; they are kept by their routing time, and the oldest leave
once enough later queries are known. Counts are whole numbers, so that what is added can be taken out again exactly.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from recalibrator.fit.codec import Counts, Floats, Ints, Kept
from recalibrator.grid import Grid
from schemas.costs import TokenUse
from schemas.event import MAX_INTEGER, to_us
from schemas.traffic import GridSpec, TrafficSummary, VersionTraffic

OUTAGE_BEGINS, OUTAGE_ENDS = 0.1, 0.05
"""Shares of recent calls without a valid answer. A model that often fails to answer in form is not out: its usual share
is subtracted, see :class:`CallFailures`."""

_HALF_LIFE_CALLS = 100.0
_USUAL_HALF_LIFE_CALLS = 20_000.0


@dataclass(slots=True)
class CallFailures:
    """Whether one model's server is failing now: the recent share of failed calls beside the usual one.

    An outage belongs to the router: it says nothing of how well a model answers, and no threshold helps. The fit has to
    know of one for three reasons only: it must not send a failing server more work, queries that a missing small model
    could not score say nothing of the mix of queries, and the status must name the outage.

    Examples
    --------
    >>> failures = CallFailures()
    >>> seen = []
    >>> for failed in (0, 50, 0, 0, 0):
    ...     failures.add(100.0, failed)
    ...     seen.append(failures.is_out)
    >>> seen
    [False, True, True, True, False]
    """

    #: ``recent`` and ``usual``: decayed shares of calls without a valid answer, in [0, 1]; half-lives of 100 and of
    #: 20,000 calls.
    recent: float = 0.0
    usual: float = 0.0
    #: Whether recent failures exceed the usual ones by :data:`OUTAGE_BEGINS`, and since then by :data:`OUTAGE_ENDS`.
    is_out: bool = False

    def add(self, calls: float, failed: float) -> None:
        """Take the calls of one summary in."""
        if calls <= 0.0:
            return
        share = min(1.0, failed / calls)
        self.recent += (share - self.recent) * (1.0 - 0.5 ** (calls / _HALF_LIFE_CALLS))
        self.usual += (share - self.usual) * (1.0 - 0.5 ** (calls / _USUAL_HALF_LIFE_CALLS))
        excess = self.recent - self.usual
        self.is_out = excess >= (OUTAGE_ENDS if self.is_out else OUTAGE_BEGINS)


COUNT, PAIRS, AGREEING, MIX = range(4)
_ROWS = 4

_COUNT_MOST = 2**31
SUM_MOST = 2.0**40
"""No few seconds of traffic hold more; cut there, no sum overflows whatever a join instance sends."""

_SUMS = (
    *("queries", "escalated", "explored", "small_failed", "small_skipped", "degraded", "labels_requested"),
    *("small_calls", "large_calls", "cost_sequential", "cost_paper", "small_latency_s", "large_latency_s"),
    *("small_tokens", "small_prompt_tokens", "large_tokens", "large_prompt_tokens"),
    *("handed_over_tokens", "lost_tokens", "lost_prompt_tokens"),
)

_SERVED = ("queries", "escalated", "degraded", "small_calls", "large_calls")
_DIGITS = 3

_sums_of = attrgetter(*_SUMS)


@dataclass(frozen=True, order=True, slots=True)
class Batch:
    """One summary on this grid: sparse counts by cell, and its sums."""

    last_us: int
    first_us: int
    cell: Ints = field(compare=False)
    counts: Counts = field(compare=False)
    sums: dict[str, float] = field(compare=False)


class TrafficWindow:
    """Counts of the latest queries, and sums over all.

    Summaries on another grid are moved to this one cell by cell. Batches leave while the others hold at least so many
    ``queries``.
    """

    #: Shape (4, cells): queries of known u, pairs, agreeing pairs, and all queries that those of known u stand for.
    counts: Kept[Counts]
    _batches: Kept[list[Batch]]
    recent: Kept[dict[str, float]]
    total: Kept[dict[str, float]]
    first_us: Kept[int | None] = None
    small_failures: Kept[CallFailures]
    large_failures: Kept[CallFailures]

    def __init__(self, grid: Grid, queries: int) -> None:
        self.grid = grid
        self._wanted = queries
        self._batches = []
        self._moves: dict[GridSpec, Ints] = {}
        self.counts = np.zeros((_ROWS, grid.cells), dtype=np.int64)
        self._rows = np.arange(_ROWS)[:, None] * grid.cells
        self.recent = dict.fromkeys(_SUMS, 0.0)
        self.total = dict.fromkeys(_SUMS, 0.0)
        self.small_failures, self.large_failures = CallFailures(), CallFailures()

    def add(self, summary: TrafficSummary) -> Batch:
        """Take one summary in and return it on this grid; while the small model is out it counts in totals alone."""
        batch = self._batch(summary)
        self.small_failures.add(batch.sums["queries"] - batch.sums["small_skipped"], batch.sums["small_failed"])
        self.large_failures.add(batch.sums["large_calls"], batch.sums["degraded"])
        for name, value in batch.sums.items():
            self.total[name] += value
        if self.small_failures.is_out and self._batches:
            # Queries that no small model could score say nothing of the mix of queries.
            return batch
        insort(self._batches, batch)
        self._count(batch, 1)
        self.first_us = batch.first_us if self.first_us is None else min(self.first_us, batch.first_us)
        while self._is_ample():
            self._count(self._batches.pop(0), -1)
        return batch

    def _is_ample(self) -> bool:
        """Whether the oldest batch may go; batches that hold no query at all must not pile up either."""
        rest = self.recent["queries"] - self._batches[0].sums["queries"]
        return len(self._batches) > 1 and (rest >= self._wanted or len(self._batches) > self._wanted)

    def forget_before(self, instant_us: int) -> None:
        """Drop the batches that ended before a time; the latest one always stays."""
        while len(self._batches) > 1 and self._batches[0].last_us < instant_us:
            self._count(self._batches.pop(0), -1)

    def forget_pairs(self) -> None:
        """Forget how often both models agreed: the large one answers otherwise from now on."""
        pairs = [PAIRS, AGREEING]
        for batch in self._batches:
            batch.counts[pairs] = 0
        self.counts[pairs] = 0

    @property
    def begins_us(self) -> int | None:
        """When the oldest of the recent queries were routed; None without traffic."""
        return self._batches[0].first_us if self._batches else None

    def latest(self, wanted: Iterable[float], instant_us: int) -> Iterator[list[Batch]]:
        """Yield the latest batches, the newest first: of increasing numbers of queries those that each needs more.

        Ends where there are not so many that ended at or after a time.
        """
        newest, queries = reversed(self._batches), 0.0
        for least in wanted:
            found = []
            while queries < least:
                batch = next(newest, None)
                if batch is None or batch.last_us < instant_us:
                    return
                found.append(batch)
                queries += float(batch.counts[COUNT].sum())
            yield found

    def queries_since(self, instant_us: int) -> float:
        """Return the number of recent queries in batches that ended at or after a time."""
        return sum(batch.sums["queries"] for batch in self._batches if batch.last_us >= instant_us)

    def _batch(self, summary: TrafficSummary) -> Batch:
        parts, spec = summary.versions, summary.grid
        counted = [_counts(part) for part in parts]
        filled, counts = counted[0]
        moved = (spec.cells, spec.low, spec.high) != (self.grid.spec.cells, self.grid.spec.low, self.grid.spec.high)
        if moved or len(parts) > 1:
            cells = np.concatenate([cell for cell, _ in counted])
            filled, place = np.unique(self._move(spec)[cells] if moved else cells, return_inverse=True)
            counts = np.zeros((_ROWS, len(filled)), dtype=np.int64)
            for row, *values in zip(counts, *(part for _, part in counted), strict=True):
                np.add.at(row, place, np.concatenate(values))
        totals = [_sums_of(part) for part in parts]
        if max(map(max, totals)) > SUM_MOST:
            totals = [tuple(min(value, SUM_MOST) for value in values) for values in totals]
        whole = totals[0] if len(totals) == 1 else map(sum, zip(*totals, strict=True))
        sums = dict(zip(_SUMS, map(float, whole), strict=True))
        last, first = to_us(summary.last_routed_at), to_us(summary.first_routed_at)
        return Batch(last, first, filled, counts, sums)

    def _move(self, spec: GridSpec) -> Ints:
        if spec not in self._moves:
            self._moves[spec] = self.grid.indices(Grid(spec).centres)
        return self._moves[spec]

    def _count(self, batch: Batch, sign: int) -> None:
        np.add.at(self.counts.reshape(-1), (self._rows + batch.cell).reshape(-1), (sign * batch.counts).reshape(-1))
        recent = self.recent
        for name, value in batch.sums.items():
            recent[name] += sign * value
        if not self._batches:
            self.recent = dict.fromkeys(_SUMS, 0.0)

    @property
    def escalation_rate(self) -> float | None:
        """Share of recent queries for which the large model was called; None without traffic."""
        return self._share("escalated", self.recent["queries"]) if self.recent["queries"] else None

    @property
    def failed_share(self) -> float:
        """Share of recent queries whose small answer failed, in [0, 1]; 0 without traffic."""
        return self._share("small_failed", self.recent["queries"] - self.recent["small_skipped"])

    def _share(self, part: str, counted: float) -> float:
        return min(1.0, max(0.0, self.recent[part] / counted)) if counted > 0.0 else 0.0

    def served(self) -> dict[str, JsonValue]:
        """Return whose answers were served to all queries so far, and the calls behind them, as JSON values.

        ``small``, ``large`` and ``degraded`` (the small answer where the large model was to answer) add up to all
        queries; latencies are sums over the calls that were answered, in seconds.
        """
        whole = {name: min(MAX_INTEGER, int(self.total[name])) for name in _SERVED}
        return {
            "small": max(0, whole["queries"] - whole["escalated"]),
            "large": max(0, whole["escalated"] - whole["degraded"]),
            **{name: whole[name] for name in ("degraded", "small_calls", "large_calls")},
            **{name: round(self.total[name], _DIGITS) for name in ("small_latency_s", "large_latency_s")},
        }

    def mean_latency_s(self) -> tuple[float, float] | None:
        """Return the mean latencies of a small and a large call over all traffic; None until both were called."""
        total = self.total
        # A call that is refused takes no time, and says nothing of what an answer costs.
        answered = total["small_calls"] - total["small_failed"], total["large_calls"] - total["degraded"]
        if min(answered) <= 0.0:
            return None
        small, large = total["small_latency_s"] / answered[0], total["large_latency_s"] / answered[1]
        return (small, large) if small > 0.0 and large > 0.0 else None

    def mean_tokens(self) -> tuple[TokenUse, TokenUse, TokenUse] | None:
        """Return the mean tokens of a small call, of a large one, and of a large one that would begin again.

        Of recent traffic, where both models were called in it and count tokens, else of all; None until both did. What
        was handed over, the large model would have generated; it is assumed to have as many tokens there.
        """
        for sums in (self.recent, self.total):
            if min(sums[name] for name in ("small_calls", "large_calls", "small_tokens", "large_tokens")) > 0.0:
                calls, handed, of_small = sums["large_calls"], sums["handed_over_tokens"], sums["small_calls"]
                read, generated = sums["large_prompt_tokens"], sums["large_tokens"]
                alone = (read - sums["lost_prompt_tokens"] - handed, generated - sums["lost_tokens"] + handed)
                return (
                    TokenUse(sums["small_prompt_tokens"] / of_small, sums["small_tokens"] / of_small),
                    TokenUse(read / calls, generated / calls),
                    TokenUse(*(max(0.0, part) / calls for part in alone)),
                )
        return None


def _counts(part: VersionTraffic) -> tuple[Ints, NDArray[np.int64]]:
    """Return the cells of one version's traffic, and how many queries, pairs and agreeing ones were in each."""
    filled = len(part.cell)
    counts = np.empty((_ROWS, filled), dtype=np.int64)
    for row, values in zip(counts, (part.count, part.pairs, part.agreeing, part.count), strict=True):
        row[:] = np.fromiter(values, np.int64, filled)
    if 0 < part.small_skipped < part.queries:
        # Of a share of queries the small model was asked: each stands for the inverse of it.
        stands_for = part.queries / (part.queries - part.small_skipped)
        counts[MIX] = np.minimum(np.rint(counts[COUNT] * stands_for), _COUNT_MOST)
    return np.fromiter(part.cell, np.intp, filled), np.minimum(counts, _COUNT_MOST)


def distribution(traffic: TrafficWindow, labelled: Floats, wanted: float) -> Floats:
    """Return the share of current queries with u in each cell, summing to 1 over queries that have a u.

    ``labelled``, the distribution of u as labels show it, fills in until ``wanted`` unlabelled queries are known, as in
    an offline replay of labelled examples alone. All zero when neither is known.
    """
    counted: Floats = traffic.counts[MIX].astype(np.float64)
    known, total = traffic.counts[COUNT].sum(), labelled.sum()
    missing = max(0.0, wanted - known)
    if total > 0.0 and missing > 0.0:
        stood_for = counted.sum() / known if known > 0.0 else 1.0
        counted = counted + labelled * (missing * stood_for / total)
    whole = counted.sum()
    return np.asarray(counted / whole if whole > 0.0 else counted)


_SLOWER = 2.0
"""Times the usual latency of large calls, from which they count as slow."""

_FEWER = 0.5
"""Of the usual share of escalated queries, below which some count as missing."""

_RECENT_HALF_LIFE_QUERIES, _USUAL_HALF_LIFE_QUERIES = 50.0, 2_000.0
_HELD_MOST_US = 120_000_000
"""No call takes longer (the router's ``query_deadline_s``); what does is how the large model is now."""


class LateResults:
    """Queries by their u, held together while a slow large model holds results back.

    Results come as calls end. While the large model is slow those of escalated queries are missing, and then they come
    all at once. Summary by summary that looks like easier queries, and then like harder ones; over the whole spell it
    is neither. So what comes meanwhile is judged as one when the large model is as fast as before.
    """

    _held: Kept[Floats]
    _since_us: Kept[int | None] = None
    _usual_s: Kept[float] = 0.0
    _usual_share: Kept[float | None] = None
    _recent_share: Kept[float] = 0.0

    def __init__(self, cells: int) -> None:
        self._held = np.zeros(cells)

    def take(self, batch: Batch) -> tuple[Ints, Floats] | None:
        """Take the queries of one summary in, and return what can be judged.

        These are cells and the queries in them, those that were held among them. None while results are missing; what
        took too long is never judged, since the results that would complete it may be any time away.
        """
        cell, queries = batch.cell, batch.counts[COUNT].astype(np.float64)
        if batch.sums["small_skipped"]:
            # All escalate, whatever u is: that is not what is usual.
            return cell, queries
        if self._lacks_results(batch.sums):
            if self._since_us is None:
                self._since_us = batch.first_us
            self._held[cell] += queries
            if batch.last_us - self._since_us > _HELD_MOST_US:
                self._release()
                self._usual_s, self._usual_share = 0.0, None
            return None
        self._learn(batch.sums)
        if self._since_us is None:
            return cell, queries
        self._held[cell] += queries
        return np.arange(len(self._held)), self._release()

    def _release(self) -> Floats:
        held, self._held, self._since_us = self._held, np.zeros(len(self._held)), None
        return held

    def _lacks_results(self, sums: Mapping[str, float]) -> bool:
        queries = sums["queries"]
        if self._usual_share is None or queries <= 0.0:
            return False
        weight = _weight(queries, _RECENT_HALF_LIFE_QUERIES)
        self._recent_share += (sums["escalated"] / queries - self._recent_share) * weight
        is_slow = self._usual_s > 0.0 and sums["large_latency_s"] > _SLOWER * self._usual_s * _answered(sums)
        return is_slow or self._recent_share < _FEWER * self._usual_share

    def _learn(self, sums: Mapping[str, float]) -> None:
        """Let what is usual follow what is."""
        queries, calls = sums["queries"], _answered(sums)
        if queries <= 0.0:
            return
        share, weight = sums["escalated"] / queries, _weight(queries, _USUAL_HALF_LIFE_QUERIES)
        if self._usual_share is None:
            self._usual_share = self._recent_share = share
        self._usual_share += (share - self._usual_share) * weight
        if calls > 0.0:
            latency_s = sums["large_latency_s"] / calls
            self._usual_s += (latency_s - self._usual_s) * (weight if self._usual_s > 0.0 else 1.0)


def _answered(sums: Mapping[str, float]) -> float:
    return sums["large_calls"] - sums["degraded"]


def _weight(queries: float, half_life: float) -> float:
    return 1.0 - float(0.5 ** (queries / half_life))
