"""Stopping small calls early, between two scripted servers over real HTTP: what is asked, served and recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from schemas.calibration import CalibrationVersion
from schemas.costs import ModelCosts
from schemas.draws import uniform
from schemas.early_stop import EARLY_STOP, EarlyStop
from schemas.handoff import Handoff
from schemas.query import QueryEvent
from schemas.routed import RoutedEvent
from schemas.trial import CalibrationTrial
from tests.support.cascades import Bench, InForce, bench
from tests.support.scripted_model_server import TOKENS, Fault, answer_to
from tests.support.versions import CREATED_AT, sealed_version

COSTS = ModelCosts(small=1.0, large=3.0)
STOPS = EarlyStop(longest=TOKENS, full_share=0.2)
THRESHOLD = 0.1


def drawn(low: float, high: float) -> str:
    """Return the id of a query whose draw lies in [low, high)."""
    return next(f"q-{n}" for n in range(2_000) if low <= uniform(f"q-{n}", "photo") < high)


STOPPABLE, IN_FULL, LABELLED = drawn(0.2, 1.0), drawn(0.1, 0.2), drawn(0.0, 0.03)


def stops_at(text: str, threshold: float = THRESHOLD) -> int | None:
    """Return after how many tokens an answer of so many cannot end below the threshold any more."""
    doubt = 0.0
    for place, p in enumerate(answer_to(f"Query: {text}", "small").p1[:-1], start=1):
        doubt += 2.0 - 2.0 * p
        if doubt > threshold * TOKENS:
            return place
    return None


TEXTS = [f"canon {n}" for n in range(300)]
UNSURE = next(text for text in TEXTS if (stops_at(text) or TOKENS) < TOKENS // 2)
SURE = next(text for text in TEXTS if answer_to(f"Query: {text}", "small").uncertainty < THRESHOLD)


def version(threshold: float = THRESHOLD, **changed: Any) -> CalibrationVersion:
    fields: dict[str, Any] = {"uncertainty_threshold": threshold, "costs": COSTS, "early_stop": STOPS}
    return sealed_version(**fields | changed)


@asynccontextmanager
async def stopping(in_force: InForce | None = None, **changes: Any) -> AsyncIterator[Bench]:
    async with bench(in_force or InForce(version()), **{"early_stop": True} | changes) as b:
        yield b


async def ask(b: Bench, text: str, query_id: str = STOPPABLE) -> RoutedEvent:
    return await b.answerer.answer(QueryEvent(query_id=query_id, text=text), "photo")


@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_an_unsure_answer_is_stopped_and_escalates(api: str) -> None:
    """As soon as u must end above the threshold: u stays unknown, the large answer is served, nobody is to label."""
    async with stopping(api=api) as b:
        routed = await ask(b, UNSURE)
    small, stop, decision = routed.small, routed.early_stop, routed.decision
    assert small is not None
    assert stop is not None
    assert (small.valid, small.error, small.finish_reason) == (False, None, EARLY_STOP)
    assert stop.at_tokens == stops_at(UNSURE)
    assert (stop.stopped, stop.in_full, stop.full_share, stop.longest) == (True, False, 0.2, TOKENS)
    assert stop.uncertainty_least is not None
    assert THRESHOLD < stop.uncertainty_least <= answer_to(f"Query: {UNSURE}", "small").uncertainty
    assert (decision.escalated, decision.reason, decision.uncertainty) == (True, "threshold", None)
    assert (decision.large_probability, decision.calibration_version) == (1.0, 1)
    assert (routed.label.requested, routed.label.probability) == (False, 0.1)
    assert routed.entities == answer_to(f"Query: {UNSURE}", "large").entities
    assert RoutedEvent.from_json(routed.to_json()) == routed
    assert b.counts.outcomes["stopped"] == 1


async def test_a_sure_answer_runs_to_its_end() -> None:
    """Everything but the stream is as it is without early stop."""
    async with stopping() as b, bench(InForce(version())) as plain:
        routed, whole = await ask(b, SURE), await ask(plain, SURE)
    assert routed.early_stop is not None
    assert routed.early_stop.at_tokens is None
    assert routed.small is not None
    assert whole.small is not None
    known_of_streams = {"latency_s": routed.small.latency_s, "field_margins": routed.small.field_margins}
    assert routed.small == whole.small.model_copy(update=known_of_streams)
    assert (routed.decision, routed.label, routed.entities) == (whole.decision, whole.label, whole.entities)
    assert whole.early_stop is None


async def test_a_drawn_query_runs_in_full_and_is_marked() -> None:
    """Its u is known, and the record says that others like it are stopped."""
    async with stopping() as b:
        routed = await ask(b, UNSURE, IN_FULL)
    stop = routed.early_stop
    assert stop is not None
    assert (stop.spared, stop.stopped, stop.at_tokens) == (True, False, stops_at(UNSURE))
    assert routed.decision.uncertainty == pytest.approx(answer_to(f"Query: {UNSURE}", "small").uncertainty)
    assert b.counts.outcomes["spared"] == 1


@pytest.mark.parametrize("audit", [0.0, 0.1, 0.2])
async def test_every_labelled_query_knows_its_u(audit: float) -> None:
    """Labels and audits are drawn among those in full, as often as ever among the stoppable ones as well."""
    decides = version(audit_probability=audit)
    stopped = decides.decide_stopped()
    ids = [f"q-{n}" for n in range(20_000)]
    found = [decides.request_label(stopped, one) for one in ids]
    asked = [one for one, label in zip(ids, found, strict=True) if label.requested]
    assert max(uniform(one, "photo") for one in asked) < STOPS.full_share
    (probability,) = {label.probability for label in found}
    assert len(asked) / len(ids) == pytest.approx(probability, abs=0.01)
    assert probability == pytest.approx(0.1 + (0.2 - 0.1) * audit / 0.2)
    async with stopping(InForce(decides)) as b:
        routed = await ask(b, UNSURE, LABELLED)
    assert routed.label.requested
    assert routed.decision.uncertainty is not None


@pytest.mark.parametrize(
    ("in_force", "changes"),
    [
        (InForce(None), {}),
        (InForce(version(early_stop=None)), {}),
        (InForce(version()), {"early_stop": False}),
    ],
    ids=["cold start", "no length known", "not configured"],
)
async def test_nothing_is_stopped(in_force: InForce, changes: dict[str, Any]) -> None:
    async with stopping(in_force, **changes) as b:
        routed = await ask(b, UNSURE)
    assert not routed.stopped
    assert routed.decision.uncertainty is not None
    assert b.counts.outcomes["stopped"] == 0


async def test_an_answer_longer_than_expected_is_not_stopped() -> None:
    """How long it goes on is unknown then, and with it u."""
    doubts = {text: 2.0 - 2.0 * answer_to(f"Query: {text}", "small").p1[0] for text in TEXTS}
    text = next(text for text in TEXTS if doubts[text] < THRESHOLD and stops_at(text) is not None)
    async with stopping(InForce(version(early_stop=EarlyStop(longest=1, full_share=0.2)))) as b:
        routed = await ask(b, text)
    assert not routed.stopped
    assert routed.decision.uncertainty is not None


async def test_nothing_is_stopped_while_a_version_is_on_trial() -> None:
    """Both versions are compared by the u of every query."""

    class OnTrial(InForce):
        def trial(self, workload: str) -> CalibrationTrial | None:
            return CalibrationTrial(
                workload=workload,
                mode="shadow",
                version=version(0.5, version=2),
                started_at=CREATED_AT,
                issued_by="operator",
            )

    async with stopping(OnTrial(version())) as b:
        routed = await ask(b, UNSURE)
    assert routed.early_stop is None
    assert routed.decision.trial is not None
    assert routed.decision.uncertainty is not None


async def test_a_stop_holds_though_the_threshold_rises() -> None:
    """The version in force when that is known decides how it is labelled; what was cut off cannot be kept."""

    class Rising(InForce):
        asked = 0

        def in_force(self, workload: str) -> CalibrationVersion | None:
            self.asked += 1
            return version() if self.asked == 1 else version(0.9, version=2)

    async with stopping(Rising(None)) as b:
        routed = await ask(b, UNSURE)
    assert (routed.answered_by, routed.decision.escalated, routed.decision.reason) == ("large", True, "threshold")
    assert routed.decision.calibration_version == 2
    assert routed.early_stop is not None
    assert routed.early_stop.overtaken
    assert b.counts.outcomes["overtaken"] == 1


async def test_where_the_large_model_fails_small_runs_in_full() -> None:
    """Its second answer is served, degraded; its u decides nothing, and both calls are paid for."""
    async with stopping() as b:
        b.large.play(Fault("status", status=400))
        routed = await ask(b, UNSURE)
    small, stop = routed.small, routed.early_stop
    assert small is not None
    assert stop is not None
    assert (routed.answered_by, routed.decision.reason, routed.decision.uncertainty) == ("small", "degraded", None)
    assert routed.entities == answer_to(f"Query: {UNSURE}", "small").entities
    assert (small.valid, small.completion_tokens) == (True, TOKENS)
    assert (stop.repeated, stop.stopped, stop.lost_tokens, stop.lost_prompt_tokens) == (True, True, stops_at(UNSURE), 1)
    assert routed.cost.sequential == 2 * COSTS.small + COSTS.large
    assert [bool(body.get("stream")) for body in b.small.seen.bodies if body["max_tokens"] > 1] == [True, False]
    assert b.counts.outcomes["repeated"] == 1


async def test_an_operator_may_have_a_stopped_query_wait() -> None:
    """With large_outage = wait the large server's return is waited for, and the small call is not made again."""
    async with stopping(large_outage="wait") as b:
        b.large.play(Fault("status", status=503), count=1)
        routed = await ask(b, UNSURE)
    assert (routed.answered_by, b.small.seen.calls) == ("large", 1)


