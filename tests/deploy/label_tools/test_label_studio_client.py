"""The client: both kinds of token, whole listings, and one clear line for whatever goes wrong."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from recalibrator.labelling.label_tool import Interrupted, LabelToolFailed
from tests.support.scripted_label_studio import LEGACY_TOKEN, PERSONAL_TOKEN, ScriptedLabelStudio
from ucci_stream.label_tools.label_studio_client import PAGE_SIZE, LabelStudio


async def test_a_personal_token_is_exchanged_again_after_it_expired(server: ScriptedLabelStudio) -> None:
    """A personal token buys access and buys it again when it has run out."""
    server.allows_legacy = False
    studio = LabelStudio(server.url, PERSONAL_TOKEN)
    await studio.projects("x")
    await studio.projects("x")
    server.expire_access()
    assert await studio.projects("x") == []
    assert server.requests.count("POST /api/token/refresh/") == 2


@pytest.mark.parametrize("token", ["wrong", LEGACY_TOKEN, "a.b.c"])
async def test_a_refused_token_is_one_line_that_says_what_to_check(server: ScriptedLabelStudio, token: str) -> None:
    server.allows_legacy = False
    with pytest.raises(LabelToolFailed, match=r"401.*check --token"):
        await LabelStudio(server.url, token).projects("x")


async def test_a_listing_is_whole_however_many_tasks_there_are(
    server: ScriptedLabelStudio, studio: LabelStudio
) -> None:
    project = int((await studio.call("POST", "/api/projects/", {"title": "x"}))["id"])
    tasks = [{"data": {"query_id": f"q-{n}"}} for n in range(2 * PAGE_SIZE + 1)]
    assert (await studio.call("POST", f"/api/projects/{project}/import", tasks))["task_count"] == len(tasks)
    listed = [task["id"] async for task in studio.tasks(project)]
    assert listed == sorted(server.tasks)
    changed_at = datetime.fromisoformat(server.tasks[listed[-2]]["updated_at"])
    assert [task["id"] async for task in studio.tasks(project, changed_at)] == listed[-1:]


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (400, '{"validation_errors": {"title": ["too short"]}}', r"400: .*too short"),
        (500, "<html>\n  oops\n</html>", r"500: <html> oops </html>"),
        (200, "<html>", r"is no JSON; check --url"),
    ],
)
async def test_an_answer_that_is_none_is_one_line(
    server: ScriptedLabelStudio, studio: LabelStudio, status: int, text: str, said: str
) -> None:
    server.answer = (status, text)
    with pytest.raises(LabelToolFailed, match=said) as caught:
        await studio.call("GET", "/api/projects/1/")
    assert "\n" not in str(caught.value)


async def test_nothing_more_is_asked_once_the_command_is_to_end(server: ScriptedLabelStudio) -> None:
    closing = asyncio.Event()
    studio = LabelStudio(server.url, LEGACY_TOKEN, closing)
    await studio.projects("x")
    closing.set()
    with pytest.raises(Interrupted):
        await studio.projects("x")
    assert len(server.requests) == 1
