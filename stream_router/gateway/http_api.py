"""The gateway's HTTP: OpenAI's paths over the cascade, and the probes, metrics and status of any router.

A caller gets 200 only after the broker has acknowledged the result. Nothing is answered that was not written; what was
written may not have been answered: the caller left, or the acknowledgement came too late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import uuid4

import structlog
from aiohttp import web
from pydantic_core import to_json

from schemas.routed import RoutedEvent
from schemas.settings import Settings
from schemas.topics import DEAD_LETTERS, FEEDBACK, QUERIES, RESULTS
from stream_router.cascade.lever import trial_labels
from stream_router.commit.outcome import TOO_LARGE, OutputTopics
from stream_router.errors import ModelsFailed, ServersDown
from stream_router.gateway import openai_protocol
from stream_router.gateway.admission import BROKER_RETRY_AFTER_S, RETRY_AFTER_S, Admission
from stream_router.gateway.openai_protocol import ID_HEADER, Call, Endpoint, Workloads, read_call
from stream_router.gateway.verdicts import RecentCallers, read_verdict
from stream_router.otel_tracing import TRACEPARENT, TRACESTATE, Trace, Tracing, as_headers
from stream_router.ports import Answerer
from stream_router.prometheus_metrics import Metrics
from ucci_runtime.broker.dead_letters import reason_of
from ucci_runtime.broker.errors import BrokerUnreachable
from ucci_runtime.broker.ports import Publisher
from ucci_runtime.broker.records import Header, Input, OutputRecord, Record
from ucci_runtime.clock import Clock
from ucci_runtime.http_listener import NOWHERE, Bounds, HttpListener, application
from ucci_runtime.refusals import (
    KeyRing,
    Quotas,
    RequestHosts,
    RequestRefused,
    is_added_by_browsers,
    require_body_type,
    require_same_site,
)

STAGE = "gateway"
#: The partition and offset of a query that never stood in its topic.
_NO_PLACE = -1


_log = structlog.get_logger()

MAX_BODY_BYTES = 1_000_000
#: How long a body may take to come.
BODY_TIMEOUT_S = 20.0

#: How long a connection may send, or be silent, before its first request is being answered.
STRAY_TIMEOUT_S = 10.0

SERVERS_RETRY_AFTER_S = 2
#: Counts callers who left before they were answered, as proxies number them.
_LEFT = "499"

_PATHS: Mapping[str, Endpoint] = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}
_MODELS = "/v1/models"
_FEEDBACK = "/v1/feedback"
_WITHHELD = (
    "the broker has not acknowledged the result, so the answer is withheld; ask again under the same "
    f"query id ({ID_HEADER} or metadata.query_id)"
)
_NOT_TAKEN = "the broker has not acknowledged the verdict: send it again"
_OK, _ACCEPTED, _BAD_GATEWAY = 200, 202, 502
_VISIBLE = "".join(chr(code) for code in range(0x21, 0x7F))


class Output(NamedTuple):
    """Where results go."""

    publisher: Publisher
    #: Largest record that the topics, and the publisher, take.
    max_record_bytes: int
    #: Whether the topic of feedback can be written to.
    takes_feedback: bool = True


class GatewayApi:
    """Answers requests by the cascade. ``answerer``: one that does not wait for servers that are down."""

    def __init__(
        self,
        settings: Settings,
        answerer: Answerer,
        admission: Admission,
        *,
        metrics: Metrics,
        clock: Clock,
        tracing: Tracing,
    ) -> None:
        self._workloads = Workloads(frozenset(settings.workloads), settings.workload_of_unnamed)
        self._prefix = settings.topics.prefix
        results, letters = RESULTS.name(self._prefix), DEAD_LETTERS.name(self._prefix)
        self._topics = OutputTopics(results, letters, settings.topics.results_schema_id, STAGE)
        self._answerer = answerer
        self._admission = admission
        self._metrics = metrics
        self._clock = clock
        self._tracing = tracing
        self._since = clock.now()
        #: Set before queries are taken.
        self.output: Output | None = None
        self._callers = RecentCallers()
        self._feedback = FEEDBACK.name(self._prefix)
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Know callers by the keys of these settings from now on; quotas restart."""
        self._options = settings.gateway
        keys = settings.gateway.api_keys
        self._ring = KeyRing(keys, ": see gateway.api_keys") if keys else None
        self._quotas = Quotas({name: key.quota_per_minute for name, key in keys.items()}, "requests")

    def listener(self, status: list[web.RouteDef]) -> HttpListener:
        """Return what serves this, and the status of the process, at the configured address."""
        options = self._options
        hosts = RequestHosts.of(options.http_host, options.allowed_hosts)
        routes = [
            *(web.post(path, partial(self._complete, endpoint)) for path, endpoint in _PATHS.items()),
            web.post(_FEEDBACK, self._judge),
            web.get(_MODELS, self._models),
            web.get(f"{_MODELS}/{{model:.+}}", self._models),
            *status,
        ]
        app = application(hosts, "gateway.allowed_hosts", _foreign, routes)
        bounds = Bounds(options.max_connections, STRAY_TIMEOUT_S, spares_answers=True)
        return HttpListener(app, options.http_host, options.http_port, bounds)

    async def _models(self, request: web.Request) -> web.Response:
        try:
            self._authorise(request, only_reads=True)
            return _json(self._listed(request.match_info.get("model")))
        except RequestRefused as refused:
            return _refusal(refused)

    def _listed(self, name: str | None) -> dict[str, Any]:
        if name is None:
            return openai_protocol.models(self._workloads.names, self._since)
        workload = self._workloads.named(name)
        if workload is None:
            message = f"model: {name[:60]!r} is not a configured workload: GET /v1/models lists them"
            raise RequestRefused(404, "model_not_found", message, "model")
        return openai_protocol.model(workload, self._since)

    async def _complete(self, endpoint: Endpoint, request: web.Request) -> web.Response:
        began_s, workload, status = self._clock.monotonic(), "", _LEFT
        query_id: str | None = None
        try:
            caller = self._authorise(request)
            self._admission.check()
            body = await self._read(request)
            call = read_call(endpoint, body, self._workloads, request.headers.get(ID_HEADER), f"gw-{uuid4()}")
            workload, query_id = call.workload, call.query.query_id
            with self._admission.place():
                routed = await self._routed(call, caller, _trace_headers(request))
            self._callers.note(query_id, caller)
            response = _json(openai_protocol.completion(endpoint, routed, call.ignored), headers=_named(query_id))
            status = str(_OK)
        except RequestRefused as refused:
            status, response = str(refused.status), _refusal(refused, query_id)
        except Exception:
            status = "500"
            raise
        finally:
            self._metrics.count("gateway_requests", workload=workload, status=status)
        if response.status == _OK:
            self._metrics.count("gateway_request_seconds", self._clock.monotonic() - began_s, workload=workload)
        elif self._admission.is_closed:
            response.force_close()
        return response

    async def _judge(self, request: web.Request) -> web.Response:
        query_id: str | None = None
        try:
            caller = self._authorise(request)
            self._admission.check()
            event = read_verdict(await self._read(request), request.headers.get(ID_HEADER), caller, self._clock.now())
            query_id = event.query_id
            self._callers.check(query_id, caller)
            self._require_feedback()
            await self._write(OutputRecord(self._feedback, query_id.encode(), event.to_json()), _NOT_TAKEN)
        except RequestRefused as refused:
            self._metrics.count("gateway_requests", workload="", status=str(refused.status))
            return _refusal(refused, query_id)
        self._metrics.count("gateway_requests", workload="", status=str(_ACCEPTED))
        return _json({"query_id": query_id, "feedback_id": event.identity()}, _ACCEPTED, _named(query_id))

    def _require_feedback(self) -> None:
        if self.output is None or not self.output.takes_feedback:
            message = f"{self._feedback} is missing or hidden: ucci-stream topics create; acls --principal-gateway"
            raise RequestRefused(503, "feedback_missing", message)

    def _authorise(self, request: web.Request, *, only_reads: bool = False) -> str | None:
        """Find the caller, take from its quota; return its name, if any. Raises RequestRefused: 401, 403 or 429."""
        if self._ring is None:
            require_same_site(request.headers)
            return None
        caller = self._ring.caller_of(request.headers)
        if only_reads:
            return caller
        if is_added_by_browsers(request.headers):
            require_same_site(request.headers)
        self._quotas.spend(caller, 1, self._clock.monotonic())
        return caller

    async def _read(self, request: web.Request) -> bytes:
        require_body_type(request.content_type, request.headers, ["application/json"])
        body = bytearray()
        try:
            async with self._admission.coming(BODY_TIMEOUT_S) as arrived:
                async for piece in request.content.iter_any():
                    body += piece
                    if len(body) > MAX_BODY_BYTES:
                        message = f"the body is longer than {MAX_BODY_BYTES} bytes: send less"
                        raise RequestRefused(413, "too_large", message)
                    arrived(len(piece))
        except TimeoutError:
            message = f"the body did not come within {BODY_TIMEOUT_S:g} s, or while others wanted its place"
            raise RequestRefused(408, "slow_body", message) from None
        except web.RequestPayloadError as error:
            raise RequestRefused(400, "invalid_body", f"the body could not be read: {error}") from None
        return bytes(body)

    async def _routed(self, call: Call, caller: str | None, headers: tuple[Header, ...]) -> RoutedEvent:
        """Return the result of a query, once the broker has it.

        Raises RequestRefused: 502 where both models failed, 503 where no server or broker answers, 504 where it took
        too long.
        """
        # As its topic would hold it: its dead letter, replayed, is answered by a router.
        at = Input(QUERIES.name(self._prefix), _NO_PLACE)
        source = Record(at, _NO_PLACE, call.query.query_id.encode(), call.query.to_json())
        with self._tracing.serving(headers, call.query.query_id, call.workload) as trace:
            try:
                async with asyncio.timeout(self._options.answer_timeout_s):
                    routed = await self._answerer.answer(call.query, call.workload, trace.headers)
            except TimeoutError:
                message = f"no answer within {self._options.answer_timeout_s:g} s (gateway.answer_timeout_s)"
                raise _failed(trace, RequestRefused(504, "timeout", message, None, RETRY_AFTER_S)) from None
            except ServersDown as error:
                down = RequestRefused(503, "model_servers_down", str(error), None, SERVERS_RETRY_AFTER_S)
                raise _failed(trace, down) from None
            except ModelsFailed as error:
                trace.failed(error.reason, str(error))
                await self._write(self._topics.dead_letter(source, error.reason, str(error)))
                message = f"both models failed on this query; why is in its dead letter on {self._topics.dead_letters}"
                raise RequestRefused(502, error.reason, message) from None
            routed = routed.model_copy(update={"caller": caller})
            trace.answered(routed)
            written = await self._write(self._topics.result(source, routed, as_headers(trace.headers)))
        if written.topic == self._topics.dead_letters:
            message = f"the result is larger than {self._topics.results} takes; it is a dead letter"
            raise RequestRefused(502, TOO_LARGE, message)
        self._metrics.count(
            "results", workload=call.workload, answered_by=routed.answered_by, reason=routed.decision.reason
        )
        if (labels := trial_labels(call.workload, routed.decision.trial)) is not None:
            self._metrics.counters["trial_decisions"].labels(*labels).inc()
        return routed

    async def _write(self, record: OutputRecord, not_acknowledged: str = _WITHHELD) -> OutputRecord:
        """Write a record, or its stand-in where it is too large; return which. Raises RequestRefused (503)."""
        assert self.output is not None
        assert record.key is not None
        written = _fitting(record, self.output.max_record_bytes)
        headers = {name: value or b"" for name, value in written.headers}
        try:
            await self.output.publisher.queue(written.topic, written.key or b"", written.value or b"", headers)
        except BrokerUnreachable as error:
            if self._admission.broker_away is None:
                _log.warning("the broker takes no results; answers are withheld", error=str(error))
            self._admission.broker_away = str(error)
            raise RequestRefused(503, "broker_unreachable", not_acknowledged, None, BROKER_RETRY_AFTER_S) from None
        if self._admission.broker_away is not None:
            _log.info("the broker takes results again")
        self._admission.broker_away = None
        if written.topic == self._topics.dead_letters:
            self._metrics.count("dead_letters", reason=reason_of(written))
        return written


