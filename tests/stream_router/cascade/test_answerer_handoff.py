"""Handing over between two scripted servers over real HTTP: what is asked, what is served, and what is recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.basis import Handoff
from schemas.costs import ModelCosts
from schemas.routed import ModelRun, QueryHandoff, RoutedEvent
from stream_router.model_client.request import SAMPLE_TEXT
from tests.support.cascades import Bench, InForce, bench
from tests.support.scripted_model_server import FIELDS, Fault, FaultKind, ScriptedModelServer, answer_to
from tests.support.versions import sealed_version

COSTS = ModelCosts(small=1.0, large=3.0)
BY_FIELD = {"margin": 0.9, "guard_share": 0.0}
GUARDED = BY_FIELD | {"guard_share": 1.0}
ON = Handoff(margin=0.9)
OFF = ON.model_copy(update={"active": False})


def in_force(threshold: float = -1.0, handoff: Handoff | None = ON) -> InForce:
    return InForce(sealed_version(uncertainty_threshold=threshold, costs=COSTS, handoff=handoff))


def begun_fields(text: str) -> list[str]:
    """Return the fields that the small model wrote whole before its first token with a margin below .9."""
    answer = answer_to(f"Query: {text}", "small")
    whole = json.dumps(answer.entities)
    size = -(-len(whole) // (len(answer.p1) - 1))
    unsure = next((place for place, p in enumerate(answer.p1) if 2.0 * p - 1.0 < 0.9), len(answer.p1))
    certain = whole[: unsure * size]
    return [name for name in FIELDS if f'"{name}": ' in certain and certain.find(", ", certain.find(f'"{name}"')) > 0]


TEXT = next(f"canon {n}" for n in range(500) if 2 <= len(begun_fields(f"canon {n}")) < len(FIELDS))
UNSURE = next(f"canon {n}" for n in range(500) if not begun_fields(f"canon {n}"))
PLAIN = f"Query: {TEXT}"


def said(model: str) -> dict[str, Any]:
    return dict(answer_to(PLAIN, model).entities)


def sent(server: ScriptedModelServer) -> list[dict[str, Any]]:
    """Return what a server was asked, probes apart."""
    bodies = (body for body in server.seen.bodies if body["max_tokens"] > 1)
    return [body for body in bodies if SAMPLE_TEXT not in json.dumps(body)]


def handoff_of(routed: RoutedEvent) -> QueryHandoff:
    assert routed.handoff is not None
    return routed.handoff


def run_of(routed: RoutedEvent, role: str) -> ModelRun:
    run: ModelRun | None = getattr(routed, role)
    assert run is not None
    return run


async def asked(
    handoff: dict[str, float] = BY_FIELD,
    version: InForce | None = None,
    *,
    text: str = TEXT,
    small: Fault | None = None,
    large: Fault | None = None,
    count: int = 1_000,
    **changes: Any,
) -> tuple[Bench, RoutedEvent]:
    """Ask once. ``small`` and ``large``: the fault of the next ``count`` calls of a server."""
    async with bench(version or in_force(), handoff=handoff, **changes) as b:
        for server, fault in ((b.small, small), (b.large, large)):
            if fault is not None:
                server.play(fault, count=count)
        return b, await b.answer(text)


@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_the_large_model_goes_on_from_certain_fields(api: str) -> None:
    """It is sent the certain fields as the beginning of its answer; both parts together are served."""
    b, routed = await asked(api=api)
    (body,) = sent(b.large)
    handoff = handoff_of(routed)
    part = (run_of(routed, "small").raw or "")[: handoff.characters]
    assert list(json.loads(part[:-1] + "}")) == begun_fields(TEXT)
    if api == "chat":
        assert body["messages"][-1] == {"role": "assistant", "content": part}
    else:
        assert body["prompt"] == PLAIN + part
    assert routed.entities == said("large") | {name: said("small")[name] for name in begun_fields(TEXT)}
    assert (run_of(routed, "large").raw or "").startswith(part)
    assert (handoff.name, handoff.asked_again, handoff.guarded) == ("field@0.9", False, False)
    assert b.counts.outcomes["continued"] == 1


@pytest.mark.parametrize("fault", [Fault("bad_answer"), Fault("length"), Fault("status", status=400)])
async def test_an_invalid_continuation_is_asked_again_alone_once(fault: Fault) -> None:
    """Whether the model answers nonsense or the server refuses to go on, the second question is the plain one."""
    b, routed = await asked(large=fault, count=1)
    first, second = sent(b.large)
    assert first["prompt"].startswith(second["prompt"])
    assert second["prompt"] == PLAIN
    assert routed.entities == said("large")
    assert (handoff_of(routed).asked_again, handoff_of(routed).characters) == (True, 0)
    assert routed.cost.sequential == COSTS.small + 2 * COSTS.large
    assert b.counts.outcomes["asked_again"] == 1


async def test_one_that_fails_alone_too_serves_the_small_answer() -> None:
    """The large model is not asked a third time."""
    b, routed = await asked(GUARDED, large=Fault("bad_answer"))
    assert len(sent(b.large)) == 2
    assert (routed.answered_by, routed.decision.reason, routed.large_alone) == ("small", "degraded", None)


async def test_a_guarded_query_records_the_large_model_alone_too() -> None:
    """What is served is the answer with handoff; the other one is recorded beside it, and paid for."""
    b, routed = await asked(GUARDED)
    assert [len(body["prompt"]) > len(PLAIN) for body in sent(b.large)] == [True, False]
    alone = run_of(routed, "large_alone")
    assert routed.entities == run_of(routed, "large").entities
    assert alone.entities == said("large")
    assert routed.cost.sequential == COSTS.small + 2 * COSTS.large
    assert b.counts.outcomes["same" if alone.entities == routed.entities else "different"] == 1
    assert RoutedEvent.from_json(routed.to_json()) == routed


async def test_a_guarded_query_with_nothing_handed_over_is_asked_once() -> None:
    """The answer that is served is that of the large model alone already."""
    b, routed = await asked(GUARDED, text=UNSURE)
    assert len(sent(b.large)) == 1
    assert routed.large_alone == routed.large


async def test_a_comparison_that_fails_changes_nothing_that_is_served() -> None:
    """It is recorded as failed, and says nothing of what handing over changes."""
    b, routed = await asked(GUARDED, large=Fault("status", status=400, ending=PLAIN))
    assert (routed.answered_by, run_of(routed, "large_alone").valid) == ("large", False)
    assert b.counts.outcomes["failed"] == 1


@pytest.mark.parametrize("version", [in_force(handoff=OFF), in_force(handoff=None)], ids=["off", "none"])
async def test_the_version_that_decides_says_whether_to_hand_over(version: InForce) -> None:
    """What was switched off by the fit is off at once, whatever is configured."""
    b, routed = await asked(GUARDED, version)
    assert [body["prompt"] for body in sent(b.large)] == [PLAIN]
    assert (routed.handoff, routed.entities) == (None, said("large"))


async def test_a_cold_start_hands_over_as_configured() -> None:
    """The first version is learned from answers made as later ones will be; nothing is compared yet."""
    b, routed = await asked(GUARDED, InForce(None))
    assert len(sent(b.large)) == 1
    assert routed.decision.reason == "cold_start"
    assert handoff_of(routed).characters > 0
    assert not handoff_of(routed).guarded


@pytest.mark.parametrize("kind", ["broken_stream", "error_event"])
async def test_a_stream_that_breaks_off_is_asked_for_again(kind: FaultKind) -> None:
    """Half an answer is none, however well it began."""
    b, routed = await asked(BY_FIELD, in_force(threshold=1.0), small=Fault(kind), count=1)
    assert len(sent(b.small)) == 2
    assert (routed.entities, handoff_of(routed).characters) == (said("small"), 0)


async def test_costs_of_tokens_show_what_handing_over_saves() -> None:
    """The large model is paid for the tokens that it generates, not for those it goes on from."""
    prices = {"unit": "token", "small": 1.0, "large": 3.0, "prompt_large": 0.5}
    _, routed = await asked(cost=prices)
    small, large = run_of(routed, "small"), run_of(routed, "large")
    assert large.prompt_tokens > 0
    assert routed.cost.paper == 3.0 * large.completion_tokens + 0.5 * large.prompt_tokens
    assert routed.cost.sequential == small.completion_tokens + routed.cost.paper


async def test_a_server_that_does_not_stream_hands_nothing_over() -> None:
    """Its answers are taken as they come, and the large model begins anew."""
    b, routed = await asked(small=Fault("unstreamed"))
    assert run_of(routed, "small").uncertainty == pytest.approx(answer_to(PLAIN, "small").uncertainty)
    assert [body["prompt"] for body in sent(b.large)] == [PLAIN]
    assert routed.answered_by == "large"
