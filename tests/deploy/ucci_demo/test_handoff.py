"""Handing over between the demo's two real models, over real HTTP."""

from __future__ import annotations

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
from ucci_runtime.process import SystemClock

TEXTS = ("leica q3 with a 28mm at f1.7 please", "reflection bee 1/400s iso at 640 at 135mm", "rf 85mm f1.2 nikon d780")
GUARDED = next(f"q-{n}" for n in range(500) if uniform(f"q-{n}", "photo") < 0.5)


async def answers(api: str) -> list[RoutedEvent]:
    """Return what a cascade that escalates everything answers, each query compared with the large model alone."""
    async with serving_model("small", "small") as small, serving_model("large", "large") as large:
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
            return [await answerer.answer(QueryEvent(query_id=GUARDED, text=text), "photo") for text in TEXTS]
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
