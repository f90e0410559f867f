"""Policies on streams of recorded queries that drift and come back: tables, figures, JSON.

Example: python -m research.recorded --seed 1 --out docs/results/recorded
         python -m research.recorded --quick --out bench-results/recorded
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from research.__main__ import provenance
from research.recorded import experiment
from research.recorded.policies import ENTRIES
from research.recorded.stream import PHASES

OUT = Path("docs/results/recorded")
QUERIES, SEEDS = 30_000, 5
QUICK_QUERIES, QUICK_PHASES = 6_000, 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and write it; returns the exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Instead of the command line's.
    """
    parser = argparse.ArgumentParser(
        prog="python -m research.recorded", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one short stream of the first four phases")
    parser.add_argument("--seed", type=int, default=1, help="of the first stream, the others follow; 1 by default")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the results; {OUT} by default")
    options = parser.parse_args(arguments)
    began_s = time.perf_counter()
    seeds = [options.seed] if options.quick else list(range(options.seed, options.seed + SEEDS))
    queries, phases = (QUICK_QUERIES, PHASES[:QUICK_PHASES]) if options.quick else (QUERIES, PHASES)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(seeds) * (len(ENTRIES) + 1))

        def told(what: str) -> None:
            progress.update(task, advance=1, description=what)

        results = experiment.run(queries, seeds, told, phases)
    options.out.mkdir(parents=True, exist_ok=True)
    _write(results, options, time.perf_counter() - began_s)
    sys.stderr.write(f"written: {options.out}/README.md, results.json and figures\n")
    return 0


def _write(results: dict[str, object], options: argparse.Namespace, seconds: float) -> None:
    from research.recorded.figures import draw
    from research.recorded.report import write

    quick = ["--quick"] if options.quick else []
    command = ["-m", "research.recorded", *quick, "--seed", str(options.seed), "--out", options.out.as_posix()]
    draw(results, options.out)
    write(results, {**provenance(command), "seed": options.seed, "seconds": seconds}, options.out)


if __name__ == "__main__":
    raise SystemExit(main())
