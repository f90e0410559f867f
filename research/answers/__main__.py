"""The judge of real answers: policies on streams of recorded answers that drift in real ways and come back.

Examples: python -m research.answers --seeds 1 2 3 4 --policies service clairvoyant
          python -m research.answers --quick --json
          python -m research.answers record              (asks the models anew: minutes of one core)
          python -m research.answers.short --help        (short streams: how soon a change is answered)
          python -m research.answers --unseen            (once, in the end: the half that nobody tunes on)
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from threadpoolctl import threadpool_limits

from research.__main__ import provenance
from research.answers.command import half_of, progress_bar, seeds_of
from research.answers.experiment import Plan, run
from research.answers.pairs import PAIRS, trained
from research.answers.policies import ENTRIES
from research.answers.report import summaries, write

OUT = Path("docs/results/answers")
SEEDS = 8
QUICK = Plan("tuning", [1], ("static", "service"), (1.0,), scale=0.1, drifts=3)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, or run and write; returns the exit code.

    ``arguments``: instead of the command line's.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.what == "record":
        from research.answers.record import record

        with threadpool_limits(1):
            record(options.pairs)
        return 0
    half = half_of(options)
    drawn = seeds_of(options, parser, SEEDS)
    plan = QUICK if options.quick else Plan(half, drawn, labels=options.labels, scale=options.scale)
    plan = plan._replace(half=half, seeds=drawn, policies=options.policies or plan.policies)
    with progress_bar() as progress, threadpool_limits(1):
        task = progress.add_task("", total=plan.steps)
        made = provenance(["-m", "research.answers", *(sys.argv[1:] if arguments is None else arguments)])
        results = run(
            plan,
            lambda what: progress.update(task, advance=1, description=what),
            lambda found: None if options.json else write(found, made, options.out),
        )
    if options.json:
        print(json.dumps({str(share): summaries(results, share) for share in plan.labels}, indent=1))
        return 0
    sys.stderr.write(f"written: {options.out}/README.md and rows.json\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m research.answers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("run", "record"), default="run", help="run by default")
    parser.add_argument(
        "--seeds", type=int, nargs="+", help=f"of the streams; the first {SEEDS} of the half by default"
    )
    parser.add_argument("--policies", nargs="+", choices=tuple(ENTRIES), metavar="NAME", help=", ".join(ENTRIES))
    parser.add_argument("--labels", type=float, nargs="+", default=(1.0, 0.25), help="shares of the usual labels")
    parser.add_argument("--scale", type=float, default=1.0, help="of the phases' lengths, for shorter streams")
    parser.add_argument("--quick", action="store_true", help="one short stream, two policies")
    parser.add_argument("--unseen", action="store_true", help="the kinds and seeds of the last look")
    parser.add_argument("--json", action="store_true", help="print means and ± as JSON, and write nothing")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the results; {OUT} by default")
    parser.add_argument("--pairs", nargs="+", choices=tuple(PAIRS), default=trained(), help="to record; all by default")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
