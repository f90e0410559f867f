"""The ``[kafka]`` table as librdkafka judges it: every fault before any client connects.

Only librdkafka knows its properties, their values and which of them go together. So each property is given to a client
of its own, then all of them to a client of each kind that the services make, and none is given a broker's address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from schemas.errors import ConfigError
from schemas.settings import BOOTSTRAP_KEY, Settings
from schemas.settings_text import is_secret
from ucci_runtime.broker import kafka_properties as properties
from ucci_runtime.broker.kafka_errors import kafka_error

_NAMES = properties.ClientNames("router", "ucci", "checked")
_ANY_SIZE = 1_000_000
#: How a fault begins that lies in several properties together.
_NOT_BUILT = re.compile(r"^Failed to create [a-z ]+: ")

_UNKNOWN = "No such configuration property"
#: What the client library takes beside librdkafka's properties: functions and objects.
_ONLY_IN_PROGRAMS = re.compile(r".*_cb|logger|on_commit|on_delivery|default\.topic\.config")


class _NoLog:
    """The ``logger`` of a client whose faults are raised."""

    def log(self, level: int, template: str, *parts: str) -> None:
        """Drop a line."""


def require_kafka(settings: Settings) -> None:
    """Check the ``[kafka]`` table. Raises ConfigError with one line for each fault."""
    if faults := kafka_faults(settings):
        raise ConfigError(faults)


def kafka_faults(settings: Settings) -> list[str]:
    """Return what librdkafka refuses of the ``[kafka]`` table, a line each; connects to nothing.

    Examples
    --------
    >>> kafka_faults(Settings(kafka={"fetch.wait": 5}))
    ['kafka.fetch.wait: librdkafka has no such property; correct its name or remove it']
    """
    given = properties.user_properties(settings)
    alone = [fault for name in given if name != BOOTSTRAP_KEY for fault in _faults_alone(name, given[name])]
    return alone or list(dict.fromkeys(_faults_together(settings)))


def _faults_alone(name: str, value: Any) -> Iterator[str]:
    if _ONLY_IN_PROGRAMS.fullmatch(name):
        yield f"kafka.{name}: is for programs, no file can set it{_got(name, value)}; remove it"
        return
    message = _refusal(Producer, {name: value})
    # What else it needs is seen when all of them are there.
    if message is None or _NOT_BUILT.match(message):
        return
    if message.startswith(_UNKNOWN):
        yield f"kafka.{name}: librdkafka has no such property; correct its name or remove it"
    else:
        yield f"kafka.{name}: {message}{_got(name, value)}; see librdkafka's CONFIGURATION.md for its values"


def _faults_together(settings: Settings) -> Iterator[str]:
    given = properties.user_properties(settings)
    for kind, built in _clients(settings):
        if (message := _refusal(kind, built)) is None:
            continue
        message = _NOT_BUILT.sub("", message)
        named = [name for name in given if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", message)]
        shown = ", ".join(f"{name} = {given[name]}" for name in named if not is_secret(["kafka", name]))
        got = f" (got {shown})" if shown else ""
        yield f"kafka: librdkafka refuses these properties together: {message}{got}; change or remove one of them"


def _clients(settings: Settings) -> Iterator[tuple[type, properties.Properties]]:
    """Yield every kind of client that a service makes, with its properties."""
    group = _NAMES.group_id("router")
    yield AdminClient, properties.admin_properties(settings)
    yield Consumer, properties.group_properties(settings, _NAMES, "router")
    yield Consumer, properties.reader_properties(settings, group)
    yield Producer, properties.transactional_properties(settings, _NAMES, "router", _ANY_SIZE)
    yield Producer, properties.publisher_properties(settings)
    yield Producer, properties.heartbeat_properties(settings)


def _refusal(kind: type, built: properties.Properties) -> str | None:
    """Make a client that knows no broker, and return why librdkafka refuses; None where it does not."""
    lonely = {name: value for name, value in built.items() if name != BOOTSTRAP_KEY}
    try:
        client = kind(lonely | {"logger": _NoLog()})
    except KafkaException as error:
        return " ".join(kafka_error(error).str().split())
    except (TypeError, ValueError) as error:
        return " ".join(str(error).split())
    if not isinstance(client, AdminClient):
        client.close()
    return None


def _got(name: str, value: Any) -> str:
    return "" if is_secret(["kafka", name]) else f" (got {value!r})"
