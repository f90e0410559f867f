"""Registers the schemas of what others send and receive at a registry of Confluent's protocol, and checks them there.

Only topics of one type of event have a subject, named after the topic (``TopicNameStrategy``). Schemas are open: they
allow keys that a reader does not know, and readers pass over those. Of such schemas an added optional key is a change
that *old* readers take, which registries call FORWARD compatible. BACKWARD, the registries' default, refuses it: a
writer of the old schema might have used that key for something else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, NamedTuple

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.common.schema_registry_client import ConfigCompatibilityLevel, ServerConfig
from confluent_kafka.schema_registry.error import SchemaRegistryError

from schemas.errors import ConfigError, UcciError
from schemas.schema_registry import AUTO_REGISTER_KEY, SCHEMA_ID_KEY
from schemas.settings import Settings
from schemas.topics import FEEDBACK, LABEL_REQUESTS, QUERIES, RESULTS, Topic

COMPATIBILITY = "FORWARD"
#: The topics that other systems write or read; all others pass between our own processes.
SHARED: tuple[Topic, ...] = (QUERIES, FEEDBACK, RESULTS, LABEL_REQUESTS)

_OURS = (SCHEMA_ID_KEY, AUTO_REGISTER_KEY)
_NOT_FOUND = 404


class RegistryFailed(UcciError):
    """The registry refuses, or does not answer."""

    exit_code = 1


class Registered(NamedTuple):
    """A schema at the registry."""

    subject: str
    event: str
    #: None where the registry does not have this schema.
    schema_id: int | None
    #: Level of the subject itself; None where the registry's own is in force.
    compatibility: str | None


def register(settings: Settings) -> list[Registered]:
    """Register the schemas of all shared topics, each subject FORWARD compatible; safe to repeat.

    Raises ConfigError when no registry is configured, or its client refuses the table; raises RegistryFailed, naming
    the subject and what the registry says.
    """

    def registered(client: SchemaRegistryClient, subject: str, event: str) -> Registered:
        # First, or the registry would compare this schema with the last one under its own level.
        client.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel(COMPATIBILITY)))
        return Registered(subject, event, client.register_schema(subject, schema_of(event)), COMPATIBILITY)

    return _of_each(settings, registered)


def look_up(settings: Settings) -> list[Registered]:
    """Return what the registry has of the schemas of all shared topics; writes nothing.

    Raises ConfigError or RegistryFailed as :func:`register`.
    """

    def known(client: SchemaRegistryClient, subject: str, event: str) -> Registered:
        found: Any = _unless_missing(lambda: client.lookup_schema(subject, schema_of(event)))
        config: Any = _unless_missing(lambda: client.get_config(subject))
        level = None if config is None else config.compatibility_level or config.compatibility
        schema_id = None if found is None else int(found.schema_id)
        return Registered(subject, event, schema_id, None if level is None else str(level.value))

    return _of_each(settings, known)


def _of_each(settings: Settings, ask: Callable[[SchemaRegistryClient, str, str], Registered]) -> list[Registered]:
    found = []
    with _client(settings) as client:
        for topic in SHARED:
            subject, (event,) = subject_of(settings, topic), topic.events
            with _failures(settings, subject):
                found.append(ask(client, subject, event))
    return found


def faults(settings: Settings, found: list[Registered]) -> Iterator[str]:
    """Yield what is wrong, one line each."""
    for one in found:
        if one.schema_id is None:
            yield f"{one.subject}: the schema of {one.event} is not registered; run `ucci-stream schemas register`"
        elif one.compatibility != COMPATIBILITY:
            level = one.compatibility or "the registry's own"
            yield f"{one.subject}: compatibility is {level}, not {COMPATIBILITY}; run `ucci-stream schemas register`"
    wanted = settings.results_schema_id
    known = next(one.schema_id for one in found if one.event == RESULTS.value)
    if wanted is not None and known is not None and wanted != known:
        yield (
            f'schema_registry."{SCHEMA_ID_KEY}": is {wanted}, and the schema of results has the id {known}: set it to '
            "that and restart the routers"
        )


def subject_of(settings: Settings, topic: Topic) -> str:
    """Return the subject of a topic's values."""
    return f"{topic.name(settings.topics.prefix)}-value"


def schema_of(event: str) -> Schema:
    """Return the JSON Schema of an event as it was released, in the one form that is always registered."""
    document = json.loads((files("schemas") / "generated" / f"{event}.schema.json").read_text(encoding="utf-8"))
    return Schema(json.dumps(document, separators=(",", ":"), ensure_ascii=False), "JSON")


@contextmanager
def _client(settings: Settings) -> Iterator[SchemaRegistryClient]:
    table = {key: value for key, value in settings.schema_registry.items() if key not in _OURS}
    if "url" not in table:
        raise ConfigError(["schema_registry.url: is missing; give the registry's address"])
    try:
        client = SchemaRegistryClient(table)
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError([f"schema_registry: {error}"]) from None
    with client:
        yield client


@contextmanager
def _failures(settings: Settings, subject: str) -> Iterator[None]:
    """Turn what the client raises into one line."""
    try:
        yield
    except SchemaRegistryError as error:
        raise RegistryFailed(f"{subject}: the registry refuses: {error}") from None
    except Exception as error:  # noqa: BLE001 its HTTP library's errors, which may come from either of two libraries
        address = str(settings.schema_registry["url"]).rpartition("@")[2]
        raise RegistryFailed(f"{subject}: the registry at {address} does not answer: {error}") from None


def _unless_missing(ask: Any) -> Any:
    try:
        return ask()
    except SchemaRegistryError as error:
        if error.http_status_code == _NOT_FOUND:
            return None
        raise
