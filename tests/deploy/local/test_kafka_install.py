"""The broker's jars are fetched by Maven, once, into a folder that is complete or absent."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from ucci_stream.local import kafka_install
from ucci_stream.local.kafka_install import BrokerUnavailable, kafka_jars

_MAVEN = """#!/bin/sh
for word; do case "$word" in -DoutputDirectory=*) jars="${word#*=}";; -DincludeScope=*) scope="${word#*=}";; esac; done
case "$scope" in compile|provided|runtime|system|test) ;; *) echo "Invalid Scope: $scope"; exit 1;; esac
mkdir -p "$jars" && touch "$jars/kafka.jar"
"""


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven that brings one jar; the file that says which jars are known."""
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(_MAVEN, encoding="utf-8")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{maven.parent}:/usr/bin:/bin")
    monkeypatch.setenv("UCCI_CACHE_DIR", str(tmp_path / "cache"))
    known = tmp_path / "known.sha256"
    known.write_text(f"{sha256(b'').hexdigest()}  kafka.jar\n", encoding="ascii")
    monkeypatch.setattr(kafka_install, "CHECKSUMS", known)
    return known


def test_maven_copies_the_runtime_scope(maven: Path) -> None:
    """Maven refuses a scope that it does not know; the jars then never arrive on a fresh machine."""
    assert [path.name for path in kafka_jars().iterdir()] == ["kafka.jar"]


@pytest.mark.parametrize(
    "known", [f"{'0' * 64}  kafka.jar\n", "", f"{sha256(b'').hexdigest()}  kafka.jar\n{'0' * 64}  other.jar\n"]
)
def test_other_jars_than_the_known_ones_are_not_kept(maven: Path, known: str) -> None:
    """Altered, added or missing: nothing of it is left in the cache for the next start."""
    maven.write_text(known, encoding="ascii")
    with pytest.raises(BrokerUnavailable, match=r"(kafka|other)\.jar; check which repository"):
        kafka_jars()
    assert not list((maven.parent / "cache").glob("kafka-*"))


def test_the_list_of_jars_is_that_of_the_version() -> None:
    names = [line.split()[1] for line in kafka_install.CHECKSUMS.read_text(encoding="ascii").splitlines()]
    assert f"kafka_2.13-{kafka_install.KAFKA_VERSION}.jar" in names
    assert f"<version>{kafka_install.KAFKA_VERSION}</version>" in kafka_install.POM.read_text(encoding="utf-8")
    assert len(set(names)) == len(names) > 40
