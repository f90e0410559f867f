"""The broker's jars are fetched by Maven, once, into a folder that is complete or absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from ucci_stream.local.kafka_install import kafka_jars

_MAVEN = """#!/bin/sh
for word; do case "$word" in -DoutputDirectory=*) jars="${word#*=}";; -DincludeScope=*) scope="${word#*=}";; esac; done
case "$scope" in compile|provided|runtime|system|test) ;; *) echo "Invalid Scope: $scope"; exit 1;; esac
mkdir -p "$jars" && touch "$jars/kafka.jar"
"""


def test_maven_copies_the_runtime_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maven refuses a scope that it does not know; the jars then never arrive on a fresh machine."""
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(_MAVEN, encoding="utf-8")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{maven.parent}:/usr/bin:/bin")
    monkeypatch.setenv("UCCI_CACHE_DIR", str(tmp_path / "cache"))
    assert [path.name for path in kafka_jars().iterdir()] == ["kafka.jar"]
