"""``python -m research.drift``: which policy holds the target under drift, and at what cost.

Families come in two sets. ``clean``: drift alone. ``messy``: servers that fail by the load they get,
labels that are corrected, withdrawn, doubled or lie, clocks and traffic that jump; only policies named ``ours`` walk
these, and the report shows them apart. ``--policies parts`` takes one part out of ours at a time; the report tells the
paired differences, with 95 % intervals, of every policy named ``ours`` against ours. ``--suite ordinary`` judges by
ordinary life instead (:mod:`research.drift.judge`) and has options of its own.

Examples
--------
python -m research.drift --quick
python -m research.drift --suite ordinary --help
python -m research.drift --quick --families messy --policies ours
python -m research.drift --families clean messy --policies parts --seeds 101 102 103 --queries 60000
python -m research.drift --families ablations --policies ablations --seeds 101 102 103
python -m research.drift --seeds 101 102 103 --jobs 2 --out docs/results/drift
python -m research.drift --families small_abrupt prior --policies ours ucci-router-reselected --seeds 101
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from research.drift import judge
from research.drift.families import BY_NAME
from research.drift.families import SETS as CLEAN_OR_MESSY
from research.drift.policies import (
    EXERCISED_BY,
    OURS,
    PLAIN,
    POLICIES,
    WITHOUT,
    exercised,
    takes_mess,
)
from research.drift.report import provenance, write
from research.drift.run import Task, rows_shown
from research.drift.streams import BLOCK

QUERIES, QUICK_QUERIES = 200_000, 20_000
SEEDS = (101, 102, 103)
SETS = {"plain": tuple(PLAIN), "parts": (OURS, *WITHOUT)}
ABLATIONS = "ablations"
"""As policies: each part that a family puts to work taken out in turn; as families: those that put parts to work."""
FAMILY_SETS = {
    **CLEAN_OR_MESSY,
    ABLATIONS: tuple(dict.fromkeys(name for families in EXERCISED_BY.values() for name in families)),
}


def parser() -> argparse.ArgumentParser:
    """Return the command's arguments."""
    made = argparse.ArgumentParser(
        prog="python -m research.drift", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--suite", choices=["drift", "ordinary"], help="ordinary: see its own --help")
    made.add_argument("--quick", action="store_true", help="20k queries, one seed, policies as they come; no files")
    made.add_argument("--seeds", type=int, nargs="+", help=f"of the streams (default {SEEDS}; seed 1 shaped them)")
    made.add_argument("--queries", type=int, help=f"in a stream, a multiple of {BLOCK} (default {QUERIES})")
    made.add_argument(
        "--families",
        nargs="+",
        choices=[*FAMILY_SETS, *sorted(BY_NAME)],
        metavar="FAMILY",
        default=["clean"],
        help=f"names, or sets of them: {', '.join(FAMILY_SETS)} (default: clean); named {', '.join(BY_NAME)}",
    )
    made.add_argument(
        "--policies",
        nargs="+",
        metavar="POLICY",
        help=f"names, or sets of them: {', '.join((*SETS, ABLATIONS))} (default: the first two)",
    )
    made.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    made.add_argument("--minutes", type=float, default=math.inf, help="begin no further stream after so long")
    made.add_argument("--again", action="store_true", help="walk nothing: report anew on the rows that lie in --out")
    made.add_argument("--out", type=Path, help="folder of the JSON, the tables and the plots")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suite that is asked for; returns the exit code."""
    chooser = argparse.ArgumentParser(add_help=False)
    chooser.add_argument("--suite", choices=["drift", "ordinary"], default="drift")
    suite, rest = chooser.parse_known_args(argv)
    return judge.main(rest) if suite.suite == "ordinary" else _drift(rest)


def _drift(argv: Sequence[str]) -> int:
    """Run, write and print; returns the exit code."""
    options = parser().parse_args(argv)
    if options.again:
        return _again(options.out)
    asked = options.policies or (["plain"] if options.quick else list(SETS))
    policies = tuple(dict.fromkeys(name for one in asked if one != ABLATIONS for name in SETS.get(one, (one,))))
    unknown = [name for name in policies if name not in POLICIES]
    if unknown:
        known = ", ".join((*SETS, ABLATIONS, *POLICIES))
        sys.stderr.write(f"--policies: unknown {', '.join(unknown)}; known: {known}\n")
        return 2
    seeds = tuple(options.seeds or (SEEDS[:1] if options.quick else SEEDS))
    queries = options.queries or (QUICK_QUERIES if options.quick else QUERIES)
    if queries <= 0 or queries % BLOCK:
        sys.stderr.write(f"--queries: must be a positive multiple of {BLOCK}, got {queries}\n")
        return 2
    made = provenance()
    began_s = time.perf_counter()
    families = tuple(dict.fromkeys(name for one in options.families for name in FAMILY_SETS.get(one, (one,))))
    walked = {
        family: _able(family, (*policies, *exercised(family)) if ABLATIONS in asked else policies)
        for family in families
    }
    for family in (name for name, able in walked.items() if not able):
        sys.stderr.write(f"--policies: none of {', '.join(policies)} takes the mess of {family}; add {OURS}\n")
        return 2
    tasks = [Task(family, seed, queries, walked[family]) for seed in seeds for family in families]
    rows = rows_shown(tasks, options.jobs, 60.0 * options.minutes)
    if not rows:
        sys.stderr.write("--minutes: no stream was finished\n")
        return 1
    facts = {
        "command": " ".join(["python -m research.drift", *argv]),
        "queries": queries,
        "seeds": list(seeds),
        "streams": f"{len({(row['family'], row['seed']) for row in rows})} of {len(tasks)}",
        "wall_s": round(time.perf_counter() - began_s),
        **made,
    }
    if options.out is None:
        with tempfile.TemporaryDirectory() as folder:
            print(write(rows, facts, Path(folder)))
    else:
        print(write(rows, facts, options.out))
    return 0


def _able(family: str, policies: tuple[str, ...]) -> tuple[str, ...]:
    """Return the policies that can walk a family: all, or those that take mess."""
    able = policies if BY_NAME[family].mess is None else (name for name in policies if takes_mess(name))
    return tuple(dict.fromkeys(able))


def _again(folder: Path | None) -> int:
    if folder is None or not (folder / "rows.json").is_file():
        sys.stderr.write("--again: needs --out with the rows.json of a run\n")
        return 2
    document = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    print(write(document["rows"], document["made"], folder))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
