"""Policies on tuning streams of both benchmarks: one cached JSON row a stream and policy, and paired differences.

Example: python -m benchmarks.blocks.measure recorded ours --seeds 11 12
"""

from __future__ import annotations

import argparse
import ast
import json
import pickle
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.blocks.adapters import OnDrift, OnRecorded
from benchmarks.drift import streams
from benchmarks.drift.families import SETS
from benchmarks.drift.oracle import oracle
from benchmarks.drift.paired import difference
from benchmarks.drift.policies import AdaptiveConformal, Ours
from benchmarks.drift.score import score as drift_score
from benchmarks.drift.simulate import walk
from benchmarks.recorded import service as recorded_service
from benchmarks.recorded import simulate as recorded_simulate
from benchmarks.recorded import stream as recorded_stream
from benchmarks.recorded.policies import ByPhase, Static
from benchmarks.recorded.scoring import oracles, score
from benchmarks.recorded.service import Service

ROWS, CACHE = Path(__file__).parent / "rows.json", Path("/tmp/wtcore")
QUERIES, ANEW = 200_000, 1_000
TARGET, PHASE, BACK = 0.91, 30_000, 5
Row = dict[str, Any]


_AS_STORED = recorded_stream._recorded  # noqa: SLF001  # the split is not public


def _split_anew(seed: int) -> None:
    """Choose the offline set anew for seeds from 1,000 on: whatever one offline set says by chance is not learnt."""
    if seed < ANEW:
        recorded_stream._recorded = _AS_STORED  # noqa: SLF001  # the split is not public
        return
    groups = dict(_AS_STORED())
    rows = np.concatenate((groups["offline"].recording, groups["none"].recording))
    rows = np.random.default_rng(seed).permutation(rows)
    parts = (np.sort(rows[:4_000]), np.sort(rows[4_000:]))
    groups["offline"], groups["none"] = (recorded_stream.all_outcomes().take(part) for part in parts)
    recorded_stream._recorded = lambda: groups  # noqa: SLF001  # the split is not public


@cache
def _recorded(seed: int) -> tuple[Any, list[Any], Any]:
    """Return a recorded stream, its oracles and the oracle's cost by block."""
    stored = CACHE / f"recorded-{seed}.pickle"
    if stored.exists():
        return pickle.loads(stored.read_bytes())
    _split_anew(seed)
    stream = recorded_stream.draw_stream(PHASE, seed)
    known = oracles(stream, TARGET)
    ideal = ByPhase([one.threshold for one in known], PHASE)
    found = stream, known, score(recorded_simulate.simulate(ideal, stream), stream, known).sequential
    CACHE.mkdir(exist_ok=True)
    stored.write_bytes(pickle.dumps(found))
    return found


def recorded_row(make: Callable[[], Any], seed: int, share: float = 1.0) -> Row:
    """Return what one policy holds on one recorded stream; ``share`` of the labels is asked for."""
    kept, escalated = 0.05 * share, 0.10 * share
    for module in (recorded_simulate, recorded_stream, recorded_service):
        module.LABELLED_KEPT, module.LABELLED_ESCALATED = kept, escalated
    stream, known, best = _recorded(seed)
    _split_anew(seed)
    began = time.process_time()
    routed = recorded_simulate.simulate(make(), stream)
    took = time.process_time() - began
    blocks = score(routed, stream, known)
    on = blocks.expected_on_target.reshape(7, -1)
    cost, least = blocks.sequential.reshape(7, -1), best.reshape(7, -1)
    returns = [2, 4, 6]
    return {
        "pol": float(on.mean()),
        "regret": float(cost.mean() / least.mean() - 1.0),
        "back": float(cost[returns, :BACK].mean() / least[returns, :BACK].mean() - 1.0),
        "by_phase": on.mean(axis=1).tolist(),
        "over": (cost.mean(axis=1) / least.mean(axis=1) - 1.0).tolist(),
        "held": np.round(blocks.expected - blocks.goal, 4).tolist(),
        "cost": np.round(blocks.sequential / best, 3).tolist(),
        "seconds": took,
    }


@cache
def _drawn(family: str, seed: int) -> tuple[Any, Any, Any]:
    """Return a synthetic stream, its offline set and its oracle."""
    drawn = streams.stream(family, seed, QUERIES)
    return drawn, streams.offline(seed), oracle(drawn)


def drift_row(make: Callable[[], Any], family: str, seed: int) -> Row:
    """Return what one policy holds on one synthetic stream."""
    drawn, start, best = _drawn(family, seed)
    policy = make()
    began = time.process_time()
    routed = walk(drawn, start, policy)
    took = time.process_time() - began
    found = drift_score(drawn, routed, best)
    return {
        "pol": found.pol,
        "regret": found.regret,
        "false": sum(found.false_alarms.values()),
        "quiet": found.quiet_queries,
        "seconds": took,
    }


