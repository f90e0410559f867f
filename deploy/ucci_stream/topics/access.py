"""Which access each component needs on a broker with an authorizer: the grants, derived and never listed twice.

Topics come from the senders and receivers of :mod:`schemas.topics`, groups and transactional ids from the names by
which the services make their clients. A broker older than Kafka 2.8 asks for ``IdempotentWrite`` on the cluster as
well; later ones take ``Write`` on a topic for it.
An operator applies them as commands of ``kafka-acls.sh`` or as ``KafkaUser`` resources of Strimzi.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Literal, NamedTuple

from recalibrator.stage import ReaderName, StageName
from schemas.errors import ConfigError
from schemas.topics import (
    CALIBRATION,
    FEEDBACK,
    JOIN_REPARTITION,
    LABEL_REQUESTS,
    OBSERVATIONS,
    QUERIES,
    RECALIBRATORS,
    RESULTS,
    ROUTERS,
    STATUS,
    TOPICS,
    Topic,
)
from stream_router.ports import CALIBRATION_READER, GROUP
from ucci_runtime.broker.kafka_properties import ClientNames

Resource = Literal["topic", "group", "transactional-id"]
Operation = Literal["Read", "Write", "Describe", "DescribeConfigs", "Create"]

_INSTANCE = "{instance_id}"
#: Topics of which the doctor and ``check-config`` read records: what services report, and those that a transaction may
#: hold back.
_DIAGNOSED = (QUERIES, RESULTS, FEEDBACK, JOIN_REPARTITION, OBSERVATIONS, CALIBRATION, STATUS, ROUTERS, RECALIBRATORS)


class Grant(NamedTuple):
    """One operation that a component may do on one resource."""

    resource: Resource
    #: Of the resource, or the beginning of its name.
    name: str

    is_prefix: bool
    operation: Operation


def labeling_group(prefix: str) -> str:
    """Return the name, without members, under which ``label-queue`` reads."""
    return f"{prefix}-label-queue"


def tool_groups(prefix: str) -> str:
    """Return how the names begin under which label tools' synchronisations read."""
    return f"{prefix}-label-tool-"


def diagnosing_group(prefix: str) -> str:
    """Return the name, without members, under which ``doctor`` reads."""
    return f"{prefix}-doctor"


def asking_group(prefix: str, query_id: str) -> str:
    """Return the name, without members, under which ``ask`` waits for one result."""
    return f"{prefix}-ask-{query_id}"


def grants(component: str, prefix: str) -> tuple[Grant, ...]:
    """Return the least access with which a component does all its work, in the order of the topics' table.

    ``Read`` and ``Write`` include ``Describe``, as Kafka's authorizer has it. ``component``: one of :data:`COMPONENTS`.
    """
    return tuple(_ACCESS[component](prefix))


def _router(prefix: str) -> Iterator[Grant]:
    yield from _service_topics({"router"}, prefix)
    names = ClientNames("router", prefix, _INSTANCE)
    yield Grant("group", names.group_id(GROUP), False, "Read")
    yield _calibration_reader(prefix)
    yield Grant("transactional-id", _of_every_instance(names.transactional_id(GROUP)), True, "Write")


def _gateway(prefix: str) -> Iterator[Grant]:
    """Yield a router's access but for queries, which come over HTTP with nothing to commit; and that to feedback."""
    queries = QUERIES.name(prefix)
    yield from (grant for grant in _service_topics({"router", "gateway"}, prefix) if grant.name != queries)
    yield _calibration_reader(prefix)


def _calibration_reader(prefix: str) -> Grant:
    names = ClientNames("router", prefix, _INSTANCE)
    return Grant("group", _of_every_instance(names.reader_group_id(CALIBRATION_READER)), True, "Describe")


def _recalibrator(prefix: str) -> Iterator[Grant]:
    yield from _service_topics({*StageName}, prefix)
    names, committing = ClientNames("recalibrator", prefix, _INSTANCE), (StageName.JOIN, StageName.FIT)
    for stage in committing:
        yield Grant("group", names.group_id(stage), False, "Read")
    for reader in ReaderName:
        yield Grant("group", _of_every_instance(names.reader_group_id(reader)), True, "Describe")
    for stage in committing:
        yield Grant("transactional-id", _of_every_instance(names.transactional_id(stage)), True, "Write")


def _producer(prefix: str) -> Iterator[Grant]:
    yield Grant("topic", QUERIES.name(prefix), False, "Write")
    yield Grant("topic", RESULTS.name(prefix), False, "Read")
    yield Grant("group", asking_group(prefix, ""), True, "Describe")


def _labeler(prefix: str) -> Iterator[Grant]:
    yield Grant("topic", FEEDBACK.name(prefix), False, "Write")
    for topic in (STATUS, LABEL_REQUESTS):
        yield from _topic(topic, prefix, "Read")
    yield Grant("group", labeling_group(prefix), False, "Describe")


def _label_tool(prefix: str) -> Iterator[Grant]:
    yield from _topic(RESULTS, prefix, "Read")
    yield from _topic(FEEDBACK, prefix, "Read", "Write")
    yield from _topic(LABEL_REQUESTS, prefix, "Read")
    yield Grant("group", tool_groups(prefix), True, "Describe")


def _operator(prefix: str) -> Iterator[Grant]:
    for topic in TOPICS:
        yield from _topic(topic, prefix, "Read" if topic in _DIAGNOSED else "Describe")
    for grant in (*_router(prefix), *_recalibrator(prefix)):
        if grant.resource == "group" and grant.operation == "Read":  # a service's, whose offsets it commits
            yield grant._replace(operation="Describe")
    yield Grant("group", diagnosing_group(prefix), False, "Describe")


