"""``[schema_registry]``: the properties of Confluent's clients that mean something here, by their own names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from pydantic import JsonValue

from schemas.json_bytes import MAX_SCHEMA_ID

SCHEMA_ID_KEY = "use.schema.id"
AUTO_REGISTER_KEY = "auto.register.schemas"


class RegistryProperty(NamedTuple):
    """One key of the table: what its value is, and what for."""

    kind: Literal["text", "number", "schema id", "false"]
    meaning: str


REGISTRY_PROPERTIES = {
    "url": RegistryProperty("text", "Address of the registry; several, separated by commas, are tried in turn."),
    "basic.auth.user.info": RegistryProperty("text", "`user:password`; better given by the environment variable."),
    "ssl.ca.location": RegistryProperty("text", "File of the certificates that are trusted."),
    "ssl.certificate.location": RegistryProperty("text", "File of the client's own certificate."),
    "ssl.key.location": RegistryProperty("text", "File of its key."),
    "ssl.key.password": RegistryProperty("text", "Password of that file."),
    "timeout": RegistryProperty("number", "Seconds to wait for an answer."),
    "max.retries": RegistryProperty("number", "Attempts after the first one."),
    SCHEMA_ID_KEY: RegistryProperty(
        "schema id",
        "With it routers write results in Confluent's wire format, under this id; `ucci-stream schemas register` "
        "prints it. Without it results are plain JSON.",
    ),
    AUTO_REGISTER_KEY: RegistryProperty(
        "false", "Services never register schemas: `ucci-stream schemas register` alone does."
    ),
}


def checked_registry(table: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the table with each value as its key needs it: numbers of environment variables come as text.

    Raises ValueError, naming the first faulty key and what is expected.
    """
    return {key: _checked(key, value) for key, value in table.items()}


def schema_id(table: Mapping[str, JsonValue]) -> int | None:
    """Return the id under which results are framed, of a checked table; None where they are plain JSON."""
    found = table.get(SCHEMA_ID_KEY)
    return found if isinstance(found, int) else None


def _checked(key: str, value: JsonValue) -> JsonValue:
    known = REGISTRY_PROPERTIES.get(key)
    if known is None:
        raise ValueError(f"unknown key {key}; the keys are {', '.join(REGISTRY_PROPERTIES)}")
    if known.kind == "false":
        if value is not False and str(value).lower() != "false":
            raise ValueError(f"{key}: must be false: run `ucci-stream schemas register` instead")
        return False
    if known.kind == "text":
        if not isinstance(value, str) or not value:
            raise ValueError(f"{key}: must be text that is not empty")
        return value
    return _number(key, value, known.kind)


def _number(key: str, value: JsonValue, kind: Literal["number", "schema id"]) -> int | float:
    try:
        number = float("" if isinstance(value, bool) else str(value))
    except ValueError:
        raise ValueError(f"{key}: must be a number") from None
    is_whole = number.is_integer() if abs(number) <= MAX_SCHEMA_ID else False
    if kind == "schema id" and not (is_whole and number >= 0):
        raise ValueError(f"{key}: must be a whole number from 0 to {MAX_SCHEMA_ID}, as the registry numbers the schema")
    if not 0.0 <= number <= MAX_SCHEMA_ID:
        raise ValueError(f"{key}: must lie between 0 and {MAX_SCHEMA_ID}")
    return int(number) if is_whole else number
