"""Both model servers as the walk meets them, in closed loop: how many calls fail depends on how many are sent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from research.drift.mess import BLOCK, LargeTrouble, Mess

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SMALL_LATENCY_S, LARGE_LATENCY_S, TIMEOUT_S = 0.1, 0.3, 30.0
_STEPS = 60
_FAILURES = 3
"""A stream of chance of its own."""


class Load(NamedTuple):
    """How a server of limited capacity fares under so many calls a query.

    ``failing``: share of attempts that fail. ``attempts``: for each call, retries included.
    """

    failing: float
    attempts: float


def settle(trouble: LargeTrouble, calls: float, failing: float = 0.0) -> Load:
    """Return where failures and retries come to rest.

    Retries add load and load adds failures, so that there may be several such points: it is the one that lies nearest
    above ``failing`` when things get worse, below it when they get better.

    ``calls``: A query, retries left out. ``failing``: share of attempts that failed a moment ago.

    Examples
    --------
    >>> from research.drift.mess import Spell
    >>> settle(LargeTrouble(Spell(0.0, 2_000), capacity=0.1), 0.2)
    Load(failing=0.5, attempts=1.0)
    """
    for _ in range(_STEPS):
        load = calls * _attempts(failing, trouble.retries)
        failing = 0.0 if load <= trouble.capacity else 1.0 - (trouble.capacity / load) ** trouble.waste
    return Load(failing, _attempts(failing, trouble.retries))


def _attempts(failing: float, retries: int) -> float:
    return float(sum(failing**number for number in range(retries + 1)))


def answered_share(trouble: LargeTrouble, calls: float) -> float:
    """Return the share of calls that are answered in the end, retries included, from a fresh start."""
    return 1.0 - settle(trouble, calls).failing ** (trouble.retries + 1)


class Answering(NamedTuple):
    """What came of one chunk's calls, shape (queries,); latencies are sums over calls."""

    small_failed: Bools
    large_failed: Bools
    attempts: Floats
    small_latency_s: float
    large_latency_s: float


class Servers:
    """The servers of one walk.

    ``queries``: in the stream. ``seed``: of the stream's own chance.
    """

    def __init__(self, mess: Mess, queries: int, seed: list[int]) -> None:
        self._trouble = mess.large
        self._draw = np.random.default_rng([*seed, _FAILURES]).uniform(size=queries)
        self._large_span = (0, 0) if mess.large is None else mess.large.spell.span(queries)
        self._small_span = (0, 0) if mess.small_outage is None else mess.small_outage.span(queries)
        self._failing = 0.0

    def small_is_down(self, first: int) -> bool:
        """Whether the small server is absent when the query of this number comes."""
        return self._small_span[0] <= first < self._small_span[1]

    def answer(self, first: int, large_called: Bools) -> Answering:
        """Let the servers answer a chunk that begins with query ``first``."""
        queries, called = len(large_called), int(large_called.sum())
        down = self.small_is_down(first)
        small_s = queries * (TIMEOUT_S if down else SMALL_LATENCY_S)
        failed, attempts, large_s = np.zeros(queries, dtype=bool), large_called.astype(np.float64), LARGE_LATENCY_S
        if self._trouble is not None and self._large_span[0] <= first < self._large_span[1]:
            load = settle(self._trouble, called / queries, self._failing)
            self._failing = load.failing
            lost = load.failing ** (self._trouble.retries + 1)
            failed = large_called & (self._draw[first : first + queries] < lost)
            attempts *= load.attempts
            large_s += load.failing * load.attempts * (TIMEOUT_S - LARGE_LATENCY_S)
        else:
            self._failing = 0.0
        return Answering(np.full(queries, down), failed, attempts, small_s, called * large_s)


def troubled_blocks(mess: Mess | None, queries: int) -> range:
    """Return the numbers of the blocks in which the large server is in trouble."""
    if mess is None or mess.large is None:
        return range(0)
    first, end = mess.large.spell.span(queries)
    return range(first // BLOCK, end // BLOCK)
