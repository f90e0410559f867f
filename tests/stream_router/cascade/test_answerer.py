"""The cascade at work over real HTTP: who answers when models fail, and what waits when servers do."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from schemas.costs import ModelCosts
from schemas.draws import mark_of, uniform
from schemas.routed import QueryEvent, RoutedEvent
from schemas.trial import CalibrationTrial
from stream_router.cascade.answerer import UNMEASURED_COST_RATIO
from stream_router.errors import ModelsFailed, ServersDown
from tests.support.cascades import COLD, ESCALATES, KEEPS, InForce, bench, version
from tests.support.model_clients import draw_no_pauses, until
from tests.support.scripted_model_server import FIELDS, Fault, ScriptedModelServer, answer_to
from tests.support.versions import sealed_version, trial_of


def said(model: str, text: str = "canon") -> Mapping[str, Any]:
    return answer_to(f"Query: {text}", model).entities


@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_the_workloads_signal_is_asked_for_measured_and_named(api: str) -> None:
    """From the request over the reply to the decision and the result; tokens have two values, and count as of six."""
    async with bench(KEEPS, uncertainty="entropy", api=api) as b:
        event = await b.answer()
        body = b.small.seen.bodies[-1]
    assert body["logprobs" if api == "completions" else "top_logprobs"] == 5
    p1 = answer_to("Query: canon", "small").p1
    entropies = [-sum(p * math.log(p) for p in (one, 1.0 - one) if p > 0.0) / math.log(6) for one in p1]
    assert event.decision.uncertainty == pytest.approx(sum(entropies) / len(p1), abs=1e-9)
    assert event.signal == "entropy"
    assert RoutedEvent.from_json(event.to_json()).signal == "entropy"


async def test_version_at_the_small_answer_decides() -> None:
    calibrations = InForce(version(1.0))
    async with bench(calibrations) as b:
        b.small.latency_s = 0.05
        call = asyncio.create_task(b.answer())
        await until(lambda: b.small.seen.concurrent == 1)
        calibrations.now = version(-1.0)
        event = await call
    assert event.answered_by == "large"


#: Answers, though none that can be served: the next one would be alike.
UNREPEATED = ("bad_answer", "length", "reason", "text", "logits", "few_tokens", "no_tokens")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("bad_answer"), "not one JSON object"),
        (Fault("length"), "finish_reason length"),
        (Fault("reason", said="content_filter"), "finish_reason content_filter"),
        (Fault("text", said='{"Camera": "z1", "ISO": "100"}'), 'none of the fields; its keys: "Camera"'),
        (Fault("text", said='{"camera": "z1", "ISO": "100"}'), '"ISO" .iso is meant'),
        (Fault("logits"), "23.5 lies above 0"),
        (Fault("few_tokens"), "1 of the 12 tokens"),
        (Fault("no_tokens"), "no token probabilities"),
        (Fault("status", status=400), "HTTP 400"),
        (Fault("status", status=500), "HTTP 500"),
        (Fault("abort"), "abort"),
        (None, "Cannot connect|Disconnected"),
    ],
)
async def test_a_small_model_that_fails_or_is_down_escalates(fault: Fault | None, error: str) -> None:
    async with bench(KEEPS) as b:
        if fault is None:
            await b.small.stop()
        else:
            b.small.play(replace(fault, containing="canon"))
        event = await b.answer()
        assert b.answerer.can_answer
        assert b.outages == (set() if fault else {"small"})
        assert b.small.seen.calls <= (1 if fault is not None and fault.kind in UNREPEATED else 4)
    assert (event.answered_by, event.decision.reason) == ("large", "small_failed")
    assert (event.decision.uncertainty, event.decision.large_probability) == (None, 1.0)
    assert event.small is not None
    assert (event.small.valid, event.small.uncertainty) == (False, None)
    assert re.search(error, str(event.small.error))


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (Fault("text", said='{"Camera": "z1"}'), "keys"),
        (Fault("text", said='{"camera": {}}'), "value"),
        (Fault("bad_answer"), "json"),
        (Fault("text", said=""), "text"),
        (Fault("length"), "cut"),
        (Fault("logits"), "signal"),
    ],
)
async def test_an_answer_that_cannot_be_used_is_counted(fault: Fault, why: str) -> None:
    counted: list[dict[str, str]] = []
    async with bench(KEEPS) as b:
        b.small.play(fault)
        b.counts.count = lambda _name, _amount=1.0, **labels: counted.append(labels)  # type: ignore[method-assign]
        await b.answer()
    assert [labels for labels in counted if "why" in labels] == [{"workload": "photo", "role": "small", "why": why}]


@pytest.mark.parametrize("reason", ["eos_token", "eos", "end", "stop_sequence", None])
async def test_a_whole_answer_counts_whatever_its_end_is_called(reason: str | None) -> None:
    async with bench(KEEPS) as b:
        b.small.play(Fault("no_reason") if reason is None else Fault("reason", said=reason))
        event = await b.answer()
    assert (event.answered_by, event.decision.reason) == ("small", "kept")
    assert event.small is not None
    assert event.small.finish_reason == reason


async def test_u_is_of_the_answer_and_not_of_its_thinking() -> None:
    async with bench(KEEPS) as b:
        b.small.play(Fault("thinks", said="<think>Is it a canon? I doubt it.</think>\n"))
        event = await b.answer()
    assert event.small is not None
    assert (event.answered_by, event.entities) == ("small", said("small"))
    assert event.small.uncertainty == pytest.approx(answer_to("Query: canon", "small").uncertainty)


REFUSES = Fault("status", status=400, said="response_format must be json_schema")


@pytest.mark.parametrize("count", [1, 5])
async def test_queries_wait_while_both_servers_refuse_everybody(count: int) -> None:
    """None of them is given up, and each is answered once as soon as one server takes requests again."""
    async with bench(KEEPS) as b:
        b.play(REFUSES)
        calls = [asyncio.create_task(b.answer(f"canon {n}")) for n in range(count)]
        await until(lambda: not b.answerer.can_answer)
        health = b.answerer.health()["photo"]
        assert all(REFUSES.said in str(health[role].reason) for role in ("small", "large"))
        assert not any(call.done() for call in calls)
        b.small.recover()
        events = await asyncio.gather(*calls)
    assert {(event.answered_by, event.decision.reason) for event in events} == {("small", "kept")}


@pytest.mark.parametrize("role", ["small", "large"])
async def test_one_misconfigured_server_leaves_the_other_to_answer(role: str) -> None:
    """As in its outage: the result names what the server said."""
    async with bench(ESCALATES) as b:
        getattr(b, role).play(REFUSES)
        event = await b.answer()
        assert b.answerer.can_answer
        assert b.outages == {role}
    run = getattr(event, role)
    assert (run.valid, REFUSES.said in run.error) == (False, True)
    expected = ("large", "small_failed") if role == "small" else ("small", "degraded")
    assert (event.answered_by, event.decision.reason) == expected


async def test_who_does_not_wait_is_told_what_the_servers_say() -> None:
    async with bench(KEEPS, waits=False) as b:
        b.play(REFUSES)
        with pytest.raises(ServersDown, match=REFUSES.said):
            await b.answer()


@pytest.mark.parametrize("down", [False, True], ids=["fails_on_this_query", "is_down"])
async def test_large_failure_degrades_and_still_costs(down: bool) -> None:
    async with bench(ESCALATES, cost={"small": 1.0, "large": 3.0}) as b:
        if down:
            await b.large.stop()
        else:
            b.large.play(Fault("bad_answer"))
        event = await b.answer()
    assert (event.answered_by, event.decision.reason, event.decision.escalated) == ("small", "degraded", True)
    assert event.entities == said("small")
    assert event.large is not None
    assert (event.large.valid, bool(event.large.error)) == (False, True)
    assert event.cost.sequential == 4.0


async def test_large_outage_wait_holds_the_query() -> None:
    async with bench(ESCALATES, large_outage="wait") as b:
        await b.large.stop()
        call = asyncio.create_task(b.answer())
        await until(lambda: "large" in b.outages)
        asked = b.small.seen.calls
        assert not call.done()
        await b.large.start()
        event = await call
        assert (event.answered_by, event.decision.reason) == ("large", "threshold")
        assert (asked, b.small.seen.calls) == (1, 1), "the answer that was there was not asked for again"


async def test_a_call_cut_off_by_an_outage_was_blamed_on_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was served degraded: what the server had answered before it went away counted as "answers others"."""
    draw_no_pauses(monkeypatch)
    async with bench(ESCALATES, large_outage="wait") as b:
        b.large.play(Fault("hang", containing="canon"))
        call = asyncio.create_task(b.answer())
        await until(lambda: b.large.seen.concurrent == 1)
        assert (await b.answer("another")).answered_by == "large"
        b.large.recover()
        await b.large.stop()
        await until(lambda: call.done() or "large" in b.outages)
        await b.large.start()
        event = await call
    assert (event.answered_by, event.decision.reason) == ("large", "threshold")


