"""The grants are the least that the code needs; each form that is printed says the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemas.errors import ConfigError
from tests.support.commands import call
from ucci_stream.topics.access import (
    Grant,
    as_rows,
    checked_principals,
    grants,
    kafka_acls,
    strimzi_user,
    yaml_documents,
)

BOTH = {"router": "User:router", "recalibrator": "User:recalibrator"}


def test_a_producer_may_not_label_nor_a_labeler_ask() -> None:
    """What a service needs, and no more, is tried on a secured broker."""
    for component, topic in (("producer", "queries"), ("labeler", "feedback")):
        written = {grant.name for grant in grants(component, "u") if grant.operation == "Write"}
        assert written == {f"u.{topic}"}


def test_a_router_makes_no_version_and_a_gateway_fences_nobody() -> None:
    """Who may put a version in force decides for all; a gateway takes neither queries nor a transaction of routers."""
    assert ("u.calibration", "Write") not in {(grant.name, grant.operation) for grant in grants("router", "u")}
    found = grants("gateway", "u")
    assert "u.queries" not in {grant.name for grant in found}
    assert {(one.resource, one.operation) for one in found if one.resource != "topic"} == {("group", "Describe")}


def test_every_form_lists_the_same_grants() -> None:
    rows = as_rows(BOTH, "u")
    assert len(rows) == sum(len(grants(component, "u")) for component in BOTH)
    commands, users = kafka_acls(BOTH, "u"), [strimzi_user(*one, "u", "events") for one in BOTH.items()]
    assert sum(line.count("--operation ") for line in commands) == len(rows)
    prefixed = [row["pattern"] == "prefixed" for row in rows]
    assert sum("--resource-pattern-type prefixed" in line for line in commands) == sum(prefixed)
    assert sum(len(acl["operations"]) for user in users for acl in user["spec"]["authorization"]["acls"]) == len(rows)
    first, second = yaml_documents(users).split("---\n")[1:]
    assert [json.loads(first), json.loads(second)] == users


def test_names_of_principals_keep_their_meaning() -> None:
    """A principal with spaces is one shell word; a TLS user of Strimzi is named without CN, as Kubernetes takes it."""
    (line, *_) = kafka_acls({"router": "User:CN=a router,O=x"}, "u")
    assert "--allow-principal 'User:CN=a router,O=x' --operation Read" in line
    user = strimzi_user("router", "User:CN=router", "u", "events")
    assert user["metadata"] == {"name": "router", "labels": {"strimzi.io/cluster": "events"}}
    assert user["spec"]["authentication"] == {"type": "tls"}
    with pytest.raises(ConfigError, match="cannot be a KafkaUser"):
        strimzi_user("router", "User:Router_1", "u", "events")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"router": None}, "no principal is given"),
        ({"router": "router"}, "--principal-router: is 'router'; give TYPE:NAME"),
        ({"labeler": "User:*"}, "--principal-labeler: User:* is everybody"),
    ],
)
def test_a_wrong_principal_is_one_clear_line(given: dict[str, str | None], said: str) -> None:
    with pytest.raises(ConfigError, match="principal") as caught:
        checked_principals(given)
    (fault,) = caught.value.faults
    assert said in fault


def test_the_command_prints_the_configured_prefix(tmp_path: Path) -> None:
    config = tmp_path / "ucci.toml"
    config.write_text('[topics]\nprefix = "shop"\n')
    rows = call("acls", "--config", config, "--principal-router", "User:r")
    found = {Grant(row["resource"], row["name"], row["pattern"] == "prefixed", row["operation"]) for row in rows}
    assert found == set(grants("router", "shop"))
