"""``ucci-stream label-studio setup``: makes a workload's project and webhook on a Label Studio server, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from recalibrator.api.keys import Keys
from recalibrator.labelling.label_studio import SOURCE, LabelStudioReader
from recalibrator.labelling.label_studio_config import config_faults, text_areas
from recalibrator.labelling.label_tool import AnnotationKey, JsonDocument, LabelTool, LabelToolFailed, TaskId
from schemas.entities import Entities
from schemas.errors import ConfigError
from schemas.label_requested import LabelRequested
from schemas.settings import Settings, WorkloadSettings
from ucci_runtime.refusals import RequestRefused
from ucci_stream.label_tools.label_studio_client import LabelStudio
from ucci_stream.options import address_of

HOOK_PATH = "/v1/hooks/label-studio"
ACTIONS = ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_DELETED")
_KEY_HEADER = "X-Api-Key"
_MAX_TITLE_CHARS = 50
_MARK_CHARS = 8


class LabelStudioProject:
    """One project; a :class:`~recalibrator.labelling.label_tool.LabelTool`."""

    def __init__(self, studio: LabelStudio, number: int, fields: Sequence[str], *, prefill: bool) -> None:
        self._studio, self._number, self._fields, self._prefill = studio, number, fields, prefill
        self.reader, self.project = LabelStudioReader(number, (tuple(fields),)), str(number)

    async def tasks(self, changed_since: datetime | None) -> AsyncIterator[JsonDocument]:
        """Yield the tasks that have changed since a time; None: all of them."""
        # How annotations are to be read depends on the labeling configuration, which people may change at any time.
        project = await self._studio.call("GET", f"/api/projects/{self._number}/")
        self.reader = replace(self.reader, label_config=project.get("label_config"))
        async for task in self._studio.tasks(self._number, changed_since):
            yield task

    async def add(self, requests: Sequence[LabelRequested]) -> None:
        """Import a task for each request."""
        config = self.reader.label_config or labeling_config(self._fields)
        areas = {field: area for field, area in text_areas(config).items() if field in self._fields}
        tasks = [task_of(request, areas if self._prefill else {}) for request in requests]
        await self._studio.call("POST", f"/api/projects/{self._number}/import", tasks)

    async def remove(self, tasks: Sequence[TaskId]) -> None:
        """Delete tasks with all that belongs to them."""
        selected = {"selectedItems": {"all": False, "included": [int(task) for task in tasks]}}
        await self._studio.call("POST", f"/api/dm/actions?id=delete_tasks&project={self._number}", selected)

    async def has(self, annotation: AnnotationKey) -> bool:
        """Return whether an annotation still exists."""
        path = f"/api/annotations/{int(annotation.annotation)}/"
        return await self._studio.call("GET", path, may_miss=True) is not None


async def open_project(
    server: tuple[str, str], workload: WorkloadSettings, project: int | None, prefill: bool, closing: asyncio.Event
) -> LabelTool:
    """Return a workload's project on a server, whose address and token are given.

    ``project``: by default the one that setup made. ``prefill``: whether the served entities stand in the fields to
    begin with.
    """
    studio = LabelStudio(*server, closing)
    number = await require_project(studio, workload.name, project)
    return LabelStudioProject(studio, number, workload.fields, prefill=prefill)


@dataclass(frozen=True, slots=True)
class SetUp:
    """What :func:`set_up` found or did."""

    project: int
    title: str
    created: bool
    #: The labeling configuration: ``generated``, ``replaced``, or ``kept`` where it differs from the generated one.
    config: str
    #: ``created``, ``changed``, ``unchanged`` or ``none`` where no address was given.
    webhook: str


def project_title(workload: str) -> str:
    """Return the title of a workload's project; Label Studio takes 50 characters."""
    title = f"ucci-stream: {workload}"
    if len(title) <= _MAX_TITLE_CHARS:
        return title
    mark = sha256(workload.encode()).hexdigest()[:_MARK_CHARS]
    return f"{title[: _MAX_TITLE_CHARS - _MARK_CHARS - 1]}~{mark}"


def hook_headers(settings: Settings, key: str | None) -> dict[str, str]:
    """Return the headers by which the API knows Label Studio.

    Raises ConfigError when the API asks for a key, and this one, or every label that it brings, would be refused.
    """
    if not settings.recalibrator.api_keys:
        return {} if key is None else {_KEY_HEADER: key}
    if key is None:
        raise ConfigError(["--hook-key: recalibrator.api_keys is not empty; give the key that Label Studio is to send"])
    try:
        name = Keys(settings.recalibrator.api_keys).authorise({_KEY_HEADER.lower(): key}, "feedback")
    except RequestRefused as refused:
        raise ConfigError([f"--hook-key: {refused}"]) from None
    known = settings.recalibrator.api_keys[name]
    if "relay" in known.scopes or any(one.startswith(f"{SOURCE}:") for one in known.labelers or (name,)):
        return {_KEY_HEADER: key}
    fault = (
        f"--hook-key: the key {name} may not speak for annotators, whose labels come as {SOURCE}:NUMBER; "
        f"add the scope relay to recalibrator.api_keys.{name}.scopes, or give a key that has it"
    )
    raise ConfigError([fault])


def hook_address(given: str) -> str:
    """Return the full address of the webhook; without a path, that of the API is meant. Raises ConfigError."""
    address = address_of("--hook-url", given, f"http://recalibrator:8080{HOOK_PATH}")
    return given if urlsplit(given).path.strip("/") else address + HOOK_PATH


