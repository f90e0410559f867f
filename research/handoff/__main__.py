"""Run the demo's models with and without handoff; write ``results.json`` and a Markdown page.

Example: python -m research.handoff --queries 500 --out docs/results/handoff
"""

from __future__ import annotations

import argparse
from pathlib import Path

from threadpoolctl import threadpool_limits

from research.__main__ import provenance
from research.handoff import experiment
from research.handoff.report import write


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(prog="python -m research.handoff", description=__doc__)
    parser.add_argument("--queries", type=int, default=500, help="escalated queries of each kind of text")
    parser.add_argument("--seed", type=int, default=17, help="of the draw of queries and of the bootstrap")
    parser.add_argument("--out", type=Path, default=Path("docs/results/handoff"), help="folder of the results")
    options = parser.parse_args()
    with threadpool_limits(1):
        results = experiment.run(options.queries, options.seed)
    options.out.mkdir(parents=True, exist_ok=True)
    command = ["-m", "research.handoff", "--queries", str(options.queries), "--seed", str(options.seed)]
    write(results, provenance(command), options.out)


if __name__ == "__main__":
    main()
