"""What every route works with: settings, keys, read model, label queue, producer, counters, time; and pages' forms."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.requests import Request

from recalibrator.api.http_requests import invalid_field, read_body, require_type
from recalibrator.api.keys import Keys, Scope
from recalibrator.api.read_model.dead_letter_log import DeadLetterLog
from recalibrator.api.read_model.status_documents import StatusDocuments
from recalibrator.api.read_model.topic_cache import TopicCache
from recalibrator.labelling.queue import LabelQueue, QueuePage
from recalibrator.prometheus_metrics import Metrics
from schemas.label_requested import RequestReason
from schemas.settings import Settings
from ucci_runtime.broker.contact import Health
from ucci_runtime.broker.ports import Publisher, TopicReader
from ucci_runtime.clock import Clock
from ucci_runtime.refusals import RequestRefused, require_same_site

_MOST_FIELDS = 1_000
# The drawings carry their colours in style attributes.
_SOURCES = "default-src 'none'; img-src data:; style-src 'self' 'unsafe-inline'; script-src 'self'; connect-src 'self'"
#: Of every page that people see.
PAGE_HEADERS = {
    "Content-Security-Policy": f"{_SOURCES}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Shared:
    """What the stage shares with the other stages of its process."""

    metrics: Metrics
    clock: Clock
    #: Returns what is not ready, one word each.
    missing: Callable[[], list[str]]
    #: Returns whether the process and the broker talk.
    health: Callable[[], Health] = Health


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(Shared):
    """The parts behind the routes."""

    settings: Settings
    keys: Keys
    cache: TopicCache
    letters: DeadLetterLog
    documents: StatusDocuments
    queue: LabelQueue
    producer: Publisher
    #: Returns a new reader of the latest results, for one thread to read and close.
    results: Callable[[], TopicReader]

    def authorise(self, request: Request, scope: Scope, workload: str | None = None) -> str:
        """Return the name of a caller who may ask. Raises RequestRefused: 401 or 403, 404 for an unknown workload."""
        caller = self.keys.authorise(request.headers, scope, only_reads=request.method in ("GET", "HEAD"))
        if workload is not None:
            self.require_workload(workload)
        return caller

    def page(self, workload: str, limit: int, reason: RequestReason | None, cursor: str | None) -> QueuePage:
        """Return open label requests. Raises RequestRefused: 422 for a cursor that is none."""
        try:
            return self.queue.page(workload, self.clock.now(), limit, reason=reason, cursor=cursor)
        except ValueError as error:
            raise invalid_field("cursor", str(error)) from None

    def require_workload(self, workload: str) -> None:
        """Refuse a workload that is not configured. Raises RequestRefused: 404."""
        if workload not in self.settings.workloads:
            known = ", ".join(sorted(self.settings.workloads))
            message = f"workload {workload[:60]!r} is not configured here (configured: {known})"
            raise RequestRefused(404, "unknown_workload", message, "workload")


async def read_form(request: Request, limit: int) -> dict[str, str]:
    """Return what a person has filled in; of a name that is given twice, the first value.

    Raises RequestRefused: 403 from another site, 415 for another media type, 413 when it is too long, 400 for too many
    fields.
    """
    require_same_site(request.headers)
    require_type(request, ("application/x-www-form-urlencoded",))
    body = await read_body(request, limit)
    try:
        pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise RequestRefused(400, "malformed_form", f"a form has at most {_MOST_FIELDS} fields") from None
    # Of a name that is given twice the first value counts.
    return dict(reversed(pairs))


def form_credentials(request: Request, key: str) -> dict[str, str]:
    """Return the request's headers with the key from the form in place of what the browser sent by itself."""
    headers = {name: value for name, value in request.headers.items() if name not in {"authorization", "x-api-key"}}
    if key:
        headers["authorization"] = "Basic " + base64.b64encode(b":" + key.encode()).decode()
    return headers
