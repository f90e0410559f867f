"""Recorded queries, drawn with replacement → a stream that drifts and comes back, with its labels' chances and delays.

Pure: a seed in, arrays out. The queries of the offline calibration never come again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from schemas.draws import uniform
from ucci_demo.recorded.traffic import OFFLINE_EXAMPLES, load_traffic

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

WORKLOAD = "recorded"
EXPLORED, LABELLED_KEPT, LABELLED_ESCALATED = 0.03, 0.05, 0.10
"""Shares drawn: kept queries that run the large model too, labels below the threshold, labels above it."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of the stream with one mix of traffic.

    ``shift``: ``none``, ``typos`` or ``new_names``. ``share``: share of shifted queries; the others are clean.
    """

    title: str
    shift: str = "none"
    share: float = 0.0


PHASES = (
    Phase("clean"),
    Phase("25 % typos", "typos", 0.25),
    Phase("clean again"),
    Phase("8 % new names", "new_names", 0.08),
    Phase("clean once more"),
    Phase("25 % new names", "new_names", 0.25),
    Phase("clean at last"),
)
"""A quarter of new names puts the target out of reach even of the large model; 8 % do not."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Recorded queries as columns, shape (queries,).

    ``uncertainty``: naN where the small answer is not valid. ``small_hits``, ``small_named``, ``large_hits``,
    ``large_named``, ``gold``: right, predicted and gold pairs. ``recording``: which recorded query it is; no policy
    looks at it.
    """

    uncertainty: Floats
    small_hits: Integers
    small_named: Integers
    large_hits: Integers
    large_named: Integers
    gold: Integers
    exact: Mask
    agree: Mask
    recording: Integers

    def __len__(self) -> int:
        return len(self.uncertainty)

    def take(self, rows: Integers | slice) -> Outcomes:
        """Return some queries."""
        return Outcomes(*(getattr(self, name)[rows] for name in self.__slots__))

    def above(self, threshold: float | Floats) -> Mask:
        """Return which queries a threshold on u escalates; a failed small answer always is."""
        return ~(self.uncertainty <= threshold)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream and all chance in it, drawn ahead, so that every policy meets the same queries and draws.

    ``phase``: ndarray of int, shape (queries,). ``draw``: ndarray of float, shape (queries,); uniform; a query is
    explored, and its label asked for, when it lies below the respective share. ``label_at``: ndarray of float, shape
    (queries,); place in the stream by which its label would come. ``pools``: A phase each: what its clean and its
    shifted queries were drawn from. ``labels``: share of the usual labels that is asked for.
    """

    outcomes: Outcomes
    phase: Integers
    draw: Floats
    label_at: Floats
    pools: tuple[tuple[Outcomes, Outcomes], ...]
    phases: tuple[Phase, ...]
    labels: float = 1.0

    def __len__(self) -> int:
        return len(self.phase)


@cache
def recorded() -> dict[str, Outcomes]:
    """Return the ``offline`` set and, by shift, what streams are drawn from; ``none`` is clean."""
    shift, everything = np.array([query.shift for query in load_traffic()]), all_outcomes()
    clean = np.flatnonzero(shift == "none")
    shifted = {name: np.flatnonzero(shift == name) for name in ("typos", "new_names")}
    groups = {"offline": clean[:OFFLINE_EXAMPLES], "none": clean[OFFLINE_EXAMPLES:], **shifted}
    return {name: everything.take(rows) for name, rows in groups.items()}


@cache
def all_outcomes() -> Outcomes:
    """Return all recorded queries as columns, in the order of the recordings."""
    queries = load_traffic()
    return Outcomes(
        uncertainty=np.array([np.nan if q.small.uncertainty is None else q.small.uncertainty for q in queries]),
        small_hits=np.array([q.small.true_positives for q in queries]),
        small_named=np.array([q.small.predicted for q in queries]),
        large_hits=np.array([q.large.true_positives for q in queries]),
        large_named=np.array([q.large.predicted for q in queries]),
        gold=np.array([q.gold_count for q in queries]),
        exact=np.array([q.small.exact for q in queries]),
        agree=np.array([q.agree for q in queries]),
        recording=np.arange(len(queries)),
    )


def offline_outcomes() -> Outcomes:
    """Return the labelled queries that every policy starts from."""
    return recorded()["offline"]


def draw_stream(queries: int, seed: int, phases: tuple[Phase, ...] = PHASES, *, mean_delay: float = 2_000.0) -> Stream:
    """Draw a stream.

    ``queries``: in each phase. ``mean_delay``: of labels, in queries; exponential.
    """
    pools = [(recorded()["none"], recorded()[phase.shift]) for phase in phases]
    return drawn_from(pools, phases, [queries] * len(phases), seed, np.random.default_rng(seed), mean_delay=mean_delay)


def drawn_from(
    pools: Sequence[tuple[Outcomes, Outcomes]],
    phases: Sequence[Phase],
    lengths: Sequence[int],
    seed: int,
    rng: np.random.Generator,
    *,
    mean_delay: float = 2_000.0,
    labels: float = 1.0,
) -> Stream:
    """Draw a stream from a phase's clean and shifted queries each, so many of them.

    ``seed`` is that of the router's draws; all others come from ``rng``.
    """
    parts = []
    for phase, (clean, other), queries in zip(phases, pools, lengths, strict=True):
        shifted = rng.uniform(size=queries) < phase.share
        rows = np.where(shifted, rng.integers(len(other), size=queries), rng.integers(len(clean), size=queries))
        parts.append((clean.take(np.where(shifted, 0, rows)), other.take(np.where(shifted, rows, 0)), shifted))
    total = sum(lengths)
    columns = [
        np.concatenate([np.where(at, getattr(other, name), getattr(clean, name)) for clean, other, at in parts])
        for name in Outcomes.__slots__
    ]
    return Stream(
        Outcomes(*columns),
        phase=np.repeat(np.arange(len(phases)), lengths),
        draw=np.array([uniform(query_id(number), f"{WORKLOAD}-{seed}") for number in range(total)]),
        label_at=np.arange(total) + rng.exponential(mean_delay, size=total),
        pools=tuple(pools),
        phases=tuple(phases),
        labels=labels,
    )


def query_id(number: int) -> str:
    """Return the id of a query of the stream."""
    return f"q-{number:07d}"
