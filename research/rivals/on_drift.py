"""Rivals on synthetic drift with a known oracle: a family and a seed in, a row a policy out, two twins beside each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from research.drift.mess import EXPLORED
from research.drift.oracle import Oracle, oracle, sequential_cost
from research.drift.policies.ordinary import FixedRate
from research.drift.policies.ours import Ours
from research.drift.policies.ucci_router import AsReleased, Reselected, Static
from research.drift.policies.windowed import AdaptiveConformal, InversePropensity, Naive, PostStratified
from research.drift.score import TOLERANCE, score
from research.drift.simulate import Policy, walk
from research.drift.streams import BLOCK, Stream, offline, stream
from research.rivals.grids import CONSTANT, OURS, RATES, Row, windowed

Make = Callable[[], Policy]
Floats = NDArray[np.float64]
_MARGINS = (0.0, 0.005, 0.012)


class _Explores:
    """A policy's maker with another exploration than its own; rivals without pairs of answers pay for none."""

    def __init__(self, make: Callable[..., Policy], exploration: float, *knobs: float) -> None:
        self._make, self._exploration, self._knobs = make, exploration, knobs

    def __call__(self) -> Policy:
        policy = self._make(*self._knobs)
        policy.exploration = self._exploration  # type: ignore[misc]
        return policy


def _window(make: Callable[..., Policy], margins: tuple[float, ...] = _MARGINS) -> dict[str, Make]:
    return windowed(lambda margin, window, share: _Explores(make, share, margin, window), margins, EXPLORED)


GRIDS: Mapping[str, Mapping[str, Make]] = {
    OURS: {"defaults": lambda: Ours(watch=True)},
    "static": {f"margin {m:g}": lambda m=m: Static(m) for m in (0.0, 0.005, 0.012, 0.02, 0.03)},
    "fixed rate": {f"margin {m:g}": _Explores(FixedRate, 0.0, m) for m in (0.0, 0.005, 0.012, 0.02)},
    "ACI": {
        f"margin {m:g}, step {s:g}": _Explores(AdaptiveConformal, 0.0, m, s)
        for m in (0.0, 0.005, 0.01)
        for s in (0.002, 0.005, 0.01, 0.02)
    },
    "naive refit": _window(Naive, (0.0, 0.005)),
    "inverse propensity": _window(InversePropensity),
    "post-stratified": _window(PostStratified),
    "ucci-router": {f"margin {m:g}": lambda m=m: AsReleased(m) for m in (0.0, 0.005, 0.012, 0.02)},
    "ucci-router, re-selected": _window(Reselected),
}


def rows(family: str, seed: int, queries: int, chosen: Mapping[str, Iterable[str]]) -> Iterator[Row]:
    """Walk one stream with each policy; ours keeps what the drift report shows of it besides."""
    drawn, start = stream(family, seed, queries), offline(seed)
    best = oracle(drawn)
    for rival, variants in chosen.items():
        for variant in variants:
            key = {"family": family, "seed": seed, "rival": rival, "variant": variant}
            if rival == CONSTANT:
                yield {**key, **_best_constant(drawn, best)}
                continue
            routed = walk(drawn, start, GRIDS[rival][variant]())
            found = score(drawn, routed, best)
            ran = routed.large_ran
            twins = {
                "random": _held(drawn, best, np.repeat(ran.reshape(-1, BLOCK).mean(axis=1), BLOCK)),
                "constant": _held(drawn, best, _above(drawn, float(ran.mean()))),
            }
            whole = {"policy": "ours", **asdict(found)} if rival == OURS else {}
            yield {**key, "on_target": found.pol, "regret": found.regret, **twins, **whole}


def _held(drawn: Stream, best: Oracle, by_large: Floats) -> float:
    """Return the share of blocks on target where the large answer is served with these probabilities, by query."""
    gold, small, large = drawn.expected[:3]
    hits = (1.0 - by_large) * small + by_large * large
    micro_f1 = hits.reshape(-1, BLOCK).sum(axis=1) / gold.reshape(-1, BLOCK).sum(axis=1)
    return float((micro_f1 - best.reach >= -TOLERANCE).mean())


def _above(drawn: Stream, rate: float) -> Floats:
    """Return 1 where one threshold for ever escalates, 0 elsewhere, at a rate over the whole stream."""
    return (drawn.u > np.quantile(drawn.u, 1.0 - rate)).astype(np.float64)


def _best_constant(drawn: Stream, best: Oracle) -> dict[str, float]:
    found = []
    for rate in RATES:
        cost = float(sequential_cost(np.array(rate)) / best.cost.mean() - 1.0)
        found.append({"on_target": _held(drawn, best, _above(drawn, rate)), "regret": cost})
    return max(found, key=lambda row: row["on_target"] - max(row["regret"], 0.0))
