"""The documents say what the code does, are up to date, and can be trusted by tools that never see the code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator

from schemas.event import Event
from schemas.settings import Settings
from schemas.settings_environment import valid_keys, value_type
from tests.support import strategies
from tools.docs import documents


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return documents.documents()


def test_the_documents_in_the_repository_are_those_of_the_code(texts: dict[str, str]) -> None:
    assert documents.main(["--check"]) == 0, "run make docs"
    assert documents.documents() == texts


def test_check_names_what_is_stale_and_writing_mends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--root", str(tmp_path)]
    assert documents.main(where) == 0
    capsys.readouterr()
    (tmp_path / "docs/reference/topics.md").write_text("old")
    (tmp_path / "schemas/generated/Gone.schema.json").write_text("{}")
    assert documents.main([*where, "--check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "docs/reference/topics.md: is stale; run make docs",
        "schemas/generated/Gone.schema.json: is stale; run make docs",
    ]
    assert documents.main(where) == 0
    assert documents.main([*where, "--check"]) == 0


@pytest.mark.parametrize("name", sorted(documents.EVENTS))
def test_a_schema_is_valid_and_takes_every_event(name: str, texts: dict[str, str]) -> None:
    schema = json.loads(texts[f"schemas/generated/{name}.schema.json"])
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)

    @settings(max_examples=10, suppress_health_check=list(HealthCheck))
    @given(event=strategies.EVENTS[name])
    def holds(event: Event) -> None:
        validator.validate(json.loads(event.to_json()) | {"added_later": 1})

    holds()


def test_every_key_of_the_file_is_explained_with_its_variable(texts: dict[str, str]) -> None:
    page = texts["docs/reference/configuration.md"]
    named = set(re.findall(r"`UCCI_([A-Z0-9_]+)`", page))
    meanings = [row.split(" | ")[4] for row in page.splitlines() if row.startswith("| `")]
    keys = set(variables((), Settings))
    tables = {"KAFKA", "SCHEMA_REGISTRY", "TOPICS", "ROUTER", "GATEWAY", "RECALIBRATOR", "CALIBRATION", "NOTIFY"}
    tables.add("WORKLOADS")
    assert keys - tables <= named
    assert all(len(meaning) > 5 for meaning in meanings)


def variables(path: tuple[str, ...], annotation: Any) -> Any:
    for key in valid_keys(annotation):
        yield "__".join((*path, key)).upper()
        inner = value_type(annotation, key)
        if valid_keys(inner):
            yield from variables((*path, key), inner)
        elif valid_keys(value_type(inner, "NAME")):
            yield from variables((*path, key, "NAME"), value_type(inner, "NAME"))
