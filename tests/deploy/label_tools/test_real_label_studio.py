"""Against the real server: labels made there are heard; what was missed comes with the next sync, once."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from schemas.feedback import FeedbackEvent
from tests.support.annotator import Annotator
from tests.support.broker import produce, read_all, unique_prefix
from tests.support.checkout import ROOT, command, plain_environment, run_command
from tests.support.label_studio_server import LabelStudioServer
from tests.support.probes import document
from tests.support.recalibrator_events import entities, feedback, routed
from tests.support.recalibrator_processes import RecalibratorProcess, create_all_topics, write_recalibrator_config
from tests.support.routers import value_of
from tests.support.waiting import eventually
from ucci_stream.local.kafka_node import LocalBroker, pick_port

pytestmark = [pytest.mark.label_studio, pytest.mark.broker]

DEADLINE_S = 90.0
HOOK_KEY = "hook-key-01234567"
READ_KEY = "read-key-01234567"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabelStudioServer]:
    with LabelStudioServer(tmp_path_factory.mktemp("label-studio")) as running:
        yield running


@dataclass
class Site:
    """A recalibrator with its API, and Label Studio beside it."""

    bootstrap: str
    prefix: str
    config: Path
    port: int
    server: LabelStudioServer
    recalibrator: RecalibratorProcess
    token: str

    @property
    def annotator(self) -> Annotator:
        return Annotator(self.server.url, self.server.account.token)

    async def sync(self) -> dict[str, Any]:
        return await asyncio.to_thread(self.studio, "sync")

    def studio(self, *words: str) -> dict[str, Any]:
        """Run a command of ``ucci-stream label-studio`` and return what it says."""
        done = run_command("label-studio", *words, *self.options, **self.environment)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    @property
    def options(self) -> tuple[object, ...]:
        return ("--config", self.config, "--json")

    @property
    def environment(self) -> dict[str, str]:
        return {"LABEL_STUDIO_URL": self.server.url, "LABEL_STUDIO_API_KEY": self.token}

    def setup(self) -> int:
        """Set the project up, webhook included; returns its number."""
        hook = ["--hook-url", f"http://127.0.0.1:{self.port}", "--hook-key", HOOK_KEY]
        return int(self.studio("setup", *hook)["project"])

    def route(self, count: int) -> None:
        """Have so many queries routed, each with its label requested."""
        start = datetime.now(UTC) - timedelta(minutes=10)
        results = [routed(number, routed_at=start + timedelta(seconds=number / 10)) for number in range(count)]
        produce(self.bootstrap, f"{self.prefix}.results", [(one.query_id, one.to_json()) for one in results])

    def label(self, numbers: range) -> None:
        """Have so many queries labelled, not by Label Studio."""
        now = datetime.now(UTC)
        labels = [feedback(number, labelled_at=now) for number in numbers]
        produce(self.bootstrap, f"{self.prefix}.feedback", [(one.query_id, one.to_json()) for one in labels])

    def sent(self) -> list[FeedbackEvent]:
        """What Label Studio's annotators have said, in the topic, in order of arrival."""
        messages = sorted(read_all(self.bootstrap, f"{self.prefix}.feedback"), key=lambda one: one.timestamp()[1])
        events = [FeedbackEvent.from_json(value_of(message)) for message in messages]
        return [event for event in events if event.source == "label-studio"]

    async def queue(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Ask for the label queue until it is as wanted; an API that has not reached the broker yet says 503."""
        url = f"http://127.0.0.1:{self.port}/v1/label-requests/photo?limit=500"
        return await eventually(lambda: document(url, {"X-Api-Key": READ_KEY}), lambda found: found and holds(found))

    async def until_sent(self, count: int) -> list[FeedbackEvent]:
        return await eventually(self.sent, lambda sent: len(sent) >= count)


@pytest.fixture
def site(broker: LocalBroker, server: LabelStudioServer, tmp_path: Path) -> Iterator[Site]:
    prefix, port = unique_prefix(), pick_port()
    create_all_topics(broker.bootstrap, prefix)
    config = write_recalibrator_config(tmp_path / "ucci.toml", broker.bootstrap, prefix, tmp_path / "state")
    keys = f"""http_port = {port}
api_keys = {{ studio = {{ key = "{HOOK_KEY}", scopes = ["relay"] }}, tool = {{ key = "{READ_KEY}" }} }}"""
    # The project is named after the workload: another prefix is another workload here.
    config.write_text(config.read_text().replace("http_port = 0", keys))
    process = RecalibratorProcess(config, "recalibrator", tmp_path / "recalibrator.log")
    process.stages = ("join", "fit", "api")
    made = Site(broker.bootstrap, prefix, config, port, server, process, server.account.token)
    yield made
    process.close()
    for project in _projects(made):
        Annotator(server.url, server.account.token)._call("DELETE", f"/api/projects/{project}/")


def _projects(site: Site) -> list[int]:
    return [one["id"] for one in site.annotator._call("GET", "/api/projects/?page_size=100")["results"]]


async def test_sync_fetches_fifty_missed_annotations_exactly_once(site: Site) -> None:
    """Fifty annotations made while nobody listened all come with sync and none twice; tasks show what was served."""
    project = site.setup()
    assert site.setup() == project
    assert len(site.annotator.webhooks(project)) == 1
    await asyncio.to_thread(site.route, 60)
    site.recalibrator.start()
    await site.queue(lambda document: document["open"] == 60)
    assert (await site.sync())["pushed"] == 60
    shown = site.annotator.next_task(project)
    (served,) = shown["predictions"]
    assert {one["from_name"]: one["value"]["text"] for one in served["result"]} == {
        field: [value] for field, value in routed(int(shown["data"]["query_id"][2:])).entities.items()
    }
    tasks = sorted(site.annotator.tasks(project).items())
    for query_id, task in tasks[:5]:
        site.annotator.annotate(task["id"], entities(query_id))
    seen = await site.until_sent(5)

    site.recalibrator.terminate()
    assert await site.recalibrator.exit_code() == 0
    for query_id, task in tasks[5:55]:
        site.annotator.annotate(task["id"], entities(query_id))
    assert await asyncio.to_thread(site.sent) == seen

    # One round after another, and one more process of them beside it, as an operator who is in a hurry.
    assert (await site.sync())["new"] == 50
    assert (await site.sync())["new"] == 0
    sent = await asyncio.to_thread(site.sent)
    assert Counter(event.query_id for event in sent) == {query_id: 1 for query_id, _ in tasks[:55]}
    assert all(event.entities == entities(event.query_id) for event in sent)

    site.recalibrator.start()
    left = await site.queue(lambda document: document["open"] == 5)
    assert {one["query_id"] for one in left["requests"]} == {query_id for query_id, _ in tasks[55:]}
    again = await site.sync()
    assert (again["pushed"], again["new"], again["waiting"]) == (0, 0, 5)


async def test_hook_or_sync_brings_corrections_skips_and_deletions(site: Site) -> None:
    project = site.setup()
    site.token = site.annotator.personal_token()
    await asyncio.to_thread(site.route, 5)
    site.recalibrator.start()
    await site.queue(lambda document: document["open"] == 5)
    assert (await site.sync())["pushed"] == 5
    tasks = site.annotator.tasks(project)
    numbers = {query: site.annotator.annotate(task["id"], entities(query, wrong=True)) for query, task in tasks.items()}
    await site.until_sent(5)

    # Heard: a correction, and a deletion that this process knows the query of.
    site.annotator.correct(numbers["q-0"], entities("q-0"))
    site.annotator.delete(numbers["q-1"])
    sent = await site.until_sent(7)
    assert {(event.query_id, event.retracted) for event in sent[5:]} == {("q-0", False), ("q-1", True)}
    await site.queue(lambda document: [one["query_id"] for one in document["requests"]] == ["q-1"])

    # Not seen: another correction, deletions, and a skip.
    site.recalibrator.terminate()
    assert await site.recalibrator.exit_code() == 0
    site.annotator.correct(numbers["q-2"], entities("q-2"))
    site.annotator.delete(numbers["q-3"])
    site.annotator.delete(numbers["q-4"])
    site.annotator.skip(tasks["q-4"]["id"])
    done = await site.sync()
    assert [done[key] for key in ("new", "revised", "skipped", "retracted")] == [0, 1, 1, 1]
    site.recalibrator.start()
    await site.queue(lambda document: {one["query_id"] for one in document["requests"]} == {"q-1", "q-3"})
    quiet = await site.sync()
    assert not any(quiet[key] for key in ("pushed", "removed", "new", "revised", "skipped", "retracted", "faults"))


async def test_rounds_repeat_until_sigterm_and_remove_closed_tasks(site: Site) -> None:
    project = site.setup()
    await asyncio.to_thread(site.route, 3)
    site.recalibrator.start()
    await site.queue(lambda document: document["open"] == 3)
    argv = command("label-studio", "sync", "--every", "1", "--grace", "0", *site.options)
    environment = plain_environment(site.environment)
    running = await asyncio.to_thread(
        subprocess.Popen, argv, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )
    output = running.stdout
    assert output is not None

    async def said() -> dict[str, Any]:
        return dict(json.loads(await asyncio.to_thread(output.readline)))

    try:
        async with asyncio.timeout(DEADLINE_S):
            assert (await said())["pushed"] == 3
            for _ in range(3):
                # The first listing is whole, those after it are of what has changed.
                assert (await said())["waiting"] == 3
            await asyncio.to_thread(site.label, range(1))
            while not (await said())["removed"]:
                continue
            site.annotator.annotate(site.annotator.tasks(project)["q-1"]["id"], entities("q-1"))
            while (await said())["waiting"] != 1:
                continue
        assert set(site.annotator.tasks(project)) == {"q-1", "q-2"}
        running.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(running.wait, 20.0) == 0
    finally:
        running.kill()
        running.wait()
        output.close()
