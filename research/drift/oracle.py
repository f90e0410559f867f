"""The oracle: a stream's expectations flow in, the cheapest policy that meets the target in each block flows out.

It knows which server is in trouble. What is absent cannot be called, and what cannot be called is nobody's miss: in
such a block it asks for no more than the threshold of a healthy server would have served meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.drift.mess import LargeTrouble
from research.drift.servers import Servers, answered_share, troubled_blocks
from research.drift.streams import BLOCK, Stream

Floats = NDArray[np.float64]

TARGET = 0.91
LARGE_COST = 3.02
"""Of one large call, in small calls (paper, section 6.1)."""
_SHORT_OF_BEST = 0.002
_PLACES = 20
"""In the order of u at which queries of u = 0 are tried."""


@dataclass(frozen=True)
class Oracle:
    """For each block of queries, shape (blocks,) each.

    ``reach``: the micro-F1 to hold: the target, or where no threshold reaches it, the best one less .002 (so that the
    cost of the oracle does not hang on queries that gain nothing). Where the large server is in trouble, at most what
    the threshold of a healthy one would give then. ``escalation_rate``: least share of queries above a threshold that
    reaches it. ``cost``: mean sequential cost at that share, without exploration.
    """

    reach: Floats
    escalation_rate: Floats
    cost: Floats


def sequential_cost(large_rate: Floats) -> Floats:
    """Return the mean cost of a query in small calls: the small model always, the large one when it ran."""
    return 1.0 + LARGE_COST * large_rate


def oracle(stream: Stream, target: float = TARGET) -> Oracle:
    """Scan all thresholds of every block; F1 in expectation given the block's queries.

    Examples
    --------
    >>> from research.drift.streams import stream
    >>> bool((oracle(stream("stationary", 0, 4_000)).escalation_rate < 1.0).all())
    True
    """
    shape = (-1, BLOCK)
    u = stream.u.reshape(shape)
    best = _scan(stream, np.argsort(u, axis=1), target)
    # Queries of one u are parted by a draw, wherever in the order of all others that pays.
    atom = u == 0.0
    for share in np.arange(_PLACES) / _PLACES if atom.any() else ():
        one = _scan(stream, np.argsort(np.where(atom, np.quantile(u, share, axis=1)[:, None], u), axis=1), target)
        cheaper = one.escalation_rate < best.escalation_rate
        best = Oracle(
            *(np.where(cheaper, new, old) for new, old in zip(vars(one).values(), vars(best).values(), strict=True))
        )
    return best


def _scan(stream: Stream, order: NDArray[np.int64], target: float) -> Oracle:
    """Return the cheapest policies among those that keep the first queries of an order, blocks by rows."""
    shape = (-1, BLOCK)
    gold, small, large = (np.take_along_axis(row.reshape(shape), order, axis=1) for row in stream.expected[:3])
    zero = np.zeros((len(gold), 1))
    kept = np.concatenate((zero, np.cumsum(small, axis=1)), axis=1)
    escalated = large.sum(axis=1, keepdims=True) - np.concatenate((zero, np.cumsum(large, axis=1)), axis=1)
    micro_f1 = (kept + escalated) / gold.sum(axis=1, keepdims=True)
    reach, rate = _cheapest(micro_f1, target)
    mess = stream.family.mess
    if mess is not None:
        for block in troubled_blocks(mess, len(stream)):
            assert mess.large is not None
            share = _answered(mess.large)
            sums = kept[block] + share * escalated[block] + (1.0 - share) * (kept[block, -1] - kept[block])
            reach[block], rate[block] = _in_trouble(sums / gold[block].sum(), target, rate[block])
        down = np.array([Servers(mess, len(stream), stream.chance).small_is_down(at) for at in _begins(stream)])
        everything = micro_f1[down, :1]
        reach[down], rate[down] = np.minimum(target, everything[:, 0] - _SHORT_OF_BEST), 1.0
    return Oracle(reach, rate, sequential_cost(rate))


def _cheapest(micro_f1: Floats, target: float) -> tuple[Floats, Floats]:
    """Return what to reach and the least escalation rate that does; columns are by queries kept, none to all."""
    best = micro_f1.max(axis=1)
    reach = np.where(best >= target, target, best - _SHORT_OF_BEST)
    met = micro_f1 >= reach[:, None]
    most_kept = BLOCK - np.argmax(met[:, ::-1], axis=1)
    return reach, 1.0 - most_kept / BLOCK


def _answered(trouble: LargeTrouble) -> Floats:
    """Return the share of calls answered where so many queries are kept, none to all; it falls with the calls."""
    rates = 1.0 - np.arange(BLOCK + 1) / BLOCK
    return np.array([answered_share(trouble, rate) for rate in rates])


def _in_trouble(micro_f1: Floats, target: float, usual: float) -> tuple[float, float]:
    """Return what to reach in one block, and the least rate that does.

    ``micro_f1``: ndarray, shape (BLOCK + 1,); by queries kept, failed calls counted as the small answer. ``usual``:
    escalation rate of the oracle if the server were healthy.
    """
    as_ever = float(micro_f1[round((1.0 - usual) * BLOCK)])
    reach = min(target, as_ever, float(micro_f1.max()) - _SHORT_OF_BEST)
    most_kept = int(np.flatnonzero(micro_f1 >= reach)[-1])
    return reach, 1.0 - most_kept / BLOCK


def _begins(stream: Stream) -> range:
    return range(0, len(stream), BLOCK)


def expected_micro_f1(stream: Stream, served_by_large: NDArray[np.bool_]) -> Floats:
    """Return the expected micro-F1 of what each block was served, shape (blocks,).

    ``served_by_large``: ndarray of bool, shape (queries,); escalated or explored.
    """
    gold, small, large = stream.expected[:3]
    hits = np.where(served_by_large, large, small)
    return np.asarray(hits.reshape(-1, BLOCK).sum(axis=1) / gold.reshape(-1, BLOCK).sum(axis=1))
