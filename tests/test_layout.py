"""The habits that a reader relies on: short functions, documented public names, pure imports."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = (
    ROOT / "schemas",
    ROOT / "ucci_runtime",
    ROOT / "stream_router",
    ROOT / "recalibrator",
    ROOT / "deploy" / "ucci_stream",
    ROOT / "deploy" / "ucci_demo",
    ROOT / "tools",
)
MAX_FUNCTION_LINES = 50
DRAWERS = {"utils.py", "util.py", "helpers.py", "common.py", "base.py", "manager.py", "misc.py"}


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted(package.rglob("*.py"))


@pytest.mark.parametrize("path", list(sources()), ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_are_of_readable_length(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert path.name not in DRAWERS
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1 - _docstring_lines(node)
            assert length <= MAX_FUNCTION_LINES, f"{node.name} has {length} lines"


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    if ast.get_docstring(node) is None or first.end_lineno is None:
        return 0
    return first.end_lineno - first.lineno + 1


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
