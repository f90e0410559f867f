"""The extras that a command asks for are those that can be installed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from ucci_runtime.cli import EXTRAS

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_extras_are_those_that_the_distribution_declares() -> None:
    declared = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(EXTRAS) <= set(declared)
    for extra in ("api", "fit"):
        assert set(EXTRAS[extra]) == {re.split(r"[<>=]", requirement)[0] for requirement in declared[extra]}
