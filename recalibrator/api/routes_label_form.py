"""A form to label with, for teams without a tool: few requests at a time, by keyboard alone, with or without scripts.

What is filled in becomes feedback as over ``POST /v1/feedback``: the same keys, labelers, quotas and acknowledgement.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Annotated, Any, Literal, NamedTuple, get_args
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query
from markupsafe import Markup
from pydantic import TypeAdapter
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from recalibrator.api.http_context import PAGE_HEADERS, Context, form_credentials, read_form
from recalibrator.api.http_requests import invalid_field
from recalibrator.api.pages.html_environment import environment
from recalibrator.api.routes_feedback import FeedbackRoutes, unavailable
from recalibrator.labelling.form import field_inputs, filled_in, not_in_text, shown_answers
from recalibrator.labelling.queue import cursor_after, most_telling_first
from schemas.entities import EntityValue
from schemas.event import MAX_ID_CHARS, MAX_NAME_CHARS
from schemas.feedback import Verdict, revision_at
from schemas.label_requested import LabelRequested, RequestReason
from ucci_runtime.broker.errors import BrokerUnreachable
from ucci_runtime.refusals import RequestRefused

#: What feedback from the form names as its source.
SOURCE = "page"

#: Bytes that a form spends on one byte of text at most.
_ENCODED = 3

#: Requests that a person is given at a time, the most telling of them first: so few that they are all answered, since
#: answers to the most telling ones alone would not be like all traffic.
FEW = 6
_MAX_CURSOR_CHARS = 40 + MAX_ID_CHARS
_MAX_BATCH_CHARS = FEW * (MAX_ID_CHARS + 40)

_IDS = TypeAdapter(list[str])
_ANSWER: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])

Id = Annotated[str, Query(max_length=MAX_ID_CHARS)]
Name = Annotated[str, Query(max_length=MAX_NAME_CHARS)]


class _Place(NamedTuple):
    """Where a person is in the queue: ``batch`` are the queries to be shown yet, ``cursor`` is of what follows them."""

    workload: str
    reason: RequestReason | None
    cursor: str
    batch: Sequence[str]
    labeler: str

    def parameters(self, done: str = "") -> dict[str, str]:
        """Return the address's parameters of this place, or of the one after ``done``."""
        left = [one for one in self.batch if one != done]
        batch = to_json(left).decode() if left else None
        given = {"reason": self.reason, "cursor": self.cursor, "batch": batch, "labeler": self.labeler}
        return {name: value for name, value in given.items() if value}


class _Batch(NamedTuple):
    """The requests at hand, of all that are open, and the place that shows them again."""

    open: int
    requests: Sequence[LabelRequested]
    here: _Place


