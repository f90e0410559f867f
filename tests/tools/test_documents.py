"""The documents say what the code does, are up to date, and can be trusted by tools that never see the code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator

from schemas.event import Event
from schemas.settings import Settings
from schemas.settings_environment import valid_keys, value_type
from schemas.topics import TOPICS
from tests.support import strategies
from tools.docs import documents

ROOT = Path(__file__).parent.parent.parent
GENERATED = ROOT / "schemas" / "generated"


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return documents.documents()


@pytest.fixture(scope="module")
def described(texts: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(texts["schemas/generated/asyncapi.json"])
    return found


def test_the_documents_in_the_repository_are_those_of_the_code(texts: dict[str, str]) -> None:
    assert documents.main(["--check"]) == 0, "run make docs"
    assert documents.documents() == texts


def test_check_names_what_is_stale_and_writing_mends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--root", str(tmp_path)]
    assert documents.main(where) == 0
    assert documents.main([*where, "--check"]) == 0
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
    assert not (tmp_path / "schemas/generated/Gone.schema.json").exists()


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


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("QueryEvent", {"text": "t"}),
        ("QueryEvent", {"query_id": "", "text": "t"}),
        ("QueryEvent", {"query_id": 1, "text": "t"}),
        ("FeedbackEvent", {"query_id": "q"}),
        ("FeedbackEvent", {"query_id": "q", "entities": {"iso": 100}}),
        ("FeedbackEvent", {"query_id": "q", "entities": {}, "revision": 0}),
    ],
)
def test_a_schema_refuses_what_the_code_refuses(name: str, document: dict[str, Any], texts: dict[str, str]) -> None:
    schema = json.loads(texts[f"schemas/generated/{name}.schema.json"])
    assert not Draft202012Validator(schema).is_valid(document)
    with pytest.raises(ValueError, match=name):
        documents.EVENTS[name].model_validate(document)


def test_every_asyncapi_reference_resolves(described: dict[str, Any]) -> None:
    found = list(references(described))
    assert found
    for reference in found:
        if reference.startswith("./"):
            assert (GENERATED / reference).is_file()
        else:
            root, *parts = reference.split("/")
            assert (root, bool(reduce(getitem, parts, described))) == ("#", True)


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and "$ref" in value:
        yield value["$ref"]
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from references(inner)


def test_the_asyncapi_document_has_the_shape_of_version_3(described: dict[str, Any]) -> None:
    assert described["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= described["info"].keys()
    assert described.keys() <= {"asyncapi", "info", "defaultContentType", "channels", "operations", "components"}
    assert all(channel["address"] and channel["messages"] for channel in described["channels"].values())
    for operation in described["operations"].values():
        assert operation["action"] in ("send", "receive")
        channel = operation["channel"]["$ref"]
        assert all(message["$ref"].startswith(f"{channel}/messages/") for message in operation["messages"])
    used = {name for channel in described["channels"].values() for name in channel["messages"]}
    assert used == described["components"]["messages"].keys()


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.suffix)
def test_every_topic_has_key_policy_sender_and_receiver(
    topic: Any, described: dict[str, Any], texts: dict[str, str]
) -> None:
    channel = described["channels"][topic.suffix]
    assert channel["address"] == f"ucci.{topic.suffix}"
    assert topic.key in channel["description"]
    assert channel["bindings"]["kafka"]["topicConfiguration"]["cleanup.policy"] == topic.cleanup.split(",")
    assert channel["bindings"]["kafka"].get("partitions") == topic.partitions
    place = f"#/channels/{topic.suffix}"
    operations = [one for one in described["operations"].values() if one["channel"]["$ref"] == place]
    assert {one["action"] for one in operations} == {"send", "receive"}
    assert f"| `ucci.{topic.suffix}` | {topic.key} |" in texts["docs/reference/topics.md"]


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
