"""Files that follow from the code are up to date, and say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from recalibrator.stage import StageName
from schemas.topics import TOPICS
from tests.deploy.ops.operators import run
from tools.ops.acls import COMMANDS, PREFIX, USERS, granted, rules
from tools.ops.generated import files
from ucci_stream.topics.access import COMPONENTS, grants

ROOT = Path(__file__).parents[3]
#: Senders and receivers of the topics' table, by whose rights they work.
PARTS = {"router": {"router", "gateway"}, "recalibrator": {stage.value for stage in StageName}, "operator": COMMANDS}


@pytest.mark.parametrize("path", sorted(files()))
def test_generated_file_is_up_to_date(path: str) -> None:
    """`make docs` writes it."""
    assert (ROOT / path).read_text(encoding="utf-8") == files()[path]


def test_every_sender_and_receiver_is_one_of_the_users() -> None:
    """A part that is added to the table of topics must be given its rights."""
    named = {part for topic in TOPICS for part in (*topic.senders, *topic.receivers)}
    assert named == set().union(*PARTS.values())


@pytest.mark.parametrize(("user", "parts"), [("router", ("router", "gateway")), ("recalibrator", ("recalibrator",))])
def test_services_rights_were_listed_twice(user: str, parts: tuple[str, ...]) -> None:
    """`ucci-stream acls` gave a service the least that it needs, and acls.sh something else."""
    assert set(granted(user)) == {grant for part in parts for grant in grants(part, PREFIX)}


def test_operator_could_not_read_what_services_report() -> None:
    """`doctor` reads routers and recalibrators, which acls.sh left out; its operator may do what all callers may."""
    callers = set(COMPONENTS) - {"router", "gateway", "recalibrator"}
    assert set(granted("operator")) >= {grant for caller in callers for grant in grants(caller, PREFIX)}
    read = {grant.name for grant in granted("operator") if grant.operation == "Read"}
    assert {"PREFIX.routers", "PREFIX.recalibrators"} <= read


@pytest.mark.parametrize("user", sorted(USERS))
def test_user_may_write_what_it_sends_and_nothing_else(user: str) -> None:
    writes = {rule.name for rule in rules(user) if rule.kind == "topic" and "Write" in rule.operations}
    assert writes == {topic.name("PREFIX") for topic in TOPICS if PARTS[user] & set(topic.senders)}


def test_script_of_rights_names_each_rule_once() -> None:
    script = ("sh", "deploy/kafka/acls.sh")
    lines = run(*script, KAFKA_ACLS="echo", PREFIX="team", ROUTER="User:r", OPERATOR="User:o").splitlines()
    assert len(lines) == len(set(lines)) == sum(len(rules(user)) for user in USERS)
    assert (
        "--add --allow-principal User:r --operation Read --operation DescribeConfigs --topic team.queries" in lines[0]
    )
    assert sum("User:ucci-recalibrator" in line for line in lines) == len(rules("recalibrator"))
