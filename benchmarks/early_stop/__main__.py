"""Run the demo's models with and without early stop; write ``results.json`` and a Markdown page.

Example: python -m benchmarks.early_stop --queries 2000 --out docs/results/early_stop
"""

from __future__ import annotations

import argparse
from pathlib import Path

from threadpoolctl import threadpool_limits

from benchmarks.__main__ import provenance
from benchmarks.early_stop import experiment
from benchmarks.early_stop.report import write


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.early_stop", description=__doc__)
    parser.add_argument("--queries", type=int, default=2_000, help="clean queries")
    parser.add_argument("--seed", type=int, default=17, help="of the draw of queries and of the bootstrap")
    parser.add_argument("--out", type=Path, default=Path("docs/results/early_stop"), help="folder of the results")
    options = parser.parse_args()
    with threadpool_limits(1):
        results = experiment.run(options.queries, options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    command = ["-m", "benchmarks.early_stop", "--queries", str(options.queries), "--seed", str(options.seed)]
    write(results, provenance(command), options.out)


if __name__ == "__main__":
    main()
