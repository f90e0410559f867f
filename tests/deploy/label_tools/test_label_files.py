"""A folder of files as a label tool: rounds over it end in exactly one feedback for each annotation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recalibrator.join.query_state import NOTHING_KNOWN, take_feedback
from recalibrator.labelling.label_lines import SOURCE
from recalibrator.labelling.label_tool import LabelToolFailed
from recalibrator.labelling.reconcile import Author, Sent, note_sent
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from tests.support.api import make_api
from tests.support.recalibrator_events import routed
from ucci_stream.label_tools.label_files import TASKS, LabelFolder, open_folder
from ucci_stream.label_tools.sync import Round, Synchroniser, SyncOptions

NOW = datetime(2026, 3, 1, tzinfo=UTC)
WORKLOAD = "photo"


class MemoryTopics:
    """The topics of one workload: requests that are open, and every feedback record as bytes."""

    def __init__(self) -> None:
        self.open: dict[str, LabelRequested] = {}
        self.records: list[bytes] = []

    def ask(self, *numbers: int) -> None:
        for number in numbers:
            request = LabelRequested.from_result(routed(number))
            self.open[request.query_id] = request

    def requests(self, now: datetime, most: int) -> Sequence[LabelRequested]:
        del now
        return tuple(self.open.values())[::-1][:most]

    def sent(self) -> Mapping[Author, Sent]:
        found: dict[Author, Sent] = {}
        for event in self.events():
            note_sent(found, event, SOURCE, WORKLOAD)
        return found

    def send(self, events: Sequence[FeedbackEvent]) -> None:
        self.records += [event.to_json() for event in events]
        for event in events:
            # As the join does: an answer ends the request.
            self.open.pop(event.query_id, None)

    def events(self) -> list[FeedbackEvent]:
        return [FeedbackEvent.from_json(record) for record in self.records]


class Site:
    """A folder, the topics, and rounds at times a minute apart; each round is a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.topics, self.minutes = folder, MemoryTopics(), 0

    async def round(self, most: int = 10) -> Round:
        self.minutes += 1
        tool = LabelFolder(self.folder, WORKLOAD, prefill=True, now=self.now)
        options = SyncOptions(most=most, grace_s=0.0)
        return await Synchroniser(tool, self.topics, options, join_retention_s=1e9, now=self.now).round()

    def now(self) -> datetime:
        return NOW + timedelta(minutes=self.minutes)

    def tasks(self) -> dict[str, dict[str, Any]]:
        listed = [json.loads(line) for line in (self.folder / TASKS).read_text().splitlines()]
        return {task["meta"]["query_id"]: task for task in listed if "meta" in task}

    def answer(self, query: int, file: str = "answers.jsonl", **content: Any) -> None:
        """Append an answer, as a tool does that was given the task."""
        spans = [{"start": 0, "end": 5, "label": "camera"}]
        base = {"text": f"query {query}", "spans": spans, "meta": {"query_id": f"q-{query}"}, "answer": "accept"}
        with (self.folder / file).open("a") as answers:
            answers.write(json.dumps(base | {"_annotator_id": "ada"} | content) + "\n")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_requests_become_lines_once_and_leave_when_they_are_over(site: Site) -> None:
    site.topics.ask(*range(12))
    first = await site.round()
    assert (first.pushed, first.waiting) == (10, 10)
    assert set(site.tasks()) == {f"q-{number}" for number in range(2, 12)}
    again = await site.round()
    assert (again.pushed, again.removed, again.waiting) == (0, 0, 10)
    for number in (10, 11):
        del site.topics.open[f"q-{number}"]
    later = await site.round()
    assert (later.pushed, later.removed) == (2, 2)
    assert set(site.tasks()) == {f"q-{number}" for number in range(10)}


