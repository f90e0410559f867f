"""The application: routes put together, and every failure in the one shape of errors."""

from __future__ import annotations

from importlib.metadata import version

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from recalibrator.api.answers import error_body, json_answer, refusal
from recalibrator.api.context import Context
from recalibrator.api.routes_commands import CommandRoutes
from recalibrator.api.routes_feedback import FeedbackRoutes, unavailable
from recalibrator.api.routes_labels import LabelRoutes
from recalibrator.api.routes_page import PageRoutes
from recalibrator.api.routes_status import StatusRoutes
from recalibrator.errors import Refused
from runtime.errors import BrokerUnreachable

_log = structlog.get_logger()
_UNAVAILABLE, _UNPROCESSABLE, _INTERNAL = 503, 422, 500


def create_app(context: Context) -> FastAPI:
    """Return the ASGI application."""
    # The interactive pages of the framework load scripts from another host.
    app = FastAPI(title="recalibrator", version=version("ucci-stream"), docs_url=None, redoc_url=None)
    commands = CommandRoutes(context)
    labels = LabelRoutes(context)
    for routes in (StatusRoutes(context), labels, FeedbackRoutes(context), commands, PageRoutes(context, commands)):
        app.include_router(routes.router)
    _add_probes(app, context)
    _add_handlers(app)

    @app.middleware("http")
    async def count_requests(request: Request, call_next):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        answer = await call_next(request)
        route = getattr(request.scope.get("route"), "path", "none")
        context.metrics.count("http_requests", route=route, status=str(answer.status_code))
        return answer

    return app


def _add_probes(app: FastAPI, context: Context) -> None:
    @app.get("/healthz", tags=["probes"])
    async def healthz() -> Response:
        """Tell that the process answers; the broker is never asked."""
        return json_answer({"status": "alive"})

    @app.get("/readyz", tags=["probes"], responses={503: {"description": "Not ready; names what is missing"}})
    async def readyz() -> Response:
        """Tell whether every stage has caught up."""
        missing = context.missing()
        if missing:
            return json_answer({"status": "not ready", "missing": missing}, _UNAVAILABLE)
        return json_answer({"status": "ready"})

    @app.get("/metrics", tags=["probes"])
    async def metrics() -> Response:
        """Return the metrics in Prometheus' text format."""
        return Response(generate_latest(context.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _add_handlers(app: FastAPI) -> None:
    @app.exception_handler(Refused)
    async def on_refused(_request: Request, error: Refused) -> Response:
        return refusal(error)

    @app.exception_handler(BrokerUnreachable)
    async def on_broker_away(_request: Request, error: BrokerUnreachable) -> Response:
        return refusal(unavailable(error))

    @app.exception_handler(HTTPException)
    async def on_http_error(_request: Request, error: HTTPException) -> Response:
        code = str(error.detail).lower().replace(" ", "_")
        return json_answer(error_body(code, str(error.detail)), error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"][1:]) or None
        return json_answer(error_body("invalid_field", f"{name}: {first['msg']}", name), _UNPROCESSABLE)

    @app.exception_handler(Exception)
    async def on_failure(request: Request, error: Exception) -> Response:
        _log.error("request failed", path=request.url.path, exc_info=error)
        return json_answer(error_body("internal", "this is a fault of the service; it is in its log"), _INTERNAL)