def _service_topics(parts: set[str], prefix: str) -> Iterator[Grant]:
    """Yield what a service does on its topics; at its start it reads the configuration of each."""
    for topic in TOPICS:
        done: list[Operation] = []
        if parts.intersection(topic.receivers):
            done.append("Read")
        if parts.intersection(topic.senders):
            done.append("Write")
        if done:
            yield from _topic(topic, prefix, *done)


def _topic(topic: Topic, prefix: str, *operations: Operation) -> Iterator[Grant]:
    """Yield operations on a topic whose configuration is looked at as well."""
    for operation in (*operations, "DescribeConfigs"):
        yield Grant("topic", topic.name(prefix), False, operation)


def _of_every_instance(name: str) -> str:
    """Return how the names of all instances begin, from that of one."""
    return name.partition(_INSTANCE)[0]


_ACCESS = {
    "router": _router,
    "gateway": _gateway,
    "recalibrator": _recalibrator,
    "producer": _producer,
    "labeler": _labeler,
    "label-tool": _label_tool,
    "operator": _operator,
}
#: Who can be given access: the services, and who calls ``ucci-stream``: a producer ``send`` and ``ask``, a labeler
#: ``label`` and ``label-queue``, a label tool its ``sync``, an operator ``doctor`` and ``topics check``.
COMPONENTS = tuple(_ACCESS)
_PRINCIPAL = re.compile(r"[A-Za-z]+:\S(.*\S)?")
_KUBERNETES_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_STRIMZI_TYPES = {"topic": "topic", "group": "group", "transactional-id": "transactionalId"}


def checked_principals(given: Mapping[str, str | None]) -> dict[str, str]:
    """Return the given principals by component. Raises ConfigError for none, for everybody, and for what is no name."""
    found = {component: name for component, name in given.items() if name is not None}
    faults = []
    for component, name in found.items():
        if not _PRINCIPAL.fullmatch(name):
            faults.append(f"--principal-{component}: is {name!r}; give TYPE:NAME, such as User:{component}")
        if name.endswith(":*"):
            faults.append(f"--principal-{component}: {name} is everybody; name the component's own principal")
    if not found:
        faults.append("--principal-router: no principal is given; name at least one, such as User:router")
    if faults:
        raise ConfigError(faults)
    return found


def kafka_acls(principals: Mapping[str, str], prefix: str) -> list[str]:
    """Return one ``kafka-acls.sh`` command for each principal and resource.

    The commands read the address from ``$BOOTSTRAP`` and an administrator's properties from ``$ADMIN``.
    """
    lines = []
    for component, principal in principals.items():
        for granted in _by_resource(grants(component, prefix)):
            words = [f"--{granted[0].resource}", granted[0].name]
            words += ["--resource-pattern-type", "prefixed"] if granted[0].is_prefix else []
            operations = [word for grant in granted for word in ("--operation", grant.operation)]
            rest = shlex.join(["--allow-principal", principal, *operations, *words])
            lines.append(f'kafka-acls.sh --bootstrap-server "$BOOTSTRAP" --command-config "$ADMIN" --add {rest}')
    return lines


def strimzi_user(component: str, principal: str, prefix: str, cluster: str) -> dict[str, Any]:
    """Return a component's ``KafkaUser`` in a ``Kafka`` resource. Raises ConfigError for a user that cannot be one."""
    kind, _, user = principal.partition(":")
    name = user.removeprefix("CN=")
    if kind != "User" or not _KUBERNETES_NAME.fullmatch(name):
        fault = (
            f"--principal-{component}: {principal} cannot be a KafkaUser; give User:NAME (SCRAM) or User:CN=NAME "
            "(TLS), where NAME has lower-case letters, digits, dashes and dots"
        )
        raise ConfigError([fault])
    acls = [
        {
            "resource": {
                "type": _STRIMZI_TYPES[granted[0].resource],
                "name": granted[0].name,
                "patternType": "prefix" if granted[0].is_prefix else "literal",
            },
            "operations": [grant.operation for grant in granted],
        }
        for granted in _by_resource(grants(component, prefix))
    ]
    return {
        "apiVersion": "kafka.strimzi.io/v1",
        "kind": "KafkaUser",
        "metadata": {"name": name, "labels": {"strimzi.io/cluster": cluster}},
        "spec": {
            "authentication": {"type": "tls" if user != name else "scram-sha-512"},
            "authorization": {"type": "simple", "acls": acls},
        },
    }


def yaml_documents(documents: Iterable[Mapping[str, Any]]) -> str:
    """Return resources as one YAML stream; each document is written as JSON, which YAML includes."""
    return "".join(f"---\n{json.dumps(document, indent=2)}\n" for document in documents)


def as_rows(principals: Mapping[str, str], prefix: str) -> list[dict[str, str]]:
    """Return one object for each grant, as AdminClient's ``AclBinding`` names its parts."""
    return [
        {
            "component": component,
            "principal": principal,
            "resource": grant.resource,
            "name": grant.name,
            "pattern": "prefixed" if grant.is_prefix else "literal",
            "operation": grant.operation,
        }
        for component, principal in principals.items()
        for grant in grants(component, prefix)
    ]


def _by_resource(granted: Iterable[Grant]) -> list[list[Grant]]:
    return [list(group) for _, group in groupby(granted, key=lambda grant: grant[:3])]
