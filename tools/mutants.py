"""Change one expression of the method at a time, and see whether its folder's tests notice.

    python -m tools.mutants --count 40 --seed 1 --json before.json
    python -m tools.mutants --count 150 --rooms recalibrator/fit
    python -m tools.mutants --again before.json

``--again`` takes the mutants of a report, by function and text, to compare a suite with itself. A copy is changed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: Where the mutants are drawn, and the tests that are to kill them.
FOLDERS = {
    "recalibrator/fit": "tests/recalibrator/fit",
    "recalibrator/join": "tests/recalibrator/join",
    "stream_router/cascade": "tests/stream_router/cascade",
    "stream_router/commit": "tests/stream_router/commit",
}
COPIED = ("schemas", "ucci_runtime", "stream_router", "recalibrator", "deploy", "tools", "research", "tests", "docs")
FAST = "not broker and not browser and not slow and not thorough and not vllm and not label_studio and not image"
TIMEOUT_S = 900

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """One expression and what takes its place."""

    file: str
    line: int
    #: Of the function that holds it; lines move when others are cut.
    function: str
    before: str
    after: str
    index: int  # of those in the function that read alike


def sites(file: str, source: str) -> Iterator[tuple[Mutant, ast.expr]]:
    """Yield every mutant of a file with the expression that it replaces."""
    seen: dict[tuple[str, str, str], int] = {}
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in (node for statement in function.body for node in ast.walk(statement)):
            for old, new in _changes(node):
                key = (function.name, ast.unparse(old), ast.unparse(new))
                seen[key] = seen.get(key, -1) + 1
                yield Mutant(file, old.lineno, *key, seen[key]), old


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=compared):
            yield node, ast.Compare(left, [_COMPARED[type(op)]()], compared)
        case ast.BoolOp(op=op, values=values):
            yield node, ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _CALCULATED:
            yield node, ast.BinOp(left, _CALCULATED[type(op)](), right)
        case ast.Constant(value=bool(value)):
            yield node, ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield node, ast.Constant(value + 1)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, operand
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield value, ast.Constant(None)


def mutated(source: str, mutant: Mutant) -> str | None:
    """Return the source with a mutant in it, None where the function no longer holds the expression."""
    for found, node in sites(mutant.file, source):
        if replace(found, line=mutant.line) == mutant:
            text, lines = source.encode(), source.encode().splitlines(keepends=True)
            start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
            end = sum(map(len, lines[: (node.end_lineno or 0) - 1])) + (node.end_col_offset or 0)
            return (text[:start] + f"({mutant.after})".encode() + text[end:]).decode()
    return None


def drawn(count: int, seed: int, rooms: Sequence[str] = tuple(FOLDERS)) -> list[Mutant]:
    """Draw mutants, as many of each folder."""
    draws = random.Random(seed)
    chosen: list[Mutant] = []
    for number, folder in enumerate(rooms):
        files = sorted((ROOT / folder).rglob("*.py"))
        found = [m for path in files for m, _ in sites(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))]
        chosen += draws.sample(found, len(range(number, count, len(rooms))))
    return chosen


def outcome(mutant: Mutant, copy: Path) -> str:
    """Put a mutant into the copy, run its tests and take it out again: ``killed``, ``survived`` or ``gone``."""
    room, folder = next((room, tests) for room, tests in FOLDERS.items() if mutant.file.startswith(room))
    for path in (copy / mutant.file, *sorted((copy / room).rglob("*.py"))):
        source = path.read_text(encoding="utf-8") if path.exists() else ""
        if (changed := mutated(source, mutant)) is not None:
            break
    else:
        return "gone"
    path.write_text(changed, encoding="utf-8")
    own = [str(one) for one in (copy / folder).rglob(f"test_{path.stem}.py")]
    try:
        return "survived" if all(passes(tests, copy) for tests in (*own, folder)) else "killed"
    finally:
        path.write_text(source, encoding="utf-8")


def passes(tests: str, copy: Path) -> bool:
    """Return whether these tests of the copy pass in time."""
    environ = {**os.environ, "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'deploy'}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", FAST, tests]
    try:
        done = subprocess.run(command, cwd=copy, env=environ, capture_output=True, check=False, timeout=TIMEOUT_S)  # noqa: S603
    except subprocess.TimeoutExpired:
        return False
    return done.returncode in (0, 5)


def main() -> int:
    """Draw mutants, or take those of a report; print what became of each."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=main.__doc__)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", nargs="+", choices=tuple(FOLDERS), default=tuple(FOLDERS))
    parser.add_argument("--again", type=Path, help="a report whose mutants are taken instead of drawn ones")
    parser.add_argument("--json", type=Path, help="where the report is written")
    given = parser.parse_args()
    if given.again:
        mutants = [Mutant(**entry["mutant"]) for entry in json.loads(given.again.read_text(encoding="utf-8"))]
    else:
        mutants = drawn(given.count, given.seed, given.rooms)
    report: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as copy:
        for name in COPIED:
            shutil.copytree(ROOT / name, Path(copy, name), ignore=shutil.ignore_patterns("__pycache__"))
        for path in ROOT.glob("*.*"):
            if path.is_file():
                shutil.copy(path, copy)
        for room, tests in FOLDERS.items():
            # Tests that fail by themselves would call every mutant killed.
            if any(mutant.file.startswith(room) for mutant in mutants) and not passes(tests, Path(copy)):
                print(f"{tests} fails without any mutant: mend that first", file=sys.stderr)  # noqa: T201
                return 1
        for mutant in mutants:
            found = outcome(mutant, Path(copy))
            report.append({"outcome": found, "mutant": asdict(mutant)})
            print(f"{found:8} {mutant.file}:{mutant.line} {mutant.before} -> {mutant.after}", flush=True)  # noqa: T201
            if given.json:
                given.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    killed = sum(entry["outcome"] == "killed" for entry in report)
    print(f"{killed} of {len(report)} killed")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