async def test_each_annotation_is_one_feedback_with_its_revision(site: Site) -> None:
    site.topics.ask(0, 1, 2)
    await site.round()
    site.answer(0, _timestamp=1_772_323_200.123456)
    site.answer(1, answer="ignore")
    site.answer(0, _annotator_id="bob", file="answers-2.jsonl")
    done = await site.round()
    assert (done.new, done.skipped) == (2, 1)
    for _ in range(2):
        quiet = await site.round()
        assert not any((quiet.new, quiet.revised, quiet.skipped, quiet.retracted))
    # What is answered leaves the tasks; what is not stays.
    assert set(site.tasks()) == {"q-2"}

    site.answer(0, spans=[], _timestamp=1_772_323_201)
    assert (await site.round()).revised == 1
    site.answer(0, retracted=True, _timestamp=1_772_323_202)
    assert (await site.round()).retracted == 1
    assert (await site.round()).retracted == 0
    ada = [event for event in site.topics.events() if (event.query_id, event.labeler) == ("q-0", "ada")]
    assert [(one.revision, one.entities, one.retracted) for one in ada] == [
        (1, {"camera": "query"}, False),
        (2, {}, False),
        (3, None, True),
    ]
    assert len(site.topics.records) == 5
    assert len({event.identity() for event in site.topics.events()}) == 5


async def test_an_answer_that_was_edited_in_its_place_is_a_correction(site: Site) -> None:
    site.topics.ask(0)
    site.answer(0)
    await site.round()
    (site.folder / "answers.jsonl").unlink()
    site.answer(0, spans=[])
    assert (await site.round()).revised == 1
    assert (await site.round()).revised == 0
    site.answer(0, entities={"camera": "nikon"})
    assert (await site.round()).revised == 1
    assert (await site.round()).revised == 0
    assert [event.revision for event in site.topics.events()] == [1, 2, 3]
    assert site.topics.events()[-1].entities == {"camera": "nikon"}


async def test_archived_answers_withdraw_nothing(site: Site) -> None:
    site.topics.ask(0)
    await site.round()
    site.answer(0)
    await site.round()
    (site.folder / "answers.jsonl").rename(site.folder / "old.jsonl")
    done = await site.round()
    assert (done.retracted, len(site.topics.records)) == (0, 1)


async def test_a_request_that_opens_again_is_asked_again(site: Site) -> None:
    site.topics.ask(0)
    await site.round()
    site.answer(0)
    await site.round()
    await site.round()
    assert not site.tasks()
    site.answer(0, retracted=True)
    await site.round()
    site.topics.ask(0)
    assert (await site.round()).pushed == 1
    assert set(site.tasks()) == {"q-0"}


async def test_lines_that_people_wrote_stay_and_unclear_ones_are_named(site: Site) -> None:
    (site.folder / TASKS).write_text('{"text": "my own"}\nnot even JSON\n')
    (site.folder / "answers-bob.jsonl").write_text('{"meta": {"query_id": "q-0"}, "answer": "accept"}\n{"half')
    site.topics.ask(0)
    done = await site.round()
    assert len(done.faults) == 2
    assert done.faults[0].startswith("answers-bob.jsonl line 1: spans: is missing")
    assert (site.folder / TASKS).read_text().splitlines()[:2] == ['{"text": "my own"}', "not even JSON"]
    site.answer(0, file="answers-bob.jsonl")
    assert len((await site.round()).faults) == 2


async def test_labels_of_a_folder_stand_in_the_join_and_pass_the_api(site: Site) -> None:
    """The same events may be posted: both ways end in the same records, and in the label that was meant."""
    api = make_api(workloads=(WORKLOAD,))
    site.topics.ask(0)
    await site.round()
    site.answer(0)
    await site.round()
    site.answer(0, entities={"camera": "nikon"})
    await site.round()

    body = b"\n".join(site.topics.records)
    headers = {"content-type": "application/jsonl"}
    answers = [api.client.post("/v1/feedback:batch", content=body, headers=headers).status_code for _ in range(2)]

    assert answers == [202, 202]
    posted = [value for _, _, value in api.producer.records]
    assert posted == site.topics.records * 2
    state = NOTHING_KNOWN
    for record in posted:
        state = take_feedback(state, FeedbackEvent.from_json(record), NOW, {}).state
    assert state.standing is not None
    assert (state.standing.entities, state.standing.labeler) == ({"camera": "nikon"}, "ada")


async def test_a_missing_folder_is_named_and_may_come_later(tmp_path: Path) -> None:
    folder = tmp_path / "labels"
    with pytest.raises(LabelToolFailed, match=r"--folder: .* is not a folder; create it"):
        await open_folder(folder, WORKLOAD, prefill=True)
    folder.mkdir()
    assert (await open_folder(folder, WORKLOAD, prefill=True)).project == WORKLOAD
