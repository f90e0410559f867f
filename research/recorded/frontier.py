"""Blocks on target against cost on the recorded streams, by margin, for the service and for a clairvoyant.

The service has to detect changes of the traffic. The clairvoyant learns of each change, by default as it happens: that
is the most that detection could gain. With ``--late N`` it learns of it N queries later, as from a detector that never
errs and has that delay.

Example: python -m research.recorded.frontier --seeds 11 12 13 14 15 --safeties 0.5 1 2 --late 0 6000
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from research.drift.paired import difference
from research.paper.tables import table
from research.recorded.__main__ import QUERIES
from research.recorded.clairvoyant import Clairvoyant
from research.recorded.experiment import TARGET
from research.recorded.policies import SAFETY, ByPhase
from research.recorded.scoring import BLOCK, Oracle, oracles, score
from research.recorded.service import Service
from research.recorded.simulate import simulate
from research.recorded.stream import Stream, draw_stream

SEEDS = (11, 12, 13, 14, 15)
AT_ONCE = 3
"""Blocks after a change in which next to none of its labels have come in."""


class Held(NamedTuple):
    """What one policy holds on one stream.

    Parameters
    ----------
    on_target, regret : float
        Share of blocks by expected micro-F1, and cost over the oracle's.
    lost_at_once, lost_later : float
        Blocks of the stream that are not on target: of the first three of a phase, and of the others.
    """

    on_target: float
    regret: float
    lost_at_once: float
    lost_later: float


def measure(policy: Service, stream: Stream, known: list[Oracle], best: float) -> Held:
    """Return what a policy holds on a stream, ``best`` being the oracle's mean cost of a query."""
    blocks = score(simulate(policy, stream), stream, known)
    lost = 1.0 - blocks.expected_on_target.reshape(len(stream.phases), -1)
    at_once, later = float(lost[:, :AT_ONCE].sum()), float(lost[:, AT_ONCE:].sum())
    return Held(1.0 - float(lost.mean()), float(blocks.sequential.mean()) / best - 1.0, at_once, later)


def policies(safeties: Sequence[float], delays: Sequence[int], stream: Stream) -> dict[tuple[str, float], Service]:
    """Return by name and margin what is compared, at the start of a stream."""
    found: dict[tuple[str, float], Service] = {}
    for safety in safeties:
        found["This project", safety] = Service(TARGET, safety)
        for late in delays:
            told = Clairvoyant(TARGET, safety)
            told.foresee(stream, late)
            found[f"told {late:,} queries late" if late else "told at once", safety] = told
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one row for each policy and margin."""
    parser = argparse.ArgumentParser(
        prog="python -m research.recorded.frontier",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--safeties", type=float, nargs="+", default=(SAFETY,))
    parser.add_argument("--late", type=int, nargs="*", default=(0,), help="queries after a change; 0 by default")
    options = parser.parse_args(arguments)
    held: dict[tuple[str, float], list[Held]] = {}
    for seed in options.seeds:
        stream = draw_stream(QUERIES, seed)
        known = oracles(stream, TARGET)
        oracle = ByPhase([one.threshold for one in known], QUERIES)
        best = float(score(simulate(oracle, stream), stream, known).sequential.mean())
        for key, policy in policies(options.safeties, options.late, stream).items():
            held.setdefault(key, []).append(measure(policy, stream, known, best))
    rows = [
        [name, f"{safety:g}", *(_shown(found, place, *digits) for place, digits in enumerate(_DIGITS))]
        for (name, safety), found in held.items()
    ]
    after = AT_ONCE * BLOCK
    head = ("policy", "safety", "on target", "regret, %", f"blocks lost within {after:,} queries of a phase", "later")
    print(table(head, rows))


_DIGITS = ((1.0, 3), (100.0, 1), (1.0, 1), (1.0, 1))


def _shown(found: list[Held], place: int, factor: float, digits: int) -> str:
    mean = difference([factor * one[place] for one in found])
    return f"{mean.mean:.{digits}f}" + ("" if mean.half is None else f" ± {mean.half:.{digits}f}")


if __name__ == "__main__":
    main()
