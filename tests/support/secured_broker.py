"""A broker that asks who one is: SASL_SSL with SCRAM and the authorizer on, beside a plain listener for the admin."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from tests.support.broker import DEADLINE_S, add_properties
from ucci_stream.local.kafka_node import LocalBroker, pick_port
from ucci_stream.topics.access import Grant

Entry = TypeVar("Entry", AclBinding, AclBindingFilter)
_MECHANISM = "SCRAM-SHA-256"
_SCRAM_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_KINDS = (AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE)
_OPERATIONS = {kind.name.title(): kind for kind in _KINDS} | {"DescribeConfigs": AclOperation.DESCRIBE_CONFIGS}
_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}


@dataclass(frozen=True)
class User:
    name: str
    password: str

    @property
    def principal(self) -> str:
        return f"User:{self.name}"


class SecuredBroker(LocalBroker):
    """A node whose plain listener is its administrator's, and whose other one is for users.

    ``bootstrap`` is the administrator's address, ``secured`` the users'.
    """

    secured = ""

    @property
    def certificate(self) -> Path:
        return self.directory / "certificate.pem"

    def _choose_ports(self) -> None:
        super()._choose_ports()
        key_and_certificate = self._make_certificate()
        self.secured = f"localhost:{(port := pick_port())}"
        (plain, controller), tls = self._ports, f"SASL_SSL://localhost:{port}"
        listener = f"listener.name.sasl_ssl.{_MECHANISM.lower()}.sasl.jaas.config"
        more = {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},{tls},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},{tls}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": _MECHANISM,
            listener: _SCRAM_LOGIN,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(key_and_certificate),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        add_properties(self, more)

    def _make_certificate(self) -> Path:
        key, both = self.directory / "key.pem", self.directory / "server.pem"
        subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        files = ["-keyout", str(key), "-out", str(self.certificate)]
        subprocess.run(["openssl", "req", *kind, *subject, *files], check=True, capture_output=True)
        both.write_text(key.read_text() + self.certificate.read_text())
        return both

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def add_users(self, users: Iterable[User]) -> None:
        mechanism = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        changes: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user.name, mechanism, user.password.encode()) for user in users
        ]
        for future in self.admin.alter_user_scram_credentials(changes).values():
            future.result(DEADLINE_S)

    def allow(self, user: User, granted: Iterable[Grant]) -> None:
        """Grant access; in force soon afterwards."""
        for future in self.admin.create_acls([_entry(AclBinding, user, grant) for grant in granted]).values():
            future.result(DEADLINE_S)

    def forbid(self, user: User, granted: Iterable[Grant]) -> None:
        """Take access back; in force soon afterwards."""
        filters = [_entry(AclBindingFilter, user, grant) for grant in granted]
        for future in self.admin.delete_acls(filters).values():
            assert future.result(DEADLINE_S), "nothing was taken back"

    def properties(self, user: User) -> dict[str, str]:
        return {
            "bootstrap.servers": self.secured,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": _MECHANISM,
            "sasl.username": user.name,
            "sasl.password": user.password,
            "ssl.ca.location": str(self.certificate),
        }


def _entry(kind: type[Entry], user: User, grant: Grant) -> Entry:
    pattern = ResourcePatternType.PREFIXED if grant.is_prefix else ResourcePatternType.LITERAL
    operation, resource = _OPERATIONS[grant.operation], _RESOURCES[grant.resource]
    return kind(resource, grant.name, pattern, user.principal, "*", operation, AclPermissionType.ALLOW)
