"""The cascade at work: asks the models for one query, in the order of :mod:`~stream_router.cascade.query_cascade`.

Never returns while neither server can answer, never asks a model again whose answer it has, and may be cancelled at
any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from schemas.calibration import CalibrationVersion
from schemas.costs import ModelCosts
from schemas.draws import drawn_as, mark_of
from schemas.errors import ConfigError
from schemas.routed import ModelRole, QueryEvent, RoutedEvent
from schemas.settings import Settings, WorkloadSettings
from schemas.settings_workload import ModelEndpoint
from schemas.status import ModelHealth
from stream_router.cascade.handoff import HandoffLever
from stream_router.cascade.lever import Asked, Lever, RunEnd, TrialLever
from stream_router.cascade.query_cascade import Ask, GiveUp, QueryCascade, Serve, WaitFor
from stream_router.errors import BusyError, CallError, ModelsFailed, RefusedError, ServerDownError, ServersDown
from stream_router.model_client.answer import failed_run, judge_answer
from stream_router.model_client.concurrency_limit import QueryTime
from stream_router.model_client.http_client import ModelClient
from stream_router.model_client.request import build_request
from stream_router.otel_tracing import ModelCall, Tracing
from stream_router.ports import Answered, Calibrations, CascadeMetrics
from ucci_runtime.clock import Clock

#: Stands in for large over small, where no cost is configured, until both models have answered something.
UNMEASURED_COST_RATIO = 3.0


class CascadeAnswerer:
    """Answers queries with the small and, where it must be, the large model of their workload.

    ``calibrations`` are read at the moment when a small answer arrives. ``waits``: whether a query waits for a server
    while none that it needs is up; otherwise, in a gateway, it ends with ``ServersDown``. Raises ConfigError when a
    workload lacks one of its models.
    """

    def __init__(
        self,
        settings: Settings,
        calibrations: Calibrations,
        clock: Clock,
        instance_id: str,
        metrics: CascadeMetrics | None = None,
        tracing: Tracing | None = None,
        *,
        waits: bool = True,
    ) -> None:
        self._waits = waits
        self._tracing = tracing or Tracing()
        self._metrics = metrics
        self._calibrations = calibrations
        self._clock = clock
        self._instance_id = instance_id
        self._draw_key = settings.router.draw_with
        self._drawn_with = mark_of(self._draw_key)
        self._options = settings.router
        self._models = {name: _Models(workload, clock, metrics) for name, workload in settings.workloads.items()}

    def use(self, settings: Settings) -> None:
        """Answer the queries to come under settings that differ in what is taken over on SIGHUP; in the event loop."""
        self._options = settings.router
        for name, models in self._models.items():
            models.settings = settings.workloads[name]

    async def start(self) -> None:
        """Open the connections and see which servers listen; takes 2 s at most."""
        await asyncio.gather(*(server.start() for models in self._models.values() for server in models.servers))

    async def close(self) -> None:
        """Close all connections; answers still under way must have been cancelled."""
        for models in self._models.values():
            for server in models.servers:
                await server.close()

    def health(self) -> Mapping[str, Mapping[ModelRole, ModelHealth]]:
        """Return each workload's model servers as seen from here, by role."""
        return {
            name: {role: server.health() for role, server in models.by_role.items()}
            for name, models in self._models.items()
        }

    @property
    def can_answer(self) -> bool:
        """Whether every workload has at least one model server that is up."""
        return all(any(server.is_up for server in models.servers) for models in self._models.values())

    async def answer(self, query: QueryEvent, workload: str, headers: Mapping[str, str] | None = None) -> RoutedEvent:
        """Run the cascade for one query; see the port. Its time at servers that answer others has a deadline."""
        models = self._models[workload]
        draws_by = drawn_as(query.query_id, self._draw_key)
        levers = levers_of(draws_by, models.settings, self._calibrations)
        cascade = QueryCascade(query, models.settings, levers, self._options.large_outage, draws_by)
        cascade.begin(self._calibrations.in_force(workload), self._clock.now())
        time = QueryTime(self._options.query_deadline_s, reserved_s=models.endpoints["large"].timeout_s)
        asking = _Asking(models, query.text, headers, self._clock, self._tracing, time, self._metrics)
        marked = models.settings.field_margins or any(lever.streams_small for lever in levers)
        while True:
            step = cascade.next_step()
            if isinstance(step, Serve):
                assert cascade.drawn is not None
                costs = models.costs(cascade.drawn.version)
                routed = cascade.result(step.role, costs, self._instance_id, self._drawn_with)
                if self._metrics is not None:
                    for lever in levers:
                        lever.count(routed, self._metrics)
                return routed
            if isinstance(step, GiveUp):
                raise ModelsFailed(_error_of(cascade.small), _error_of(cascade.large))
            if isinstance(step, Ask) and step.alone:
                cascade.alone_ended(await asking.ask("large", may_give_up=True))
                continue
            if isinstance(step, WaitFor) and not (
                self._waits or any(models.by_role[role].is_up for role in step.roles)
            ):
                why = "; ".join(f"{role}: {models.by_role[role].health().reason}" for role in step.roles)
                raise ServersDown(f"{workload}: no server that the query needs is up ({why})")
            role = step.role if isinstance(step, Ask) else await models.first_up(step.roles)
            may_give_up = role == "large" and cascade.can_do_without_large
            if role == "small":
                asked = await asking.ask(role, may_give_up=may_give_up, marked=marked)
                cascade.small_ended(asked, self._calibrations.in_force(workload), self._clock.now())
            else:
                cascade.large_ended(await asking.ask(role, may_give_up=may_give_up, begun=cascade.begun))