def hindsight(margin: float) -> Callable[[], Any]:
    """Return a static threshold chosen offline at a target raised by a margin."""
    from benchmarks.recorded.tokens import offline_queries
    from ucci_stream.demo.scenario import offline_calibration

    return lambda: Static(offline_calibration(offline_queries(handoff=False), TARGET + margin)[1])


def maker(bench: str, name: str) -> Callable[[], Any]:
    """Return what makes a policy: ``ours@.5``, ``static@.0225``, ``aci@0``, or ``blocks`` with changed constants."""
    kind, _, rest = name.partition("@")
    if kind == "ours":
        safety = float(rest or 0.5)
        return (lambda: Service(TARGET, safety)) if bench == "recorded" else (lambda: Ours(safety, watch=True))
    if kind == "static":
        return hindsight(float(rest))
    if kind == "aci":
        return lambda: AdaptiveConformal(float(rest or 0))
    changed = {key: ast.literal_eval(value) for key, value in (one.split("=") for one in rest.split(",") if one)}
    return (lambda: OnRecorded(TARGET, **changed)) if bench == "recorded" else (lambda: OnDrift(**changed))


def run(bench: str, name: str, seeds: list[int], families: list[str], share: float, tag: str) -> list[Row]:
    """Return the rows of one policy, stored ones included."""
    stored = json.loads(ROWS.read_text()) if ROWS.exists() else {}
    found = []
    for seed in seeds:
        for family in families if bench == "drift" else [f"share {share:g}"]:
            key = f"{bench}|{family}|{seed}|{name}{tag}"
            if key not in stored:
                make = maker(bench, name)
                stored[key] = recorded_row(make, seed, share) if bench == "recorded" else drift_row(make, family, seed)
                ROWS.write_text(json.dumps(stored))
            found.append({"family": family, "seed": seed, **stored[key]})
    return found


def shown(rows: list[Row], base: list[Row]) -> str:
    """Return one policy's means, and paired differences to a base."""
    parts = []
    for key, factor, digits in (("pol", 1.0, 3), ("regret", 100.0, 2), ("back", 100.0, 1)):
        if key in rows[0]:
            text = f"{key} {factor * np.mean([row[key] for row in rows]):.{digits}f}"
            if base is not rows and len(rows) == len(base):
                gap = difference([factor * (row[key] - other[key]) for row, other in zip(rows, base, strict=True)])
                text += f" ({gap.mean:+.{digits}f} ± {gap.half or 0:.{digits}f})"
            parts.append(text)
    if "by_phase" in rows[0]:
        parts += ["on " + " ".join(f"{v:.2f}" for v in np.mean([r["by_phase"] for r in rows], axis=0))]
        parts += ["over " + " ".join(f"{100 * v:+.0f}" for v in np.mean([r["over"] for r in rows], axis=0))]
    else:
        by = {
            f: np.mean([(r["pol"], 100 * r["regret"]) for r in rows if r["family"] == f], axis=0)
            for f in dict.fromkeys(r["family"] for r in rows)
        }
        worst = min(by, key=lambda f: by[f][0])
        parts.append(
            f"worst {worst} {by[worst][0]:.2f}, single {min(r['pol'] for r in rows):.2f}, false/100k "
            f"{1e5 * sum(r['false'] for r in rows) / max(1, sum(r['quiet'] for r in rows)):.2f}"
        )
        parts.append("\n   " + "  ".join(f"{f} {p:.2f}/{c:+.1f}" for f, (p, c) in by.items()))
    parts.append(f"{np.mean([r['seconds'] for r in rows]):.1f} s")
    return "  ".join(parts)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench", choices=("recorded", "drift"))
    parser.add_argument("policies", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--families", nargs="+", default=list(SETS["clean"]))
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--tag", default="")
    options = parser.parse_args()
    seeds = options.seeds or ([11, 12, 13, 14, 15, 21, 22, 23, 24, 25] if options.bench == "recorded" else [701, 702])
    base: list[Row] = []
    for seed in seeds:
        for family in options.families if options.bench == "drift" else [""]:
            for name in options.policies:
                tag = "" if name.split("@")[0] in ("ours", "static", "aci") else options.tag
                run(options.bench, name, [seed], [family], options.share, tag)
            _drawn.cache_clear()
            _recorded.cache_clear()
    for name in options.policies:
        tag = "" if name.split("@")[0] in ("ours", "static", "aci") else options.tag
        rows = run(options.bench, name, seeds, options.families, options.share, tag)
        base = base or rows
        print(name, shown(rows, base), flush=True)


if __name__ == "__main__":
    main()
