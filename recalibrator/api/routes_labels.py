"""What to label next, so that any labeling tool can be attached; the answers come back as feedback."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from recalibrator.api.http_answers import documented, tagged
from recalibrator.api.http_context import Context
from recalibrator.api.read_model.status_documents import unseen
from recalibrator.errors import Refused
from recalibrator.labelling.budget import label_budget
from recalibrator.labelling.queue import queue_document
from schemas.event import MAX_ID_CHARS
from schemas.label_requested import RequestReason

DEFAULT_LIMIT, MAX_LIMIT = 50, 500

_UNPROCESSABLE = 422
_MAX_CURSOR_CHARS = MAX_ID_CHARS + 20


class LabelRoutes:
    """The routes for labelers.

    Parameters
    ----------
    context : Context
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.router = APIRouter(tags=["labels"])
        self.router.add_api_route(
            "/v1/label-requests/{workload}",
            self.requests,
            methods=["GET"],
            responses=documented(401, 403, 404, 422),
        )

    async def requests(
        self,
        request: Request,
        workload: str,
        limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
        reason: RequestReason | None = None,
        cursor: Annotated[str | None, Query(max_length=_MAX_CURSOR_CHARS)] = None,
    ) -> Response:
        """Return what to label next, newest first, and the label budget; ``cursor`` is ``next`` of the page before.

        Requests of the reason ``audit`` are for trusted labelers alone; ``audits`` says who they are.
        """
        context = self._context
        context.authorise(request, "read")
        context.require_workload(workload)
        try:
            page = context.queue.page(workload, context.clock.now(), limit, reason=reason, cursor=cursor)
        except ValueError as error:
            raise Refused(_UNPROCESSABLE, "invalid_field", f"cursor: {error}", "cursor") from None
        configured = context.settings.workloads[workload]
        budget = label_budget(context.view.status(workload) or unseen(configured))
        return tagged(request, to_json(queue_document(page, budget, configured.trusted_labelers)))
