"""Two statements of the paper's theory, simulated: the rate of proposition 2, and heavy tails (appendix B.5).

Example: python -m research.paper.theory --seed 1 --out docs/results/paper/theory
         python -m research.paper.theory --quick --out bench-results/theory
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from research.__main__ import provenance
from research.paper import published
from research.paper.calibration_rate import rates, recorded_rates
from research.paper.heavy_tails import QUERIES, regimes
from research.paper.workloads import recorded_workload
from research.results_json import write_results

OUT = Path("docs/results/paper/theory")
_QUICK_LABELS = (100, 300, 1_000, 3_000)
_QUICK_QUERIES = 4_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate everything and write it; returns the exit code.

    ``arguments``: instead of the command line's.
    """
    parser = argparse.ArgumentParser(
        prog="python -m research.paper.theory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="fewer labels, queries and repetitions")
    parser.add_argument("--seed", type=int, default=1, help="of all draws; 1 by default")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the results; {OUT} by default")
    options = parser.parse_args(arguments)
    began_s = time.perf_counter()
    results = simulate(options.seed, quick=options.quick)
    options.out.mkdir(parents=True, exist_ok=True)
    _write(results, options, time.perf_counter() - began_s)
    sys.stderr.write(f"written: {options.out}/README.md, results.json and figures\n")
    return 0


def simulate(seed: int, *, quick: bool) -> dict[str, Any]:
    """Return the errors by n, simulated and recorded, and the figures of each tail."""
    repetitions = 3 if quick else 40
    curves = rates(repetitions, seed, _QUICK_LABELS) if quick else rates(repetitions, seed)
    return {
        "rates": curves,
        "recorded": recorded_rates(recorded_workload(published.TARGET), repetitions, seed),
        "tails": regimes(2 if quick else 20, seed, _QUICK_QUERIES if quick else QUERIES),
    }


def _write(results: dict[str, Any], options: argparse.Namespace, seconds: float) -> None:
    from research.paper.theory_figures import draw
    from research.paper.theory_report import page

    quick = ["--quick"] if options.quick else []
    command = ["-m", "research.paper.theory", *quick, "--seed", str(options.seed), "--out", options.out.as_posix()]
    made = {**provenance(command), "seed": options.seed, "seconds": seconds}
    draw(results, options.out)
    write_results(options.out, {"made": made, "results": results})
    (options.out / "README.md").write_text(page(results, made), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
