"""``python -m tools.ops.image``: build the container images with docker, podman or buildah, whichever works here.

Example: python -m tools.ops.image --target stream-router --base docker.io/library/python:3.11-slim-bookworm
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "image"
TARGETS = ("stream-router", "recalibrator", "ucci-stream", "demo-models")
ENGINES = ("docker", "podman", "buildah")
REGISTRY = "localhost"
_ANSWER_TIMEOUT_S = 20.0


class NoEngineError(Exception):
    """There is nothing here that could build or run an image; the message says what to install."""


def engine(candidates: tuple[str, ...] = ENGINES) -> str:
    """Return the first engine that answers. Raises NoEngineError where none does."""
    for name in candidates:
        if shutil.which(name) and _answers([name, "info"]):
            return name
    raise NoEngineError(f"none of {', '.join(candidates)} answers; install one, or start its service")


def version() -> str:
    """Return the version of the distribution."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def reference(target: str, registry: str = REGISTRY) -> str:
    """Return an image's name and tag."""
    return f"{registry}/{target}:{version()}"


def build_command(name: str, target: str, *, registry: str = REGISTRY, base: str | None = None) -> list[str]:
    """Return the command by which an engine builds one target.

    ``IMAGE_BUILD_FLAGS`` in the environment adds to it: a proxy's certificate, a mirror of the package index.
    """
    arguments = {"VERSION": version(), "REVISION": _revision()} | ({} if base is None else {"BASE": base})
    verb = ["bud"] if name == "buildah" else ["build"]
    # BuildKit finds the list beside the Dockerfile by its name, the others are given it.
    ignored = [] if name == "docker" else ["--ignorefile", str(FOLDER / "Dockerfile.dockerignore")]
    given = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    extra = os.environ.get("IMAGE_BUILD_FLAGS", "").split()
    place = ["--file", str(FOLDER / "Dockerfile"), "--target", target, "--tag", reference(target, registry)]
    return [name, *verb, *ignored, *given, *extra, *place, str(ROOT)]


def build(name: str, targets: tuple[str, ...], *, registry: str = REGISTRY, base: str | None = None) -> None:
    """Build targets one after the other; blocks. Raises CalledProcessError when the engine fails; it has said why."""
    for target in targets:
        subprocess.run(build_command(name, target, registry=registry, base=base), check=True, env=_environ(name))
        sys.stdout.write(f"{reference(target, registry)}\n")


def _environ(name: str) -> dict[str, str]:
    return {**os.environ, "DOCKER_BUILDKIT": "1"} if name == "docker" else dict(os.environ)


def _revision() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _answers(argv: list[str]) -> bool:
    try:
        return subprocess.run(argv, capture_output=True, timeout=_ANSWER_TIMEOUT_S, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def main() -> int:
    """Build what was asked for."""
    description = "Build the container images with docker, podman or buildah, whichever works here."
    epilog = "example: python -m tools.ops.image --target stream-router"
    parser = argparse.ArgumentParser(description=description, epilog=epilog)
    parser.add_argument("--target", action="append", choices=TARGETS, help="may be repeated; all of them otherwise")
    parser.add_argument("--registry", default=REGISTRY, help="what stands before the images' names")
    parser.add_argument("--base", help="another base image than the Dockerfile's, best by digest")
    options = parser.parse_args()
    try:
        build(engine(), tuple(options.target or TARGETS), registry=options.registry, base=options.base)
    except (NoEngineError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