class LabelFormRoutes:
    """The routes of the form."""

    def __init__(self, context: Context, feedback: FeedbackRoutes) -> None:
        self._context = context
        self._feedback = feedback
        self._template = environment().get_template("label.html")
        self._limit = context.settings.recalibrator.max_body_bytes * _ENCODED
        self.router = APIRouter(include_in_schema=False)
        path = "/workloads/{workload:segment}/label"
        self.router.add_api_route(path, self.show, methods=["GET"])
        self.router.add_api_route(path, self.take, methods=["POST"])

    async def show(
        self,
        request: Request,
        workload: str,
        reason: RequestReason | Literal[""] = "",
        cursor: Annotated[str, Query(max_length=_MAX_CURSOR_CHARS)] = "",
        labeler: Name = "",
        done: Id = "",
        said: Said | None = None,
    ) -> Response:
        """Return the form of the next open request, with a note of what was just said of another one."""
        caller, asked = self._context.authorise(request, "read", workload), request.query_params
        if not self._context.keys.grants(caller, "feedback"):
            caller = ""
        place = _Place(workload, reason or None, cursor, _ids(asked.get("batch", "")[:_MAX_BATCH_CHARS]), labeler)
        return await self._html(place, caller, done=done, said=said if done else None, unasked="unasked" in asked)

    async def take(self, request: Request, workload: str) -> Response:
        """Take what a person has filled in, and go on to the next request."""
        self._context.require_workload(workload)
        form = await read_form(request, self._limit)
        reason: Any = form.get("reason") if form.get("reason") in ("exploration", "monitoring", "audit") else None
        labeler = form.get("labeler", "")[:MAX_NAME_CHARS]
        place = _Place(workload, reason, form.get("cursor", ""), _ids(form.get("batch", "")), labeler)
        caller = ""
        try:
            headers = form_credentials(request, form["key"]) if form.get("key") else request.headers
            caller = self._context.keys.authorise(headers, "feedback")
            said = _said(form)
            self._require_meant(form, place, caller)
            unasked = said != "withdrawn" and self._context.queue.workload_of(form.get("query_id", "")) != workload
            event, _ = await self._feedback.take(to_json(self._event(form, workload, said)), caller)
        except (BrokerUnreachable, RequestRefused) as error:
            problem = unavailable(error) if isinstance(error, BrokerUnreachable) else error
            return await self._html(place, caller, problem=problem, form=form)
        kept = place.parameters("" if said == "withdrawn" else event.query_id)
        query = urlencode(kept | {"done": event.query_id, "said": said} | ({"unasked": "1"} if unasked else {}))
        return RedirectResponse(f"/workloads/{quote(workload, safe='')}/label?{query}", 303)

    def _require_meant(self, form: Mapping[str, str], place: _Place, caller: str) -> None:
        """Refuse what nobody has put a name to, and ask once whether what is not in the text is meant."""
        if not place.labeler and not self._context.keys.speaks_for(caller):
            message = "give your name, so that your labels can be compared with those of others"
            raise RequestRefused(422, "missing_field", message, "labeler")
        strange = "" if form.get("answer") or form.get("act", "label") != "label" else self._strange(form, place)
        if strange and strange != form.get("sure"):
            raise RequestRefused(422, "not_in_text", f"not in the text: {strange}. Save again if that is meant")

    def _strange(self, form: Mapping[str, str], place: _Place) -> str:
        """Return the values of a form that stand neither in the text nor in an answer to it, as one line."""
        request = next(iter(self._context.queue.waiting(place.workload, [form.get("query_id", "")])), None)
        if request is None:
            return ""
        typed = filled_in(form, self._context.settings.workloads[place.workload].fields)
        return ", ".join(not_in_text(typed, request.text, shown_answers(request)))

    def _event(self, form: dict[str, str], workload: str, said: Said) -> dict[str, object]:
        fields, now = self._context.settings.workloads[workload].fields, self._context.clock.now()
        return {
            "query_id": form.get("query_id", ""),
            "entities": _entities(form, fields) if said == "labelled" else None,
            "verdict": form["act"] if said == "judged" else None,
            "labeler": form.get("labeler") or None,
            "labelled_at": now,
            "source": SOURCE,
            # Each act outranks the one before, also of a process that has ended.
            "revision": revision_at(now),
            "retracted": said == "withdrawn",
        }

    async def _html(
        self,
        place: _Place,
        caller: str,
        *,
        done: str = "",
        said: Said | None = None,
        unasked: bool = False,
        problem: RequestRefused | None = None,
        form: dict[str, str] | None = None,
    ) -> Response:
        batch, settings = self._batch(place), self._context.settings.workloads[place.workload]
        first = next(iter(batch.requests), None)
        content = {
            "workload": place.workload,
            "batch": batch,
            "here": batch.here.parameters(),
            "following": batch.here.parameters("" if first is None else first.query_id),
            "fields": settings.fields,
            "reason": place.reason or "",
            "is_further_down": bool(place.cursor),
            "labeler": place.labeler,
            "labelers": self._context.keys.speaks_for(caller) if caller else None,
            "needs_key": not caller,
            "done": done,
            "said": said,
            "unasked": unasked,
            "problem": "" if problem is None else str(problem),
            "given": form or {},
            "sure": self._strange(form, place) if form else "",
            "help": settings.field_help,
            "trusted": settings.trusted_labelers,
            "now": self._context.clock.now(),
            "workloads": self._context.cache.workloads,
        }
        markup = await asyncio.to_thread(lambda: self._template.render(content, **_shown(content)))
        return HTMLResponse(markup, 200 if problem is None else problem.status, headers=PAGE_HEADERS)

    def _batch(self, place: _Place) -> _Batch:
        queue, page = self._context.queue, self._context.page(place.workload, FEW, place.reason, place.cursor or None)
        if waiting := queue.waiting(place.workload, place.batch):
            return _Batch(page.open, waiting, place)
        few = most_telling_first(page.requests)
        cursor = cursor_after(page.requests[-1]) if page.requests else place.cursor
        return _Batch(page.open, few, place._replace(cursor=cursor, batch=[one.query_id for one in few]))


