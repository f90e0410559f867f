"""One query's life: small → decide → large? → result. Pure: names the next step, and takes its outcome.

::

    ask small ─▶ decide ─┬─ kept ──────────────────────▶ serve small
                         └─ escalated ─▶ ask large ─┬─▶ serve large
                                                    ├─▶ serve small, degraded     large failed, small is valid
                                                    ├─▶ wait for a server, ask    none is valid, one is down
                                                    └─▶ give up                   both failed on this very query

While the large model answers alone (``version.large_only``), a drawn share of queries asks both as above, and the
others begin with the large one; of these the small one is asked only where the large one fails.

Levers (:mod:`~stream_router.cascade.lever`) may change whose rule decides, how the large call begins, and whether the
large model is asked again, or once more to compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from schemas.calibration import CalibrationVersion
from schemas.costs import ModelCosts, TokenUse, query_cost
from schemas.draws import uniform
from schemas.routed import Decision, LabelRequest, ModelRole, ModelRun, QueryEvent, RoutedEvent
from schemas.settings import WorkloadSettings
from stream_router.cascade.lever import Asked, Drawn, Lever, RunEnd


class Ask(NamedTuple):
    """Ask this model, then pass its run on; the large one ``alone`` is asked to compare with what is served."""

    role: ModelRole
    alone: bool = False


class WaitFor(NamedTuple):
    """Wait until one of these servers is up, then ask it; the first named goes first."""

    roles: tuple[ModelRole, ...]


class Serve(NamedTuple):
    """Serve this model's answer."""

    role: ModelRole


class GiveUp(NamedTuple):
    """Both models failed on this query."""


Step = Ask | WaitFor | Serve | GiveUp

_WAIT_FOR_LARGE = WaitFor(("large",))

#: By how the small and the large run ended.
_AFTER_BOTH: dict[tuple[RunEnd, RunEnd], Step] = {
    (RunEnd.VALID, RunEnd.VALID): Serve("large"),
    (RunEnd.VALID, RunEnd.FAILED): Serve("small"),
    (RunEnd.VALID, RunEnd.DOWN): Serve("small"),
    (RunEnd.FAILED, RunEnd.VALID): Serve("large"),
    (RunEnd.FAILED, RunEnd.FAILED): GiveUp(),
    (RunEnd.FAILED, RunEnd.DOWN): _WAIT_FOR_LARGE,
    (RunEnd.DOWN, RunEnd.VALID): Serve("large"),
    (RunEnd.DOWN, RunEnd.FAILED): WaitFor(("small",)),
    (RunEnd.DOWN, RunEnd.DOWN): WaitFor(("small", "large")),
}

#: Where the small answer is served while the large server is down.
_SMALL_STANDS_IN = (RunEnd.VALID, RunEnd.DOWN)


