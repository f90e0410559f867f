"""The grants are the least that the code needs; each form that is printed says the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recalibrator import service as recalibrator_service
from schemas.errors import ConfigError
from schemas.topics import CALIBRATION_TRIAL, Topic
from stream_router import service as router_service
from stream_router.gateway import service as gateway_service
from tests.support.commands import call
from ucci_stream.topics.access import (
    COMPONENTS,
    Grant,
    as_rows,
    checked_principals,
    grants,
    kafka_acls,
    strimzi_user,
    yaml_documents,
)

BOTH = {"router": "User:router", "recalibrator": "User:recalibrator"}


def topics_of(component: str, operation: str) -> set[str]:
    return {g.name for g in grants(component, "u") if g.resource == "topic" and g.operation == operation}


@pytest.mark.parametrize(
    ("component", "checked"),
    [
        ("router", (*router_service.Service.needed, CALIBRATION_TRIAL)),
        ("gateway", (*gateway_service.GatewayService.needed, *gateway_service.GatewayService.optional)),
        ("recalibrator", (*recalibrator_service._TOUCHED, *recalibrator_service._OPTIONAL)),
    ],
)
def test_configs_are_granted_of_the_topics_checked(component: str, checked: tuple[Topic, ...]) -> None:
    """A topic that a service checks at its start, and whose senders and receivers leave it out, would stop it."""
    assert topics_of(component, "DescribeConfigs") == {topic.name("u") for topic in checked}


def test_a_gateway_may_not_take_queries_from_routers() -> None:
    """Nor may it use a transactional id of theirs, which would fence them."""
    found = grants("gateway", "u")
    assert "u.queries" not in {grant.name for grant in found}
    beside = {(grant.resource, grant.operation) for grant in found if grant.resource != "topic"}
    assert beside == {("group", "Describe")}


def test_a_producer_may_not_label_nor_a_labeler_ask() -> None:
    written = {component: topics_of(component, "Write") for component in ("producer", "labeler")}
    assert written == {"producer": {"u.queries"}, "labeler": {"u.feedback"}}


@pytest.mark.parametrize("component", COMPONENTS)
def test_no_grant_is_listed_twice(component: str) -> None:
    found = grants(component, "u")
    assert len(set(found)) == len(found)


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


def test_a_principal_with_spaces_stays_one_shell_word() -> None:
    (line, *_) = kafka_acls({"router": "User:CN=a router,O=x"}, "u")
    assert "--allow-principal 'User:CN=a router,O=x' --operation Read" in line


def test_tls_users_of_strimzi_are_named_without_cn() -> None:
    user = strimzi_user("router", "User:CN=router", "u", "events")
    assert user["metadata"] == {"name": "router", "labels": {"strimzi.io/cluster": "events"}}
    assert user["spec"]["authentication"] == {"type": "tls"}


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


def test_a_name_kubernetes_refuses_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be a KafkaUser"):
        strimzi_user("router", "User:Router_1", "u", "events")


def test_the_command_prints_the_configured_prefix(tmp_path: Path) -> None:
    config = tmp_path / "ucci.toml"
    config.write_text('[topics]\nprefix = "shop"\n')
    rows = call("acls", "--config", config, "--principal-router", "User:r")
    found = {Grant(row["resource"], row["name"], row["pattern"] == "prefixed", row["operation"]) for row in rows}
    assert found == set(grants("router", "shop"))