def attempts_at(server: ScriptedModelServer, text: str) -> int:
    return sum(text in body["prompt"] for body in server.seen.bodies)


@pytest.mark.parametrize("deadline_s", [2.5, 0.01])
async def test_a_query_that_hangs_on_both_models_has_a_deadline(deadline_s: float) -> None:
    """Beyond its first attempt at each model, it makes no attempt that would end after the deadline."""
    # Long enough for a probe to be answered on a busy machine: a server that answers no probe is away.
    async with bench(deadline_s=deadline_s, small_timeout_s=0.5, large_timeout_s=1.0) as b:
        b.play(Fault("hang", containing="poison"))
        with pytest.raises(ModelsFailed, match=r"small: no answer within 0.5 s; large: no answer within 1 s"):
            await b.answer("poison")
        spent_s = 0.5 * attempts_at(b.small, "poison") + 1.0 * attempts_at(b.large, "poison")
        assert spent_s <= max(deadline_s, 0.5 + 1.0)
        assert (await b.answer("good")).answered_by == "large"


@pytest.mark.parametrize(
    ("fault", "options"),
    [
        (Fault("status", status=503), {}),
        (Fault("hang"), {}),
        (Fault("reset"), {}),
        (Fault("hang"), {"deadline_s": 0.01}),
    ],
)
async def test_query_waits_out_a_double_outage(fault: Fault, options: dict[str, Any]) -> None:
    """While both servers are down, a query waits, and it resumes without intervention; no deadline counts that time."""
    async with bench(KEEPS, small_timeout_s=0.3, large_timeout_s=0.3, **options) as b:
        b.play(fault)
        call = asyncio.create_task(b.answer())
        await until(lambda: not b.answerer.can_answer)
        await until(lambda: b.small.seen.probes >= 2)
        assert not call.done()
        assert b.outages == {"small", "large"}
        b.small.recover()
        event = await call
        await until(lambda: not any("wait_up" in repr(task) for task in asyncio.all_tasks()))
    assert (event.answered_by, event.decision.reason) == ("small", "kept")
    assert event.entities == said("small")


