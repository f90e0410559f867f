"""The service with one part less on the recorded streams: paired differences to the whole one, and how sure they are.

Example: python -m research.recorded.parts --seeds 11 12 13 "mix detectors" "what labels do not tell"
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from research.drift.paired import Difference, difference
from research.drift.policies.ours import PARTS
from research.paper.tables import table
from research.recorded.policies import QUERIES, SAFETY, TARGET, ByPhase
from research.recorded.scoring import oracles, score
from research.recorded.service import Service
from research.recorded.simulate import simulate
from research.recorded.stream import draw_stream

SEEDS = (11, 12, 13, 14, 15)


def measure(seed: int, parts: Sequence[str]) -> list[tuple[float, float]]:
    """Return the share of blocks on target (expected micro-F1) and regret: of the whole service, then without each."""
    stream = draw_stream(QUERIES, seed)
    known = oracles(stream, TARGET)
    oracle = ByPhase([one.threshold for one in known], QUERIES)
    best = score(simulate(oracle, stream), stream, known).sequential.mean()
    found = []
    without: list[dict[str, Any]] = [{}, *(PARTS[part] for part in parts)]
    for tuned in without:
        ours = score(simulate(Service(TARGET, **{"safety": SAFETY, **tuned}), stream), stream, known)
        found.append((float(ours.expected_on_target.mean()), float(ours.sequential.mean() / best - 1.0)))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one row for each part."""
    parser = argparse.ArgumentParser(
        prog="python -m research.recorded.parts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="+", choices=[part for part in PARTS if part != "exploration"], metavar="PART")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    options = parser.parse_args(arguments)
    by_seed = [measure(seed, options.parts) for seed in options.seeds]
    rows = []
    for place, part in enumerate(options.parts, start=1):
        pol, regret = (difference([one[place][of] - one[0][of] for one in by_seed]) for of in (0, 1))
        rows.append([part, _shown(pol, 1.0, 3), _shown(regret, 100.0, 2)])
    print(table(("without", "on target", "regret, %"), rows))


def _shown(found: Difference, factor: float, digits: int) -> str:
    half = "" if found.half is None else f" ± {factor * found.half:.{digits}f}"
    return f"{factor * found.mean:+.{digits}f}{half}"


if __name__ == "__main__":
    main()
