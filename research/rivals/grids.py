"""What both benchmarks share: names, knobs, and the one rule by which a variant is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

Row = dict[str, Any]
Made = TypeVar("Made")

OURS = "this project"
CONSTANT = "one threshold, best in hindsight"
REST = 0.2
"""Share of the usual exploration that rivals may explore instead."""
RATES = tuple(np.linspace(0.0, 1.0, 41))
"""Escalation rates among which the best constant threshold is sought, stream by stream."""


def windowed(make: Callable[[float, int, float], Made], margins: Iterable[float], explored: float) -> dict[str, Made]:
    """Return the grid of a rival with a window: margins, labels remembered and exploration, in full or at rest."""
    knobs = [(window, share) for window in (1_000, 4_000) for share in (1.0, REST)]
    return {
        f"margin {m:g}, {window:,} labels, {share:.0%} of exploration": make(m, window, share * explored)
        for m in margins
        for window, share in knobs
    }


def worth(rows: Sequence[Row]) -> float:
    """Return the share of blocks on target less the cost above the oracle's; being cheaper than it earns nothing.

    Examples
    --------
    >>> round(worth([{"on_target": 0.9, "regret": 0.05}, {"on_target": 0.7, "regret": -0.2}]), 3)
    0.775
    """
    return float(np.mean([row["on_target"] - max(row["regret"], 0.0) for row in rows]))


def choose(rows: Sequence[Row]) -> dict[str, str]:
    """Return of each rival the variant that is worth most over all streams."""
    by_rival: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        by_rival.setdefault(row["rival"], {}).setdefault(row["variant"], []).append(row)
    return {rival: max(variants, key=lambda name: worth(variants[name])) for rival, variants in by_rival.items()}
