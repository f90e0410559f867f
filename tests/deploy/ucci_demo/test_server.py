"""The demo's model server over real HTTP: the memo and the live model behind one protocol."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web

from tests.support.demo_models import checkpoint, serving_model
from ucci_demo.model_server import PROMPT
from ucci_demo.model_server.generation import ContinuousBatch, FinishReason, Generation
from ucci_demo.model_server.memo import Memo
from ucci_demo.recorded.traffic import load_traffic

NEW = "leica q3 with a 28mm at f1.7 please"
RECORDED = load_traffic()[5_000].text
PATIENCE_S = 60.0


class Client:
    """Posts bodies and returns status and document."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str) -> None:
        self.session = session
        self.base_url = base_url

    async def post(self, path: str = "/v1/completions", body: object = None, **changes: Any) -> tuple[int, Any]:
        if body is None:
            body = {"model": "tiny", "prompt": prompt_of(NEW), "max_tokens": 256, "temperature": 0}
            body = body | {"logprobs": 2, "return_tokens_as_token_ids": True} | changes
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.base_url + path, data=data) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(self.base_url + path) as response:
            return response.status, await response.text()


@asynccontextmanager
async def serving(memo: Memo | None = None) -> AsyncIterator[tuple[Client, web.AppRunner]]:
    async with serving_model("small", "tiny", memo) as runner, aiohttp.ClientSession() as session:
        yield Client(session, f"http://127.0.0.1:{runner.addresses[0][1]}"), runner


def assert_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Two replies or events say the same but for their ids; log-probabilities differ by the order of sums alone."""
    logprobs = [document["choices"][0].pop("logprobs") for document in (one, other)]
    assert {**one, "id": "", "created": 0} == {**other, "id": "", "created": 0}
    assert leaves(logprobs[0], str) == leaves(logprobs[1], str)
    np.testing.assert_allclose(leaves(logprobs[0], float), leaves(logprobs[1], float), atol=2e-3)


def prompt_of(text: str) -> str:
    return PROMPT.replace("{text}", text)


@pytest.mark.parametrize(("body", "named"), [(b"{nope", "JSON"), ([], "JSON object")])
async def test_what_is_refused_says_why_in_vllms_error_object(body: object, named: str) -> None:
    async with serving() as (client, _):
        seen, document = await client.post(body=body)
    assert (seen, document["error"]["code"], document["error"]["type"]) == (400, 400, "BadRequestError")
    assert named in document["error"]["message"]


async def test_stopped_server_sends_partial_answers_with_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    """What vLLM does on SIGTERM: a client that looks at the status alone takes half an answer for a whole one.

    Generation waits until all calls have come, and from the first whole answer on until the server is being stopped.
    """
    step, finish = ContinuousBatch.step, Generation.finish
    came, whole, stopping = threading.Event(), threading.Event(), threading.Event()

    def step_and_wait(batch: ContinuousBatch) -> bool:
        assert came.wait(PATIENCE_S)
        goes_on = step(batch)
        assert not whole.is_set() or stopping.wait(PATIENCE_S)
        return goes_on

    def finish_and_tell(generation: Generation, reason: FinishReason) -> None:
        whole.set()
        finish(generation, reason)

    monkeypatch.setattr(ContinuousBatch, "step", step_and_wait)
    monkeypatch.setattr(Generation, "finish", finish_and_tell)
    async with serving() as (client, runner):
        calls = [asyncio.create_task(client.post(prompt=prompt_of(f"{NEW} {n}"))) for n in range(24)]
        while "vllm_num_requests_waiting 24.0" not in (await client.get("/metrics"))[1]:
            pass
        came.set()
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        ending = asyncio.create_task(runner.app.shutdown())
        await asyncio.sleep(0)  # shutdown tells the generating thread to stop, then waits for it
        stopping.set()
        await ending
        ends = [document["choices"][0]["finish_reason"] for status, document in await asyncio.gather(*calls)]
        assert set(ends) == {"stop", "abort"}
        status, document = await client.post()
        assert (status, document["error"]["code"]) == (503, 503)
        assert await client.get("/health") == (200, "")


async def events(client: Client, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the documents of a stream."""
    async with client.session.post(client.base_url + path, json=body | {"stream": True}) as response:
        assert response.content_type == "text/event-stream"
        lines = [line.strip() async for line in response.content if line.startswith(b"data: ")]
    assert lines.pop() == b"data: [DONE]"
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]


def asking(path: str, prompt: str, role: str) -> dict[str, Any]:
    """Return a body of either protocol that asks for log-probabilities."""
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 256, "temperature": 0, "return_tokens_as_token_ids": True}
    if "chat" in path:
        return asked | {"messages": [{"role": role, "content": prompt}], "logprobs": True, "top_logprobs": 2}
    return asked | {"prompt": prompt, "logprobs": 2}


def begun_answers() -> dict[str, str]:
    """Return the recorded prompt with beginnings of its answer: none, as the model wrote it, and otherwise."""
    memo, prompt = Memo.of("small"), prompt_of(RECORDED)
    assert memo is not None
    recorded = memo.find(prompt)
    assert recorded is not None
    answer = [token.token_id for token in recorded]
    first, most = (checkpoint("small").decode(answer[:count]) for count in (3, len(answer) - 1))
    begun = {"none": "", "first tokens": first, "all but its end": most, "another one": ' {"iso": "1'}
    return {name: prompt + beginning for name, beginning in begun.items()}


@pytest.mark.parametrize("begun", ["none", "first tokens", "all but its end", "another one"])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_recorded_answer_is_gone_on_with_as_if_computed(path: str, begun: str) -> None:
    """Whole and streamed, token by token with the alternatives; what no recording begins with is computed."""
    body = asking(path, begun_answers()[begun], "assistant")
    body |= {"continue_final_message": True, "add_generation_prompt": False} if "chat" in path else {}
    async with serving(Memo.of("small")) as (client, _), serving() as (live, _):
        (_, remembered), (_, computed) = await client.post(path, body), await live.post(path, body)
        streamed, live_streamed = await events(client, path, body), await events(live, path, body)
        assert (await generated(client) == 0) == (begun != "another one")
    for one, other in ((remembered, computed), *zip(streamed, live_streamed, strict=True)):
        assert_alike(one, other)


async def test_max_tokens_hold_for_the_rest_of_an_answer() -> None:
    prompt = begun_answers()["first tokens"]
    async with serving(Memo.of("small")) as (client, _):
        _, cut = await client.post(prompt=prompt, max_tokens=5)
    assert (cut["choices"][0]["finish_reason"], cut["usage"]["completion_tokens"]) == ("length", 5)


def leaves(part: object, kind: type) -> list[Any]:
    """Return all names, or all numbers, of a reply's log-probabilities, in order."""
    if isinstance(part, dict):
        own = list(part) if kind is str else []
        return own + [leaf for value in part.values() for leaf in leaves(value, kind)]
    if isinstance(part, list):
        return [leaf for value in part for leaf in leaves(value, kind)]
    return [part] if isinstance(part, kind) else []


async def generated(client: Client) -> float:
    """Return how many tokens the server has generated."""
    _, text = await client.get("/metrics")
    line = next(line for line in text.splitlines() if line.startswith("vllm_generation_tokens_total"))
    return float(line.split()[1])