def _ids(batch: str) -> list[str]:
    """Return the ids of a batch as addresses and forms write it. Raises RequestRefused."""
    try:
        return _IDS.validate_json(batch or "[]")
    except ValueError:
        raise invalid_field("batch", f"{batch[:60]!r} is no list of queries") from None


def _said(form: Mapping[str, str]) -> Said:
    if (act := form.get("act", "label")) not in DONE:
        raise invalid_field("act", f"{act[:60]!r} is none of {', '.join(DONE)}")
    return DONE[act]


def _entities(form: Mapping[str, str], fields: Sequence[str]) -> dict[str, EntityValue]:
    """Return what the form says; that a query names nothing is said by a button of its own, never by a slip."""
    if form.get("act") == NAMES_NONE:
        return dict.fromkeys(fields)
    if "answer" in form:
        # Accepted as it is, by its button.
        try:
            return _ANSWER.validate_json(form["answer"])
        except ValueError:
            raise invalid_field("answer", "is no answer of this form") from None
    entities = filled_in(form, fields)
    if not any(entities.values()):
        message = "every field is empty: fill one in, or, if the query names none of them, press Names none"
        raise RequestRefused(422, "empty_label", message)
    return entities


Said = Literal["labelled", "judged", "skipped", "withdrawn"]

NAMES_NONE = "none"
#: What each button of the form has done once it is pressed.
DONE: dict[str, Said] = {"label": "labelled", NAMES_NONE: "labelled", "skip": "skipped", "undo": "withdrawn"}
DONE |= dict.fromkeys(get_args(Verdict), "judged")


def _shown(content: Mapping[str, Any]) -> dict[str, object]:
    """Return what the page shows of the first of the open requests.

    ``content``: the ``batch`` at hand, the workload's ``fields``, and what was ``given`` in a form that was refused: it
    stays filled in as long as its request is still the first.
    """
    first: LabelRequested | None = next(iter(content["batch"].requests), None)
    if first is None:
        return {"first": None, "inputs": [], "answers": [], "text": None}
    answers = shown_answers(first)
    inputs = field_inputs(answers, content["fields"])
    given: Mapping[str, str] = content["given"]
    if given.get("query_id") == first.query_id:
        inputs = [one._replace(text=given.get(one.name, one.text)) for one in inputs]
    text = marked(first.text, (one for answer in answers for one in answer.values()))
    return {"first": first, "inputs": inputs, "answers": [to_json(one).decode() for one in answers], "text": text}


def marked(text: str, found: Iterable[str | Iterable[str] | None]) -> Markup:
    """Return a query's text with the values that were found in it marked.

    Examples
    --------
    >>> marked("canon & CANON at 50 mm", ["Canon", ("50 mm", "85 mm"), None])
    Markup('<mark>canon</mark> &amp; <mark>CANON</mark> at <mark>50 mm</mark>')
    """
    values = [value for one in found if one for value in ([one] if isinstance(one, str) else one) if value]
    any_of = "|".join(re.escape(value) for value in sorted(values, key=len, reverse=True))
    parts = re.split(f"({any_of})", text, flags=re.IGNORECASE) if values else [text]
    pieces = (f"<mark>{escape(part)}</mark>" if n % 2 else escape(part) for n, part in enumerate(parts))
    return Markup("".join(pieces))  # noqa: S704 escaped, piece by piece
