"""The import rule that reads file names breaks on what it forbids, and on nothing else."""

from __future__ import annotations

import re
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest
from grimp import ImportGraph

from tools.import_rules import PureUnlessNamed

ROOT = Path(__file__).parents[2]
_OPTIONS = {"packages": ["room"], "worldly_names": ["sqlite_*", "*_thread", "cli"], "forbidden_modules": ["time"]}


def broken(importer: str, imported: str) -> list[tuple[str, str]]:
    graph = ImportGraph()
    graph.add_module("room")
    for module in (importer, imported):
        graph.add_module(module, is_squashed=not module.startswith(("room", "other")))
    graph.add_import(importer=importer, imported=imported)
    contract = PureUnlessNamed("pure", {}, _OPTIONS)
    found: list[tuple[str, str]] = contract.check(graph, verbose=False).metadata["broken"]
    return found


@pytest.mark.parametrize(
    ("module", "target", "is_broken"),
    [
        *(("room.join.rules", target, True) for target in ("time", "room.sqlite_store", "room.join.poll_thread")),
        *(
            (module, "time", False)
            for module in ("room.sqlite_store", "room.join.poll_thread", "room.cli", "other.rules")
        ),
        *(("room.join.rules", pure, False) for pure in ("room.join.thread_safe", "room.mysqlite_store", "room.clinic")),
        ("room.join.rules", "math", False),
    ],
)
def test_pure_name_may_import_pure_names_alone(module: str, target: str, is_broken: bool) -> None:
    """A pattern matches the whole last part of a name, never a piece of it."""
    assert broken(module, target) == [(module, target)] * is_broken


def test_every_contract_checks_a_package_that_exists() -> None:
    """A contract over a package that went away would hold for ever."""
    rules = _rules()
    contracts = [rules[name] for name in rules.sections() if name.startswith("importlinter:contract:")]
    assert len(contracts) == 13
    for contract in contracts:
        for container in f"{contract.get('containers', '')} {contract.get('packages', '')}".split():
            folder = Path(*container.split("."))
            assert (ROOT / folder).is_dir() or (ROOT / "deploy" / folder).is_dir()


def test_linter_bans_clock_and_ids_in_the_same_files() -> None:
    """``datetime.now`` shows in no import; the linter excepts the same worldly names as the import rule."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    (pattern,) = (name for name in options["per-file-ignores"] if name.startswith("**/"))
    names = re.fullmatch(r"\*\*/\{(.+)\}\.py", pattern)
    assert names is not None
    assert names[1].split(",") == _rules()["importlinter:contract:pure"]["worldly_names"].split()


def _rules() -> ConfigParser:
    rules = ConfigParser()
    rules.read(ROOT / ".importlinter")
    return rules