@pytest.mark.parametrize("large_outage", ["serve_small", "wait"])
async def test_who_does_not_wait_is_refused_in_a_double_outage(large_outage: str) -> None:
    """It is answered as soon as a server is back that suffices for it."""
    async with bench(KEEPS, large_outage, draw_key="0123456789abcdef" * 2, waits=False) as b:
        for server in (b.small, b.large):
            await server.stop()
        with pytest.raises(ServersDown, match="photo"):
            await b.answer()
        await b.small.start()
        await until(lambda: b.answerer.can_answer)
        assert (await b.answer()).answered_by == "small"


async def test_who_does_not_wait_does_not_wait_for_the_large_model() -> None:
    async with bench(ESCALATES, "wait", waits=False) as b:
        await b.large.stop()
        with pytest.raises(ServersDown, match="large"):
            await b.answer()


KEYS = (None, "0123456789abcdef" * 2, "0123456789abcdef" * 2)


async def drawn(calibrations: InForce, key: str | None, salt: str) -> list[RoutedEvent]:
    """Return the results of ids whose public hash is drawn, under this key of the draws."""
    searched = [name for name in map(str, range(2_000)) if uniform(name, salt) < 0.01]
    async with bench(calibrations, draw_key=key) as b:
        asked = [b.answerer.answer(QueryEvent(query_id=name, text="canon"), "photo") for name in searched]
        return await asyncio.gather(*asked)


