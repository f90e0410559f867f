"""Which words are usual: the hashes that hold most of the words of the first queries; all others are rare or new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recalibrator.fit.arrays import pack, unpack
from schemas.traffic import WORD_BUCKETS

LEARNED_QUERIES = 2_000
USUAL_MASS = 0.995
"""Of the words learned: in an open vocabulary every hash has occurred, and only how often separates usual from rare."""


_FEW, _SOME = 0.25, 0.5


class Vocabulary:
    """Learns from the first queries, and then says of hashes of words whether they are usual."""

    def __init__(self) -> None:
        self._counts = np.zeros(WORD_BUCKETS, dtype=np.int64)
        self._queries = 0
        self._usual: frozenset[int] | None = None

    @property
    def is_known(self) -> bool:
        """Whether enough was learned."""
        return self._usual is not None

    def learn(self, queries: Sequence[Sequence[int]]) -> None:
        """Take the words of some queries in, until enough is known."""
        if self._usual is not None:
            return
        for words in queries:
            self._counts[list(words)] += 1
        self._queries += len(queries)
        if self._queries >= LEARNED_QUERIES:
            self._usual = self._most_frequent()

    def _most_frequent(self) -> frozenset[int]:
        order = np.argsort(-self._counts, kind="stable")
        reached = np.cumsum(self._counts[order])
        kept = int(np.searchsorted(reached, USUAL_MASS * reached[-1])) + 1
        usual = order[:kept]
        return frozenset(usual[self._counts[usual] > 0].tolist())

    def strangeness(self, words: Sequence[int]) -> str:
        """Return how many of a query's words are rare or new: ``none``, ``few`` (to a quarter), ``some``, ``most``."""
        return self.strangeness_of_each((words,))[0]

    def strangeness_of_each(self, queries: Sequence[Sequence[int]]) -> list[str]:
        """Return the same of many queries."""
        usual = self._usual
        if usual is None:
            return ["none"] * len(queries)
        # Nearly all queries have usual words alone.
        return ["none" if usual.issuperset(words) else _strangeness(words, usual) for words in queries]

    def state(self) -> dict[str, Any]:
        """Return everything as JSON values, exact."""
        return {"counts": pack(self._counts), "queries": self._queries, "is_known": self.is_known}

    def load(self, state: dict[str, Any]) -> None:
        """Take a former :meth:`state` back."""
        self._counts = unpack(state["counts"], self._counts)
        self._queries = state["queries"]
        self._usual = self._most_frequent() if state["is_known"] else None


def _strangeness(words: Sequence[int], usual: frozenset[int]) -> str:
    share = sum([word not in usual for word in words]) / len(words)
    return "few" if share <= _FEW else "some" if share <= _SOME else "most"
