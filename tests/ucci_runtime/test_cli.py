"""A missing extra is named, with the command that installs it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from schemas.errors import ConfigError
from ucci_runtime.cli import EXTRAS, require_extra

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_extras_are_those_that_the_distribution_declares() -> None:
    declared = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(EXTRAS) <= set(declared)
    for extra in ("api", "fit"):
        assert set(EXTRAS[extra]) == {re.split(r"[<>=]", requirement)[0] for requirement in declared[extra]}


def test_missing_extra_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXTRAS, "api", ("json", "no_such_package", "nor_this"))
    with pytest.raises(ConfigError) as caught:
        require_extra("api", "--stage api")
    assert str(caught.value) == '--stage api needs no_such_package, nor_this: pip install "ucci-stream[api]"'
