"""`ucci-stream schemas` over real HTTP, by Confluent's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner, Result

from schemas import FeedbackEvent, QueryEvent
from schemas.errors import ConfigError
from schemas.settings_text import load_settings
from tests.support.schema_registry import Registry, serving
from ucci_stream.cli import app
from ucci_stream.operate.schema_registry import SHARED

SUBJECTS = {f"p.{topic.suffix}-value" for topic in SHARED}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as found:
        yield found


def config(folder: Path, url: str, **more: object) -> Path:
    table = {"url": url, "max.retries": 0} | {name.replace("_", "."): value for name, value in more.items()}
    lines = [f'"{name}" = {json.dumps(value)}' for name, value in table.items()]
    path = folder / "ucci.toml"
    path.write_text("\n".join(['[topics]\nprefix = "p"\n[schema_registry]', *lines]), encoding="utf-8")
    return path


def schemas(command: str, path: Path, *more: str) -> Result:
    return CliRunner().invoke(app, ["schemas", command, "--config", str(path), *more])


def test_schemas_of_shared_topics_are_registered_forward(registry: Registry, tmp_path: Path) -> None:
    """Registering again changes nothing."""
    done, again = (schemas("register", config(tmp_path, registry.url), "--json") for _ in range(2))
    assert done.exit_code == 0, (done.output, done.exception)
    assert again.stdout == done.stdout
    assert registry.levels == dict.fromkeys(SUBJECTS, "FORWARD")
    assert all(len(found) == 1 for found in registry.subjects.values())
    said = {one["subject"]: one["schema_id"] for one in json.loads(done.stdout)["subjects"]}
    assert said == {subject: registry.ids[found[0]] for subject, found in registry.subjects.items()}
    assert set(said) == SUBJECTS


def test_registered_schemas_take_our_events(registry: Registry, tmp_path: Path) -> None:
    schemas("register", config(tmp_path, registry.url))
    sent: dict[str, Any] = {
        "p.queries-value": QueryEvent(query_id="q", text="canon"),
        "p.feedback-value": FeedbackEvent(query_id="q", entities={"camera": "canon"}),
    }
    for subject, event in sent.items():
        validator = Draft202012Validator(json.loads(registry.subjects[subject][0]))
        validator.validate(json.loads(event.to_json()))
        assert not validator.is_valid({"text": 7})


def test_subject_of_an_earlier_release_takes_the_new_schema(registry: Registry, tmp_path: Path) -> None:
    """The level is set before the schema is compared: BACKWARD would refuse a key added to an open schema."""
    registry.subjects["p.results-value"], registry.levels["p.results-value"] = ['{"type":"object"}'], "BACKWARD"
    done = schemas("register", config(tmp_path, registry.url))
    assert done.exit_code == 0, done.exception
    assert len(registry.subjects["p.results-value"]) == 2


def test_printed_id_is_what_routers_take(registry: Registry, tmp_path: Path) -> None:
    path = config(tmp_path, registry.url)
    done = schemas("register", path)
    path.write_text('[topics]\nprefix = "p"\n' + done.stdout.partition("in ucci.toml:\n")[2], encoding="utf-8")
    assert load_settings(path, {}).results_schema_id == registry.ids[registry.subjects["p.results-value"][0]]


def test_check_names_what_is_missing_and_writes_nothing(registry: Registry, tmp_path: Path) -> None:
    done = schemas("check", config(tmp_path, registry.url))
    assert done.exit_code == 1
    assert {line.split(":")[0] for line in done.stderr.splitlines()} == SUBJECTS
    assert not registry.ids
    assert not registry.levels


def test_check_passes_once_all_is_registered(registry: Registry, tmp_path: Path) -> None:
    schemas("register", config(tmp_path, registry.url))
    right = registry.ids[registry.subjects["p.results-value"][0]]
    assert schemas("check", config(tmp_path, registry.url, use_schema_id=right)).exit_code == 0
    wrong = schemas("check", config(tmp_path, registry.url, use_schema_id=right + 1))
    assert wrong.exit_code == 1
    assert f"is {right + 1}, and the schema of results has the id {right}" in wrong.stderr


def test_user_and_password_are_sent(tmp_path: Path) -> None:
    with serving("ada:secret") as registry:
        named = {"basic_auth_user_info": "ada:secret"}
        assert schemas("register", config(tmp_path, registry.url, **named)).exit_code == 0
        refused = schemas("register", config(tmp_path, registry.url))
    assert refused.exit_code == 1
    assert "p.queries-value: the registry refuses: Unauthorized (HTTP status code 401" in str(refused.exception)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://ada:secret@127.0.0.1:1"])
def test_registry_that_is_away_is_one_line_without_password(tmp_path: Path, url: str) -> None:
    done = schemas("register", config(tmp_path, url))
    assert done.exit_code == 1
    assert "127.0.0.1:1 does not answer: " in str(done.exception)
    assert "\n" not in str(done.exception)
    assert "secret" not in str(done.exception)


def test_no_registry_is_bad_configuration(tmp_path: Path) -> None:
    path = tmp_path / "ucci.toml"
    path.write_text("", encoding="utf-8")
    done = schemas("register", path)
    assert isinstance(done.exception, ConfigError)
    assert "schema_registry.url: is missing" in str(done.exception)
