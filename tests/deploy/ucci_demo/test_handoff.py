"""Handing over between the demo's two real models, over real HTTP."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from schemas.basis import Handoff
from schemas.draws import uniform
from schemas.routed import QueryEvent, RoutedEvent
from schemas.settings import Settings
from stream_router.cascade.answerer import CascadeAnswerer
from tests.support.cascades import InForce
from tests.support.demo_models import FIELDS, serving_model
from tests.support.versions import sealed_version
from ucci_demo.model_server import PROMPT
from ucci_demo.model_server.memo import Memo
from ucci_demo.recorded.traffic import load_traffic
from ucci_runtime.process import SystemClock

TEXTS = ("leica q3 with a 28mm at f1.7 please", "reflection bee 1/400s iso at 640 at 135mm", "rf 85mm f1.2 nikon d780")
GUARDED = next(f"q-{n}" for n in range(500) if uniform(f"q-{n}", "photo") < 0.5)


async def answers(api: str, texts: Sequence[str] = TEXTS, *, remembers: bool = False) -> list[RoutedEvent]:
    """Return what a cascade that escalates everything answers, each query compared with the large model alone."""
    memos = {role: Memo.of(role) if remembers else None for role in ("small", "large")}
    async with (
        serving_model("small", "small", memos["small"]) as small,
        serving_model("large", "large", memos["large"]) as large,
    ):
        models = {
            role: {"base_url": f"http://127.0.0.1:{runner.addresses[0][1]}/v1", "model": role}
            for role, runner in (("small", small), ("large", large))
        }
        handoff = {"handoff": {"margin": 0.9, "granularity": "token", "guard_share": 1.0}}
        photo = {"prompt": PROMPT, "fields": list(FIELDS), "api": api, "target": {"micro_f1": 0.9}} | models | handoff
        settings = Settings.model_validate({"workloads": {"photo": photo}})
        offered = Handoff(margin=0.9, granularity="token")
        version = InForce(sealed_version(uncertainty_threshold=-1.0, handoff=offered))
        answerer = CascadeAnswerer(settings, version, SystemClock(), "router-0")
        await answerer.start()
        try:
            return [await answerer.answer(QueryEvent(query_id=GUARDED, text=text), "photo") for text in texts]
        finally:
            await answerer.close()


@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_real_models_go_on_from_each_other(api: str) -> None:
    """Valid answers of both parts, fewer tokens than alone, and a whole text that the large model would write too."""
    for routed in await answers(api):
        small, large, handoff = routed.small, routed.large, routed.handoff
        assert small is not None
        assert large is not None
        assert handoff is not None
        assert handoff.alone is not None
        assert (routed.answered_by, handoff.asked_again, handoff.alone.raw) == ("large", False, large.raw)
        assert handoff.characters > 0
        assert (large.raw or "").startswith((small.raw or "")[: handoff.characters])
        assert handoff.alone.completion_tokens - large.completion_tokens == handoff.tokens > 0
        assert large.prompt_tokens == handoff.alone.prompt_tokens + handoff.tokens


async def test_a_handoff_of_recorded_queries_is_answered_as_if_live() -> None:
    """What the demo's servers remember changes no answer, and no number of tokens that is paid for."""
    texts = [query.text for query in load_traffic()[5_000:5_100] if (query.small.uncertainty or 1.0) > 0.03][:6]
    remembered, live = [await answers("completions", texts, remembers=known) for known in (True, False)]
    for one, other in zip(remembered, live, strict=True):
        assert one.large is not None
        assert other.large is not None
        assert one.handoff is not None
        assert one.handoff.characters > 0
        assert (one.large.raw, one.entities) == (other.large.raw, other.entities)
        assert one.large.prompt_tokens == other.large.prompt_tokens
        assert one.large.completion_tokens == other.large.completion_tokens
