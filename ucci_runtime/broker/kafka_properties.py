"""The properties of each kind of client: the ``[kafka]`` table, overlaid with what exactly-once rests on.

The user's properties win wherever they cannot cost or double a record: addresses, security, buffers, time-outs. Group
and transactional ids, isolation, auto-commit and the like are the services'.

Only librdkafka knows its properties, their values and which of them go together. So :func:`require_kafka` gives each to
a client of its own, then all of them to a client of each kind that the services make, and none a broker's address.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from schemas.errors import ConfigError
from schemas.settings import BOOTSTRAP_KEY, Settings
from schemas.settings_text import is_secret
from ucci_runtime.broker.kafka_errors import kafka_error

#: Values are text, numbers and, for ``error_cb``, a callable.
Properties = dict[str, Any]

#: An open transaction of a dead process hides what comes after it from readers for this long, and up to 10 s more.
TRANSACTION_TIMEOUT_S = 10.0

# A broker that wakes after its own session answers metadata without itself: a client that drops it must come back by
# bootstrap.servers. With "none" it never does. A call that blocks for good meanwhile is left behind by its watchdog.
_EVERY_CLIENT: Properties = {"metadata.recovery.strategy": "rebootstrap"}
_CONSUMER_DEFAULTS: Properties = {
    # A killed instance that comes back within this time finds its partitions where it left them.
    "session.timeout.ms": 20_000,
    # A member learns from its heartbeats that another one has left, or come: until then nobody has those partitions.
    "heartbeat.interval.ms": 500,
    "queued.max.messages.kbytes": 16_384,
    "fetch.wait.max.ms": 50,
}
_TURNS: Properties = {
    # Records wait in one line, whatever their partition: one that was away for long comes in turns with the others, not
    # before them. Measured with 40,000 records of 120 bytes: at 1 MB, the client's default, 10,000 of one partition at
    # a time, at 64 kB some hundreds; reading all of them takes as long.
    "max.partition.fetch.bytes": 65_536,
}
_SEE_GROWTH: Properties = {
    # Partitions may be added to queries while routers run. By the client's default a member sees them after 5 minutes.
    "topic.metadata.refresh.interval.ms": 5_000,
}
_READ_EXACTLY: Properties = {
    "isolation.level": "read_committed",
    "group.protocol": "classic",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
}
_REPORT_ENDS: Properties = {"enable.partition.eof": True}
_REPORT_ENDS_SOON: Properties = {
    **_REPORT_ENDS,
    # The end of a partition is reported one wait after its last record.
    "fetch.wait.max.ms": 50,
    "fetch.min.bytes": 1,
}
_PRODUCER_PREFIXES = ("transactional.", "transaction.", "queue.buffering.", "batch.", "compression.", "message.timeout")
_PRODUCER_ONLY = frozenset(
    {"enable.idempotence", "linger.ms", "acks", "request.required.acks", "delivery.timeout.ms", "retries"}
    | {"message.send.max.retries", "max.in.flight", "max.in.flight.requests.per.connection", "partitioner"}
    | {"sticky.partitioning.linger.ms", "request.timeout.ms", "enable.gapless.guarantee", "retry.backoff.ms"}
)
_CONSUMER_PREFIXES = (
    "fetch.",
    "group.",
    "queued.",
    "auto.",
    "enable.auto.",
    "max.partition.",
    "session.",
    "heartbeat.",
)
_CONSUMER_ONLY = frozenset(
    {"max.poll.interval.ms", "partition.assignment.strategy", "isolation.level", "enable.partition.eof", "check.crcs"}
    | {"client.rack", "allow.auto.create.topics"}
)
_MILLISECONDS = 1_000
#: The end of a transaction sends what waits, so that nothing is late by it; the client's own 5 ms cut the thousands of
#: records of one transaction into many requests.
_TRANSACTION_LINGER_MS = 50


@dataclass(frozen=True, slots=True)
class ClientNames:
    """The names of one process's clients, as the broker and the metrics know them.

    They are fixed: a group's offsets, and the fencing of a former process, hang on them.
    """

    service: Literal["router", "recalibrator"]
    #: Of the topics.
    prefix: str

    instance_id: str

    def group_id(self, name: str) -> str:
        """Return the consumer group of this name."""
        return f"{self.prefix}-{name}"

    def transactional_id(self, name: str) -> str:
        """Return the id that fences a former process of the same instance."""
        return f"{self.prefix}-{name}-{self.instance_id}"

    def client_id(self, name: str) -> str:
        """Return the client id of a group's member and of its producer."""
        return self.instance_id if self.service == "router" else f"{name}-{self.instance_id}"

    def reader_group_id(self, name: str) -> str:
        """Return the group, without members, of a reader of whole topics."""
        if self.service == "router":
            return f"{self.prefix}-router-{self.instance_id}-{name}"
        return f"{self.prefix}-{name}-{self.instance_id}"

    def member_label(self, name: str) -> str:
        """Return how metrics and log lines call a group's member."""
        return "intake" if self.service == "router" else name

    def session_label(self, name: str) -> str:
        """Return how metrics and log lines call a session's producer."""
        return "transaction" if self.service == "router" else f"{name}-transaction"

    def labels(self, name: str) -> dict[str, str]:
        """Return the labels that distinguish a service's counts of transactions and rebalances."""
        return {} if self.service == "router" else {"stage": name}


