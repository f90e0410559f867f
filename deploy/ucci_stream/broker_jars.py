"""The jars of the local broker: found in the cache, or fetched once with Maven.

``local/pom.xml`` names them. The cache is shared by all clones: ``$UCCI_CACHE_DIR`` or ``~/.cache/ucci-stream``. A
folder there is complete or absent, never half filled.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from schemas.errors import UcciError

KAFKA_VERSION = "4.1.1"
MINIMUM_JAVA = 17
POM = Path(__file__).parent / "local" / "pom.xml"
_FETCH_TIMEOUT_S = 600.0
_INSTALL = (
    "install a JDK 17 or later and Maven (Debian: apt-get install openjdk-17-jre-headless maven), "
    "or pass --broker HOST:PORT of a running Kafka"
)


class BrokerUnavailable(UcciError):
    """No broker can be started or reached; the message says what to install or check."""

    exit_code = 1


def cache_directory() -> Path:
    """Return the folder where downloads are kept between runs."""
    given = os.environ.get("UCCI_CACHE_DIR")
    return Path(given) if given else Path.home() / ".cache" / "ucci-stream"


def java_command() -> str:
    """Return the path of a Java that is recent enough.

    Raises
    ------
    BrokerUnavailable
        Where there is none.
    """
    java = shutil.which("java")
    if java is None:
        raise BrokerUnavailable(f"Java was not found: {_INSTALL}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found.group(1)) < MINIMUM_JAVA:
        raise BrokerUnavailable(f"Java {found.group(1) if found else '?'} is too old for Kafka: {_INSTALL}")
    return java


def kafka_jars() -> Path:
    """Return the folder of the broker's jars, fetching them the first time (about half a minute).

    Two processes may call this at once; one fetches, the other waits for it.

    Raises
    ------
    BrokerUnavailable
        When Maven is missing or cannot fetch.
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
        raise BrokerUnavailable(f"Maven was not found, and Kafka's jars are not in {target.parent}: {_INSTALL}")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        jars = Path(folder) / "jars"
        argv = [maven, "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        argv.append(f"-DoutputDirectory={jars}")
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_FETCH_TIMEOUT_S)
        if done.returncode:
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            raise BrokerUnavailable(f"Maven could not fetch Kafka's jars: {lines[0] if lines else 'no message'}")
        jars.rename(target)
