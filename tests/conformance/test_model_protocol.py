"""One protocol, two kinds of server: the demo's own model servers always, real vLLM servers with ``-m vllm``.

The router's own client asks; what it must find was recorded of vLLM on a GPU. Servers that run already, on a GPU
perhaps, are taken from ``UCCI_VLLM_SMALL_URL`` and ``UCCI_VLLM_LARGE_URL``; otherwise both are started here.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest

from schemas.basis import Handoff
from schemas.entities import count_pairs
from schemas.routed import ModelRole, ModelRun
from schemas.settings import WorkloadSettings
from stream_router.cascade.handoff import handed_over
from stream_router.model_client.answer import judge_answer
from stream_router.model_client.http_client import ModelClient
from stream_router.model_client.request import build_request
from stream_router.model_client.uncertainty import TOKEN_MARGIN
from stream_router.ports import Reply
from tests.support.demo_models import FIELDS, SCHEMA, generate, ids, workload
from ucci_demo.model_server import PROMPT
from ucci_demo.recorded.traffic import RecordedQuery, load_traffic
from ucci_runtime.process import SystemClock
from ucci_stream.local.stack import recorded_servers, vllm_servers

ROLES: tuple[ModelRole, ...] = ("small", "large")
URL_VARIABLES = ("UCCI_VLLM_SMALL_URL", "UCCI_VLLM_LARGE_URL")
#: Of u in float32: sums in another order. Seen between two engines on 400 answers: 3.3e-7.
near = partial(pytest.approx, abs=1e-5)

#: Of both servers together; vLLM starts in half a minute on an idle machine, in ten where others are at work.
READY_S = 850.0

KNOWN = load_traffic()[3_000:11_000:500]
TYPOS = tuple(query for query in load_traffic() if query.shift == "typos")[:400:100]
UNSEEN = ("leica q3 with a 28mm at f1.7 please", "nikon z6 iso 400", 'a "quoted" \\ query', "☃ 日本 f/2")
SCHEMA_FORMAT = {"type": "json_schema", "json_schema": {"name": "entities", "schema": SCHEMA, "strict": True}}


@dataclass(frozen=True)
class Servers:
    """Two running model servers."""

    small: str
    large: str

    def settings(self, **changes: Any) -> WorkloadSettings:
        """Return the demo's workload on these servers."""
        return workload(self.small, self.large, **changes)


VLLM = pytest.param("vllm", marks=[pytest.mark.vllm, pytest.mark.timeout(1_000)])
#: The demo's servers decode freely.
guided = pytest.mark.parametrize("servers", [VLLM], indirect=True)


@pytest.fixture(scope="module", params=["demo", VLLM])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers of one kind, started unless they run already."""
    if request.param == "vllm" and "vllm" not in request.config.option.markexpr:
        pytest.skip("real vLLM servers are asked for by -m vllm")
    small, large = map(os.environ.get, URL_VARIABLES)
    if request.param == "vllm" and small and large:
        yield Servers(small, large)
    else:
        yield from _started(request.param, tmp_path_factory.mktemp("models"))


def _started(kind: str, logs: Path) -> Iterator[Servers]:
    pair = vllm_servers(logs) if kind == "vllm" else recorded_servers(logs)
    try:
        for server in pair:
            server.process.start()
        for server in pair:
            server.process.await_http(server.ready_url, READY_S)
        yield Servers(*(server.base_url for server in pair))
    finally:
        for server in pair:
            server.process.terminate()
        for server in pair:
            server.process.await_end(20.0)


def client(settings: WorkloadSettings, role: ModelRole) -> ModelClient:
    return ModelClient(settings, role, getattr(settings, role), clock=SystemClock())


async def runs(settings: WorkloadSettings, role: ModelRole, texts: list[str]) -> list[ModelRun]:
    """Ask about all texts at once, as the router does."""
    endpoint = getattr(settings, role)
    async with client(settings, role) as server:
        answers = await asyncio.gather(*(server.call(build_request(settings, endpoint, text)) for text in texts))
    return [
        judge_answer(endpoint.model, answered.reply, settings.fields, answered.latency_s).run for answered in answers
    ]


async def post(base_url: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession() as session, session.post(base_url + path, json=body) as response:
        return response.status, await response.json()


def completion_body(text: str, **changes: Any) -> dict[str, Any]:
    body = {"model": "photo-small", "prompt": PROMPT.replace("{text}", text), "max_tokens": 256, "temperature": 0}
    return body | {"logprobs": 2, "return_tokens_as_token_ids": True} | changes


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("role", ROLES)
async def test_known_prompts_get_the_recorded_answers(servers: Servers, role: ModelRole, api: str) -> None:
    known: list[RecordedQuery] = [*KNOWN, *TYPOS]
    found = await runs(servers.settings(api=api), role, [query.text for query in known])
    for query, run in zip(known, found, strict=True):
        recorded = query.small if role == "small" else query.large
        assert run.completion_tokens == recorded.tokens
        assert run.valid == recorded.valid
        if run.valid:
            assert run.finish_reason == "stop"
            assert run.uncertainty == near(recorded.uncertainty)
            counts = count_pairs(run.entities, query.gold)
            assert (counts.true_positives, counts.predicted) == (recorded.true_positives, recorded.predicted)


@pytest.mark.parametrize("role", ROLES)
async def test_unseen_prompts_get_the_engines_answers(servers: Servers, role: ModelRole) -> None:
    """Prompts that were never recorded get what the demo's engine computes."""
    found = await runs(servers.settings(), role, list(UNSEEN))
    for run, generation in zip(found, generate(role, UNSEEN), strict=True):
        assert run.completion_tokens == len(generation.tokens)
        assert run.finish_reason == generation.finish_reason
        if run.valid:
            value = TOKEN_MARGIN.of([token.top_logprobs[:2].tolist() for token in generation.tokens])
            assert run.uncertainty == near(value)


