"""Whether the monitors name what moved: recorded and synthetic shifts, quiet streams, cost.

Example: python -m benchmarks.explanations --out docs/results/explanations
         python -m benchmarks.explanations --quick --out bench-results/explanations
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.__main__ import provenance
from benchmarks.explanations import experiment
from benchmarks.explanations.report import write

OUT = Path("docs/results/explanations")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and write it; returns the exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Instead of the command line's.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.explanations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one stream a scenario, short quiet ones")
    parser.add_argument("--seed", type=int, default=31, help="of the first stream, the others follow; 31 by default")
    parser.add_argument("--streams", type=int, default=2, help="of each scenario; 2 by default")
    parser.add_argument("--quiet-queries", type=int, default=100_000, help="of each quiet stream; 100,000 by default")
    parser.add_argument("--without-river", action="store_true", help="leave the comparison with river's detectors out")
    parser.add_argument(
        "--costs-anew",
        action="store_true",
        help="measure only the costs beside river anew, of the results in the folder",
    )
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the results; {OUT} by default")
    options = parser.parse_args(arguments)
    if options.costs_anew:
        return _costs_anew(options.out)
    streams, quiet = (1, 10_000) if options.quick else (options.streams, options.quiet_queries)
    seeds = list(range(options.seed, options.seed + streams))
    results = experiment.run(seeds, quiet, _told)
    results["beside_river"] = [] if options.without_river else _beside_river(options.seed, quiet)
    options.out.mkdir(parents=True, exist_ok=True)
    given = ["--seed", str(options.seed), "--streams", str(streams), "--quiet-queries", str(quiet)]
    given += ["--without-river"] if options.without_river else []
    command = ["-m", "benchmarks.explanations", *given, "--out", options.out.as_posix()]
    write(results, {**provenance(command), "seed": options.seed}, options.out)
    sys.stderr.write(f"written: {options.out}/README.md, results.json\n")
    return 0


def _costs_anew(folder: Path) -> int:
    from benchmarks.explanations.beside_river import with_costs

    known = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    known["results"]["beside_river"] = with_costs(known["results"]["beside_river"])
    command = ["-m", "benchmarks.explanations", "--costs-anew", "--out", folder.as_posix()]
    write(known["results"], known["made"] | {"costs": provenance(command)}, folder)
    return 0


def _beside_river(seed: int, quiet: int) -> list[dict[str, Any]]:
    # River is an extra: only who compares needs it.
    from benchmarks.explanations.beside_river import beside_river

    return beside_river(seed, quiet, _told)


def _told(what: str) -> None:
    sys.stderr.write(f"{what}\n")


if __name__ == "__main__":
    raise SystemExit(main())
