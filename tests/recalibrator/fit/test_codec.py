"""The codec of snapshots: what is kept comes back exactly, through JSON, and everything else stays as it was made."""

from __future__ import annotations

import json
from collections import deque
from math import inf
from typing import NamedTuple

import numpy as np

from recalibrator.fit.codec import Counts, Floats, Kept, KeptEach, dump, load


class Pair(NamedTuple):
    name: str
    curve: Floats


class Inner:
    seen: Kept[int] = 0
    twice = 0

    def restored(self) -> None:
        self.twice = 2 * self.seen


class Outer:
    counts: Kept[Counts]
    pairs: Kept[dict[int, Pair]]
    recent: Kept[deque[tuple[int, float]]]
    names: Kept[set[str]]
    inner: Kept[Inner]
    named: KeptEach[Inner]

    def __init__(self, *names: str) -> None:
        self.counts, self.pairs, self.recent, self.names = np.zeros((2, 3), np.int64), {}, deque(), set()
        self.inner, self.named, self.setting = Inner(), {name: Inner() for name in names}, len(names)


def test_what_is_kept_comes_back_by_its_type() -> None:
    one, other = Outer("a", "b"), Outer("b", "c", "d")
    one.counts[0, 1] = 7
    one.pairs[3] = Pair("x", np.array([-0.0, np.nan, 1.5]))
    one.recent.append((1, inf))
    one.names = {"p", "q"}
    one.inner.seen = one.named["a"].seen = one.named["b"].seen = 4
    load(other, json.loads(json.dumps(dump(one))))
    assert other.counts.dtype == np.int64
    assert other.counts.tolist() == [[0, 7, 0], [0, 0, 0]]
    assert other.pairs[3].curve.tobytes() == one.pairs[3].curve.tobytes()
    assert (other.recent, other.names, other.inner.twice) == (one.recent, one.names, 8)
    assert {name: held.seen for name, held in other.named.items()} == {"b": 4, "c": 0, "d": 0}
    assert other.setting == 3
