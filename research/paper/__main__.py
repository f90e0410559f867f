"""The paper's experiment on recorded, public and synthetic data: tables, figures, and where its claims hold.

Example: python -m research.paper --seed 1 --out docs/results/paper
         python -m research.paper --quick --out bench-results/paper
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from sklearn.metrics import roc_auc_score

from research.__main__ import provenance
from research.paper import experiment, published
from research.paper.measures import micro_f1
from research.paper.synthetic import OTHER_DIFFICULTIES, synthetic_workload
from research.paper.workloads import Workload, addresses_workload, recorded_workload

OUT = Path("docs/results/paper")
QUICK_QUERIES = 15_000
_STEPS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and write it; returns the exit code.

    ``arguments``: instead of the command line's.
    """
    parser = argparse.ArgumentParser(
        prog="python -m research.paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smaller synthetic workload and few repetitions")
    parser.add_argument("--seed", type=int, default=1, help="of splits, draws and bootstraps; 1 by default")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the results; {OUT} by default")
    options = parser.parse_args(arguments)
    began_s = time.perf_counter()
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=Console(stderr=True)
    ) as progress:
        task = progress.add_task("", total=_STEPS)
        results, knobs = _measure(options.seed, quick=options.quick, told=_teller(progress, task))
        progress.update(task, advance=1, description="figures and tables")
        options.out.mkdir(parents=True, exist_ok=True)
        _write(results, knobs, options, time.perf_counter() - began_s)
    sys.stderr.write(f"written: {options.out}/README.md, results.json and figures\n")
    return 0


def _teller(progress: Progress, task: Any) -> Any:
    def told(what: str) -> None:
        progress.update(task, advance=1, description=what)

    return told


def _measure(seed: int, *, quick: bool, told: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the results by workload and the knobs of the synthetic one."""
    effort = experiment.QUICK if quick else experiment.FULL
    told("recorded outputs")
    results = {"recorded": experiment.run(_between_its_models(recorded_workload(published.TARGET)), effort, seed)}
    told("public set")
    results["addresses"] = experiment.run(_between_its_models(addresses_workload(published.TARGET)), effort, seed)
    told("fitting the synthetic workload")
    workload, knobs = synthetic_workload(QUICK_QUERIES if quick else published.QUERIES, seed)
    told("synthetic workload")
    results["synthetic"] = experiment.run(workload, effort, seed)
    others = [] if quick else [_at_difficulty(value, seed) for value in OTHER_DIFFICULTIES]
    return results, {**asdict(knobs), "others": others}


def _at_difficulty(difficulty: float, seed: int) -> dict[str, float]:
    """Return how well u ranks errors when the assumed difficulty is another."""
    workload, _ = synthetic_workload(published.QUERIES, seed, difficulty)
    return {"difficulty": difficulty, "auroc": float(roc_auc_score(workload.error, workload.signals["margin"]))}


def _between_its_models(workload: Workload) -> Workload:
    """Return the workload with a target as far between both models as the paper's."""
    alone = {role: micro_f1(workload, np.full(len(workload), role == "large")) for role in ("small", "large")}
    target = alone["small"] + published.TARGET_SHARE * (alone["large"] - alone["small"])
    return replace(workload, target=round(target, 4))


def _write(results: dict[str, Any], knobs: dict[str, Any], options: argparse.Namespace, seconds: float) -> None:
    from research.paper.figures import draw
    from research.paper.report import write

    quick = ["--quick"] if options.quick else []
    command = ["-m", "research.paper", *quick, "--seed", str(options.seed), "--out", options.out.as_posix()]
    made = {**provenance(command), "seed": options.seed, "seconds": seconds}
    draw(results, options.out)
    write(results, made, knobs, options.out)


if __name__ == "__main__":
    raise SystemExit(main())