@guided
@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_an_answer_held_to_the_schema_fits_it(servers: Servers, api: str) -> None:
    settings = servers.settings(api=api, decoding="json_schema")
    for run in await runs(settings, "small", [*UNSEEN, *(query.text for query in KNOWN[:4])]):
        if run.finish_reason == "stop":
            assert run.raw is not None
            jsonschema.validate(json.loads(run.raw), SCHEMA)
            assert run.valid
            assert set(run.entities or ()) == set(FIELDS)
            assert run.uncertainty is not None
            assert 0.0 <= run.uncertainty <= 1.0
        else:
            assert (run.finish_reason, run.valid) == ("length", False)


@guided
async def test_forced_token_has_an_impossible_runner_up(servers: Servers) -> None:
    _, document = await post(
        servers.small, "/completions", completion_body(KNOWN[0].text, response_format=SCHEMA_FORMAT)
    )
    last = document["choices"][0]["logprobs"]["top_logprobs"][-1]
    assert sorted(last.values()) == pytest.approx([-9999.0, 0.0])


async def test_tokens_are_named_by_id_with_the_end(servers: Servers) -> None:
    (generation,) = generate("small", [KNOWN[0].text])
    status, document = await post(servers.small, "/completions", completion_body(KNOWN[0].text))
    choice = document["choices"][0]
    assert (status, choice["finish_reason"]) == (200, "stop")
    assert choice["logprobs"]["tokens"] == [f"token_id:{token_id}" for token_id in ids(generation)]
    assert [len(top) for top in choice["logprobs"]["top_logprobs"]] == [2] * len(generation.tokens)
    assert document["usage"]["completion_tokens"] == len(generation.tokens)
    assert document["usage"]["total_tokens"] == document["usage"]["prompt_tokens"] + len(generation.tokens)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"prompt": ""}, 400),
        ({"prompt": "nikon z6 " * 600}, 400),
        ({"logprobs": 21}, 400),
        ({"model": "nobody"}, 404),
        ({"max_tokens": -1}, 400),
    ],
)
async def test_what_is_refused_comes_with_an_error_object(
    servers: Servers, changes: dict[str, Any], status: int
) -> None:
    seen, document = await post(servers.small, "/completions", completion_body("nikon", **changes))
    assert (seen, document["error"]["code"]) == (status, status)
    assert document["error"]["message"]


async def asked(settings: WorkloadSettings, role: ModelRole, text: str, **how: Any) -> Reply:
    """Ask one model once, as the cascade does under a handoff."""
    async with client(settings, role) as server:
        return (await server.call(build_request(settings, getattr(settings, role), text, **how))).reply


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("text", [KNOWN[0].text, *UNSEEN])
async def test_a_stream_says_what_the_whole_reply_does(servers: Servers, api: str, text: str) -> None:
    """Text, counts and u; and every token begins where the text of those before it ends."""
    settings = servers.settings(api=api)
    whole, streamed = await asked(settings, "small", text), await asked(settings, "small", text, marked=True)
    assert (streamed.text, streamed.finish_reason) == (whole.text, whole.finish_reason)
    assert (streamed.completion_tokens, streamed.prompt_tokens) == (whole.completion_tokens, whole.prompt_tokens)
    assert streamed.uncertainty == near(whole.uncertainty)
    assert len(streamed.marks) == streamed.completion_tokens
    starts = [mark.start for mark in streamed.marks]
    assert starts == sorted(starts)
    assert (starts[0], starts[-1]) == (0, len(streamed.text))


@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_a_model_goes_on_from_the_beginning_of_its_answer(servers: Servers, api: str) -> None:
    """From its own first fields it comes to its own end, and generates that much less."""
    settings, text = servers.settings(api=api), KNOWN[0].text
    alone = await asked(settings, "large", text, marked=True)
    begun = handed_over(alone.text, alone.marks, Handoff(margin=0.5))
    assert begun
    rest = await asked(settings, "large", text, begun=begun)
    assert begun + rest.text == alone.text
    assert rest.completion_tokens < alone.completion_tokens
    assert rest.prompt_tokens + rest.completion_tokens == alone.prompt_tokens + alone.completion_tokens
