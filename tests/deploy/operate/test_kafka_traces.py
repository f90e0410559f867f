"""`ucci-stream explain` finds a query's records among others' on a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from schemas.labelled import LabelledExample
from tests.support.broker import produce
from tests.support.recalibrator_events import feedback, routed
from tests.support.recalibrator_processes import create_all_topics, write_recalibrator_config
from tests.support.versions import sealed_version
from ucci_stream.cli import app
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.operate.kafka_traces import QueryNotFound

pytestmark = pytest.mark.broker
SINCE = "2020-01-01T00:00:00Z"


def test_a_query_is_explained_from_the_topics(broker: LocalBroker, topic_prefix: str, tmp_path: Path) -> None:
    bootstrap = broker.bootstrap
    create_all_topics(bootstrap, topic_prefix)
    config = write_recalibrator_config(tmp_path / "ucci.toml", bootstrap, topic_prefix, tmp_path)
    version = sealed_version(version=4)
    results = [
        one.model_copy(update={"decision": version.decide(one.decision.uncertainty, one.query_id)})
        for one in map(routed, range(20))
    ]
    mine = results[7]
    example, said = LabelledExample.from_events(mine, feedback(7)), feedback(7, labelled_at=None)
    produce(bootstrap, f"{topic_prefix}.results", [(one.query_id, one.to_json()) for one in results])
    produce(bootstrap, f"{topic_prefix}.feedback", [(one.query_id, one.to_json()) for one in (said, feedback(8))])
    produce(bootstrap, f"{topic_prefix}.observations", [("photo", example.to_json())])
    produce(bootstrap, f"{topic_prefix}.calibration-history", [("photo:4", version.to_json())])

    def call(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["explain", *arguments, "--config", str(config)], catch_exceptions=False)

    found = json.loads(call(mine.query_id, "--since", SINCE, "--json").stdout)
    assert (found["results"], found["result"]["query_id"]) == (1, mine.query_id)
    assert (found["decision"]["calibration_version"], found["decision"]["repeatable"]) == (4, True)
    assert [len(found["label"][part]) for part in ("feedback", "joined")] == [1, 1]
    came = found["label"]["feedback"][0]["arrived_at"]
    people = call(mine.query_id, "--since", SINCE).stdout
    assert f"{came} from ada, revision 1" in people, "by the broker's clock, since the labeler names no time"
    assert "the same decision again" in people
    assert mine.text in people
    with pytest.raises(QueryNotFound, match="q-nowhere: no result"):
        call("q-nowhere", "--since", SINCE)
