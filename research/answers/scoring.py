"""What a policy did on a stream → the share of blocks on target, cost over the oracle, the worst kind, the way back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from research.answers.shifts import CLEAN
from research.answers.streams import Judged
from research.recorded.scoring import BLOCK, LARGE_COST, SMALL_COST, TOLERANCE, Curve
from research.recorded.simulate import BATCH, Routed
from research.recorded.stream import Floats, Integers, Mask

WAY_BACK = 10_000
"""Queries after each return to the clean world that are looked at apart."""


@dataclass(frozen=True)
class Blocks:
    """Scores by block of queries, 2,000 unless another length is asked for.

    ``on_target``: 1 where the expected micro-F1 reaches the target, or what is in reach, up to the tolerance. ``cost``,
    ``best``: mean cost of a query, and the oracle's.
    """

    phase: Integers
    on_target: Floats
    cost: Floats
    best: Floats

    def regret(self, at: Mask | slice = slice(None)) -> float:
        """Return the cost over the oracle's, of all blocks or of some."""
        return float(self.cost[at].sum() / self.best[at].sum() - 1.0)


def score(routed: Routed, judged: Judged, *, block: int = BLOCK, every: int = BATCH) -> Blocks:
    """Score by block what was routed.

    ``block``: its queries; no phase ends inside one. ``every``: see :func:`expected_by_block`.
    """
    stream = judged.stream
    phase = stream.phase[::block]
    expected = expected_by_block(routed, judged, block=block, every=every)
    goal = np.array([oracle.goal for oracle in judged.oracles])[phase]
    least = np.array([oracle.threshold for oracle in judged.oracles])[stream.phase]
    return Blocks(
        phase,
        (expected >= goal - TOLERANCE).astype(np.float64),
        SMALL_COST + LARGE_COST * _by_block(routed.ran, block),
        SMALL_COST + LARGE_COST * _by_block(stream.outcomes.above(least), block),
    )


def _by_block(ran: Mask, block: int) -> Floats:
    return np.asarray(ran.reshape(-1, block).mean(axis=1))


def expected_by_block(routed: Routed, judged: Judged, *, block: int = BLOCK, every: int = BATCH) -> Floats:
    """Return each block's micro-F1 over all draws from the pool, given what was in force in it.

    ``every``: queries from one look at what is in force to the next; a divisor of ``block``, and of the batches after
    which a policy may move.
    """
    stream = judged.stream
    parts = np.empty((len(routed.rows) // every, 2))
    threshold, explored, phase = (one[::every] for one in (routed.threshold, routed.exploration, stream.phase))
    for number, (about, pools) in enumerate(zip(stream.phases, stream.pools, strict=True)):
        at = phase == number
        clean, other = (Curve(pool).parts(threshold[at], explored[at]) for pool in pools)
        parts[at] = (1.0 - about.share) * clean + about.share * other
    summed = parts.reshape(-1, block // every, 2).sum(axis=1)
    return np.asarray(summed[:, 0] / summed[:, 1])


def row_of(blocks: Blocks, judged: Judged) -> dict[str, float]:
    """Return one stream's figures: overall, on the way back, out of reach, and by kind of drift."""
    kinds = np.array(judged.kinds)[blocks.phase]
    in_reach = np.array([oracle.feasible for oracle in judged.oracles])[blocks.phase]
    since = np.arange(len(blocks.phase)) - np.searchsorted(blocks.phase, blocks.phase)
    back = (kinds == CLEAN) & (blocks.phase > 0) & (since < WAY_BACK // BLOCK)
    found = {
        "on_target": float(blocks.on_target.mean()),
        "regret": blocks.regret(),
        "regret_in_reach": blocks.regret(in_reach),
        "back_on_target": float(blocks.on_target[back].mean()),
        "back_regret": blocks.regret(back),
    }
    if not in_reach.all():
        found |= {
            "beyond_on_target": float(blocks.on_target[~in_reach].mean()),
            "beyond_regret": blocks.regret(~in_reach),
        }
    for kind in dict.fromkeys(kinds[in_reach].tolist()):
        found[f"kind:{kind}"] = float(blocks.on_target[(kinds == kind) & in_reach].mean())
    return found


def summed_up(rows: list[dict[str, float]]) -> dict[str, tuple[float, float | None]]:
    """Return of each figure the mean over streams and half its 95 % interval, and the ``worst`` kind's mean."""
    means = averaged(rows)
    kinds = {name: mean for name, mean in means.items() if name.startswith("kind:") and not name.endswith(CLEAN)}
    return {**means, "worst_kind": min(kinds.values(), key=lambda pair: pair[0], default=means["on_target"])}


def averaged(rows: list[dict[str, float]]) -> dict[str, tuple[float, float | None]]:
    """Return of each figure the mean over the streams that have it, and half its 95 % interval; none of one stream."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _mean([row[name] for row in rows if name in row]) for name in names}


def _mean(values: list[float]) -> tuple[float, float | None]:
    count = len(values)
    if count == 1:
        return values[0], None
    half = float(stats.t.ppf(0.975, count - 1) * np.std(values, ddof=1) / np.sqrt(count))
    return float(np.mean(values)), half