class QueryCascade:
    """One query on its way through the cascade.

    ``large_outage``: what to do with a valid small answer while the large server is down. ``small``, ``large`` and
    ``drawn``, the decision, are None until they are there.
    """

    def __init__(
        self,
        query: QueryEvent,
        workload: WorkloadSettings,
        levers: Sequence[Lever] = (),
        large_outage: Literal["serve_small", "wait"] = "serve_small",
        drawn_as: str | None = None,
    ) -> None:
        self.query = query
        self._workload = workload
        self._levers = levers
        self._large_outage = large_outage
        self._drawn_as = drawn_as or query.query_id
        self._draw = uniform(self._drawn_as, workload.name)
        self._alone: CalibrationVersion | None = None
        self._skips_small = False
        self.small: Asked | None = None
        self.large: Asked | None = None
        self.drawn: Drawn | None = None

    def begin(self, version: CalibrationVersion | None, now: datetime) -> None:
        """Take the version in force before any call: by it the large model may answer alone."""
        alone = None if version is None else version.large_only
        if version is None or alone is None or not alone.lasts(now):
            return
        self._alone, self._skips_small = version, self._draw >= alone.small_probability
        if self._skips_small:
            self.drawn = Drawn(*self._decide(version, None), now, self._draw)

    def next_step(self) -> Step:
        """Return what to do next."""
        if self.drawn is None:
            return Ask("small")
        if self.large is None:
            return Ask("large") if self.drawn.decision.escalated else Serve("small")
        if any(lever.wants_alone for lever in self._levers):
            return Ask("large", alone=True)
        # Of a query that began with the large model: as if there were a small answer, until that is needed.
        ends = (RunEnd.VALID if self.small is None else self.small.end, self.large.end)
        if ends == _SMALL_STANDS_IN and self._large_outage == "wait":
            return _WAIT_FOR_LARGE
        step = _AFTER_BOTH[ends]
        return Ask("small") if step == Serve("small") and self.small is None else step

    @property
    def begun(self) -> str:
        """The beginning of the answer that the large model goes on from; empty where it starts over."""
        return next((lever.begun for lever in self._levers if lever.begun), "")

    @property
    def can_do_without_large(self) -> bool:
        """Whether there is a small answer, or may be one, to serve in place of a large one that does not come."""
        return self._large_outage == "serve_small" and (self.small is None or self.small.end is RunEnd.VALID)

    def small_ended(self, asked: Asked, version: CalibrationVersion | None, now: datetime) -> None:
        """Take what came of asking the small model, and decide."""
        self.small = asked
        if self._skips_small:
            # It stands in for the large answer: the draw was made without it.
            return
        valid = asked.end is RunEnd.VALID
        if valid and self.large is not None and self.large.end is RunEnd.DOWN:
            # Both servers were down, and the small one came back first: this answer decides as if it were the first.
            self.large = None
        uncertainty = asked.run.uncertainty if valid else None
        decision, label, by = self._decide(version, uncertainty)
        self.drawn = Drawn(decision, label, by, now, self._draw)
        large_follows = decision.escalated and self.large is None
        for lever in self._levers:
            lever.small_ended(asked, self.drawn, large_follows=large_follows)

    def _decide(
        self, version: CalibrationVersion | None, uncertainty: float | None
    ) -> tuple[Decision, LabelRequest, CalibrationVersion | None]:
        if version is None:
            # Both models run, the large answer is served, and the larger label rate applies.
            decision = Decision(escalated=True, reason="cold_start", uncertainty=uncertainty, large_probability=1.0)
            rate = max(self._workload.label_shares)
            requested = self._draw < rate
            label = LabelRequest(requested=requested, probability=rate, reason="random" if requested else None)
            return decision, label, None
        if self._alone is not None:
            version, decision = self._alone, self._alone.decide_alone(uncertainty)
            return decision, version.request_label(decision, self._drawn_as, self._draw), version
        for lever in self._levers:
            version = lever.rule(version, uncertainty, self._draw)
        decision = version.decide(uncertainty, self._drawn_as, self._draw)
        if self.large is not None and not decision.escalated:
            # The large model has been asked whatever u is, and failed: the propensity of that was 1.
            forced = {"escalated": True, "reason": "small_failed", "large_probability": 1.0}
            decision = decision.model_copy(update=forced)
        return decision, version.request_label(decision, self._drawn_as, self._draw), version

    def large_ended(self, asked: Asked) -> None:
        """Take the outcome of asking the large model, which is asked again where a lever says so."""
        counts = [lever.large_ended(asked) for lever in self._levers]
        if all(counts):
            self.large = asked

    def alone_ended(self, asked: Asked) -> None:
        """Take what came of asking the large model alone, to compare."""
        next(lever for lever in self._levers if lever.wants_alone).alone_ended(asked)

    def result(
        self, served: ModelRole, costs: ModelCosts, routed_by: str, drawn_with: str | None = None
    ) -> RoutedEvent:
        """Return the result.

        A small answer served although the decision was to escalate is marked ``degraded``; the propensity and the label
        stay those of the decision, since the draw was made. The call of a large model that gave no answer counts, even
        where its server was known to be down, so that savings are never overstated. Raises ValueError when that model
        gave no answer.
        """
        chosen = self.small if served == "small" else self.large
        if chosen is None or chosen.run.entities is None or self.drawn is None:
            raise ValueError(f"the {served} model gave no answer to serve")
        decision = self.drawn.decision
        if served == "small" and decision.escalated:
            decision = decision.model_copy(update={"reason": "degraded"})
        unserved = [asked for lever in self._levers for asked in lever.unserved]
        large = [_used(asked.run) for asked in (self.large, *unserved) if asked is not None]
        small = None if self.small is None else _used(self.small.run)
        content: dict[str, Any] = {
            "query_id": self.query.query_id,
            "workload": self._workload.name,
            "text": self.query.text,
            "entities": chosen.run.entities,
            "answered_by": served,
            "decision": decision,
            "small": None if self.small is None else self.small.run,
            "large": None if self.large is None else self.large.run,
            "cost": query_cost(costs, escalated=decision.escalated, small=small, large=large),
            "label": self.drawn.label,
            "routed_at": self.drawn.decided_at,
            "routed_by": routed_by,
            "metadata": self.query.metadata,
            "signal": self._workload.uncertainty,
            "basis": self._workload.basis_mark,
            "drawn_with": drawn_with,
        }
        for lever in self._levers:
            lever.record(content)
        return RoutedEvent(**content)


def _used(run: ModelRun) -> TokenUse:
    return TokenUse(run.prompt_tokens, run.completion_tokens)
