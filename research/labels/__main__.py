"""What labels buy: pol and cost at 8, 2, .5, .2 % and no labels, rivals beside us; and the plan's promises, tried.

Each part replaces its own rows in the folder and leaves the others as they are.

Examples: python -m research.labels answers --seeds 1 2 3 4 5 6 7 8 9 10
          python -m research.labels promises --quick
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from research import seeds
from research.__main__ import provenance
from research.labels.promises import after_a_fall, at_rest
from research.labels.report import page
from research.labels.walks import FAMILIES, on_answers, on_drift
from research.results_json import rounded

OUT = Path("docs/results/labels")
ANSWERS_SEEDS, SEEDS = tuple(range(1, 11)), tuple(range(401, 411))
_QUICK_SCALE, _QUICK_QUERIES = 0.1, 20_000


def _rows(part: str, seed: int, *, quick: bool) -> Iterator[dict[str, Any]]:
    if part in ("answers", "frontier"):
        yield from on_answers(seed, frontier=part == "frontier", scale=_QUICK_SCALE if quick else 1.0)
        return
    lengths: dict[str, Any] = {"queries": _QUICK_QUERIES} if quick else {}
    if part == "drift":
        for family in FAMILIES:
            yield from on_drift(family, seed, **lengths)
        return
    walks: tuple[Callable[..., Iterator[dict[str, Any]]], ...] = (at_rest, after_a_fall)
    for walk in walks:
        yield from walk(seed, **lengths)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one part and write the page; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m research.labels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("answers", "frontier", "drift", "promises"), help="what to measure")
    parser.add_argument("--seeds", type=int, nargs="+", help="of the streams; ten by default")
    parser.add_argument("--quick", action="store_true", help="one short stream, and no files")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the results; {OUT} by default")
    options = parser.parse_args(arguments)
    usual = ANSWERS_SEEDS if options.part in ("answers", "frontier") else SEEDS
    drawn = options.seeds or (usual[:1] if options.quick else usual)
    if options.part in ("answers", "frontier"):
        try:
            seeds.check("answers", drawn)
        except ValueError as fault:
            parser.error(str(fault))
    made = provenance(["-m", "research.labels", *(sys.argv[1:] if arguments is None else arguments)])
    rows: list[dict[str, Any]] = []
    for seed in drawn:
        rows += _rows(options.part, seed, quick=options.quick)
        sys.stderr.write(f"seed {seed} done\n")
        if not options.quick:
            _write(options.out, options.part, {"made": made, "rows": rows})
    if options.quick:
        print(page({options.part: {"made": made, "rows": rows}}))
    return 0


def _write(folder: Path, part: str, found: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rows.json"
    parts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    parts[part] = rounded(found)
    path.write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(page(parts), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