def admin_properties(settings: Settings) -> Properties:
    """Return the properties of a client that only asks."""
    # What goes wrong is raised or reported to error_cb; the client's own lines would stand between ours.
    return _EVERY_CLIENT | {"log_level": 2} | _given(settings, _is_consumers, _is_producers)


def group_properties(settings: Settings, names: ClientNames, name: str) -> Properties:
    """Return the properties of a group's consumer, which reports the ends of its partitions.

    Its membership is static, so that a restart finds its partitions again. A stage is ready only at the ends; a router
    answers before, so how it fetches is the user's to tune.
    """
    return (
        _TURNS
        | _SEE_GROWTH
        | _consumer(settings)
        | {
            "group.id": names.group_id(name),
            "group.instance.id": names.instance_id,
            "client.id": names.client_id(name),
            # Partition n of every topic goes to the same instance.
            "partition.assignment.strategy": "range",
        }
        | _READ_EXACTLY
        # A group that the log does not hold any more, or not yet, is the reader's to judge.
        | {"auto.offset.reset": "error"}
        | (_REPORT_ENDS if names.service == "router" else _REPORT_ENDS_SOON)
    )


def offsets_properties(settings: Settings, group_id: str) -> Properties:
    """Return the properties of a consumer that reads a group's offsets and joins nothing."""
    return _consumer(settings) | {"group.id": group_id} | _READ_EXACTLY


def outsider(properties: Mapping[str, Any]) -> Properties:
    """Return a consumer's properties for a quiet one beside it, which takes no place in its group."""
    own = ("group.instance.id", "error_cb", "logger")
    return {key: value for key, value in properties.items() if key not in own} | {"log_level": 0}


def reader_properties(settings: Settings, group_id: str) -> Properties:
    """Return the properties of a consumer that reads whole topics by itself; its group is a name without members."""
    return offsets_properties(settings, group_id) | _REPORT_ENDS_SOON


def transactional_properties(settings: Settings, names: ClientNames, name: str, max_record_bytes: int) -> Properties:
    """Return a transactional producer's properties; every output topic takes records of ``max_record_bytes``."""
    given = _given(settings, _is_consumers)
    return (
        _EVERY_CLIENT
        | {"linger.ms": _TRANSACTION_LINGER_MS}
        | given
        | {
            "transactional.id": names.transactional_id(name),
            "client.id": names.client_id(name),
            "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_S * _MILLISECONDS),
            "enable.idempotence": True,
            "acks": "all",
            "message.max.bytes": max_record_bytes,
            # A batch above the topic's limit is refused whole, the small records in it included.
            "batch.size": _at_most(given.get("batch.size", max_record_bytes), max_record_bytes),
        }
    )


def publisher_properties(settings: Settings) -> Properties:
    """Return the properties of the producer behind an API: a request waits for each record."""
    return _producer(settings, timeout_s=5.0, linger_ms=2)


def heartbeat_properties(settings: Settings) -> Properties:
    """Return the properties of the producer of status records; a short queue, since the next one says more."""
    return _producer(settings, timeout_s=10.0, linger_ms=5) | {"queue.buffering.max.messages": 10}


