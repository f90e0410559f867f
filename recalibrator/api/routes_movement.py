"""What moved between the results before and after a time, over HTTP: compared again from the end of their topic."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from threading import Lock
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from recalibrator.api.http_answers import UNCHANGED, documented, tagged
from recalibrator.api.http_context import PAGE_HEADERS, Context
from recalibrator.api.http_requests import invalid_field, moment_in_query
from recalibrator.api.pages.html_environment import environment
from schemas.event import from_ms, rfc3339
from ucci_runtime.broker.errors import BrokerError, BrokerUnreachable
from ucci_runtime.broker.records import Input, Record
from ucci_runtime.refusals import RequestRefused

#: Results of all workloads that a question reads: the latest, as many of each partition.
MOST_READ = 20_000

#: Results that are compared on either side; the default of ``ucci-stream what-moved``.
MOST_COMPARED = 2_000

_READ_S, _POLL_S, _RETRY_S = 30.0, 0.1, 5


class MovementRoutes:
    """The route that says what moved."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._comparing = Lock()
        self._template = environment().get_template("what_moved.html")
        self.router = APIRouter(tags=["status"])
        path, answers = "/workloads/{workload:segment}/what-moved", documented(401, 403, 404, 409, 422, 429, 503)
        self.router.add_api_route(path, self.page, methods=["GET"], include_in_schema=False)
        self.router.add_api_route(f"/v1{path}", self.what_moved, methods=["GET"], responses=UNCHANGED | answers)

    async def page(self, request: Request, workload: str, since: Annotated[str, Query(max_length=64)]) -> Response:
        """Show the same to people; the page's button leads here, with the time of the alarm."""
        self._context.authorise(request, "read", workload)
        try:
            found, status = await self._asked(workload, since, None), 200
        except RequestRefused as refusal:
            said, status = [str(refusal)], refusal.status
        else:
            from recalibrator.movement import lines

            said = lines(found)
        around = {"now": self._context.clock.now(), "workloads": self._context.cache.workloads}
        content = self._template.render(around, workload=workload, since=since, lines=said)
        return HTMLResponse(content, status, headers=PAGE_HEADERS)

    async def what_moved(
        self,
        request: Request,
        workload: str,
        since: Annotated[str, Query(max_length=64)],
        until: Annotated[str | None, Query(max_length=64)] = None,
    ) -> Response:
        """Return what differs between the results from a time on and those before, the likely cause first.

        ``until`` is now at the latest, and by default; as long a span before is compared, as far as that is read.
        """
        self._context.authorise(request, "read", workload)
        return tagged(request, to_json(await self._asked(workload, since, until)))

    async def _asked(self, workload: str, since: str, until: str | None) -> dict[str, Any]:
        now = self._context.clock.now()
        start = max(moment_in_query("since", since), from_ms(0))
        end = now if until is None else max(min(moment_in_query("until", until), now), from_ms(0))
        if start >= end:
            message = f"must lie before {rfc3339(end)}, until when results are compared (got {since[:60]!r})"
            raise invalid_field("since", message)
        return await asyncio.to_thread(self._compared, workload, start, end)

    def _compared(self, workload: str, since: datetime, until: datetime) -> dict[str, Any]:
        """Return the document; blocks some seconds, in a thread of its own."""
        if not self._comparing.acquire(blocking=False):
            message = f"what moved is being compared for somebody else; try again in {_RETRY_S} s"
            raise RequestRefused(429, "busy", message, retry_after_s=_RETRY_S)
        try:
            return self._read_and_compared(workload, since, until)
        finally:
            self._comparing.release()

    def _read_and_compared(self, workload: str, since: datetime, until: datetime) -> dict[str, Any]:
        if find_spec("scipy") is None:
            message = 'what-moved needs scipy where the API runs: pip install "ucci-stream[what-moved]"'
            raise RequestRefused(409, "not_installed", message)
        from recalibrator.file_languages import language_identifier
        from recalibrator.movement import Sides, TooFewQueries

        sides, firsts = Sides(workload, since, until, MOST_COMPARED), dict[Input, Record]()
        for record in self._latest():
            firsts.setdefault(record.source, record)
            sides.offer(record)
        # A partition of which more came before is whole from its first record on only.
        cut_ms = max((first.timestamp_ms for first in firsts.values() if first.offset), default=0)
        whole = from_ms(cut_ms)
        if since < whole:
            message = (
                f"{rfc3339(since)} lies before {rfc3339(whole)}, where the latest {MOST_READ} results begin, which "
                "are all that is read; give a later time, or run `ucci-stream what-moved`"
            )
            raise invalid_field("since", message)
        language = language_identifier() if find_spec("py3langid") else None
        try:
            return sides.compared(max(sides.start, whole), language)
        except TooFewQueries as error:
            raise invalid_field("since", str(error), "too_few_results") from None

    def _latest(self) -> Iterator[Record]:
        """Yield the latest results of all workloads, up to the end of the topic. Raises BrokerUnreachable."""
        context, reader = self._context, self._context.results()
        deadline_s = context.clock.monotonic() + _READ_S
        try:
            while not reader.has_reached_ends:
                if context.clock.monotonic() > deadline_s or "closing" in context.missing():
                    raise BrokerUnreachable(f"the results were not read to their end within {_READ_S:g} s")
                yield from reader.poll(_POLL_S)
        except BrokerError as error:
            raise BrokerUnreachable(str(error)) from error
        finally:
            reader.close()
