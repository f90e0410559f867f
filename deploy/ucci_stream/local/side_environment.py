"""Programs that stay out of our environment, vLLM among them: each has a virtual environment of its own in the cache.

An environment is made on first use, of exactly the packages that its lock names by their hashes. vLLM without a GPU
runs on plain torch: the packages that it asks for beside torch are not needed by text models and left out. It is about
3 GB of download and 6 GB of disk, once.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from ucci_stream.local.kafka_install import cache_directory
from ucci_stream.local.processes import StackFailed

VLLM_VERSION = "0.32.0"
VLLM_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
_VLLM = "vllm"
LOCKS = Path(__file__).parent / "locks"
"""Every package of each environment by version and hash; ``make lock-side`` resolves them anew."""

_INSTALL_TIMEOUT_S = 1_800.0
_TAIL_CHARS = 600


def side_python(name: str, version: str) -> Path:
    """Return where the Python of a program's environment is, or will be."""
    return cache_directory() / f"{name}-{version}" / "bin" / "python"


def ensure_side_environment(name: str, version: str, *, size: str) -> Path:
    """Return the Python of a program's environment, making it the first time.

    Parameters
    ----------
    name, version : str
        Of the program; another version gets another environment.
        Its lock is that of its name.
    size : str
        Of the download, in words.

    Raises
    ------
    StackFailed
        With what the installer said.
    """
    python = side_python(name, version)
    home = python.parent.parent
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / f".{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            sys.stderr.write(f"installing {name} {version} into {home} ({size}, once)\n")
            _install(home, name)
            (home / "complete").touch()
    return python


def ensure_vllm() -> Path:
    """Return the Python that can start vLLM, installing it the first time.

    Raises
    ------
    StackFailed
        With what the installer said.
    """
    return ensure_side_environment(_VLLM, VLLM_VERSION, size="3 GB")


def _install(home: Path, name: str) -> None:
    venv.create(home, with_pip=True)
    python = str(home / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(name, [*pip, "--require-hashes", "-r", str(LOCKS / "uv.lock")])
    # Without compiled bytecode the first start takes several times as long. The lock is complete: nothing is resolved.
    uv = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python, "--compile-bytecode"]
    _run(name, [*uv, "--require-hashes", "--no-deps", "-r", str(LOCKS / f"{name}.lock")])


def _run(name: str, argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_INSTALL_TIMEOUT_S)
    if done.returncode:
        raise StackFailed(f"{name} could not be installed: {(done.stderr or done.stdout).strip()[-_TAIL_CHARS:]}")
