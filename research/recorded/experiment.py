"""Every policy on the same streams: seeds flow in, scores by block, by phase and overall flow out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from research.recorded.clairvoyant import Clairvoyant
from research.recorded.policies import ENTRIES, ORACLE, ByPhase, Entry
from research.recorded.scoring import BLOCK, Blocks, Oracle, oracles, score
from research.recorded.simulate import Policy, simulate
from research.recorded.stream import PHASES, Floats, Phase, Stream, draw_stream

TARGET = 0.91
Told = Callable[[str], None]
_BY_TOKENS = ("sequential_tokens", "paper_tokens")


def run(
    queries: int, seeds: list[int], told: Told, phases: tuple[Phase, ...] = PHASES, target: float = TARGET
) -> dict[str, Any]:
    """Run all policies on one stream a seed.

    Parameters
    ----------
    queries : int
        In each phase; a multiple of the block of 2,000.
    seeds : list of int
    told : callable
        Hears what is being done.
    phases : tuple of Phase
    target : float

    Returns
    -------
    dict
        ``phases``; ``oracle``: a row a phase, means over seeds; ``policies``: by name, overall and by phase;
        ``blocks``: of the first seed, for the picture.
    """
    scored: dict[str, list[Blocks]] = {}
    known: list[list[Oracle]] = []
    for seed in seeds:
        stream = draw_stream(queries, seed, phases)
        known.append(oracles(stream, target))
        for name, blocks in _play(stream, known[-1], target, lambda what, seed=seed: told(f"seed {seed}: {what}")):
            scored.setdefault(name, []).append(blocks)
    titles = {"oracle": ORACLE, **{entry.name: entry.title for entry in ENTRIES}}
    return {
        "target": target,
        "queries": queries,
        "seeds": seeds,
        "phases": [{"title": one.title, "shift": one.shift, "share": one.share} for one in phases],
        "oracle": _oracle_rows(known),
        "policies": {
            name: {"title": titles[name], **_overall(blocks, scored["oracle"]), "phases": _by_phase(blocks)}
            for name, blocks in scored.items()
        },
        "blocks": {name: _series(blocks[0]) for name, blocks in scored.items()},
    }


def _play(stream: Stream, known: list[Oracle], target: float, told: Told) -> list[tuple[str, Blocks]]:
    length = int((stream.phase == 0).sum())
    told(ORACLE)
    oracle = ByPhase([one.threshold for one in known], length)
    found = [("oracle", score(simulate(oracle, stream), stream, known))]
    for entry in ENTRIES:
        told(entry.title)
        routed = simulate(policy_at_start(entry, target, stream), stream)
        found.append((entry.name, score(routed, stream, known, alone=entry.name == "large")))
    return found


def policy_at_start(entry: Entry, target: float, stream: Stream) -> Policy:
    """Return a policy of the comparison at the start of a stream, told of its changes if it is to know of them."""
    policy = entry.make(target)
    if isinstance(policy, Clairvoyant):
        policy.foresee(stream)
    return policy


def _overall(blocks: list[Blocks], oracle: list[Blocks]) -> dict[str, Any]:
    """Return means over all blocks, with the least and largest of the seeds, and the cost over the oracle's."""
    found: dict[str, Any] = {}
    for name in ("on_target", "expected_on_target", "escalated", "sequential", "paper", *_BY_TOKENS):
        values = [float(getattr(one, name).mean()) for one in blocks]
        found[name], found[f"{name}_range"] = float(np.mean(values)), (min(values), max(values))
    for cost, over in (("sequential", "over_oracle"), ("sequential_tokens", "over_oracle_tokens")):
        both = [(getattr(ours, cost), getattr(best, cost)) for ours, best in zip(blocks, oracle, strict=True)]
        regret = [float(ours.mean() / best.mean() - 1.0) for ours, best in both]
        found[over], found[f"{over}_range"] = float(np.mean(regret)), (min(regret), max(regret))
    short = [float(np.maximum(0.0, one.goal - one.expected).mean()) for one in blocks]
    found["shortfall"] = float(np.mean(short))
    found["worst_block"] = min(float((one.realised - one.goal).min()) for one in blocks)
    return found


def _by_phase(blocks: list[Blocks]) -> list[dict[str, float]]:
    names = ("realised", "expected", "on_target", "expected_on_target", "sequential", "escalated")
    return [
        {
            **{
                name: float(np.mean([getattr(one, name)[one.phase == phase].mean() for one in blocks]))
                for name in names
            },
            **_recovery([one.expected_on_target[one.phase == phase] for one in blocks]),
        }
        for phase in np.unique(blocks[0].phase)
    ]


def _recovery(on_target: list[Floats]) -> dict[str, float]:
    """Return after how many queries of a phase a first block is on target (-1: never), and in what share of seeds."""
    first = [int(np.argmax(one)) for one in on_target if one.any()]
    return {"recovered": len(first) / len(on_target), "recovery": float(np.mean(first)) * BLOCK if first else -1.0}


def _oracle_rows(known: list[list[Oracle]]) -> list[dict[str, Any]]:
    return [
        {
            "threshold": float(np.mean([one.threshold for one in phase])),
            "goal": float(np.mean([one.goal for one in phase])),
            "feasible": all(one.feasible for one in phase),
            "escalated": float(np.mean([one.escalated for one in phase])),
        }
        for phase in zip(*known, strict=True)
    ]


def _series(blocks: Blocks) -> dict[str, list[float]]:
    return {name: getattr(blocks, name).tolist() for name in ("realised", "expected", "goal", "escalated")}
