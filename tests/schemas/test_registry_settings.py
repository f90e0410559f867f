"""`[schema_registry]` holds the properties of Confluent's clients, by their own names."""

from __future__ import annotations

import pytest

from schemas.errors import ConfigError
from schemas.settings_text import parse_settings, render_settings

URL = '[schema_registry]\nurl = "http://registry:8081"\n'


@pytest.mark.parametrize("text", ['"use.schema.id" = 7', "use.schema.id = 7", "use = { schema.id = 7 }"])
def test_quoted_and_unquoted_keys_are_the_same(text: str) -> None:
    assert parse_settings(URL + text, {}).results_schema_id == 7


def test_environment_names_each_property() -> None:
    variables = {
        "UCCI_SCHEMA_REGISTRY__USE_SCHEMA_ID": "7",
        "UCCI_SCHEMA_REGISTRY__BASIC_AUTH_USER_INFO": "ada:secret",
        "UCCI_SCHEMA_REGISTRY__MAX_RETRIES": "0",
    }
    settings = parse_settings(URL, variables)
    assert settings.results_schema_id == 7
    assert settings.schema_registry == {
        "url": "http://registry:8081",
        "use.schema.id": 7,
        "basic.auth.user.info": "ada:secret",
        "max.retries": 0,
    }


def test_results_are_plain_without_an_id() -> None:
    """Automatic registration may be written out as off."""
    off = {"UCCI_SCHEMA_REGISTRY__AUTO_REGISTER_SCHEMAS": "false"}
    assert parse_settings(URL + "auto.register.schemas = false", off).results_schema_id is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("user.info = 'ada:secret'", "unknown key user.info; the keys are url, basic.auth.user.info"),
        ("use.schema.id = -1", "use.schema.id: must be a whole number from 0 to 2147483647"),
        ("use.schema.id = 1.5", "use.schema.id: must be a whole number"),
        ("use.schema.id = true", "use.schema.id: must be a number"),
        ("timeout = 'soon'", "timeout: must be a number"),
        ("ssl.ca.location = 7", "ssl.ca.location: must be text"),
        ("auto.register.schemas = true", "must be false: run `ucci-stream schemas register` instead"),
    ],
)
def test_value_that_clients_would_refuse_is_a_fault(line: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_settings(URL + line, {})
    assert words in str(refused.value)
    assert "secret" not in str(refused.value)


def test_passwords_of_the_registry_are_redacted() -> None:
    lines = '"basic.auth.user.info" = "ada:secret"\n"ssl.key.password" = "secret"\n'
    shown = render_settings(parse_settings(URL + lines, {"UCCI_SCHEMA_REGISTRY__URL": "http://ada:secret@r"}))
    assert "secret" not in shown
    assert "********@r" in shown
