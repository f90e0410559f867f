"""Programs that stay out of our environment, vLLM among them: each has a virtual environment of its own in the cache.

The cache is ``$UCCI_CACHE_DIR`` or ``~/.cache/ucci-stream``. An environment is made on first use, of exactly the
packages that its lock names by their hashes. vLLM without a GPU runs on plain torch: the packages that it asks for
beside torch are not needed by text models and left out. It is about 3 GB of download and 6 GB of disk, once.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

from ucci_stream.local.processes import StackFailed

VLLM_VERSION = "0.32.0"
VLLM_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
#: Every package of each environment by version and hash; ``make lock-side`` resolves them again.
LOCKS = Path(__file__).parent / "locks"

_PIP_INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
_INSTALL_TIMEOUT_S = 1_800.0
_TAIL_CHARS = 600


def cache_directory() -> Path:
    """Return the folder where downloads are kept between runs."""
    given = os.environ.get("UCCI_CACHE_DIR")
    return Path(given) if given else Path.home() / ".cache" / "ucci-stream"


def ensure_side_environment(name: str, version: str, *, size: str, requirement: str | None = None) -> Path:
    """Return the Python of a program's environment, making it the first time.

    ``requirement``: what to install of a program without a lock; by default exactly what the lock of this name holds.
    Raises StackFailed with what the installer said.
    """
    locked = ["--require-hashes", "--no-deps", "-r", str(LOCKS / f"{name}.lock")]
    what = locked if requirement is None else [requirement]
    return _made_once(name, version, size, lambda python: _install(python, name, what))


def ensure_small_environment(name: str, version: str, *, size: str) -> Path:
    """Return the same of a program of few wheels, by pip without a faster installer. Raises StackFailed."""
    argv = [*_PIP_INSTALL, "--only-binary", ":all:", "--require-hashes", "-r", str(LOCKS / f"{name}.lock")]
    return _made_once(name, version, size, lambda python: _run(name, [python, *argv]))


def _made_once(name: str, version: str, size: str, install: Callable[[str], None]) -> Path:
    """Make an environment unless it is complete, and return its Python; of two processes one makes it."""
    home = cache_directory() / f"{name}-{version}"
    python = home / "bin" / "python"
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / f".{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            sys.stderr.write(f"installing {name} {version} into {home} ({size}, once)\n")
            try:
                venv.create(home, with_pip=True)
            except subprocess.CalledProcessError as error:  # Debian's Python without python3-venv
                raise StackFailed(f"{home}: no virtual environment can be made here ({error})") from None
            install(str(python))
            (home / "complete").touch()
    return python


def _install(python: str, name: str, what: Sequence[str]) -> None:
    _run(name, [python, *_PIP_INSTALL, "--require-hashes", "-r", str(LOCKS / "uv.lock")])
    # Without compiled bytecode the first start takes several times as long. A lock is complete: nothing is resolved.
    uv = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python, "--compile-bytecode"]
    _run(name, [*uv, *what])


def _run(name: str, argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_INSTALL_TIMEOUT_S)
    if done.returncode:
        raise StackFailed(f"{name} could not be installed: {(done.stderr or done.stdout).strip()[-_TAIL_CHARS:]}")
