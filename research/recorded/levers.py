"""What a handoff saves at equal compliance on the recorded streams: frontiers by margin, with and without.

It changes answers and what is known of them, so that the same margin no longer holds the same share of blocks.
Costs, by the tokens that were generated, are therefore compared where that share is equal.

Example: python -m research.recorded.levers --out docs/results/recorded/levers
         python -m research.recorded.levers --seeds 11 12 --add   # beside what the folder has of other seeds
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.__main__ import provenance
from research.recorded.answers import load_answers
from research.recorded.levers_report import write
from research.recorded.policies import QUERIES, SAFETY, STRICT_SAFETY, TARGET, ByPhase, static_threshold
from research.recorded.scoring import Oracle, oracles, score
from research.recorded.service import Service
from research.recorded.simulate import Routed, simulate
from research.recorded.stream import Stream, draw_stream
from research.recorded.windows import Static

OUT = Path("docs/results/recorded/levers")
SEEDS = (*range(11, 16), *range(21, 26))
MARGINS = (0.25, SAFETY, 0.75, STRICT_SAFETY, 1.5)
GRID = {"none": MARGINS, "handoff": (SAFETY, STRICT_SAFETY)}
"""Margins by levers."""

Row = dict[str, Any]


def measure(seed: int, queries: int = QUERIES) -> Iterator[Row]:
    """Return a row for each policy and margin, with and without handoff, on one stream.

    ``queries``: in each phase.
    """
    stream = draw_stream(queries, seed)
    known = oracles(stream, TARGET)
    alone = {
        "oracle": ByPhase([one.threshold for one in known], queries),
        "static": Static(static_threshold(TARGET)),
    }
    for name, fixed in alone.items():
        yield _row(simulate(fixed, stream), stream, known, seed=seed, policy=name)
    for levers, margins in GRID.items():
        for safety in margins:
            service = Service(TARGET, safety, handoff=levers == "handoff")
            routed = simulate(service, stream)
            about = {"policy": "service", "levers": levers, "safety": safety}
            ended = "handoff_off" in service.triggers
            yield _row(routed, stream, known, seed=seed, handoff_ended=ended, **about)


def _row(routed: Routed, stream: Stream, known: list[Oracle], **about: Any) -> Row:
    blocks = score(routed, stream, known)
    means = ("expected_on_target", "on_target", "escalated", "sequential", "paper")
    costs = ("sequential_tokens", "paper_tokens")
    return {
        **about,
        **{name: float(getattr(blocks, name).mean()) for name in (*means, *costs)},
        **{
            f"{name}_by_phase": [float(getattr(blocks, name)[blocks.phase == one].mean()) for one in range(len(known))]
            for name in ("sequential_tokens", "expected_on_target")
        },
        "shortfall": float(np.maximum(0.0, blocks.goal - blocks.expected).mean()),
        **_doings(routed),
    }


def _doings(routed: Routed) -> Row:
    """Return what the handoff did: shares of the queries that handed something over."""
    answers, rows = load_answers(), routed.outcomes.recording
    begun = routed.ran & routed.handed
    handed = max(1, int(begun.sum()))
    return {
        "differs": float((begun & answers.differs[rows]).sum()) / handed,
        "asked_again": float((begun & answers.asked_again[rows]).sum()) / handed,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run everything and write it.

    ``arguments``: instead of the command line's.
    """
    parser = argparse.ArgumentParser(
        prog="python -m research.recorded.levers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--add", action="store_true", help="keep what the folder has of other seeds")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the results; {OUT} by default")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    if options.add and (options.out / "results.json").is_file():
        document = json.loads((options.out / "results.json").read_text(encoding="utf-8"))
        rows = [row for row in document["results"]["rows"] if row["seed"] not in options.seeds]
    for seed in options.seeds:
        rows += measure(seed)
    rows.sort(key=lambda row: row["seed"])
    seeds = sorted({row["seed"] for row in rows})
    command = ["-m", "research.recorded.levers", "--seeds", *map(str, seeds), "--out", options.out.as_posix()]
    options.out.mkdir(parents=True, exist_ok=True)
    write({"target": TARGET, "safety": SAFETY, "rows": rows}, provenance(command), options.out)


if __name__ == "__main__":
    main()
