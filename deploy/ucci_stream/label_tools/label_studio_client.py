"""A client for as much of Label Studio's HTTP API as is needed here; every failure is one clear line.

Its own client library brings an image and a data-frame library with it; a dozen calls need neither.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import aiohttp

from recalibrator.labelling.label_tool import Interrupted, LabelToolFailed
from ucci_runtime.http_proxy import proxy_use
from ucci_stream.options import address_of

PAGE_SIZE = 200
# The server picks by these names from tasks and from the annotations within them alike.
_TASK_FIELDS = "id,data,annotations,drafts,created_at,updated_at,project,result,was_cancelled,completed_by"
_TIMEOUT = aiohttp.ClientTimeout(total=120.0, connect=10.0)
_UNAUTHORISED, _NOT_FOUND, _FAILED = 401, 404, 400
_DETAIL_CHARS = 300
#: The only one that the server's filters take; any other is answered with 500.
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"
_JWT_DOTS = 2


class LabelStudio:
    """One Label Studio server. Raises ConfigError when the address is none."""

    def __init__(self, url: str, token: str, closing: asyncio.Event | None = None) -> None:
        self._url = address_of("--url", url, "http://127.0.0.1:8080")
        self._token = token.strip()
        self._closing = closing
        # A personal access token buys short-lived access tokens; a legacy token is sent as it is.
        self._is_personal = self._token.count(".") == _JWT_DOTS
        self._authorization = "" if self._is_personal else f"Token {self._token}"

    async def projects(self, title: str) -> list[dict[str, Any]]:
        """Return the projects whose title holds this one."""
        found = await self.call("GET", f"/api/projects/?page_size=1000&title={quote(title)}")
        return list(found["results"])

    async def tasks(self, project: int, changed_after: datetime | None = None) -> AsyncIterator[dict[str, Any]]:
        """Yield a project's tasks with their annotations and drafts, in order of id.

        ``changed_after``: only tasks whose ``updated_at`` is above this; making, changing or deleting an annotation
        changes its task.
        """
        last = 0
        while True:
            conditions = [_condition("id", "Number", last)]
            if changed_after is not None:
                moment = changed_after.astimezone(UTC).strftime(_TIME_FORMAT)
                conditions.append(_condition("updated_at", "Datetime", moment))
            # By id above the last one rather than by page: tasks deleted meanwhile would shift the pages.
            query = {"filters": {"conjunction": "and", "items": conditions}, "ordering": ["tasks:id"]}
            path = f"/api/tasks?project={project}&fields=all&page=1&page_size={PAGE_SIZE}&include={_TASK_FIELDS}"
            page = (await self.call("GET", f"{path}&query={quote(json.dumps(query))}"))["tasks"]
            for task in page:
                yield task
            if len(page) < PAGE_SIZE:
                return
            last = page[-1]["id"]

    async def call(self, method: str, path: str, content: Any = None, *, may_miss: bool = False) -> Any:
        """Return the answer, None for nothing, or for 404 if it ``may_miss``. Raises LabelToolFailed or Interrupted."""
        if self._closing is not None and self._closing.is_set():
            raise Interrupted("ended")
        if not self._authorization:
            await self._refresh()
        status, text = await self._send(method, path, content, {"Authorization": self._authorization})
        if status == _UNAUTHORISED and self._is_personal:
            await self._refresh()
            status, text = await self._send(method, path, content, {"Authorization": self._authorization})
        if status == _NOT_FOUND and may_miss:
            return None
        if status >= _FAILED:
            raise LabelToolFailed(_refused(method, path, status, text))
        return _document(method, path, text) if text else None

    async def _refresh(self) -> None:
        """Buy an access token; it is good for some minutes."""
        path = "/api/token/refresh/"
        status, text = await self._send("POST", path, {"refresh": self._token}, {})
        if status >= _FAILED:
            raise LabelToolFailed(_refused("POST", path, status, text))
        self._authorization = f"Bearer {_document('POST', path, text)['access']}"

    async def _send(self, method: str, path: str, content: Any, headers: Mapping[str, str]) -> tuple[int, str]:
        use = proxy_use(self._url)
        sent = {"json": content, "headers": {**headers, **use.headers}, "timeout": _TIMEOUT, **use.options}
        asked = aiohttp.request(method, self._url + path, **sent)
        return await answered(asked, f"Label Studio at {self._url}")


async def answered(asked: AbstractAsyncContextManager[aiohttp.ClientResponse], whom: str) -> tuple[int, str]:
    """Return the status and the text of an answer. Raises LabelToolFailed, naming who was asked, when none came."""
    try:
        async with asked as answer:
            return answer.status, await answer.text()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise LabelToolFailed(f"no answer from {whom} ({str(error) or type(error).__name__}); check --url") from None


def _condition(field: str, kind: str, value: object) -> dict[str, Any]:
    return {"filter": f"filter:tasks:{field}", "operator": "greater", "type": kind, "value": value}


def _document(method: str, path: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise LabelToolFailed(f"{method} {_short(path)}: Label Studio's answer is no JSON; check --url") from None


def _refused(method: str, path: str, status: int, text: str) -> str:
    try:
        found = json.loads(text)
        detail = json.dumps(found.get("validation_errors") or found.get("detail") or found)
    except (ValueError, AttributeError):
        detail = " ".join(text.split())
    remedy = ""
    if status == _UNAUTHORISED:
        remedy = "; check --token: legacy tokens work only where the organisation allows them, personal ones everywhere"
    return f"Label Studio refused {method} {_short(path)} with {status}: {detail[:_DETAIL_CHARS]}{remedy}"


def _short(path: str) -> str:
    return path.partition("?")[0]
