"""The product's monitors beside river's detectors, on the same streams, as a page.

Example: python -m benchmarks.explanations.river --out docs/results/explanations/river
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.__main__ import provenance
from benchmarks.explanations.experiment import QUIET_SEED, Build, one_stream, quiet_stream
from benchmarks.explanations.river_monitors import RIVALS, RiverMonitor
from benchmarks.explanations.scenarios import RECORDED, SYNTHETIC
from benchmarks.results_json import write_results
from recalibrator.fit.movement.monitor import MovementMonitor

OURS = "the product"
_HEAD = """# What moved: beside river's detectors

The same series, counts, order of causes and streams; only the test of what moved differs
(`benchmarks/explanations/river_monitors.py`). River corrects for the number of detectors nowhere: ADWIN's bound is
divided by it here (Bonferroni); PageHinkley has no error probability to divide.

`{command}` (commit {commit}, {machine}, Python {python}, {day}; seed {seed}, quiet streams {quiet_seed}).

| test | right cause first | false before a shift | mean queries until then | quiet, as drawn | in bursts |
|---|---|---|---|---|---|
"""


def measured(build: Build, seed: int, queries: int) -> dict[str, Any]:
    """Return what one kind of monitors makes of a stream of each scenario, and of both quiet streams.

    Parameters
    ----------
    build : callable
        Returns fresh monitors.
    seed : int
        Of the streams of scenarios.
    queries : int
        Of each quiet stream; none where 0.
    """
    began_s = time.process_time()
    found = [one_stream(scenario, seed, build) for scenario in (*RECORDED, *SYNTHETIC)]
    delays = [one.delay for one in found if one.delay is not None]
    quiet = {
        name: quiet_stream(queries, QUIET_SEED, in_bursts=in_bursts, build=build)["explanations"]
        for name, in_bursts in (("as_drawn", False), ("in_bursts", True))
    }
    return {
        "right": sum(one.is_right for one in found),
        "scenarios": len(found),
        "early": sum(one.early for one in found),
        "noticed": len(delays),
        "mean_delay": sum(delays) / len(delays) if delays else None,
        "quiet": quiet,
        "quiet_queries": queries,
        "missed": [one.scenario for one in found if not one.is_right],
        "cpu_s": time.process_time() - began_s,
    }


def page(results: dict[str, dict[str, Any]], made: dict[str, Any]) -> str:
    """Return the page: a row for each test."""
    rows = []
    for name, one in results.items():
        delay = "–" if one["mean_delay"] is None else f"{one['mean_delay']:,.0f} ({one['noticed']} noticed)"
        quiet = " | ".join(f"{count} in {one['quiet_queries']:,}" for count in one["quiet"].values())
        rows.append(f"| {name} | {one['right']} of {one['scenarios']} | {one['early']} | {delay} | {quiet} |\n")
    missed = [f"- {name}: {', '.join(one['missed']) or 'none'}\n" for name, one in results.items()]
    return _HEAD.format(**made, quiet_seed=QUIET_SEED) + "".join(rows) + "\nNot right:\n\n" + "".join(missed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and write the page; returns the exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Instead of the command line's.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.explanations.river",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=31, help="of the scenarios' streams; 31 by default")
    parser.add_argument("--quiet-queries", type=int, default=100_000, help="of each quiet stream; 100,000 by default")
    parser.add_argument("--tests", nargs="*", default=None, help="names of tests to run; all by default")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    options = parser.parse_args(arguments)
    builds: dict[str, Build] = {OURS: MovementMonitor}
    for rival in RIVALS:
        builds[rival.name] = lambda build=rival.build: RiverMonitor(build)
    results = {}
    for name, build in builds.items():
        if options.tests is None or name in options.tests:
            results[name] = measured(build, options.seed, options.quiet_queries)
            sys.stderr.write(f"{name}\n")
    options.out.mkdir(parents=True, exist_ok=True)
    given = ["--seed", str(options.seed), "--quiet-queries", str(options.quiet_queries)]
    chosen = ["--tests", *(f'"{name}"' for name in options.tests)] if options.tests else []
    command = ["-m", "benchmarks.explanations.river", *given, *chosen, "--out", options.out.as_posix()]
    made = {**provenance(command), "seed": options.seed}
    write_results(options.out, {"made": made, "results": results})
    (options.out / "README.md").write_text(page(results, made), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
