"""``python -m research.rivals``: each rival with its best knobs, chosen on other seeds than are reported, beside ours.

On tuning seeds every variant of every rival's grid walks; the one that is worth most (`grids.worth`) walks the
reporting seeds, beside today's service with its defaults. What a folder has already is kept, so that a run that was
ended goes on; ``--ours`` walks the service anew and keeps its rivals, which do not change.

Examples: python -m research.rivals                            (an hour of one core; writes docs/results/rivals)
          python -m research.rivals --ours                     (20 minutes)
          python -m research.rivals --only answers --quick --out /tmp/rivals
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from research import seeds
from research.__main__ import provenance
from research.drift.families import FAMILIES
from research.drift.report import write
from research.results_json import rounded
from research.rivals import on_answers, on_drift
from research.rivals.grids import CONSTANT, OURS, Row, choose
from research.rivals.report import page

OUT = Path("docs/results/rivals")
TUNING = {"answers": range(33, 39), "drift": range(311, 312)}
REPORTING = {"answers": range(41, 61), "drift": range(901, 906)}
QUERIES, QUERIES_TUNING = 200_000, 100_000
Walk = Callable[[int, Mapping[str, Iterable[str]], int], Iterator[Row]]


def _on_drift(seed: int, chosen: Mapping[str, Iterable[str]], queries: int) -> Iterator[Row]:
    for family in FAMILIES:
        yield from on_drift.rows(family.name, seed, queries, chosen)


BENCHMARKS: dict[str, tuple[Mapping[str, Mapping[str, Any]], Walk]] = {
    "answers": (on_answers.GRIDS, lambda seed, chosen, _: on_answers.rows(seed, chosen)),
    "drift": (on_drift.GRIDS, _on_drift),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Choose, walk and write; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m research.rivals", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=tuple(BENCHMARKS), nargs="+", default=tuple(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="one seed to choose on and one to report")
    parser.add_argument("--ours", action="store_true", help="walk the service alone anew")
    parser.add_argument("--page", action="store_true", help="write the page anew from the rows, walk nothing")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the results; {OUT} by default")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    with threadpool_limits(1):
        for name in () if options.page else options.only:
            few = 1 if options.quick else None
            if options.ours:
                _forget_ours(options.out / f"{name}.json")
            _run(name, TUNING[name][:few], REPORTING[name][:few], options.out / f"{name}.json")
    found = {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name in BENCHMARKS
        if (path := options.out / f"{name}.json").is_file()
    }
    (options.out / "README.md").write_text(page(found), encoding="utf-8")
    if options.out == OUT and "drift" in found:
        _of_ours(found["drift"])
    return 0


def _of_ours(document: dict[str, Any]) -> None:
    """Write the drift report, by family and detector, of this project's rows."""
    own = [row for row in document["rows"] if row["rival"] == OURS]
    rows = [{name: value for name, value in row.items() if name not in _OF_RIVALS} | {"seconds": 0.0} for row in own]
    seeds_shown = sorted({row["seed"] for row in rows})
    write(rows, {**document["made"], "queries": QUERIES, "seeds": seeds_shown}, OUT.parent / "drift-current")


_OF_RIVALS = ("rival", "variant", "on_target", "random", "constant")


def _run(name: str, tuning: Sequence[int], reporting: Sequence[int], path: Path) -> None:
    """Walk what a file does not have yet, and write it after each seed."""
    seeds.check(name, tuning, "tuning")
    seeds.check(name, reporting, "reporting")
    grid, walk = BENCHMARKS[name]
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"tuning": [], "rows": []}
    tuned, walked = kept["tuning"], kept["rows"]
    made = kept.get("made") or provenance(["-m", "research.rivals"])

    def save(**more: Any) -> None:
        document = {"made": made, **more, "tuning": tuned, "rows": walked}
        path.write_text(json.dumps(rounded(document), separators=(",", ":")) + "\n", encoding="utf-8")

    rivals = {rival: variants for rival, variants in grid.items() if rival != OURS}
    for seed in _missing(tuning, tuned):
        sys.stderr.write(f"{name}: choosing on seed {seed}\n")
        tuned += [_short(row) for row in walk(seed, rivals, QUERIES_TUNING)]
        save()
    chosen = choose(tuned)
    policies = {OURS: ("defaults",), **{rival: (variant,) for rival, variant in chosen.items()}, CONSTANT: ("",)}
    for seed in _missing(reporting, walked):
        sys.stderr.write(f"{name}: reporting seed {seed}\n")
        walked += walk(seed, policies, QUERIES)
        save(chosen=chosen)
    for seed in _missing(reporting, [row for row in walked if row["rival"] == OURS]):
        sys.stderr.write(f"{name}: reporting seed {seed}, the service alone\n")
        walked += walk(seed, {OURS: ("defaults",)}, QUERIES)
        save(chosen=chosen)


def _forget_ours(path: Path) -> None:
    """Leave the rivals' rows alone, and say of which commit the service's own are to be."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    rows = [row for row in kept["rows"] if row["rival"] != OURS]
    made = kept["made"] | {"service": provenance(["-m", "research.rivals", "--ours"])["commit"]}
    path.write_text(json.dumps(kept | {"made": made, "rows": rows}, separators=(",", ":")) + "\n", encoding="utf-8")


def _missing(wanted: Sequence[int], have: list[Row]) -> list[int]:
    return [seed for seed in wanted if seed not in {row["seed"] for row in have}]


def _short(row: Row) -> Row:
    return {name: row[name] for name in ("rival", "variant", "seed", "on_target", "regret")}


if __name__ == "__main__":
    raise SystemExit(main())
