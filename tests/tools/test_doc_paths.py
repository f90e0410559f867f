"""Every path, name and link in the pages that people write leads to something that exists."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from schemas.settings import RecalibratorSettings

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/decisions/*.md")]
)
PACKAGES = ("research", "recalibrator", "schemas", "stream_router", "tests", "tools", "ucci_runtime")
ROOMS = (*PACKAGES, "deploy", "docs")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
IN_A_ROOM = re.compile(rf"(?<![\w/.-])(?:{'|'.join(ROOMS)})/[\w./-]*\w/?")
SHORT_PATH = re.compile(r"(?<![\w/.-])[\w/]+\.py\b")
DOTTED = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
MEMBER = re.compile(r"([A-Z]\w*)\.(\w+)(?:\.\w+)*")
TEST_NAME = re.compile(r"test_\w+")
STEP = re.compile(r"^\d+\. `([^`]+\.py)`, `([\w.]+)`", re.MULTILINE)
PLACEHOLDER = re.compile(r"\bNAME\b")

on_every_page = pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])


@on_every_page
def test_paths_on_a_page_exist(page: Path) -> None:
    """A path may be given from the repository's root, or by its end where the page makes clear which room it is in."""
    named = {found.rstrip("/") for found in IN_A_ROOM.findall(_prose(page))}
    shortened = set(SHORT_PATH.findall(page.read_text(encoding="utf-8")))
    assert [path for path in sorted(named | shortened) if not PLACEHOLDER.search(path) and not _exists(path)] == []


@on_every_page
def test_dotted_names_on_a_page_exist(page: Path) -> None:
    """Modules and what they define, members of classes, and settings of the recalibrator, which share its prefix."""
    words = _code_words(page)
    modules = [word for word in words if DOTTED.fullmatch(word) and not (_is_setting(word) or _is_module(word))]
    members = [word for word in words if (found := MEMBER.fullmatch(word)) and not _is_member(*found.groups())]
    assert modules + members == []


@on_every_page
def test_tests_named_on_a_page_exist(page: Path) -> None:
    named = {word for word in _code_words(page) if TEST_NAME.fullmatch(word)}
    files = {Path(file).stem for file in _files() if file.startswith("tests/")}
    assert sorted(named - _definitions_of(are_tests=True) - files) == []


@on_every_page
def test_relative_links_on_a_page_resolve(page: Path) -> None:
    """Files and folders exist, and so does the heading that an anchor names."""
    assert [target for target in LINK.findall(_prose(page)) if not _resolves(page, target)] == []


def test_walks_name_each_file_once_with_its_function() -> None:
    """A reader who follows a walk of the architecture opens each file once, and finds there what the step names."""
    sections = re.split(r"^## ", _prose(ROOT / "docs/architecture.md"), flags=re.MULTILINE)
    walks = [steps for section in sections if (steps := STEP.findall(section))]
    assert len(walks) == 2
    for steps in walks:
        files = [path for path, _ in steps]
        assert sorted(set(files)) == sorted(files)
        assert [step for step in steps if step[1] not in _definitions(ROOT / step[0])] == []


def _prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def _code_words(page: Path) -> list[str]:
    return [word.strip("(),;:…") for code in CODE.findall(_prose(page)) for word in code.split()]


@cache
def _files() -> frozenset[str]:
    listed = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    return frozenset(subprocess.run(listed, check=True, capture_output=True, text=True).stdout.splitlines())


def _exists(path: str) -> bool:
    if path.startswith(tuple(f"{room}/" for room in ROOMS)):
        return (ROOT / path).exists()
    return any(f"/{file}".endswith(f"/{path}") for file in _files())


def _is_setting(name: str) -> bool:
    table, _, field = name.partition(".")
    return table == "recalibrator" and field in RecalibratorSettings.model_fields


def _is_module(name: str) -> bool:
    """Return whether a name is a module or package, or is defined in one."""
    path = ROOT.joinpath(*name.split("."))
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    source = path.parent / "__init__.py" if path.parent.is_dir() else path.parent.with_suffix(".py")
    return source.is_file() and path.name in _definitions(source)


@cache
def _definitions(source: Path) -> frozenset[str]:
    """Return what a file defines: names at its top, and the members of its classes after a dot."""
    return frozenset(_defined(ast.parse(source.read_text(encoding="utf-8"))))


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        yield from _named(node)
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{name}" for member in ast.walk(node) for name in _named(member))


def _named(node: ast.AST) -> Iterator[str]:
    """Yield the names that one statement gives."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name for alias in aliases)
        case ast.Assign() | ast.AnnAssign():
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name | ast.Attribute):
                    yield target.id if isinstance(target, ast.Name) else target.attr


@cache
def _definitions_of(are_tests: bool) -> frozenset[str]:
    files = (file for file in _files() if file.endswith(".py") and file.startswith("tests/") is are_tests)
    return frozenset(name for file in files if (ROOT / file).exists() for name in _definitions(ROOT / file))


def _is_member(owner: str, member: str) -> bool:
    """Return whether a class has this member; classes of other projects pass."""
    known = _definitions_of(are_tests=False)
    return owner not in known or f"{owner}.{member}" in known


def _resolves(page: Path, target: str) -> bool:
    if target.startswith(("http://", "https://", "mailto:")):
        return True
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        return False
    return not anchor or (file.suffix == ".md" and anchor in _anchors(file))


@cache
def _anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, as code hosts derive them."""
    plain = (re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).strip().lower() for heading in HEADING.findall(_prose(page)))
    return frozenset(re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain)