async def _find_project(studio: LabelStudio, title: str) -> int | None:
    """Return the number of the oldest project of this title, or None."""
    return min((found["id"] for found in await studio.projects(title) if found.get("title") == title), default=None)


async def require_project(studio: LabelStudio, workload: str, number: int | None) -> int:
    """Return the project of a workload. Raises LabelToolFailed when there is none."""
    if number is not None:
        return int((await studio.call("GET", f"/api/projects/{number}/"))["id"])
    title = project_title(workload)
    found = await _find_project(studio, title)
    if found is None:
        raise LabelToolFailed(f"no project is called {title!r}; run `ucci-stream label-studio setup` or give --project")
    return found


async def set_up(
    studio: LabelStudio,
    workload: WorkloadSettings,
    *,
    project: int | None = None,
    hook: tuple[str, Mapping[str, str]] | None = None,
    replace_config: bool = False,
) -> SetUp:
    """Make the project and the webhook, or bring them up to date; repeated, it changes nothing.

    ``project``: an existing one to use; by default that of the workload's title. ``hook``: address and headers.
    ``replace_config``: whether a labeling configuration that people may have changed is replaced. Raises
    LabelToolFailed, and ConfigError, before anything is changed, with a line for each field that the configuration
    which is kept does not ask for in a way that is read.
    """
    title, wanted = project_title(workload.name), labeling_config(workload.fields)
    number = project if project is not None else await _find_project(studio, title)
    config, created = "generated", number is None
    if number is None:
        content = {
            "title": title,
            "description": f"Label requests of the workload {workload.name}, kept by ucci-stream.",
            "label_config": wanted,
            "expert_instruction": INSTRUCTION,
            "show_instruction": True,
            # The version of the predictions that stand in the fields to begin with.
            "model_version": SERVED,
        }
        found = await studio.call("POST", "/api/projects/", content)
    else:
        found = await studio.call("GET", f"/api/projects/{number}/")
        if found.get("label_config") != wanted:
            config = "replaced" if replace_config else "kept"
            faults = () if replace_config else config_faults(str(found.get("label_config") or ""), workload.fields)
            if faults:
                raise ConfigError([f"project {number}: {fault}" for fault in faults])
            if replace_config:
                found = await studio.call("PATCH", f"/api/projects/{number}/", {"label_config": wanted})
    number = int(found["id"])
    outcome = "none" if hook is None else await _set_up_hook(studio, number, *hook)
    return SetUp(number, str(found["title"]), created, config, outcome)


async def _set_up_hook(studio: LabelStudio, project: int, url: str, headers: Mapping[str, str]) -> str:
    wanted: dict[str, Any] = {
        "url": url,
        "send_payload": True,
        "send_for_all_actions": False,
        "headers": dict(headers),
        "is_active": True,
        "actions": sorted(ACTIONS),
    }
    hooks = await studio.call("GET", f"/api/webhooks/?project={project}")
    same = [hook for hook in hooks if hook["url"] == url and hook["project"] == project]
    if not same:
        await studio.call("POST", "/api/webhooks/", {**wanted, "project": project})
        return "created"
    known = {**same[0], "actions": sorted(same[0]["actions"])}
    if all(known[key] == value for key, value in wanted.items()):
        return "unchanged"
    await studio.call("PATCH", f"/api/webhooks/{int(known['id'])}/", wanted)
    return "changed"


#: The version under which served answers stand as predictions.
SERVED = "served"

INSTRUCTION = (
    "<p>Give the right value of each field, as the text means it. The fields are filled in with the answer that was "
    "served: correct what is wrong, remove what is not there, and leave a field empty where the text says nothing of "
    "it. Press Enter after each value; a field may have several.</p>"
    "<p>Skip a task that you cannot decide. Somebody else may.</p>"
)
_TEXT_TAG = "query"


def labeling_config(fields: Sequence[str]) -> str:
    """Return the labeling configuration of a workload, XML; equal fields give equal text."""
    text_tag = _text_tag(fields)
    view = ET.Element("View")
    ET.SubElement(view, "Text", name=text_tag, value="$text")
    for field in fields:
        # A value that begins with a dollar sign would be looked up in the task.
        ET.SubElement(view, "Header", value=f" {field}" if field.startswith("$") else field, size="6")
        ET.SubElement(view, "TextArea", name=field, toName=text_tag, rows="1", editable="true", maxSubmissions="50")
    ET.indent(view)
    return ET.tostring(view, encoding="unicode")


def task_of(request: LabelRequested, areas: Mapping[str, str]) -> dict[str, Any]:
    """Return the task that asks for a label.

    ``areas``: text areas in which the served entities stand to begin with, each with the object that it belongs to.
    """
    data = {
        "query_id": request.query_id,
        "text": request.text,
        "reason": request.reason,
        "requested_at": request.model_dump(mode="json")["requested_at"],
    }
    if not areas:
        return {"data": data}
    return {"data": data, "predictions": [{"model_version": SERVED, "result": _filled_in(request.entities, areas)}]}


def _filled_in(entities: Entities, areas: Mapping[str, str]) -> list[dict[str, Any]]:
    regions = []
    for field, target in areas.items():
        value = entities.get(field)
        texts = [value] if isinstance(value, str) else list(value or ())
        if texts:
            regions.append({"from_name": field, "to_name": target, "type": "textarea", "value": {"text": texts}})
    return regions


def _text_tag(fields: Sequence[str]) -> str:
    """Return a name for the text that no field has."""
    name = _TEXT_TAG
    while name in fields:
        name += "_"
    return name
