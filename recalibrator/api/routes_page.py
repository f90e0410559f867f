"""The page for operators, and the forms behind it: they work without scripts, and never on another site's behalf."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from importlib.resources import files
from typing import Annotated, get_args
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from recalibrator.api.http_answers import tagged
from recalibrator.api.http_context import PAGE_HEADERS, Context, form_credentials, read_form
from recalibrator.api.http_requests import invalid_field, moment_in_query, version_number
from recalibrator.api.pages.html_page import ACTIONS, UNTIL_REFIT, Page
from recalibrator.api.routes_commands import CommandRoutes, Order, checked_labeler, checked_reason, checked_share
from schemas.command import Action
from schemas.event import MAX_NAME_CHARS
from ucci_runtime.refusals import RequestRefused

_MAX_FORM_BYTES = 10_000
_FILES = {"page.css": "text/css", "page.js": "text/javascript", "label.js": "text/javascript"}


Word = Annotated[str, Query(max_length=20)]
Name = Annotated[str, Query(max_length=MAX_NAME_CHARS)]


class PageRoutes:
    """The routes that people see."""

    def __init__(self, context: Context, commands: CommandRoutes) -> None:
        self._context = context
        self._commands = commands
        self._page = Page(context.settings, context.cache, context.letters, context.documents, context.queue)
        self.router = APIRouter(include_in_schema=False)
        self.router.add_api_route("/", self.overview, methods=["GET"])
        self.router.add_api_route("/workloads/{workload:segment}", self.workload, methods=["GET"])
        self.router.add_api_route("/workloads/{workload:segment}/versions", self.versions, methods=["GET"])
        for name, media_type in _FILES.items():
            content = (files("recalibrator.api.pages") / "static" / name).read_bytes()
            self.router.add_api_route(f"/{name}", _serving(content, media_type), methods=["GET"])
        self.router.add_api_route("/confirm", self.confirm, methods=["GET"])
        self.router.add_api_route("/confirm", self.act, methods=["POST"])

    async def overview(self, request: Request) -> Response:
        """Return the page of all workloads."""
        self._context.authorise(request, "read")
        return await self._html(self._page.overview, self._context.clock.now())

    async def workload(self, request: Request, workload: str, asked: Word = "", version: Word = "") -> Response:
        """Return the page of one workload, with a note of what was just asked for."""
        self._context.authorise(request, "read", workload)
        requested, number = asked if asked in ACTIONS else "", version_number(version) if version else None
        return await self._html(self._page.workload, workload, self._context.clock.now(), requested, number)

    async def versions(self, request: Request, workload: str) -> Response:
        """Return the page of all versions of a workload."""
        self._context.authorise(request, "read", workload)
        return await self._html(self._page.versions, workload, self._context.clock.now())

    async def _html(self, make: Callable[..., str], *arguments: object) -> Response:
        # It takes tens of milliseconds; other requests do not wait for it.
        return HTMLResponse(await asyncio.to_thread(make, *arguments), headers=PAGE_HEADERS)

    async def confirm(
        self, request: Request, workload: Name, action: Word, version: Word = "", labeler: Name = ""
    ) -> Response:
        """Ask a person to confirm a command."""
        self._context.authorise(request, "read")
        return self._form({"workload": workload, "action": action, "version": version, "labeler": labeler})

    async def act(self, request: Request) -> Response:
        """Do what a person has confirmed."""
        form = await read_form(request, _MAX_FORM_BYTES)
        workload, version = form.get("workload", ""), form.get("version", "")
        try:
            action = _action(form.get("action", ""))
            caller = self._context.keys.authorise(form_credentials(request, form.get("key", "")), "admin")
            number = version_number(version) if version else None
            share = checked_share(form.get("share", "")) if action == "canary" else None
            until = moment_in_query("until", form["until"]) if action == "large_only" and form.get("until") else None
            hold = form.get("hold") != UNTIL_REFIT if action == "activate" else None
            reason, labeler = checked_reason(form.get("reason", "")), checked_labeler(action, form.get("labeler", ""))
            await self._commands.issue(workload, Order(action, number, share, hold, until, labeler), caller, reason)
        except RequestRefused as error:
            return self._form(form, str(error), error.status)
        query = urlencode({"asked": action} | ({} if number is None else {"version": number}))
        return RedirectResponse(f"/workloads/{quote(workload, safe='')}?{query}", 303)

    def _form(self, given: Mapping[str, str], problem: str = "", status: int = 200) -> Response:
        workload, version = given.get("workload", ""), given.get("version", "")
        self._context.require_workload(workload)
        markup = self._page.confirmation(
            workload,
            action := _action(given.get("action", "")),
            version_number(version) if version else None,
            self._context.clock.now(),
            needs_key=bool(self._context.settings.recalibrator.api_keys),
            problem=problem,
            labeler=checked_labeler(action, given.get("labeler", "")),
        )
        return HTMLResponse(markup, status, headers=PAGE_HEADERS)


def _serving(content: bytes, media_type: str) -> Callable[[Request], Coroutine[None, None, Response]]:
    async def serve(request: Request) -> Response:
        # Open: a browser asks for it without the page's credentials, and it reveals nothing.
        return tagged(request, content, media_type)

    return serve


def _action(given: str) -> Action:
    if given not in get_args(Action) or given == "bootstrap":
        raise invalid_field("action", f"{given[:60]!r} is not an action")
    return given  # type: ignore[return-value]  # just checked against the literals
