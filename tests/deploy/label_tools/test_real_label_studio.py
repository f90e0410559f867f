"""Against the real server: labels made there are heard; what was missed comes with the next sync, once."""

from __future__ import annotations

import asyncio
import json
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
    for project in made.annotator._call("GET", "/api/projects/?page_size=100")["results"]:
        made.annotator._call("DELETE", f"/api/projects/{project['id']}/")


async def test_hook_or_sync_brings_each_word_exactly_once(site: Site) -> None:
    """Annotations, corrections, skips and deletions: those that are heard, and those made while nobody listened."""
    project = site.setup()
    assert site.setup() == project
    assert len(site.annotator.webhooks(project)) == 1
    site.token = site.annotator.personal_token()
    await asyncio.to_thread(site.route, 60)
    site.recalibrator.start()
    await site.queue(lambda document: document["open"] == 60)
    assert (await site.sync())["pushed"] == 60
    shown = site.annotator.next_task(project)
    (served,) = shown["predictions"]
    assert {one["from_name"]: one["value"]["text"] for one in served["result"]} == {
        field: [value] for field, value in routed(int(shown["data"]["query_id"][2:])).entities.items()
    }
    tasks = site.annotator.tasks(project)

    # Heard: a correction, and a deletion that this process knows the query of.
    first = [f"q-{number}" for number in range(5)]
    numbers = {query: site.annotator.annotate(tasks[query]["id"], entities(query, wrong=True)) for query in first}
    await site.until_sent(5)
    site.annotator.correct(numbers["q-0"], entities("q-0"))
    site.annotator.delete(numbers["q-1"])
    heard = await site.until_sent(7)
    assert {(event.query_id, event.retracted) for event in heard[5:]} == {("q-0", False), ("q-1", True)}

    # Not seen: another correction, deletions, a skip, and fifty annotations.
    site.recalibrator.terminate()
    assert await site.recalibrator.exit_code() == 0
    site.annotator.correct(numbers["q-2"], entities("q-2"))
    site.annotator.delete(numbers["q-3"])
    site.annotator.delete(numbers["q-4"])
    site.annotator.skip(tasks["q-4"]["id"])
    missed = [f"q-{number}" for number in range(5, 55)]
    for query in missed:
        site.annotator.annotate(tasks[query]["id"], entities(query))
    assert await asyncio.to_thread(site.sent) == heard
    done = await site.sync()
    assert [done[key] for key in ("new", "revised", "skipped", "retracted")] == [50, 1, 1, 1]
    sent = await asyncio.to_thread(site.sent)
    assert Counter(event.query_id for event in sent if event.query_id in missed) == dict.fromkeys(missed, 1)
    assert all(event.entities == entities(event.query_id) for event in sent if event.query_id in missed)

    site.recalibrator.start()
    left = {"q-1", "q-3", *(f"q-{number}" for number in range(55, 60))}
    await site.queue(lambda document: {one["query_id"] for one in document["requests"]} == left)
    quiet = await site.sync()
    assert not any(quiet[key] for key in ("pushed", "removed", "new", "revised", "skipped", "retracted", "faults"))


async def test_rounds_repeat_and_remove_closed_tasks(site: Site) -> None:
    project = site.setup()
    await asyncio.to_thread(site.route, 3)
    site.recalibrator.start()
    await site.queue(lambda document: document["open"] == 3)
    argv = command("label-studio", "sync", "--every", "1", "--grace", "0", *site.options)
    environment = plain_environment(site.environment)
    running = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, env=environment, cwd=ROOT)
    output = running.stdout
    assert output is not None

    async def until(key: str, value: int) -> None:
        while json.loads(await output.readline())[key] != value:
            continue

    try:
        async with asyncio.timeout(DEADLINE_S):
            await until("pushed", 3)
            for _ in range(3):
                # The first listing is whole, those after it are of what has changed.
                await until("waiting", 3)
            await asyncio.to_thread(site.label, range(1))
            await until("removed", 1)
            site.annotator.annotate(site.annotator.tasks(project)["q-1"]["id"], entities("q-1"))
            await until("waiting", 1)
        assert set(site.annotator.tasks(project)) == {"q-1", "q-2"}
    finally:
        running.kill()
        await running.wait()


