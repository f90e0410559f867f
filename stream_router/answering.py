"""The cascade at work: one query in, its result out; asks the models as :mod:`stream_router.core.cascade` says.

Never returns while neither server can answer, never asks a model again whose answer it has, and may be cancelled at
any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pydantic import ValidationError

from schemas.calibration import CalibrationVersion, ModelCosts
from schemas.errors import ConfigError
from schemas.query import QueryEvent
from schemas.routed import Decision, LabelRequest, ModelRole, ModelRun, RoutedEvent
from schemas.settings import ModelEndpoint, Settings, WorkloadSettings
from schemas.status import ModelHealth
from stream_router.core.answer import InvalidAnswerError, read_entities
from stream_router.core.cascade import Asked, Finished, RunEnd, Step, assemble, decide, next_step
from stream_router.core.margin import Reply
from stream_router.core.request import build_probe, build_request
from stream_router.errors import ModelsFailed
from stream_router.ports import Calibrations, Clock
from stream_router.shell.model_server import Answered, CallError, ModelServerClient, ServerDownError

TRACE_HEADERS = ("traceparent", "tracestate")
MAX_RAW_CHARS = 100_000
_STOP = "stop"
_UNMEASURED_RATIO = 3.0
"""Stands in for the ratio of costs until both models have been timed."""


class CascadeAnswerer:
    """Answers queries with the small and, where it must be, the large model of their workload.

    Parameters
    ----------
    settings : Settings
    calibrations : Calibrations
        Read at the moment when a small answer arrives.
    clock : Clock
    instance_id : str
        ``routed_by`` of the results.

    Raises
    ------
    ConfigError
        When a workload lacks one of its models.
    """

    def __init__(self, settings: Settings, calibrations: Calibrations, clock: Clock, instance_id: str) -> None:
        self._calibrations = calibrations
        self._clock = clock
        self._instance_id = instance_id
        self._large_outage = settings.router.large_outage
        self._cascades = {
            name: _Cascade(workload, _endpoints(name, workload), clock) for name, workload in settings.workloads.items()
        }

    async def start(self) -> None:
        """Open the connections' pools."""
        for cascade in self._cascades.values():
            for client in cascade.clients.values():
                await client.start()

    async def close(self) -> None:
        """Close all connections."""
        for cascade in self._cascades.values():
            for client in cascade.clients.values():
                await client.close()

    def health(self) -> Mapping[str, Mapping[str, ModelHealth]]:
        """Return each workload's model servers as seen from here, by role."""
        return {
            name: {role: client.health() for role, client in cascade.clients.items()}
            for name, cascade in self._cascades.items()
        }

    @property
    def can_answer(self) -> bool:
        """Whether every workload has at least one model server that is up."""
        return all(any(c.is_up for c in cascade.clients.values()) for cascade in self._cascades.values())

    async def answer(self, query: QueryEvent, workload: str, headers: Mapping[str, str] | None = None) -> RoutedEvent:
        """Run the cascade for one query.

        Raises
        ------
        ModelsFailed
            When both models fail on this query while the servers answer others.
        """
        cascade = self._cascades[workload]
        trace = {name: headers[name] for name in TRACE_HEADERS if name in headers} if headers else None
        small, large = await self._ask_small(cascade, query.text, trace, workload)
        decision, label, version = self._decide(cascade, query, small)
        while True:
            step = next_step(small, decision, large, self._large_outage)
            if step is Step.ASK_LARGE:
                large = await cascade.ask("large", query.text, trace)
            elif step is Step.WAIT_LARGE:
                await cascade.clients["large"].wait_up()
                large = await cascade.ask("large", query.text, trace)
            elif step in (Step.WAIT_SMALL, Step.WAIT_EITHER):
                small, large = await cascade.ask_whoever_comes_back(step, query.text, trace, small, large)
                if small.end is RunEnd.VALID:
                    decision, label, version = self._decide(cascade, query, small)
                    large = large if large is not None and large.end is RunEnd.VALID else None
            elif step is Step.GIVE_UP:
                raise ModelsFailed(small.run.error or "failed", _error_of(large))
            else:
                served: ModelRole = "small" if step is Step.SERVE_SMALL else "large"
                runs = (small.run, None if large is None else large.run)
                return self._result(cascade, query, served, (decision, label), runs, version)

    async def _ask_small(
        self, cascade: _Cascade, text: str, trace: Mapping[str, str] | None, workload: str
    ) -> tuple[Asked, Asked | None]:
        """Ask the small model; in a cold start both at once, since both will run anyhow."""
        version = self._calibrations.in_force(workload)
        if version is not None and version.state != "cold_start":
            return await cascade.ask("small", text, trace), None
        small, large = await asyncio.gather(cascade.ask("small", text, trace), cascade.ask("large", text, trace))
        return small, large

    def _decide(
        self, cascade: _Cascade, query: QueryEvent, small: Asked
    ) -> tuple[Decision, LabelRequest, CalibrationVersion | None]:
        settings = cascade.settings
        version = self._calibrations.in_force(settings.name)
        u = small.run.uncertainty if small.end is RunEnd.VALID else None
        return *decide(version, u, query.query_id, settings.name, settings.sampling), version

    def _result(
        self,
        cascade: _Cascade,
        query: QueryEvent,
        served: ModelRole,
        drawn: tuple[Decision, LabelRequest],
        runs: tuple[ModelRun, ModelRun | None],
        version: CalibrationVersion | None,
    ) -> RoutedEvent:
        return assemble(
            Finished(
                query=query,
                workload=cascade.settings.name,
                served=served,
                decision=drawn[0],
                label=drawn[1],
                small=runs[0],
                large=runs[1],
                costs=cascade.costs(version),
                routed_at=self._clock.now(),
                routed_by=self._instance_id,
            )
        )