def _producer(settings: Settings, *, timeout_s: float, linger_ms: int) -> Properties:
    """Return the properties of an idempotent producer outside transactions.

    ``timeout_s``: after which a record that was not acknowledged is given up. ``linger_ms``: how long a record waits
    for company, unless ``[kafka]`` says otherwise.
    """
    own = {"enable.idempotence": True, "acks": "all", "message.timeout.ms": int(timeout_s * _MILLISECONDS)}
    return _EVERY_CLIENT | {"linger.ms": linger_ms} | _given(settings, _is_consumers, _is_transactions) | own


def _at_most(given: str | float, limit: int) -> str | float:
    """Return a size within a limit; what is no number is the client library's to refuse."""
    try:
        return min(int(given), limit)
    except ValueError:
        return given


def _is_producers(key: str) -> bool:
    return key in _PRODUCER_ONLY or key.startswith(_PRODUCER_PREFIXES)


def _is_consumers(key: str) -> bool:
    return key in _CONSUMER_ONLY or key.startswith(_CONSUMER_PREFIXES)


def _is_transactions(key: str) -> bool:
    return key.startswith(("transact", "message.t"))


def _given(settings: Settings, *are_others: Callable[[str], bool]) -> Properties:
    """Return the user's properties without those of other clients."""
    return {k: v for k, v in user_properties(settings).items() if not any(is_others(k) for is_others in are_others)}


def _consumer(settings: Settings) -> Properties:
    return _EVERY_CLIENT | _CONSUMER_DEFAULTS | _given(settings, _is_producers)


def user_properties(settings: Settings) -> dict[str, str | int | float | bool]:
    """Return the ``[kafka]`` table as the client library takes it, whatever client it is for."""
    return {k: v if isinstance(v, str | int | float | bool) else str(v) for k, v in settings.kafka.items()}


_NAMES = ClientNames("router", "ucci", "checked")
_ANY_SIZE = 1_000_000
#: How a fault begins that lies in several properties together.
_NOT_BUILT = re.compile(r"^Failed to create [a-z ]+: ")

_UNKNOWN = "No such configuration property"
#: What the client library takes beside librdkafka's properties: functions and objects.
_ONLY_IN_PROGRAMS = re.compile(r".*_cb|logger|on_commit|on_delivery|default\.topic\.config")


#: The ``logger`` of a client whose faults are raised.
_NO_LOG = logging.getLogger("dropped")
_NO_LOG.disabled = True


def require_kafka(settings: Settings) -> None:
    """Check the ``[kafka]`` table. Raises ConfigError with one line for each fault."""
    if faults := kafka_faults(settings):
        raise ConfigError(faults)


def kafka_faults(settings: Settings) -> list[str]:
    """Return what librdkafka refuses of the ``[kafka]`` table, a line each; connects to nothing."""
    given = user_properties(settings)
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
    given = settings.kafka
    for kind, built in _clients(settings):
        if (message := _refusal(kind, built)) is None:
            continue
        message = _NOT_BUILT.sub("", message)
        named = [name for name in given if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", message)]
        shown = ", ".join(f"{name} = {given[name]}" for name in named if not is_secret(["kafka", name]))
        got = f" (got {shown})" if shown else ""
        yield f"kafka: librdkafka refuses these properties together: {message}{got}; change or remove one of them"


def _clients(settings: Settings) -> Iterator[tuple[type, Properties]]:
    """Yield every kind of client that a service makes, with its properties."""
    yield AdminClient, admin_properties(settings)
    yield Consumer, group_properties(settings, _NAMES, "router")
    yield Consumer, reader_properties(settings, _NAMES.group_id("router"))
    yield Producer, transactional_properties(settings, _NAMES, "router", _ANY_SIZE)
    yield Producer, publisher_properties(settings)
    yield Producer, heartbeat_properties(settings)


def _refusal(kind: type, built: Properties) -> str | None:
    """Make a client that knows no broker, and return why librdkafka refuses; None where it does not."""
    lonely = {name: value for name, value in built.items() if name != BOOTSTRAP_KEY}
    try:
        client = kind(lonely | {"logger": _NO_LOG})
    except KafkaException as error:
        return " ".join(kafka_error(error).str().split())
    except (TypeError, ValueError) as error:
        return " ".join(str(error).split())
    if not isinstance(client, AdminClient):
        client.close()
    return None


def _got(name: str, value: Any) -> str:
    return "" if is_secret(["kafka", name]) else f" (got {value!r})"