def _fitting(record: OutputRecord, limit_bytes: int) -> OutputRecord:
    """Return the record, or what it names to be written instead where it is larger than the topics take."""
    while record.size_bytes > limit_bytes and record.instead is not None:
        smaller = record.instead(limit_bytes)
        if smaller == record:
            break
        record = smaller
    return record


def _failed(trace: Trace, refused: RequestRefused) -> RequestRefused:
    trace.failed(refused.code, str(refused))
    return refused


def _trace_headers(request: web.Request) -> tuple[Header, ...]:
    return tuple(
        (name, value.encode("utf-8", "replace"))
        for name in (TRACEPARENT, TRACESTATE)
        for value in request.headers.getall(name, ())
    )


def _json(document: dict[str, Any], status: int = _OK, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=to_json(document), status=status, content_type="application/json", headers=headers)


def _named(query_id: str) -> dict[str, str]:
    """Return the headers that name a query; OpenAI's clients show the second one, of refusals too."""
    shown = quote(query_id, safe=_VISIBLE)
    return {ID_HEADER: shown, "X-Request-Id": shown}


def _refusal(refused: RequestRefused, query_id: str | None = None) -> web.Response:
    headers = {} if query_id is None else _named(query_id)
    if refused.retry_after_s is not None:
        headers["Retry-After"] = str(refused.retry_after_s)
    elif refused.status == _BAD_GATEWAY:
        # OpenAI's clients repeat any 5xx; here both models have failed on the query, and would again.
        headers["X-Should-Retry"] = "false"
    return _fault(refused.code, str(refused), refused.status, refused.field, headers)


def _fault(
    code: str, message: str, status: int, param: str | None = None, headers: Mapping[str, str] | None = None
) -> web.Response:
    return _json(openai_protocol.error(code, message, status, param), status, headers)


def _foreign(code: str, message: str, status: int) -> web.Response:
    if status in NOWHERE:
        message += f": POST {', '.join((*_PATHS, _FEEDBACK))}; GET {_MODELS}; base_url is the address up to /v1"
    return _fault(code, message, status)
