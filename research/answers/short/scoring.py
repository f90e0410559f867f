"""What a policy did on a short stream → by stretch the share of blocks on target, and cost over the oracle."""

from __future__ import annotations

from research.answers.scoring import Blocks, score
from research.answers.streams import Judged
from research.recorded.simulate import Routed

BLOCK = 500
EVERY = 100
"""Queries from one look at what is in force to the next: batches of 200 do not end where blocks of 500 do."""

STRETCHES = ("clean", "drifted", "back")


def blocks_of(routed: Routed, judged: Judged) -> Blocks:
    """Score by block of 500 queries what was routed."""
    return score(routed, judged, block=BLOCK, every=EVERY)


def row_of(blocks: Blocks) -> dict[str, float]:
    """Return one stream's figures.

    Of each stretch ``…_on_target``, the share of its blocks, and ``…_cost``, over that of the phase's cheapest
    threshold. ``never``: 1 where no block after the change is on target.
    """
    figures = {}
    for phase, stretch in enumerate(STRETCHES[: int(blocks.phase[-1]) + 1]):
        at = blocks.phase == phase
        figures[f"{stretch}_on_target"] = float(blocks.on_target[at].mean())
        figures[f"{stretch}_cost"] = blocks.regret(at)
    figures["never"] = float(figures["drifted_on_target"] == 0.0)
    return figures
