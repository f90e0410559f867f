"""What to label next, on a real broker: sent by any replica of the API and by the command, until the label comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from schemas.feedback import FeedbackEvent
from schemas.routed import RoutedEvent
from tests.support.broker import key_of, produce, read_all
from tests.support.commands import invoke, said
from tests.support.probes import document
from tests.support.recalibrator_events import feedback, routed
from tests.support.recalibrator_processes import RecalibratorProcess, create_all_topics, write_recalibrator_config
from tests.support.waiting import eventually
from ucci_stream.local.kafka_node import LocalBroker, pick_port

pytestmark = pytest.mark.broker


class Stack:
    """A join with its fit, and an API alone, each a process with a state of its own."""

    def __init__(self, bootstrap: str, prefix: str, directory: Path) -> None:
        self.bootstrap, self.prefix = bootstrap, prefix
        self.port = pick_port()
        self.processes = []
        for name, stages in (("joiner", ("join", "fit")), ("replica", ("api",))):
            path = directory / f"{name}.toml"
            options = {"http_port": self.port, "label_requests_max": 3}
            self.config = write_recalibrator_config(path, bootstrap, prefix, directory / name, **options)
            log = directory / f"{name}.log"
            self.processes.append(RecalibratorProcess(path, name, log, stages=stages, forked=True))

    def start(self) -> None:
        for process in self.processes:
            process.start()

    async def send(self, topic: str, events: Sequence[RoutedEvent | FeedbackEvent]) -> None:
        records = [(one.query_id, one.to_json()) for one in events]
        await asyncio.to_thread(produce, self.bootstrap, f"{self.prefix}.{topic}", records)

    async def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Ask the replica until its answer is as wanted; until there is a broker, each path answers 503."""
        url = f"http://127.0.0.1:{self.port}/v1/label-requests/photo"
        return await eventually(lambda: document(url), lambda found: found and holds(found))


@pytest.fixture
def stack(broker: LocalBroker, topic_prefix: str, tmp_path: Path) -> Iterator[Stack]:
    create_all_topics(broker.bootstrap, topic_prefix)
    made = Stack(broker.bootstrap, topic_prefix, tmp_path)
    yield made
    for process in made.processes:
        process.close()


def ids(document: dict[str, Any]) -> list[str]:
    return [request["query_id"] for request in document["requests"]]


async def test_replica_and_command_list_requests_until_labelled(stack: Stack) -> None:
    """The newest of them: the oldest beyond the bound leave the topic."""
    now = datetime.now(UTC)
    results = [routed(number, routed_at=now.replace(microsecond=number)) for number in range(8)]
    # Age goes by the broker's clock: what is acknowledged before the rest is sent is older.
    for part in (results[:5], results[5:]):
        await stack.send("results", part)
    stack.start()

    def is_open() -> dict[str, bool]:
        found = read_all(stack.bootstrap, f"{stack.prefix}.label-requests")
        return {key_of(message): message.value() is not None for message in found}

    last = await eventually(is_open, lambda found: len(found) == len(results) and sum(found.values()) <= 3)
    assert {key for key, open_ in last.items() if open_} == {"q-5", "q-6", "q-7"}
    first = await stack.until(lambda document: ids(document) == ["q-7", "q-6", "q-5"])
    assert first["requests"][0]["text"] == "query 7"
    assert first["requests"][0]["entities"] == json.loads(results[7].to_json())["entities"]

    label = feedback(6, labelled_at=now)
    await stack.send("feedback", [label])
    await stack.until(lambda document: ids(document) == ["q-7", "q-5"])

    await stack.send("feedback", [label.model_copy(update={"revision": 2, "retracted": True})])
    again = await stack.until(lambda document: document["open"] == 3)
    assert again["requests"] == first["requests"]
    budgeted = await stack.until(lambda document: document["budget"]["requested"] == len(results))

    listed = said(await invoke("label-queue", "--config", stack.config, "--json"))
    assert listed["requests"] == budgeted["requests"]
    assert listed["budget"]["requested"] == len(results)
