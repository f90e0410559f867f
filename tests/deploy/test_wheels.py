"""The two wheels: what lies in them, and that the main one runs with its own requirements and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import PathDistribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.router_processes import write_config

ROOT = Path(__file__).parents[2]
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
PACKAGES = ("schemas", "ucci_runtime", "stream_router", "recalibrator", "ucci_stream")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Both wheels, built without a network."""
    folder = tmp_path_factory.mktemp("wheels")
    for project in (ROOT, ROOT / "deploy" / "ucci_demo"):
        options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder))
        _run([sys.executable, "-m", "pip", "wheel", *options, str(project)], check=True)
    (main,), (demo,) = folder.glob("ucci_stream-*.whl"), folder.glob("ucci_stream_demo-*.whl")
    return main, demo


@pytest.fixture(scope="module")
def bare(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of an environment that holds the main wheel and what it requires, no extra."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, symlinks=True)
    site = next(home.glob("lib/python*/site-packages"))
    options = ("--quiet", "--no-deps", "--no-index", "--no-compile")
    _run([sys.executable, "-m", "pip", "--python", str(home), "install", *options, str(wheels[0])], check=True)
    _link_requirements(next(site.glob("ucci_stream-*.dist-info")), site)
    return home / "bin"


def test_main_wheel_holds_the_typed_packages_alone(wheels: tuple[Path, Path]) -> None:
    names = zipfile.ZipFile(wheels[0]).namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == set(PACKAGES)
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    assert not [name for name in names if "/test" in name or name.endswith((".safetensors", ".npz"))]
    assert wheels[0].stat().st_size < 2**21


def test_demo_wheel_holds_models_recordings_and_server(wheels: tuple[Path, Path]) -> None:
    names = set(zipfile.ZipFile(wheels[1]).namelist())
    recorded = ("recorded/traffic.npz", "recorded/handed_over.npz")
    wanted = ("py.typed", "models/photo_small/model.safetensors", "model_server/__main__.py", *recorded)
    assert {f"ucci_demo/{name}" for name in wanted} <= names


def test_bare_install_can_load_router_and_join(bare: Path) -> None:
    """Everything that these need at run time is among the requirements; the fit's own need is loaded with a refit."""
    words = "fastapi jinja2 matplotlib uvicorn scipy sklearn river safetensors tokenizers ucci_demo authlib cachetools"
    extras = (*words.split(), "py3langid")
    code = (
        "import stream_router.service, recalibrator.service, recalibrator.core; from importlib.util import find_spec; "
        f"print([name for name in {extras} if find_spec(name)])"
    )
    assert _run([str(bare / "python"), "-c", code], check=True).stdout.strip() == "[]"
    for command in ("stream-router", "recalibrator", "ucci-stream"):
        said = _run([str(bare / command), "--version"], check=True).stdout
        assert said == f"{command} {distribution('ucci-stream').version}\n"


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("ucci-stream up", "demo"),
        ("ucci-stream bootstrap x.jsonl --workload photo --plot x.png", "api"),
        ("recalibrator run", "api"),
        ("recalibrator run --stage join --stage fit", "fit"),
        ("ucci-stream replay x.jsonl", "fit"),
    ],
)
def test_missing_extra_is_one_line_and_exit_code_2(bare: Path, tmp_path: Path, command: str, extra: str) -> None:
    write_config(tmp_path / "ucci.toml", "127.0.0.1:1", "u", "http://127.0.0.1:2/v1")
    name, *words = command.split()
    done = _run([str(bare / name), *words], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith(f'pip install "ucci-stream[{extra}]"')


def _link_requirements(installed: Path, site: Path) -> None:
    """Put what a distribution requires, and what that requires, into a folder, by links to what is installed here."""
    waiting = list(PathDistribution(installed).requires or ())
    seen: set[str] = set()
    while waiting:
        requirement = Requirement(waiting.pop())
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if not wanted or requirement.name in seen:
            continue
        seen.add(requirement.name)
        found = distribution(requirement.name)
        waiting += found.requires or ()
        for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."} - {"__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(SITE_PACKAGES / top)


def _run(argv: list[str], *, cwd: Path | None = None, check: bool = False) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "FORCE_COLOR")}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd, env=environ | {"COLUMNS": "200"})
    assert not check or done.returncode == 0, done.stderr
    return done