def _answer(tag: str, value: dict[str, Any], inner: str = "") -> tuple[str, list[dict[str, Any]]]:
    """Return a control named lens, and what an annotator gives by it."""
    region = {"id": "r9", "from_name": "lens", "to_name": "t", "type": tag.lower(), "value": value}
    return f'<{tag} name="lens" toName="t">{inner}</{tag}>', [region]


_CAMERA: dict[str, Any] = {
    "id": "r1",
    "from_name": "label",
    "to_name": "t",
    "type": "labels",
    "value": {"start": 0, "end": 5, "text": "query", "labels": ["camera"]},
}
_LENS = {**_CAMERA, "id": "r2", "value": {**_CAMERA["value"], "labels": ["camera", "lens"]}}
_ARROW = {"type": "relation", "from_id": "r1", "to_id": "r2", "direction": "right"}
_CHOICE = '<Choice value="50 mm"/>'
EACH_TYPE: dict[str, tuple[tuple[str, list[dict[str, Any]]], str]] = {
    "number": (_answer("Number", {"number": 50}), "50"),
    "rating": (_answer("Rating", {"rating": 4}), "4"),
    "choices": (_answer("Choices", {"choices": ["50 mm"]}, _CHOICE), "50 mm"),
    "taxonomy": (_answer("Taxonomy", {"taxonomy": [["50 mm"]]}, _CHOICE), "50 mm"),
    "datetime": (_answer("DateTime", {"datetime": "2026-01-31"}), "2026-01-31"),
    "textarea": (_answer("TextArea", {"text": ["50 mm"]}), "50 mm"),
    "relation": (("", [_LENS, _ARROW]), "query"),
}


def _config(control: str) -> str:
    labels = "".join(f'<Label value="{name}"/>' for name in ("camera", *(() if control else ("lens",))))
    span = f'<Labels name="label" toName="t" choice="multiple">{labels}</Labels>'
    return f'<View><Text name="t" value="$text"/>{span}{control}</View>'


async def test_annotations_of_each_type_are_read_or_refused(site: Site) -> None:
    """By the hook, as the server sends it; a configuration that cannot give a field is refused by setup."""
    await asyncio.to_thread(site.route, len(EACH_TYPE) + 1)
    site.recalibrator.start()
    await site.queue(lambda document: document["open"] == len(EACH_TYPE) + 1)
    hook = ["--hook-url", f"http://127.0.0.1:{site.port}", "--hook-key", HOOK_KEY]
    projects = {}
    for number, (kind, ((control, result), _)) in enumerate(EACH_TYPE.items()):
        data = {"query_id": f"q-{number}", "text": f"query {number}"}
        projects[kind] = project = site.annotator.make_project(kind, _config(control), data)
        assert site.studio("setup", "--project", str(project), *hook)["config"] == "kept"
        site.annotator.submit(site.annotator.tasks(project)[data["query_id"]]["id"], [_CAMERA, *result])
    sent = {event.query_id: event.entities for event in await site.until_sent(len(EACH_TYPE))}
    wanted = {f"q-{n}": {"camera": "query", "lens": value} for n, (_, value) in enumerate(EACH_TYPE.values())}
    assert {query: _first(entities) for query, entities in sent.items()} == wanted

    # Served answers stand in the fields of projects with controls of their own, or are left out: the rest is pushed.
    done = await asyncio.to_thread(site.studio, "sync", "--project", str(projects["number"]))
    assert (done["pushed"], done["faults"]) == (1, [])
    # A drawing gives its field no value: sync names it as a fault.
    task = site.annotator.tasks(projects["number"])[f"q-{len(EACH_TYPE)}"]["id"]
    site.annotator.submit(task, [{**_CAMERA, "type": "rectanglelabels", "value": {"rectanglelabels": ["lens"]}}])
    (fault,) = (await asyncio.to_thread(site.studio, "sync", "--project", str(projects["number"])))["faults"]
    assert "annotation.result.0: 'lens' (rectanglelabels)" in fault
    assert len(await asyncio.to_thread(site.sent)) == len(EACH_TYPE)

    kamera = _config('<TextArea name="lenses" toName="t"/>')
    project = site.annotator.make_project("misspelt", kamera)
    options = ("setup", "--project", str(project), *site.options)
    refused = await asyncio.to_thread(run_command, "label-studio", *options, **site.environment)
    assert refused.returncode == 2
    assert "lens: has no control" in refused.stderr


def _first(entities: Any) -> dict[str, str]:
    return {name: value if isinstance(value, str) else value[0] for name, value in (entities or {}).items()}
