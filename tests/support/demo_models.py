"""The demo's own checkpoints, opened once, and answers computed with them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache

from aiohttp import web

from schemas.settings import WorkloadSettings
from stream_router.model_client.request import entities_schema
from ucci_demo.model_server import PROMPT
from ucci_demo.model_server.checkpoint import Checkpoint
from ucci_demo.model_server.generation import ContinuousBatch, Generation
from ucci_demo.model_server.memo import Memo
from ucci_demo.model_server.server import ModelServer

FIELDS = ("camera", "lens", "aperture", "shutter_speed", "iso", "focal_length")
SCHEMA = entities_schema(FIELDS)
SLOTS = 8


@cache
def checkpoint(role: str) -> Checkpoint:
    return Checkpoint.open(role, SLOTS)


def generate(role: str, texts: Sequence[str], *, max_tokens: int = 256) -> list[Generation]:
    opened = checkpoint(role)
    batch = ContinuousBatch(opened.model, SLOTS)
    generations = [Generation(opened.prompt_ids(text), max_tokens, lambda _: None) for text in texts]
    for generation in generations:
        batch.submit(generation)
    while batch.step():
        pass
    return generations


def ids(generation: Generation) -> list[int]:
    return [token.token_id for token in generation.tokens]


def workload(small_url: str, large_url: str, **changes: object) -> WorkloadSettings:
    table = {"name": "photo-search", "prompt": PROMPT, "fields": list(FIELDS), "target": {"micro_f1": 0.9}}
    models = {
        "small": {"base_url": small_url, "model": "photo-small", "timeout_s": 60.0},
        "large": {"base_url": large_url, "model": "photo-large", "timeout_s": 60.0},
    }
    return WorkloadSettings.model_validate(table | models | changes)


@asynccontextmanager
async def serving_model(role: str, name: str, memo: Memo | None = None) -> AsyncIterator[web.AppRunner]:
    opened = checkpoint(role)
    fresh = type(opened)(opened.tokenizer, opened.model, ContinuousBatch(opened.model, SLOTS // 2))
    application = ModelServer(fresh, name, memo).application()
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=5.0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner
    finally:
        await runner.cleanup()
