"""The grants as an operator applies them: commands of ``kafka-acls.sh``, ``KafkaUser`` resources of Strimzi, JSON."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from schemas.errors import ConfigError
from ucci_stream.topics.access import Grant, grants

_PRINCIPAL = re.compile(r"[A-Za-z]+:\S(.*\S)?")
_KUBERNETES_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_STRIMZI_TYPES = {"topic": "topic", "group": "group", "transactional-id": "transactionalId"}

#: The principal of each component.
Principals = Mapping[str, str]


def checked_principals(given: Mapping[str, str | None]) -> dict[str, str]:
    """Return the principals that were given, by component.

    Raises ConfigError when there is none, or one that no broker would take, or that means everybody.
    """
    found = {component: name for component, name in given.items() if name is not None}
    faults = [
        f"--principal-{component}: is {name!r}; give TYPE:NAME, such as User:{component}"
        for component, name in found.items()
        if not _PRINCIPAL.fullmatch(name)
    ]
    faults += [
        f"--principal-{component}: {name} is everybody; name the component's own principal"
        for component, name in found.items()
        if name.endswith(":*")
    ]
    if not found:
        faults.append("--principal-router: no principal is given; name at least one, such as User:router")
    if faults:
        raise ConfigError(faults)
    return found


def kafka_acls(principals: Principals, prefix: str) -> list[str]:
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


def strimzi_users(principals: Principals, prefix: str, cluster: str) -> list[dict[str, Any]]:
    """Return one ``KafkaUser`` for each component.

    ``cluster``: name of the ``Kafka`` resource that the users belong to. Raises ConfigError when a principal is no user
    that Strimzi could make.
    """
    return [_strimzi_user(component, name, prefix, cluster) for component, name in principals.items()]


def _strimzi_user(component: str, principal: str, prefix: str, cluster: str) -> dict[str, Any]:
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


def as_rows(principals: Principals, prefix: str) -> list[dict[str, str]]:
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
