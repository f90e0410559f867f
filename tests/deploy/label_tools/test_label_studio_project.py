"""Setting up: made once, brought up to date, and never over what people have changed unless asked to."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalibrator.labelling.label_studio import LabelStudioReader
from recalibrator.labelling.label_tool import LabelToolFailed
from schemas.errors import ConfigError
from schemas.label_requested import LabelRequested
from schemas.settings import Settings, WorkloadSettings
from tests.support.recalibrator_events import FIELDS, routed
from tests.support.scripted_label_studio import ScriptedLabelStudio
from ucci_stream.label_tools.label_studio_client import LabelStudio
from ucci_stream.label_tools.label_studio_project import (
    LabelStudioProject,
    SetUp,
    hook_address,
    hook_headers,
    labeling_config,
    project_title,
    require_project,
    set_up,
    task_of,
)

PHOTO = WorkloadSettings.model_validate({"name": "photo", "fields": FIELDS, "target": {"micro_f1": 0.9}})
OWN = labeling_config(FIELDS).replace('size="6"', 'size="4"')
HOOK = ("http://127.0.0.1:8080/v1/hooks/label-studio", {"X-Api-Key": "k"})


async def test_it_is_made_once_and_repeated_changes_nothing(server: ScriptedLabelStudio, studio: LabelStudio) -> None:
    first = await set_up(studio, PHOTO, hook=HOOK)
    assert first == SetUp(1, "ucci-stream: photo", created=True, config="generated", webhook="created")
    before = (repr(server.projects), repr(server.webhooks))
    again = await set_up(studio, PHOTO, hook=HOOK)
    assert again == SetUp(1, "ucci-stream: photo", created=False, config="generated", webhook="unchanged")
    assert (repr(server.projects), repr(server.webhooks)) == before
    assert server.projects[1]["label_config"] == labeling_config(FIELDS)
    (hook,) = server.webhooks.values()
    assert (hook["headers"], hook["send_payload"]) == ({"X-Api-Key": "k"}, True)
    assert hook["actions"] == ["ANNOTATIONS_DELETED", "ANNOTATION_CREATED", "ANNOTATION_UPDATED"]
    assert await require_project(studio, "photo", None) == 1


async def test_a_changed_configuration_is_kept_unless_replaced(
    server: ScriptedLabelStudio, studio: LabelStudio
) -> None:
    await set_up(studio, PHOTO)
    server.projects[1]["label_config"] = OWN
    assert (await set_up(studio, PHOTO)).config == "kept"
    assert server.projects[1]["label_config"] == OWN
    assert (await set_up(studio, PHOTO, replace_config=True)).config == "replaced"
    assert server.projects[1]["label_config"] == labeling_config(FIELDS)


async def test_a_kept_configuration_must_give_each_field(server: ScriptedLabelStudio, studio: LabelStudio) -> None:
    """A line for each fault, before anything is changed; replaced, it fits."""
    controls = '<Pairwise name="camera" toName="t"/><Labels name="l" toName="t"><Label value="Lens"/></Labels>'
    mine = {"title": "mine", "label_config": f"<View>{controls}</View>"}
    number = (await studio.call("POST", "/api/projects/", mine))["id"]
    with pytest.raises(ConfigError) as refused:
        await set_up(studio, PHOTO, project=number, hook=HOOK)
    assert refused.value.exit_code == 2
    assert [fault.split(" cannot ")[0].split(" is ")[0] for fault in refused.value.faults] == [
        f"project {number}: camera: <Pairwise> 'camera'",
        f"project {number}: lens: <Labels> <Label> 'Lens'",
    ]
    assert not server.webhooks
    assert (await set_up(studio, PHOTO, project=number, replace_config=True)).config == "replaced"


async def test_a_listing_is_read_by_the_configuration_of_now(server: ScriptedLabelStudio, studio: LabelStudio) -> None:
    """While a field has no control, no annotation counts; once it has one, they all do, a comment's emptiness too."""
    await set_up(studio, PHOTO)
    listing = LabelStudioProject(studio, 1, FIELDS, prefill=True)
    await listing.add([LabelRequested.from_result(routed(1))])
    (task,) = server.tasks
    assert {one["from_name"] for one in server.tasks[task]["predictions"][0]["result"]} == set(FIELDS)
    server.annotate(task, 3, "canon")
    server.tasks[task]["annotations"][0]["result"][0]["from_name"] = "comment"
    for config, faults, entities in (
        (labeling_config(FIELDS[:1]), 1, []),
        (labeling_config((*FIELDS, "comment")), 0, [dict.fromkeys(FIELDS) | {"comment": "canon"}]),
    ):
        server.projects[1]["label_config"] = config
        (read,) = [listing.reader.task(document) async for document in listing.tasks(None)]
        assert len(read.faults) == faults, read.faults
        assert [one.event.entities for one in read.annotations] == entities


async def test_served_answers_stand_in_text_areas_alone(server: ScriptedLabelStudio, studio: LabelStudio) -> None:
    """Another control would keep the text beside what annotators give by it."""
    controls = '<Choices name="camera" toName="t"/><TextArea name="lens" toName="t"/><TextArea name="own" toName="t"/>'
    mine = {"title": "mine", "label_config": f'<View><Text name="t" value="$text"/>{controls}</View>'}
    number = (await studio.call("POST", "/api/projects/", mine))["id"]
    listing = LabelStudioProject(studio, number, FIELDS, prefill=True)
    assert [document async for document in listing.tasks(None)] == []
    await listing.add([LabelRequested.from_result(routed(1))])
    (task,) = server.tasks.values()
    ((filled_in,),) = ([(one["from_name"], one["to_name"])] for one in task["predictions"][0]["result"])
    assert filled_in == ("lens", "t")


