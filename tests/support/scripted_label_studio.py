"""As much of Label Studio's HTTP API as ours calls, over plain dictionaries, with its faults on demand.

What it answers was taken from version 1.23.2; `make test-label-studio` holds the same code against the real server.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

LEGACY_TOKEN = "legacy"
PERSONAL_TOKEN = "header.payload.signature"


class ScriptedLabelStudio:
    """Projects, webhooks, tasks and annotations; time passes by a second with each change."""

    def __init__(self) -> None:
        self.url = ""
        self.projects: dict[int, dict[str, Any]] = {}
        self.webhooks: dict[int, dict[str, Any]] = {}
        self.tasks: dict[int, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.access_tokens = 0
        self.allows_legacy = True
        self.listed: list[int] = []
        self.answer: tuple[int, str] | None = None
        self._made = 0
        # Well within the join's memory of a day, however slowly the test begins.
        self._start = datetime.now(UTC) - timedelta(hours=12)
        self._seconds = 0

    def now(self) -> str:
        self._seconds += 1
        return (self._start + timedelta(seconds=self._seconds)).isoformat()

    def make(self) -> int:
        self._made += 1
        return self._made

    def annotate(self, task: int, author: int, value: str | None) -> int:
        areas = [{"from_name": "camera", "type": "textarea", "value": {"text": [value]}}] if value else []
        number = self.make()
        content = {"id": number, "completed_by": author, "result": areas, "was_cancelled": value is None}
        content |= {"project": self.tasks[task]["project"], "updated_at": self.now()}
        self.tasks[task]["annotations"].append(content)
        self.tasks[task]["updated_at"] = self.now()
        return number

    def delete(self, annotation: int) -> None:
        for task in self.tasks.values():
            left = [one for one in task["annotations"] if one["id"] != annotation]
            if left != task["annotations"]:
                task |= {"annotations": left, "updated_at": self.now()}

    def expire_access(self) -> None:
        self.access_tokens += 1

    @web.middleware
    async def guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        if self.answer is not None:
            return web.Response(status=self.answer[0], text=self.answer[1])
        if request.path != "/api/token/refresh/" and not self._is_known(request.headers.get("Authorization", "")):
            return web.json_response({"detail": "Invalid token."}, status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    def _is_known(self, authorization: str) -> bool:
        legacy = self.allows_legacy and authorization == f"Token {LEGACY_TOKEN}"
        return legacy or authorization == f"Bearer access-{self.access_tokens}"

    async def refresh(self, request: web.Request) -> web.Response:
        if (await request.json())["refresh"] != PERSONAL_TOKEN:
            return web.json_response({"detail": "Token is invalid"}, status=401)
        return web.json_response({"access": f"access-{self.access_tokens}"})

    async def list_projects(self, request: web.Request) -> web.Response:
        found = [one for one in self.projects.values() if request.query["title"] in one["title"]]
        return web.json_response({"count": len(found), "results": found})

    async def create(self, request: web.Request) -> web.Response:
        content = {"id": self.make(), **await request.json()}
        (self.projects if "projects" in request.path else self.webhooks)[content["id"]] = content
        return web.json_response(content, status=201)

    async def project(self, request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        if number not in self.projects:
            return web.json_response({"detail": "No Project matches the given query."}, status=404)
        if request.method == "PATCH":
            self.projects[number].update(await request.json())
        return web.json_response(self.projects[number])

    async def list_webhooks(self, request: web.Request) -> web.Response:
        number = int(request.query["project"])
        return web.json_response([one for one in self.webhooks.values() if one["project"] == number])

    async def change_webhook(self, request: web.Request) -> web.Response:
        hook = self.webhooks[int(request.match_info["number"])]
        hook.update(await request.json())
        return web.json_response(hook)

    async def list_tasks(self, request: web.Request) -> web.Response:
        least_id, changed_after = 0, datetime.min.replace(tzinfo=UTC)
        for condition in json.loads(request.query["query"])["filters"]["items"]:
            if condition["filter"] == "filter:tasks:id":
                least_id = condition["value"]
            else:
                # As strict as the real one, which answers any other form with 500.
                changed_after = datetime.strptime(condition["value"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
        project, size = int(request.query["project"]), int(request.query["page_size"])
        new = [task for number, task in sorted(self.tasks.items()) if task["project"] == project and number > least_id]
        found = [task for task in new if datetime.fromisoformat(task["updated_at"]) > changed_after][:size]
        self.listed.append(len(found))
        return web.json_response({"tasks": found, "total": len(found)})

    async def create_tasks(self, request: web.Request) -> web.Response:
        tasks = await request.json()
        for task in tasks:
            number, moment = self.make(), self.now()
            empty = {"annotations": [], "drafts": [], "created_at": moment, "updated_at": moment}
            self.tasks[number] = {"id": number, "project": int(request.match_info["number"]), **empty, **task}
        return web.json_response({"task_count": len(tasks)}, status=201)

    async def act(self, request: web.Request) -> web.Response:
        assert request.query["id"] == "delete_tasks"
        chosen = (await request.json())["selectedItems"]["included"]
        for number in chosen:
            self.tasks.pop(number, None)
        return web.json_response({"processed_items": len(chosen)})

    async def annotation(self, request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        known = {one["id"]: one for task in self.tasks.values() for one in task["annotations"]}
        missing = {"detail": "No Annotation matches the given query."}
        return web.json_response(known.get(number, missing), status=200 if number in known else 404)


@asynccontextmanager
async def scripted_label_studio() -> AsyncIterator[ScriptedLabelStudio]:
    studio = ScriptedLabelStudio()
    app = web.Application(middlewares=[studio.guard])
    app.add_routes(
        [
            web.post("/api/token/refresh/", studio.refresh),
            web.get("/api/projects/", studio.list_projects),
            web.post("/api/projects/", studio.create),
            web.route("*", "/api/projects/{number}/", studio.project),
            web.post("/api/projects/{number}/import", studio.create_tasks),
            web.get("/api/webhooks/", studio.list_webhooks),
            web.post("/api/webhooks/", studio.create),
            web.patch("/api/webhooks/{number}/", studio.change_webhook),
            web.get("/api/tasks", studio.list_tasks),
            web.post("/api/dm/actions", studio.act),
            web.get("/api/annotations/{number}/", studio.annotation),
        ]
    )
    async with TestServer(app) as server:
        studio.url = str(server.make_url("")).rstrip("/")
        yield studio