async def test_ids_searched_offline_do_not_choose_their_labels() -> None:
    """With a secret in the draw, the public hash of an id says nothing of it; a router that died draws as before."""
    lives = [await drawn(COLD, key, "photo") for key in KEYS]
    plain, first, second = ([event.label.requested for event in life] for life in lives)
    assert all(plain)
    assert first == second
    assert sum(first) < len(first) / 2
    marks = [{event.drawn_with for event in life} for life in lives]
    assert marks == [{None}, *[{mark_of(b"0123456789abcdef" * 2)}] * 2]


class Guarded(InForce):
    """Escalates everything; 1 % of that is audited, and 1 % decided by a canary."""

    def trial(self, workload: str) -> CalibrationTrial | None:
        assert self.now is not None
        return trial_of(self.now, 0.01)


@pytest.mark.parametrize("salt", ["audit:photo", "canary 7 photo"])
async def test_ids_searched_offline_choose_no_audit_and_no_canary(salt: str) -> None:
    audited = sealed_version(version=7, uncertainty_threshold=-1.0, audit_probability=0.01)
    plain, keyed = [
        [
            event.label.reason == "audit"
            if salt.startswith("audit")
            else event.decision.trial is not None and event.decision.trial.acted
            for event in await drawn(Guarded(audited), key, salt)
        ]
        for key in KEYS[:2]
    ]
    assert all(plain)
    assert sum(keyed) < len(keyed) / 2


async def test_the_two_models_have_places_of_their_own() -> None:
    """A slow large model must not take the small one's places, nor the other way round."""
    async with bench(ESCALATES, small_max_concurrency=5, large_max_concurrency=2) as b:
        b.large.latency_s = b.small.latency_s = 0.005
        async with asyncio.timeout(60.0):
            while b.small.seen.most_concurrent < 5 or b.large.seen.most_concurrent < 2:
                await asyncio.gather(*(b.answer(f"q{n}") for n in range(30)))
        assert b.small.seen.most_concurrent == 5
        assert b.large.seen.most_concurrent == 2


async def test_costs_fall_back_to_version_then_latency() -> None:
    async with bench(ESCALATES, cost={"small": 1.0, "large": 5.0}) as b:
        assert (await b.answer()).cost.sequential == 6.0
    async with bench(InForce(version(-1.0, ModelCosts(small=2.0, large=8.0)))) as b:
        assert (await b.answer()).cost.sequential == 10.0
    async with bench(ESCALATES) as b:
        models = b.answerer._models["photo"]
        assert models.costs(None).large == UNMEASURED_COST_RATIO
        event = await b.answer()
        small, large = (models.by_role[role].latencies.mean_s or 0.0 for role in ("small", "large"))
        assert event.cost.sequential == pytest.approx(1.0 + large / small)


@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_a_result_says_how_sure_each_field_was(api: str) -> None:
    """The small call is streamed then; margins are means over some of the tokens that u is a mean over."""
    async with bench(KEEPS, api=api, field_margins=True) as b:
        routed = await b.answer("canon 5d")
    assert [body.get("stream") for body in b.small.seen.bodies if body["max_tokens"] > 1] == [True]
    assert routed.small is not None
    margins = routed.small.field_margins or {}
    assert set(margins) == set(FIELDS)
    tokens = [2.0 * p - 1.0 for p in answer_to("Query: canon 5d", "small").p1]
    assert all(min(tokens) - 1e-4 <= margin <= max(tokens) + 1e-4 for margin in margins.values())
    assert RoutedEvent.from_json(routed.to_json()) == routed


async def test_elsewhere_nothing_is_streamed_or_said() -> None:
    """A whole reply names tokens by number: where they stand in the text is not known."""
    async with bench(KEEPS) as b:
        routed = await b.answer("canon 5d")
    assert not any(body.get("stream") for body in b.small.seen.bodies)
    assert b"field_margins" not in routed.to_json()