def levers_of(draws_by: str, workload: WorkloadSettings, calibrations: Calibrations) -> list[Lever]:
    """Return the levers that may act on a query, made for it; ``draws_by`` stands for its id in draws."""
    levers: list[Lever] = [TrialLever(draws_by, workload.name, calibrations)]
    if workload.handoff is not None:
        levers.append(HandoffLever(workload, workload.handoff))
    return levers


class _Models:
    """The two model servers of one workload."""

    def __init__(self, settings: WorkloadSettings, clock: Clock, metrics: CascadeMetrics | None) -> None:
        if settings.small is None or settings.large is None:
            raise ConfigError(
                [f"workloads.{settings.name}: a router needs both small and large; give base_url and model of each"]
            )
        self.settings = settings
        self.endpoints: dict[ModelRole, ModelEndpoint] = {"small": settings.small, "large": settings.large}
        self.by_role: dict[ModelRole, ModelClient] = {
            role: ModelClient(settings, role, endpoint, clock=clock, metrics=metrics)
            for role, endpoint in self.endpoints.items()
        }
        self.servers = tuple(self.by_role.values())

    async def first_up(self, roles: tuple[ModelRole, ...]) -> ModelRole:
        """Wait until one of these servers is up; of several, the first named."""
        while True:
            for role in roles:
                if self.by_role[role].is_up:
                    return role
            waits = [asyncio.ensure_future(self.by_role[role].wait_up()) for role in roles]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    def costs(self, version: CalibrationVersion | None) -> ModelCosts:
        """Return the configured costs, else the version's, else the ratio of the mean latencies seen here."""
        if self.settings.cost is not None:
            return self.settings.cost
        if version is not None and version.costs is not None:
            return version.costs
        small, large = (self.by_role[role].latencies.mean_s for role in ("small", "large"))
        return ModelCosts(small=1.0, large=large / small if small and large else UNMEASURED_COST_RATIO)


@dataclass(slots=True)
class _Asking:
    """The calls made for one query; remembers at how many outages of each server it was in flight there."""

    models: _Models
    text: str
    headers: Mapping[str, str] | None
    clock: Clock
    tracing: Tracing
    time: QueryTime
    metrics: CascadeMetrics | None
    rounds: dict[ModelRole, int] = field(default_factory=lambda: {"small": 0, "large": 0})

    async def ask(self, role: ModelRole, *, may_give_up: bool, begun: str = "", marked: bool = False) -> Asked:
        """Ask one model; what went wrong is part of the run.

        ``may_give_up``: whether the query can do without the answer, so that it queues no longer than one call may
        take. ``begun``: the beginning of the answer, which the model goes on from. ``marked``: whether the answer's
        tokens must be marked, which takes a stream.
        """
        settings, endpoint = self.models.settings, self.models.endpoints[role]
        request = build_request(settings, endpoint, self.text, begun=begun, marked=marked)
        operation = "chat" if settings.api == "chat" else "text_completion"
        with self.tracing.calling(ModelCall(role, endpoint.model, operation), self.headers) as trace:
            began_s = self.clock.monotonic()
            if role == "large":
                self.time.release()
            try:
                answered = await self.models.by_role[role].call(
                    request,
                    trace.headers,
                    earlier_rounds=self.rounds[role],
                    patience_s=endpoint.timeout_s if may_give_up else None,
                    time=self.time,
                )
            except CallError as error:
                asked = self._failed(role, error, self.clock.monotonic() - began_s)
            else:
                asked = self._answered(role, answered, begun)
            trace.ended(asked.run)
        return asked

    def _failed(self, role: ModelRole, error: CallError, seconds: float) -> Asked:
        if isinstance(error, ServerDownError):
            self.rounds[role] += error.after_attempts
        end = RunEnd.DOWN if isinstance(error, ServerDownError | BusyError) else RunEnd.FAILED
        run = failed_run(self.models.endpoints[role].model, str(error), seconds)
        return Asked(run, end, invalid=isinstance(error, RefusedError))

    def _answered(self, role: ModelRole, answered: Answered, begun: str) -> Asked:
        reply = replace(answered.reply, text=begun + answered.reply.text) if begun else answered.reply
        settings = self.models.settings
        run, fault = judge_answer(
            self.models.endpoints[role].model,
            reply,
            settings.fields,
            answered.latency_s,
            with_margins=role == "small",
            nulls=settings.nulls,
        )
        if fault is not None and self.metrics is not None:
            self.metrics.count("unusable_answers", workload=settings.name, role=role, why=fault)
        return Asked(run, RunEnd.VALID if run.valid else RunEnd.FAILED, invalid=not run.valid, marks=reply.marks)


def _error_of(asked: Asked | None) -> str:
    return (asked.run.error if asked is not None else None) or "failed"