class _Cascade:
    """The two clients of one workload."""

    def __init__(self, settings: WorkloadSettings, endpoints: dict[ModelRole, ModelEndpoint], clock: Clock) -> None:
        self.settings = settings
        self._endpoints = endpoints
        self.clients: dict[ModelRole, ModelServerClient] = {
            role: ModelServerClient(f"{settings.name}/{role}", endpoint, build_probe(settings, endpoint), clock)
            for role, endpoint in endpoints.items()
        }

    async def ask(self, role: ModelRole, text: str, trace: Mapping[str, str] | None) -> Asked:
        """Ask one model; what went wrong is part of the run."""
        endpoint, client = self._endpoints[role], self.clients[role]
        try:
            answered = await client.call(build_request(self.settings, endpoint, text), trace)
        except ServerDownError as error:
            return Asked(_failed(endpoint.model, str(error)), RunEnd.DOWN)
        except CallError as error:
            return Asked(_failed(endpoint.model, str(error)), RunEnd.FAILED)
        run = _read(endpoint.model, answered, self.settings.fields)
        return Asked(run, RunEnd.VALID if run.valid else RunEnd.FAILED)

    async def ask_whoever_comes_back(
        self, step: Step, text: str, trace: Mapping[str, str] | None, small: Asked, large: Asked | None
    ) -> tuple[Asked, Asked | None]:
        """Wait for a server that is down and ask it; the other's answer is kept."""
        waits = {"small": asyncio.ensure_future(self.clients["small"].wait_up())}
        if step is Step.WAIT_EITHER:
            waits["large"] = asyncio.ensure_future(self.clients["large"].wait_up())
        try:
            await asyncio.wait(waits.values(), return_when=asyncio.FIRST_COMPLETED)
            back = {role for role, wait in waits.items() if wait.done()}
        finally:
            for wait in waits.values():
                wait.cancel()
        if "small" in back:
            small = await self.ask("small", text, trace)
        elif "large" in back:
            large = await self.ask("large", text, trace)
        return small, large

    def costs(self, version: CalibrationVersion | None) -> ModelCosts:
        """Return the configured costs, else the version's, else the measured ratio of latencies."""
        if self.settings.cost is not None:
            return self.settings.cost
        if version is not None and version.costs is not None:
            return version.costs
        small, large = (self.clients[role].mean_latency_s for role in ("small", "large"))
        return ModelCosts(small=1.0, large=large / small if small and large else _UNMEASURED_RATIO)


def _read(model: str, answered: Answered, fields: tuple[str, ...]) -> ModelRun:
    """Judge a reply: an answer is whole, has tokens, and is one JSON object."""
    reply, entities = answered.reply, None
    error = _defect(reply)
    if error is None:
        try:
            entities = read_entities(reply.text, fields)
        except InvalidAnswerError as invalid:
            error = str(invalid)
    try:
        return ModelRun(
            model=model,
            raw=reply.text[:MAX_RAW_CHARS],
            entities=entities,
            valid=error is None,
            uncertainty=reply.uncertainty if error is None else None,
            completion_tokens=reply.completion_tokens,
            finish_reason=reply.finish_reason,
            latency_s=answered.latency_s,
            error=error,
        )
    except ValidationError as invalid:
        # What a model writes may be no text at all, for example half a surrogate pair.
        return _failed(model, f"the reply cannot be kept: {invalid.errors()[0]['msg']}", answered.latency_s)


def _defect(reply: Reply) -> str | None:
    if reply.finish_reason != _STOP:
        return f"the answer was cut (finish_reason {reply.finish_reason})"
    if reply.uncertainty is None:
        return "the reply holds no token probabilities"
    return None


def _failed(model: str, error: str, latency_s: float = 0.0) -> ModelRun:
    return ModelRun(model=model, valid=False, error=error, latency_s=latency_s)


def _error_of(asked: Asked | None) -> str:
    return (asked.run.error if asked is not None else None) or "failed"


def _endpoints(name: str, workload: WorkloadSettings) -> dict[ModelRole, ModelEndpoint]:
    if workload.small is None or workload.large is None:
        raise ConfigError([f"workloads.{name}: a router needs both small and large; give base_url and model of each"])
    return {"small": workload.small, "large": workload.large}