async def test_a_stopped_call_is_a_success_of_its_server() -> None:
    """Neither health nor the number of calls at a time suffers, however many are stopped."""
    unsure = [text for text in TEXTS if stops_at(text) is not None]
    async with stopping() as b:
        for text in unsure[:40]:
            assert (await ask(b, text)).stopped
        health = b.answerer.health()["photo"]["small"]
    assert (health.state, health.failures, b.counts.outcomes["stopped"]) == ("up", 0, 40)
    assert health.concurrency_limit is not None
    assert health.concurrency_limit > 1


async def test_the_large_model_goes_on_from_before_the_stop() -> None:
    """A query in full hands over what a stopped one does, so that labels are of answers like those served."""
    in_force = InForce(version(handoff=Handoff(margin=0.05)))
    text = next(text for text in TEXTS if TOKENS > (stops_at(text) or 0) > TOKENS // 2)
    async with stopping(in_force, handoff={"margin": 0.05, "guard_share": 0.0}) as b:
        stopped, in_full = await ask(b, text), await ask(b, text, IN_FULL)
    assert stopped.stopped
    assert not in_full.stopped
    assert stopped.handoff == in_full.handoff
    assert stopped.entities == in_full.entities
    assert stopped.handoff is not None
    assert stopped.small is not None
    assert stopped.large is not None
    assert 0 < stopped.handoff.characters <= len(stopped.small.raw or "")
    assert (stopped.large.raw or "").startswith((stopped.small.raw or "")[: stopped.handoff.characters])


async def test_costs_of_tokens_show_what_stopping_saves() -> None:
    """The tokens read are known of a stopped call too: the server counts as it goes."""
    prices = {"unit": "token", "small": 1.0, "large": 3.0, "prompt_small": 0.5}
    async with stopping(cost=prices) as b:
        stopped, whole = await ask(b, UNSURE), await ask(b, UNSURE, IN_FULL)
    assert stopped.small is not None
    assert (stopped.small.completion_tokens, stopped.small.prompt_tokens) == (stops_at(UNSURE), 1)
    assert whole.cost.sequential - stopped.cost.sequential == TOKENS - (stops_at(UNSURE) or 0)


async def test_a_server_that_does_not_stream_is_never_stopped() -> None:
    async with stopping() as b:
        b.small.play(Fault("unstreamed"))
        routed = await ask(b, UNSURE)
    assert not routed.stopped
    assert routed.decision.uncertainty == pytest.approx(answer_to(f"Query: {UNSURE}", "small").uncertainty)
