"""Measure what a caller waits longer through the gateway than at the model server itself.

Writes ``results.json`` and a Markdown page to ``--out``, and the figures alone as JSON to ``--json``. Exit code 1 when
a query was answered whose result is not in the topic.

    python -m research.gateway --out docs/results/gateway
"""

from __future__ import annotations

import argparse
from pathlib import Path

from research.__main__ import provenance
from research.gateway.experiment import run
from research.gateway.report import write
from research.results_json import tell

FULL, QUICK = (3, 5.0), (2, 3.0)
"""Rounds, and seconds of each turn."""


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        prog="python -m research.gateway",
        description="Latency through the gateway against a direct call to the model server.",
        epilog="Example: python -m research.gateway --out docs/results/gateway",
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--out", type=Path, help="write results.json and README.md into this folder")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    options = parser.parse_args()
    found = run(*(QUICK if options.quick else FULL))
    tell(found, options.json)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        write(found, provenance(["-m", "research.gateway", *(["--quick"] if options.quick else [])]), options.out)
    return 1 if found["answered_without_result"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
