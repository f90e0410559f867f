"""Rivals on streams of recorded answers: a seed in, a row a policy out, two humbling twins beside each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from research.answers.policies import Aci, FixedRate, ours, static, static_threshold
from research.answers.scoring import Blocks, expected_by_block, score
from research.answers.shifts import CLEAN
from research.answers.streams import Judged, draw_judged
from research.recorded.released import Released, Reselected
from research.recorded.scoring import TOLERANCE
from research.recorded.simulate import BATCH, Policy, Routed, simulate
from research.recorded.stream import EXPLORED
from research.recorded.windows import KEEP_ALL, InversePropensity, NaiveRefit, PostStratified, Window
from research.rivals.grids import CONSTANT, OURS, RATES, Row, windowed

Make = Callable[[Judged], Policy]
_MARGINS = (0.0, 0.0025, 0.005, 0.01)


def _window(kind: type[Window], margin: float, window: int, exploration: float) -> Make:
    def make(judged: Judged) -> Policy:
        start = static_threshold(judged.offline, judged.target + margin)
        return kind(judged.offline, judged.target + margin, start, window, exploration)

    return make


def _reselected(margin: float, window: int, exploration: float) -> Make:
    return lambda judged: Reselected(judged.offline, judged.target + margin, window, exploration)


def _released(margin: float) -> Make:
    return lambda judged: Released(judged.offline, judged.target + margin)


def _aci(margin: float, step: float) -> Make:
    def make(judged: Judged) -> Policy:
        threshold = static_threshold(judged.offline, judged.target)
        return Aci(judged.offline, judged.target + margin, threshold, judged.stream.labels, step)

    return make


def _fixed_rate(margin: float) -> Make:
    return lambda judged: FixedRate(judged.offline, static_threshold(judged.offline, judged.target + margin))


GRIDS: Mapping[str, Mapping[str, Make]] = {
    OURS: {"defaults": ours},
    "static": {f"margin {m:g}": partial(static, margin=m) for m in (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04)},
    "fixed rate": {f"margin {m:g}": _fixed_rate(m) for m in (0.0, 0.005, 0.01, 0.02, 0.03)},
    "ACI": {
        f"margin {m:g}, step {s:g}": _aci(m, s)
        for m in (0.0, 0.0025, 0.005, 0.01)
        for s in (0.0005, 0.001, 0.002, 0.005)
    },
    "naive refit": windowed(lambda *knobs: _window(NaiveRefit, *knobs), _MARGINS, EXPLORED),
    "inverse propensity": windowed(lambda *knobs: _window(InversePropensity, *knobs), _MARGINS, EXPLORED),
    "post-stratified": windowed(lambda *knobs: _window(PostStratified, *knobs), _MARGINS, EXPLORED),
    "ucci-router": {f"margin {m:g}": _released(m) for m in (0.0, 0.005, 0.01)},
    "ucci-router, re-selected": windowed(_reselected, _MARGINS, EXPLORED),
}


def rows(seed: int, chosen: Mapping[str, Iterable[str]]) -> Iterator[Row]:
    """Walk one stream with each policy; each row has its two twins of the same cost.

    ``chosen``: variants by rival.
    """
    judged = draw_judged("tuning", seed)
    for rival, variants in chosen.items():
        for variant in variants:
            if rival != CONSTANT:
                routed = simulate(GRIDS[rival][variant](judged), judged.stream)
                yield {"rival": rival, "variant": variant, "seed": seed, **_scored(routed, judged)}
    if CONSTANT in chosen:
        yield from ({"rival": CONSTANT, "variant": "", "seed": seed, **row} for row in [_best_constant(judged)])


def _scored(routed: Routed, judged: Judged) -> dict[str, Any]:
    blocks = score(routed, judged)
    rate = routed.ran.reshape(-1, BATCH).mean(axis=1)
    failed = np.isnan(judged.stream.outcomes.uncertainty).reshape(-1, BATCH).mean(axis=1)
    drawn = np.clip((rate - failed) / (1.0 - failed), 0.0, 1.0)
    by_chance = replace(routed, threshold=np.full(len(routed.rows), KEEP_ALL), exploration=np.repeat(drawn, BATCH))
    constant = _constant(judged, float(routed.ran.mean()))
    return {
        **_figures(blocks, judged),
        "random": _held(by_chance, judged),
        "constant": _held(constant, judged),
    }


def _figures(blocks: Blocks, judged: Judged) -> dict[str, Any]:
    """Return the share of blocks on target, of all and by kind of drift within reach, and the cost over the oracle."""
    kinds = np.array(judged.kinds)[blocks.phase]
    within = np.array([oracle.feasible for oracle in judged.oracles])[blocks.phase] & (kinds != CLEAN)
    found = {str(kind): float(blocks.on_target[(kinds == kind) & within].mean()) for kind in np.unique(kinds[within])}
    return {"on_target": float(blocks.on_target.mean()), "regret": blocks.regret(), "kinds": found}


def _held(routed: Routed, judged: Judged) -> float:
    phase = judged.stream.phase[:: len(judged.stream) // len(expected := expected_by_block(routed, judged))]
    goal = np.array([oracle.goal for oracle in judged.oracles])[phase]
    return float((expected >= goal - TOLERANCE).mean())


def _constant(judged: Judged, rate: float) -> Routed:
    """Return the stream as one threshold for ever routes it, which escalates so many queries."""
    stream = judged.stream
    u = np.nan_to_num(stream.outcomes.uncertainty, nan=np.inf)
    threshold = float(min(np.quantile(u, 1.0 - rate, method="lower"), KEEP_ALL)) if rate < 1.0 else -1.0
    blank = Routed.blank(stream)
    above = stream.outcomes.above(threshold)
    return replace(blank, threshold=np.full(len(stream), threshold), above=above)


def _best_constant(judged: Judged) -> dict[str, Any]:
    found = [_scored_constant(judged, rate) for rate in RATES]
    return max(found, key=lambda row: row["on_target"] - max(row["regret"], 0.0))


def _scored_constant(judged: Judged, rate: float) -> dict[str, Any]:
    return _figures(score(_constant(judged, rate), judged), judged)
