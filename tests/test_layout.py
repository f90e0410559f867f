"""The habits that a reader relies on: short functions, small interfaces, documented public names, honest names."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("schemas", "ucci_runtime", "stream_router", "recalibrator", "deploy/ucci_stream", "deploy/ucci_demo", "tools")
MAX_FUNCTION_LINES = 50
#: The columns of the labels are one subject: what is written, withdrawn, set aside and read belongs together.
MANY_METHODS = {"recalibrator/fit/data/label_table.py:LabelTable"}
MAX_PUBLIC_METHODS = 12
MAX_ARGUMENTS = 7
MAX_TEST_NAME = 60
DRAWERS = {"utils.py", "util.py", "helpers.py", "common.py", "base.py", "manager.py", "misc.py"}
FORMULA = re.compile(r"\bflows? (in|out)\b|^[^.]*\bin[,;:][^.]* out\b")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


def test_no_file_is_a_drawer_for_leftovers() -> None:
    assert not [_place(path) for path in sources() if path.name in DRAWERS]


def test_functions_are_of_readable_length() -> None:
    long = {place: _length(function) for place, function in _all_functions() if _length(function) > MAX_FUNCTION_LINES}
    assert not long


def test_functions_take_few_arguments() -> None:
    """The options of a subcommand are its interface, and stand in its signature."""
    counted = {place: _argument_count(node) for place, node in _all_functions() if not _is_subcommand(node)}
    assert not {place for place, count in counted.items() if count > MAX_ARGUMENTS}


def test_classes_have_few_public_methods() -> None:
    many = {
        f"{_place(path)}:{node.name}"
        for path in sources()
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ClassDef) and len(_public_methods(node)) > MAX_PUBLIC_METHODS
    }
    assert not many - MANY_METHODS


def test_module_docstrings_follow_no_formula() -> None:
    """A docstring says what the file is for in the words of its concept, not what flows in and out of it."""
    said = {path: " ".join((ast.get_docstring(_tree(path)) or "").split()) for path in sources()}
    assert not [_place(path) for path, text in said.items() if FORMULA.search(text)]


def test_names_of_tests_are_short() -> None:
    """A name has the mechanism's own word; the docstring holds the rest of the claim."""
    long = [
        f"{_place(path)}:{function.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for function in _functions(path)
        if function.name.startswith("test_") and len(function.name) > MAX_TEST_NAME
    ]
    assert not long


@pytest.mark.parametrize("name", ["schemas", "stream_router", "recalibrator", "recalibrator.core"])
def test_the_public_list_is_sorted_complete_and_true(name: str) -> None:
    module = importlib.import_module(name)
    public = list(getattr(module, "__all__", ()))
    assert public == sorted(public)
    assert all(hasattr(module, entry) for entry in public)


@pytest.mark.parametrize(
    "name", ["schemas", "recalibrator.core", "stream_router.cascade", "stream_router.commit.ledger"]
)
def test_a_pure_package_loads_no_kafka_web_or_plotting_library(name: str) -> None:
    heavy = "confluent_kafka aiohttp fastapi uvicorn starlette matplotlib structlog prometheus_client"
    code = f"import sys, {name}; print([m for m in '{heavy}'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, Function):
            yield node


def _all_functions() -> Iterator[tuple[str, Function]]:
    for path in sources():
        for function in _functions(path):
            yield f"{_place(path)}:{function.name}", function


def _place(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _length(node: Function) -> int:
    """Count the lines of a function, its docstring aside."""
    text = ast.get_docstring(node, clean=False) or ""
    return (node.end_lineno or node.lineno) - node.lineno + 1 - len(text.splitlines())


def _argument_count(node: Function) -> int:
    """Count what a caller may pass; the object itself is no argument."""
    names = [found.arg for found in ast.walk(node.args) if isinstance(found, ast.arg)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def _is_subcommand(node: Function) -> bool:
    calls = (decorator.func for decorator in node.decorator_list if isinstance(decorator, ast.Call))
    return any("command" in (getattr(call, "attr", ""), getattr(call, "id", "")) for call in calls)


def _public_methods(node: ast.ClassDef) -> list[str]:
    return [part.name for part in node.body if isinstance(part, Function) and not part.name.startswith("_")]
