"""Rounds on a real broker: tasks follow the requests, feedback follows the annotations, nothing twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from recalibrator.labelling.label_studio import SOURCE
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from schemas.settings import Settings
from tests.support.broker import add_partitions, produce, read_all
from tests.support.checkout import ROOT, command
from tests.support.recalibrator_events import routed
from tests.support.recalibrator_processes import create_all_topics, recalibrator_settings, write_recalibrator_config
from tests.support.routers import value_of
from tests.support.scripted_label_studio import LEGACY_TOKEN, ScriptedLabelStudio
from ucci_stream.label_tools.label_studio_client import LabelStudio
from ucci_stream.label_tools.label_studio_project import LabelStudioProject, set_up
from ucci_stream.label_tools.sync import Synchroniser, SyncOptions, SyncTopics
from ucci_stream.local.kafka_node import LocalBroker

pytestmark = pytest.mark.broker


class Site:
    """A project, the topics, and what keeps them in step."""

    def __init__(self, settings: Settings, server: ScriptedLabelStudio, studio: LabelStudio, project: int) -> None:
        self.settings, self.server, self.studio, self.project = settings, server, studio, project
        self.bootstrap, self.prefix = str(settings.kafka["bootstrap.servers"]), settings.topics.prefix
        self.passed = timedelta()
        self.topics = SyncTopics(settings, "photo", SOURCE, str(project))
        self.keeper = Synchroniser(
            LabelStudioProject(studio, project, settings.workloads["photo"].fields, prefill=True),
            self.topics,
            SyncOptions(most=10, grace_s=0.0),
            join_retention_s=1e9,
            now=lambda: datetime.now(UTC) + self.passed,
        )

    def ask(self, *numbers: int) -> None:
        now = datetime.now(UTC)
        results = (routed(number, routed_at=now.replace(microsecond=number)) for number in numbers)
        records = [(one.query_id, LabelRequested.from_result(one).to_json()) for one in results]
        produce(self.bootstrap, f"{self.prefix}.label-requests", records)

    def end(self, *numbers: int) -> None:
        produce(self.bootstrap, f"{self.prefix}.label-requests", [(f"q-{number}", None) for number in numbers])

    def tasks(self) -> dict[str, int]:
        return {task["data"]["query_id"]: number for number, task in self.server.tasks.items()}

    def sent(self) -> list[FeedbackEvent]:
        found = read_all(self.bootstrap, f"{self.prefix}.feedback")
        return [FeedbackEvent.from_json(value_of(message)) for message in found]


@pytest.fixture
def settings(broker: LocalBroker, topic_prefix: str) -> Settings:
    create_all_topics(broker.bootstrap, topic_prefix)
    return recalibrator_settings(broker.bootstrap, topic_prefix)


@pytest.fixture
async def site(settings: Settings, server: ScriptedLabelStudio, studio: LabelStudio) -> AsyncIterator[Site]:
    made = Site(settings, server, studio, (await set_up(studio, settings.workloads["photo"])).project)
    yield made
    made.topics.close()


async def test_requests_become_tasks_once_and_leave_when_closed(site: Site) -> None:
    site.ask(*range(12))
    first = await site.keeper.round()
    assert (first.pushed, first.waiting) == (10, 10)
    assert set(site.tasks()) == {f"q-{number}" for number in range(2, 12)}
    again = await site.keeper.round()
    assert (again.pushed, again.removed, again.waiting) == (0, 0, 10)
    site.end(11, 10)
    later = await site.keeper.round()
    assert (later.pushed, later.removed) == (2, 2)
    assert set(site.tasks()) == {f"q-{number}" for number in range(10)}


async def test_annotations_are_sent_once_corrected_skipped_withdrawn(site: Site) -> None:
    site.ask(0, 1, 2)
    await site.keeper.round()
    tasks = site.tasks()
    first = site.server.annotate(tasks["q-0"], 1, "canon")
    site.server.annotate(tasks["q-1"], 1, None)
    done = await site.keeper.round()
    assert (done.new, done.skipped, done.waiting) == (1, 1, 1)
    assert [event.entities for event in site.sent() if event.query_id == "q-0"] == [{"camera": "canon"}]

    site.server.annotate(tasks["q-0"], 1, "nikon")
    assert (await site.keeper.round()).revised == 1
    site.server.delete(first)
    assert (await site.keeper.round()).retracted == 0
    site.server.tasks[tasks["q-0"]]["annotations"].clear()
    site.server.tasks[tasks["q-0"]]["updated_at"] = site.server.now()
    assert (await site.keeper.round()).retracted == 1
    quiet = await site.keeper.round()
    assert not any((quiet.new, quiet.revised, quiet.skipped, quiet.retracted))
    other = Site(site.settings, site.server, site.studio, site.project)
    assert (await other.keeper.round()).new == 0, "what another process sent"
    other.topics.close()
    assert len(site.sent()) == 4


async def test_a_later_round_lists_changes_and_at_times_everything(site: Site) -> None:
    """An annotation that says nothing clear is named in each until it is corrected."""
    site.ask(*range(8))
    await site.keeper.round()
    unclear = site.server.tasks[site.tasks()["q-4"]]
    for query_id in ("q-3", "q-4"):
        site.server.annotate(site.tasks()[query_id], 1, "canon")
    unclear["annotations"][0]["result"] = [{"value": {"labels": ["camera"]}}]
    for task in site.server.tasks.values():
        # Long before everything else: a listing of changes leaves these out.
        if task["data"]["query_id"] not in {"q-3", "q-4"}:
            task["updated_at"] = "2020-01-01T00:00:00+00:00"
    first = await site.keeper.round()
    assert (first.new, len(first.faults)) == (1, 1)
    site.server.listed.clear()
    assert len((await site.keeper.round()).faults) == 1
    assert sum(site.server.listed) == 2
    site.passed = timedelta(hours=1)
    site.server.listed.clear()
    unclear["annotations"][0]["result"] = []
    mended = await site.keeper.round()
    assert (mended.new, mended.faults) == (1, ())
    assert sum(site.server.listed) == 8


async def test_labels_are_sent_once_after_partitions_were_added(site: Site) -> None:
    """What lies in an added partition is known as sent, and withdrawn when its annotation goes."""
    site.ask(*range(8))
    await site.keeper.round()
    add_partitions(site.bootstrap, {f"{site.prefix}.feedback": 12})
    found = [site.server.annotate(site.tasks()[f"q-{number}"], 1, "canon") for number in range(8)]
    assert (await site.keeper.round()).new == 8
    added = [
        message for message in read_all(site.bootstrap, f"{site.prefix}.feedback") if (message.partition() or 0) > 1
    ]
    assert added, "no label lies in an added partition: nothing is shown"
    again = await site.keeper.round()
    assert (again.new, again.revised, again.retracted) == (0, 0, 0)
    assert len(site.sent()) == len(found)


async def test_rounds_outlast_an_outage_and_exit_0_on_sigterm(site: Site, tmp_path: Path) -> None:
    site.ask(0)
    config = str(write_recalibrator_config(tmp_path / "ucci.toml", site.bootstrap, site.prefix, tmp_path))
    argv = command("label-studio", "sync", "--every", "1", "--json", "--config", config, "--url", site.server.url)
    argv += ["--token", LEGACY_TOKEN]
    running = await asyncio.create_subprocess_exec(
        *argv, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert running.stdout is not None
    assert running.stderr is not None
    try:
        async with asyncio.timeout(60.0):
            assert json.loads(await running.stdout.readline())["pushed"] == 1
            site.server.answer = (503, "restarting")
            said = await running.stderr.readline()
            assert b"503: restarting" in said
            assert said.endswith(b"trying again\n")
            site.server.annotate(site.tasks()["q-0"], 1, "canon")
            site.server.answer = None
            while not json.loads(await running.stdout.readline())["new"]:
                continue
            running.terminate()
            assert await running.wait() == 0
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    assert len(site.sent()) == 1