async def test_a_new_key_or_a_hook_that_was_switched_off_is_mended(
    server: ScriptedLabelStudio, studio: LabelStudio
) -> None:
    await set_up(studio, PHOTO, hook=HOOK)
    (hook,) = server.webhooks.values()
    hook["is_active"] = False
    assert (await set_up(studio, PHOTO, hook=(HOOK[0], {"X-Api-Key": "new"}))).webhook == "changed"
    assert (hook["is_active"], hook["headers"], len(server.webhooks)) == (True, {"X-Api-Key": "new"}, 1)


async def test_an_existing_project_can_be_used(server: ScriptedLabelStudio, studio: LabelStudio) -> None:
    mine = await studio.call("POST", "/api/projects/", {"title": "mine", "label_config": OWN})
    done = await set_up(studio, PHOTO, project=mine["id"], hook=HOOK)
    assert (done.title, done.config, len(server.projects)) == ("mine", "kept", 1)
    assert await require_project(studio, "photo", mine["id"]) == mine["id"]
    with pytest.raises(LabelToolFailed, match="404"):
        await set_up(studio, PHOTO, project=99)


async def test_a_title_that_only_begins_alike_is_another_project(studio: LabelStudio) -> None:
    await studio.call("POST", "/api/projects/", {"title": "ucci-stream: photo two"})
    with pytest.raises(LabelToolFailed, match="label-studio setup"):
        await require_project(studio, "photo", None)
    assert (await set_up(studio, PHOTO)).created


def test_long_names_have_titles_that_fit_and_differ() -> None:
    titles = {project_title("w" * 60 + str(number)) for number in range(3)}
    assert len(titles) == 3
    assert all(len(title) <= 50 for title in titles)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("http://r:8080", "http://r:8080/v1/hooks/label-studio"),
        ("http://r/behind/proxy", "http://r/behind/proxy"),
        ("r:8080", None),
        ("ftp://r", None),
    ],
)
def test_the_hooks_address_needs_no_path_but_a_host(given: str, meant: str | None) -> None:
    if meant is not None:
        assert hook_address(given) == meant
    else:
        with pytest.raises(ConfigError, match="--hook-url"):
            hook_address(given)


def test_setup_refuses_a_key_without_the_right_to_relay() -> None:
    """A key whose labels the hook would all refuse is refused by setup with the remedy."""
    studio, named, clerk, weak = "studio-key-012345", "named-key-0123456", "clerk-key-0123456", "weak-key-01234567"
    keys = {
        "studio": {"key": studio, "scopes": ["relay"]},
        # Bound to annotators by name, a key needs no relay.
        "named": {"key": named, "scopes": ["feedback"], "labelers": ["ada", "label-studio:3"]},
        "clerk": {"key": clerk, "scopes": ["feedback"]},
        "reader": {"key": weak},
    }
    guarded = Settings.model_validate({"recalibrator": {"api_keys": keys}})
    assert [hook_headers(guarded, key) for key in (studio, named)] == [{"X-Api-Key": studio}, {"X-Api-Key": named}]
    remedy = r"label-studio:.*scope relay.*recalibrator\.api_keys\.clerk\.scopes"
    refused = {None: "is not empty", "unknown-key-01234": "not known", weak: "lacks the scope feedback", clerk: remedy}
    for key, said in refused.items():
        with pytest.raises(ConfigError, match=f"--hook-key.*{said}") as caught:
            hook_headers(guarded, key)
        assert key is None or key not in str(caught.value)
    assert hook_headers(Settings(), None) == {}


names = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cn"], exclude_characters="￾￿"), min_size=1)


@given(st.lists(names | st.just("query"), min_size=1, max_size=5, unique=True))
def test_every_field_has_one_area_and_the_text_its_own_name(fields: list[str]) -> None:
    view = ET.fromstring(labeling_config(fields))
    areas = view.findall("TextArea")
    assert [area.get("name") for area in areas] == fields
    (text,) = view.findall("Text")
    assert text.get("name") not in fields
    assert {area.get("toName") for area in areas} == {text.get("name")}
    assert not any((header.get("value") or "").startswith("$") for header in view.findall("Header"))


def test_an_unchanged_prefilled_task_labels_what_was_served() -> None:
    served = {"camera": ("canon", "nikon"), "lens": "50 mm", "iso": None}
    request = LabelRequested.from_result(routed(1, entities=served))
    task = task_of(request, dict.fromkeys((*FIELDS, "iso"), "query"))
    (prediction,) = task["predictions"]
    submitted = {"id": 1, "project": 1, "updated_at": "2026-01-01T00:00:00Z", "completed_by": 1}
    submitted["result"] = prediction["result"]
    event = LabelStudioReader().feedback({"action": "ANNOTATION_CREATED", "annotation": submitted, "task": task})
    assert event is not None
    assert event.query_id == request.query_id
    assert event.entities == {"camera": ("canon", "nikon"), "lens": "50 mm"}


def test_a_blind_task_shows_nothing_of_the_answer() -> None:
    task = task_of(LabelRequested.from_result(routed(1)), {})
    assert task.keys() == {"data"}
    assert task["data"].keys() == {"query_id", "text", "reason", "requested_at"}
