"""The image's parts that need no engine: what is locked, what it weighs, what the Dockerfile copies."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackagePath, distribution
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.utils import canonicalize_name

from tools.ops import image

ROOT = Path(__file__).parents[3]
DOCKERFILE = image.FOLDER / "Dockerfile"
LOCKS = sorted(path.name for path in image.FOLDER.glob("*.lock"))
ROUTER_LIMIT_BYTES = 150e6


def pins(path: Path) -> dict[str, set[str]]:
    """Return the versions that a lock names, by package; a marker may choose between several."""
    found: dict[str, set[str]] = {}
    for name, pinned in re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", path.read_text(), re.MULTILINE):
        found.setdefault(canonicalize_name(name), set()).add(pinned)
    return found


def files_of_the_router() -> list[PackagePath]:
    """Return the files of the packages that its lock installs on this interpreter."""
    text = (image.FOLDER / "stream-router.lock").read_text()
    lines = re.findall(r"^([A-Za-z0-9._-]+)==[^\s;\\]+(?: ; (.*?))? \\$", text, re.MULTILINE)
    names = {canonicalize_name(name) for name, marker in lines if not marker or Marker(marker).evaluate()}
    return [file for name in names for file in distribution(name).files or ()]


@pytest.mark.parametrize("name", LOCKS)
def test_lock_pins_what_the_tests_ran_with(name: str) -> None:
    """`make lock` writes all of them, with hashes."""
    project, locked = pins(ROOT / "requirements.lock"), pins(image.FOLDER / name)
    assert locked
    assert {key: versions for key, versions in locked.items() if not versions <= project.get(key, set())} == {}
    blocks = re.split(r"\n(?=[A-Za-z])", (image.FOLDER / name).read_text().strip())
    assert [block.partition("\n")[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_locks_cover_what_the_distributions_declare() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements: list[str]) -> set[str]:
        return {canonicalize_name(re.split(r"[<>=\[]", one)[0]) for one in requirements}

    router, recalibrator = pins(image.FOLDER / "stream-router.lock"), pins(image.FOLDER / "recalibrator.lock")
    extras = declared["optional-dependencies"]
    more = names(extras["api"] + extras["fit"])
    assert names(declared["dependencies"]) <= router.keys()
    assert router.keys() | more <= recalibrator.keys()
    assert not more & router.keys()


def test_packages_of_a_router_weigh_at_most_150_mb() -> None:
    """As they are installed here; bytecode is counted where it lies."""
    paths = [Path(str(file.locate())) for file in files_of_the_router()]
    assert 20e6 < sum(path.stat().st_size for path in paths if path.exists()) < ROUTER_LIMIT_BYTES


def test_router_needs_no_package_beyond_its_lock() -> None:
    """Every module of the router, imported; what it loads belongs to a pinned package."""
    code = (
        "import importlib, pkgutil, sys, stream_router\n"
        "for found in pkgutil.walk_packages(stream_router.__path__, 'stream_router.'):\n"
        "    if not found.name.endswith('__main__'): importlib.import_module(found.name)\n"
        "print(*{name.partition('.')[0] for name, module in sys.modules.items()\n"
        "        if 'site-packages' in (getattr(module, '__file__', None) or '')})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = {name for name in done.stdout.split() if not name.startswith(("_", "__editable__"))}
    provided = {file.parts[0].removesuffix(".py").partition(".")[0] for file in files_of_the_router()}
    # Loaded by the environment of the tests at each start, not by the router.
    assert loaded - provided - {"sitecustomize", "greenlet", "distutils-precedence"} == set()
    assert "scipy" not in loaded


def test_dockerfile_copies_what_exists_and_is_not_ignored() -> None:
    """All packages of the wheel among it."""
    kept = [line[1:] for line in (image.FOLDER / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"]
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
    sources = [source for line in copied for source in line.split()]
    assert len(sources) >= 8
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(Path(source).match(pattern) or source.startswith(f"{pattern}/") for pattern in kept), source
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["packages"]) <= set(sources)


def test_machine_without_engine_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(image.NoEngineError, match="none of docker, podman, buildah answers"):
        image.engine()
