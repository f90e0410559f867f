"""The judge of short streams: 6,000 clean queries, 6,000 under one drift, and for drawn drifts 6,000 clean ones again.

The long judge (python -m research.answers) has phases of 4,000 to 30,000 queries, on which a policy that comes back
late looks good. This one asks how soon a policy is on target after a change, what it costs until then, and whether
the estimate's standard error is true meanwhile. The service has the margin of a workload that sets none.

Examples: python -m research.answers.short               (minutes of one core; writes docs/results/answers/short)
          python -m research.answers.short --quick --json
          python -m research.answers.short --streams typos new_names --labels 0.24 --seeds 1 2 3 --json
          python -m research.answers.short --policies service clairvoyant --safety 1 --out /tmp/short
          python -m research.answers.short --unseen --out docs/results/answers/short/unseen
                                                         (once, in the end: the half that nobody tunes on)
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from threadpoolctl import threadpool_limits

from research.__main__ import provenance
from research.answers.command import half_of, progress_bar, seeds_of
from research.answers.short.experiment import LABELS, POLICIES, SAFETY, Plan, run
from research.answers.short.report import labels_of, summaries, write
from research.answers.short.streams import STREAMS
from schemas.calibration import Target

OUT = Path("docs/results/answers/short")
SEEDS = 12
QUICK_QUERIES = 1_000
QUICK_LABELS = LABELS[:1]
MOST_LABELS = 0.6
"""Share of the queries at which all that escalate are labelled."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and write; returns the exit code.

    ``arguments``: instead of the command line's.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    plan = Plan(half_of(options), seeds_of(options, parser, SEEDS), options.streams, safety=options.safety)
    plan = plan._replace(
        policies=options.policies or plan.policies,
        labels=options.labels or (QUICK_LABELS if options.quick else plan.labels),
        queries=QUICK_QUERIES if options.quick else plan.queries,
    )
    with progress_bar() as progress, threadpool_limits(1):
        task = progress.add_task("", total=plan.steps)
        made = provenance(["-m", "research.answers.short", *(sys.argv[1:] if arguments is None else arguments)])
        results = run(plan, lambda what: progress.update(task, advance=1, description=what))
    if options.json:
        print(json.dumps({**_means(results), "coverage": results["coverage"]}, indent=1))
        return 0
    write(results, made, options.out)
    sys.stderr.write(f"written: {options.out}/README.md and rows.json\n")
    return 0


def _means(results: dict[str, Any]) -> dict[str, Any]:
    """Return each policy's mean and ± of every figure, by share of labels and stream."""
    return {
        f"{share:g}": {name: summaries(results, name, share) for name in results["chosen"]}
        for share in labels_of(results)
    }


def _share(text: str) -> float:
    share = float(text)
    if not 0.0 < share <= MOST_LABELS:
        raise argparse.ArgumentTypeError(f"{text} is no share of the queries; give one above 0, {MOST_LABELS} at most")
    return share


def _safety(text: str) -> float:
    try:
        return Target(safety=float(text)).safety
    except ValidationError as fault:
        raise argparse.ArgumentTypeError(f"{text}: {fault.errors()[0]['msg']}") from fault


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m research.answers.short",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", help=f"of the streams; the first {SEEDS} of the half by default"
    )
    parser.add_argument("--streams", nargs="+", choices=STREAMS, default=STREAMS, metavar="NAME", help=_of(STREAMS))
    parser.add_argument(
        "--policies",
        nargs="+",
        choices=POLICIES,
        metavar="NAME",
        help=f"{_of(POLICIES)}; static and service by default, and static with its best margin always",
    )
    parser.add_argument(
        "--labels", type=_share, nargs="+", metavar="SHARE", help=f"of the queries; {_of(LABELS)} by default"
    )
    parser.add_argument(
        "--safety", type=_safety, default=SAFETY, help=f"the service's, in standard errors; {SAFETY} by default"
    )
    parser.add_argument("--quick", action="store_true", help="one seed, phases of 1,000 queries, one share of labels")
    parser.add_argument("--unseen", action="store_true", help="the kinds and seeds of the last look")
    parser.add_argument("--json", action="store_true", help="print means and ± as JSON, and write nothing")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the results; {OUT} by default")
    return parser


def _of(names: Sequence[object]) -> str:
    return ", ".join(map(str, names))


if __name__ == "__main__":
    raise SystemExit(main())
