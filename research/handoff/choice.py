"""``python -m research.handoff.choice``: what choosing the margin of a handoff would be worth, against a fixed one.

From :mod:`research.handoff.pool`, the demo's models recorded under every margin. Everything is given to a choice that
a service would have to learn: thresholds are the cheapest that meet the target for each margin and mix of texts, at
once and without labels. What is left to choose is the margin alone:

- *in hindsight*: the margin that is the cheapest on the very queries on which it is scored;
- *learned*: the cheapest margin on a labelled sample as large as the pool, scored on the queries outside of it;
- *stepping*: one margin bolder or more cautious by what the guard's labels show, in a stream whose texts change.

Example: python -m research.handoff.choice --rounds 200 --seeds 5 --out /tmp/choice
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.__main__ import provenance
from research.handoff.at_target import FIXED, hold, ladder, loss, weights_of
from research.handoff.choice_report import write
from research.handoff.experiment import Floats
from research.handoff.pool import TEXTS, Pool
from research.handoff.stepping import CHUNK, streams
from research.paper.intervals import interval
from schemas.basis import Granularity

MIXES: dict[str, tuple[float, ...]] = {
    "clean": (1.0, 0.0, 0.0),
    "20 % typos": (0.8, 0.2, 0.0),
    "3 % upper case": (0.97, 0.0, 0.03),
}
"""Shares of the texts of the pool; with more in upper case no threshold meets the target."""

GRANULARITIES: tuple[Granularity, ...] = ("field", "token")
ROUNDS, SEEDS, QUERIES = 200, 10, 2_000_000


def fixed_margins(pool: Pool, mix: Sequence[float], rounds: int, seed: int) -> list[dict[str, Any]]:
    """Compare every margin with the fixed one of its granularity; all intervals are of the same resamples."""
    samples = [weights_of(pool, mix, drawn) for drawn, _ in resamples(len(pool.u), rounds, seed)]
    whole, rows = weights_of(pool, mix), []
    for granularity in GRANULARITIES:
        names = ladder(granularity)
        place = names.index(f"{granularity}@{FIXED:g}")
        costs = np.array([[hold(pool, name, drawn).cost for name in names] for drawn in samples])
        over = costs / costs[:, [place]] - 1.0
        today = hold(pool, names[place], whole)
        for name, column in zip(names, over.T, strict=True):
            held = hold(pool, name, whole)
            rows.append(
                {
                    "handoff": name,
                    "granularity": granularity,
                    "escalated": held.escalated,
                    "met": held.met,
                    "loss": loss(pool, name, whole * held.above),
                    "over_fixed": held.cost / today.cost - 1.0,
                    "over_fixed_interval": interval(column),
                }
            )
    return rows


def resamples(queries: int, rounds: int, seed: int) -> Iterator[tuple[Floats, Floats]]:
    """Yield how often each query is drawn, and 1 for each that is not drawn at all."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        drawn = np.bincount(rng.integers(queries, size=queries), minlength=queries).astype(np.float64)
        yield drawn, (drawn == 0.0).astype(np.float64)


def choices(pool: Pool, mix: Sequence[float], rounds: int, seed: int) -> list[dict[str, Any]]:
    """Choose on a sample, or in hindsight, and score on the queries outside of the sample."""
    samples = [tuple(weights_of(pool, mix, part) for part in parts) for parts in resamples(len(pool.u), rounds, seed)]
    rows: list[dict[str, Any]] = []
    for granularity in GRANULARITIES:
        names = ladder(granularity)
        place = names.index(f"{granularity}@{FIXED:g}")
        known, scored = (
            np.array([[hold(pool, name, parts[side]).cost for name in names] for parts in samples]) for side in (0, 1)
        )
        fixed = scored[:, place]
        chosen = known.argmin(axis=1)
        found = {"in hindsight": scored.min(axis=1), "learned": scored[np.arange(len(scored)), chosen]}
        rows.extend(
            {
                "granularity": granularity,
                "choice": choice,
                "over_fixed": float((costs / fixed - 1.0).mean()),
                "over_fixed_interval": interval(costs / fixed - 1.0),
                "chosen": {} if choice != "learned" else _shares(names, chosen.tolist()),
            }
            for choice, costs in found.items()
        )
    return rows


def _shares(names: Sequence[str], chosen: Sequence[int]) -> dict[str, float]:
    return {name: chosen.count(place) / len(chosen) for place, name in enumerate(names)}


def run(pool: Pool, rounds: int, seeds: int, queries: int) -> dict[str, Any]:
    """Measure everything.

    ``rounds``: bootstrap resamples of the pool. ``seeds``: streams of each kind. ``queries``: in a stream, half of them
    clean.
    """
    return {
        "texts": TEXTS,
        "queries": queries,
        "seeds": seeds,
        "rounds": rounds,
        "mixes": [
            {
                "mix": name,
                "margins": fixed_margins(pool, mix, rounds, seed=1),
                "choices": choices(pool, mix, rounds, seed=2),
                "streams": streams(pool, stages, GRANULARITIES, queries, seeds) if name != "clean" else [],
            }
            for name, mix in MIXES.items()
            for stages in [(MIXES["clean"], mix)]
        ],
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(
        prog="python -m research.handoff.choice",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="bootstrap resamples")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="streams of each kind")
    parser.add_argument("--queries", type=int, default=QUERIES, help=f"in a stream, a multiple of {2 * CHUNK}")
    parser.add_argument("--out", type=Path, default=Path("docs/results/handoff/choice"), help="folder of the results")
    given = parser.parse_args(argv)
    results = run(Pool.load(), given.rounds, given.seeds, given.queries)
    given.out.mkdir(parents=True, exist_ok=True)
    command = ["-m", "research.handoff.choice", "--rounds", str(given.rounds), "--seeds", str(given.seeds)]
    write(results, provenance([*command, "--queries", str(given.queries)]), given.out)


if __name__ == "__main__":
    main()
