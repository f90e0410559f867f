"""``python -m tools.ops.generated``: write the deployment files that follow from the code.

The topics and rights of Kafka come from the table of topics, the dashboard from its table of panels; rules and
dashboard are copied into the chart, which cannot read files outside its folder. ``make docs`` writes them too.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import yaml

from schemas.topics import FEEDBACK, QUERIES, RESULTS, TOPICS
from tools.ops.acls import PREFIX, USERS, Rule, rules
from tools.ops.dashboard import dashboard
from ucci_runtime.broker.kafka_topic_creation import topic_config

ROOT = Path(__file__).resolve().parents[2]
_CHART = "deploy/helm/ucci-stream/files"
_RULES = "deploy/monitoring/rules.yml"
_NOTE = "# Written by `python -m tools.ops.generated` from schemas/topics.py; change that instead.\n"
_DAY_S = 24 * 3600.0
_RESOURCES = {"topic": "--topic", "group": "--group", "transactionalId": "--transactional-id"}

_SCRIPT = f"""\
#!/bin/sh
{_NOTE}#
# Give the users of ucci-stream their rights, with Kafka's own tool:
#   KAFKA_ACLS="kafka-acls.sh --bootstrap-server kafka:9093 --command-config admin.properties" PREFIX=ucci \\
#     ROUTER=User:ucci-router RECALIBRATOR=User:ucci-recalibrator OPERATOR=User:ucci-operator sh acls.sh
# Safe to repeat. `Read` and `Write` bring `Describe` with them.
set -eu
: "${{KAFKA_ACLS:=kafka-acls.sh --bootstrap-server localhost:9092}}" "${{PREFIX:=ucci}}"
: "${{ROUTER:=User:ucci-router}}" "${{RECALIBRATOR:=User:ucci-recalibrator}}" "${{OPERATOR:=User:ucci-operator}}"
"""


def files() -> dict[str, str]:
    """Return every generated file's text by its path in the repository."""
    board = json.dumps(dashboard(), indent=2) + "\n"
    return {
        f"{_CHART}/topics.yaml": _NOTE + _yaml({"topics": _topics()}),
        f"{_CHART}/acls.yaml": _NOTE + _yaml({user: [_strimzi(rule) for rule in rules(user)] for user in USERS}),
        f"{_CHART}/rules.yml": (ROOT / _RULES).read_text(encoding="utf-8"),
        f"{_CHART}/dashboard.json": board,
        "deploy/monitoring/dashboard.json": board,
        "deploy/kafka/acls.sh": _SCRIPT + "".join(_section(user) for user in USERS),
    }


#: Partitions may be added to these alone: in the others the number decides where a key's records lie.
_GROWING = (QUERIES, RESULTS, FEEDBACK)


def _topics() -> list[dict[str, object]]:
    listed: list[dict[str, object]] = []
    for topic in TOPICS:
        config = topic_config(topic, 14 * _DAY_S)
        if topic.joined:
            # As long as the values say.
            config.pop("retention.ms")
        listed.append(
            {
                "suffix": topic.suffix,
                **({} if topic.partitions is None else {"partitions": topic.partitions}),
                **({"grows": True} if topic in _GROWING else {}),
                "joined": topic.joined,
                "config": config,
            }
        )
    return listed


def _strimzi(rule: Rule) -> dict[str, object]:
    return {"type": rule.kind, "name": rule.name, "pattern": rule.pattern, "operations": list(rule.operations)}


def _section(user: str) -> str:
    lines = [f"\n# {user}"]
    for rule in rules(user):
        operations = " ".join(f"--operation {operation}" for operation in rule.operations)
        name = rule.name.replace(PREFIX, "${PREFIX}")
        pattern = "prefixed" if rule.pattern == "prefix" else rule.pattern
        lines.append(
            f'$KAFKA_ACLS --add --allow-principal "${user.upper()}" {operations} \\\n'
            f'  {_RESOURCES[rule.kind]} "{name}" --resource-pattern-type {pattern}'
        )
    return "\n".join(lines) + "\n"


def _yaml(document: object) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=120)


def main() -> None:
    """Write the files."""
    description = "Write the deployment files that follow from the code."
    argparse.ArgumentParser(description=description, epilog="example: python -m tools.ops.generated").parse_args()
    for path, text in files().items():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
