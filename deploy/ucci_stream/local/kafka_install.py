"""The jars of the local broker: found in the cache, or fetched once with Maven.

``local/pom.xml`` names them. The cache is shared by all clones: ``$UCCI_CACHE_DIR`` or ``~/.cache/ucci-stream``. A
folder there is complete or absent, never half filled. Maven is needed for the fetch alone.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from schemas.errors import UcciError

KAFKA_VERSION = "4.1.1"
MINIMUM_JAVA = 17
POM = Path(__file__).parent / "pom.xml"
_FETCH_TIMEOUT_S = 600.0
_JAVA_TIMEOUT_S = 30.0
_INSTALL = (
    f"install Java {MINIMUM_JAVA} or later and Maven (Debian: apt-get install openjdk-17-jre-headless maven), "
    "or start Docker, or pass --broker HOST:PORT of a running Kafka"
)


class BrokerUnavailable(UcciError):
    """No broker can be started or reached; the message says what to install or check."""

    exit_code = 1


class BrokerNotInstalled(BrokerUnavailable):
    """A program that a local broker needs is missing on this machine."""


def cache_directory() -> Path:
    """Return the folder where downloads are kept between runs."""
    given = os.environ.get("UCCI_CACHE_DIR")
    return Path(given) if given else Path.home() / ".cache" / "ucci-stream"


def java_command() -> str:
    """Return the path of a Java that is recent enough.

    Raises
    ------
    BrokerNotInstalled
        Where there is none.
    """
    java = shutil.which("java")
    if java is None:
        raise BrokerNotInstalled(f"Java was not found: {_INSTALL}")
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=_JAVA_TIMEOUT_S)
        said = done.stderr + done.stdout
    except subprocess.TimeoutExpired:
        said = ""
    found = re.search(r'version "(\d+)', said)
    if found is None:
        raise BrokerNotInstalled(f"{java} does not tell its version: {_INSTALL}")
    if int(found.group(1)) < MINIMUM_JAVA:
        raise BrokerNotInstalled(f"{java} is Java {found.group(1)}, too old for Kafka {KAFKA_VERSION}: {_INSTALL}")
    return java


def kafka_jars() -> Path:
    """Return the folder of the broker's jars, fetching them the first time (about half a minute).

    Two processes may call this at once; one fetches, the other waits for it.

    Raises
    ------
    BrokerNotInstalled
        When they are not in the cache and Maven is missing.
    BrokerUnavailable
        When Maven cannot fetch them.
    """
    target = cache_directory() / f"kafka-{KAFKA_VERSION}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _fetch(target)
    return target


def _fetch(target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerNotInstalled(f"Maven was not found, and Kafka's jars are not in {target.parent}: {_INSTALL}")
    sys.stderr.write(f"fetching Apache Kafka {KAFKA_VERSION} into {target} (43 MB, once)\n")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        jars = Path(folder) / "jars"
        argv = [maven, "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", "-DincludeScope=ucci_runtime"]
        argv.append(f"-DoutputDirectory={jars}")
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_FETCH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise BrokerUnavailable(f"Maven did not fetch Kafka's jars within {_FETCH_TIMEOUT_S:g} s") from None
        if done.returncode or not jars.is_dir():
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            raise BrokerUnavailable(f"Maven could not fetch Kafka's jars: {lines[0] if lines else 'no message'}")
        jars.rename(target)
