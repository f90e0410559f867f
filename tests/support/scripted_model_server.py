"""A model server that does what a script says: vLLM's protocol with faults on demand, answers by hash of the prompt.

``async with ScriptedModelServer("small") as server: server.play(Fault("status", status=503), count=2)``.

Equal prompts give equal answers in every run and every process.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, Self, cast

from aiohttp import web

FIELDS = ("camera", "lens", "aperture", "shutter_speed", "iso", "focal_length")
TOKENS = 12

FaultKind = Literal[
    "status",  # an HTTP status, as `status` says
    "hang",  # accept, never answer
    "abort",  # HTTP 200, finish_reason abort, half an answer: a vLLM that got SIGTERM
    "length",  # HTTP 200, finish_reason length
    "no_reason",  # HTTP 200, finish_reason null
    "not_json",  # HTTP 200, a body that is no JSON
    "wrong_shape",  # HTTP 200, JSON that is no completion
    "truncated",  # headers promise more than is sent
    "reset",  # the connection goes without an answer
    "huge",  # a body without end
    "drip",  # a body that comes byte by byte and never ends
    "ten_megabytes",  # a whole body of 10 MB
    "half_json",  # a whole body that breaks off in the middle of its JSON
    "bad_answer",  # a whole completion whose text is not the JSON asked for
    "wrong_value",  # a whole answer, as sure as ever, with one wrong field
    "certain",  # every token of probability 1, as seen under speculative decoding
    "no_tokens",  # a completion without a single token
    "redirect",  # HTTP 307 to itself
    "broken_stream",  # a stream that ends in the middle
    "unstreamed",  # a whole body, though a stream was asked for
    "error_event",  # a stream that says in the middle that there will be no more
    "body",  # HTTP 200, and a whole body as `said` has it
    "text",  # a whole completion of this text
    "reason",  # a whole answer that ends for this reason
    "logits",  # numbers above 0 in place of log-probabilities
    "few_tokens",  # probabilities of the first token alone
    "thinks",  # `said` before the answer, as a model thinks, each token of it quite unsure
]


@dataclass(frozen=True)
class Fault:
    kind: FaultKind
    #: Of kind ``status``.
    status: int = 500
    #: The message of a status, or what a kind says of it.
    said: str = "as scripted"
    #: Prompts with this text alone are hit; probes too when it is empty.
    containing: str = ""
    #: Prompts that end so alone are hit: those that begin no answer.
    ending: str = ""


@dataclass
class Seen:
    calls: int = 0
    probes: int = 0
    concurrent: int = 0
    most_concurrent: int = 0
    connections: set[asyncio.Transport] = field(default_factory=set)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Answer:
    """What a model says to a prompt: entities, and p1 of each token."""

    entities: dict[str, str | None]
    p1: tuple[float, ...]

    @property
    def uncertainty(self) -> float:
        """U of the answer, computed here anew: 1 - mean(p1 - (1 - p1))."""
        return 1.0 - sum(2.0 * p - 1.0 for p in self.p1) / len(self.p1)


def answer_to(prompt: str, model: str) -> Answer:
    """Return what a model says; a function of both arguments alone.

    The large model is right; the small one, wherever it is unsure, is wrong in one field.
    """
    digest = blake2b(prompt.encode(errors="replace"), digest_size=16).digest()
    entities: dict[str, str | None] = {
        name: None if digest[i] < 85 else f"{name} {digest[i] % 16}" for i, name in enumerate(FIELDS)
    }
    unsure = (digest[15] / 255.0) ** 2
    if model != "large" and unsure > 0.5:
        entities[FIELDS[digest[14] % len(FIELDS)]] = f"mistaken {digest[13]}"
    p1 = tuple(1.0 - 0.5 * unsure * ((digest[i] + 1) / 256.0) for i in range(TOKENS))
    return Answer(entities, p1)


class ScriptedModelServer:
    """One server on the loopback interface.

    ``model``: the name that requests must give; ``large`` is the one that is always right. ``latency_s``: of each call;
    may be changed at any time. ``places``: calls served at a time, by default all; the others queue without bound, as
    in vLLM beyond ``--max-num-seqs``. ``drops_abandoned``: whether a call whose client is gone leaves the queue, as in
    vLLM. ``record``: whether bodies and headers are kept for inspection.
    """

    def __init__(
        self,
        model: str = "small",
        *,
        latency_s: float = 0.0,
        places: int | None = None,
        drops_abandoned: bool = False,
        record: bool = True,
    ) -> None:
        self.model = model
        self.latency_s = latency_s
        self._places: AbstractAsyncContextManager[None] = asyncio.Semaphore(places) if places else nullcontext()
        self._drops_abandoned = drops_abandoned
        self.seen = Seen()
        #: Names in the list of models; by default the model's own.
        self.listed: list[str] | None = None
        self._port = 0
        self._record = record
        self._faults: list[tuple[Fault, float]] = []
        self._hanging = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def base_url(self) -> str:
        """The URL that settings hold; the port stays the same when the server is started again."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def open_connections(self) -> int:
        """How many clients' connections are open now; of a recording server alone."""
        return sum(not connection.is_closing() for connection in self.seen.connections)

    async def start(self) -> None:
        app = web.Application(client_max_size=8_000_000)
        app.router.add_post("/v1/completions", self._completion)
        app.router.add_post("/v1/chat/completions", self._completion)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        self._hanging = asyncio.Event()
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.0, handler_cancellation=self._drops_abandoned
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True).start()
        self._port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Be gone: connections are cut, new ones refused."""
        self._hanging.set()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def saturate(self, *, places: int, latency_s: float) -> None:
        """Serve so many calls at a time from now on, and each for so long."""
        self._places, self.latency_s = asyncio.Semaphore(places), latency_s

    def play(self, fault: Fault, count: float = math.inf) -> None:
        """Let the next ``count`` calls that it hits end in this fault; earlier ones come first."""
        self._faults.append((fault, count))

    def recover(self) -> None:
        """End all faults; what hangs goes on hanging, as in a server whose engine was replaced."""
        self._faults.clear()

    def _next_fault(self, prompt: str) -> Fault | None:
        for index, (fault, left) in enumerate(self._faults):
            if fault.containing in prompt and prompt.endswith(fault.ending):
                self._faults[index : index + 1] = [] if left <= 1 else [(fault, left - 1)]
                return fault
        return None

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        chat = request.path.endswith("/chat/completions")
        prompt = "".join(message["content"] for message in body["messages"]) if chat else body["prompt"]
        seen, is_probe = self.seen, body.get("max_tokens") == 1
        seen.probes += is_probe
        seen.calls += not is_probe
        if self._record:
            seen.bodies.append(body)
            seen.headers.append(dict(request.headers))
            assert request.transport is not None
            seen.connections.add(request.transport)
        seen.concurrent += 1
        seen.most_concurrent = max(seen.most_concurrent, seen.concurrent)
        try:
            async with self._places:
                if self.latency_s:
                    await asyncio.sleep(self.latency_s)
            fault = self._next_fault(prompt)
            if fault is not None and fault.kind == "body":
                return web.Response(text=fault.said, content_type="application/json")
            if fault is not None and fault.kind in _BODIES:
                return web.Response(body=_BODIES[fault.kind], content_type="application/json")
            if fault is not None and (instead := getattr(self, f"_{fault.kind}", None)) is not None:
                return cast(web.StreamResponse, await instead(request, fault))
            if body["model"] != self.model:
                return web.json_response(_error(f"The model `{body['model']}` does not exist.", 404), status=404)
            document = completion(body, *said_to(body, self.model, chat=chat), chat=chat)
            _disturb(document, fault, chat=chat)
            if body.get("stream") and not (fault is not None and fault.kind == "unstreamed"):
                return await self._streamed(request, document, fault, chat=chat)
            return web.json_response(document)
        finally:
            seen.concurrent -= 1

    async def _streamed(
        self, request: web.Request, document: dict[str, Any], fault: Fault | None, *, chat: bool
    ) -> web.StreamResponse:
        """Send an event a token, as vLLM does; a broken stream ends in the middle, a failed one says so."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        events = list(chunks(document, chat=chat))
        kind = None if fault is None else fault.kind
        if kind in ("broken_stream", "error_event"):
            events = events[: len(events) // 2]
        for event in events:
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        if kind == "error_event":
            await response.write(b'data: {"error": {"message": "as scripted", "code": 500}}\n\n')
        if kind != "broken_stream":
            await response.write(b"data: [DONE]\n\n")
        return response

    async def _status(self, _request: web.Request, fault: Fault) -> web.StreamResponse:
        return web.json_response(_error(fault.said, fault.status), status=fault.status)

    async def _hang(self, _request: web.Request, _fault: Fault) -> web.StreamResponse:
        await self._hanging.wait()
        return web.json_response(_error("gone", 503), status=503)

    async def _redirect(self, request: web.Request, _fault: Fault) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": str(request.url)})

    async def _reset(self, request: web.Request, _fault: Fault) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def _truncated(self, request: web.Request, _fault: Fault) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "10000", "Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b'{"choices": [')
        assert request.transport is not None
        request.transport.close()
        return response

    async def _huge(self, request: web.Request, fault: Fault) -> web.StreamResponse:
        piece, pause_s = (b" ", 0.05) if fault.kind == "drip" else (b" " * 65_536, 0.0)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with suppress(ConnectionError):
            while not self._hanging.is_set():
                await response.write(piece)
                await asyncio.sleep(pause_s)
        return response

    _drip = _huge

    async def _models(self, _request: web.Request) -> web.Response:
        names = [self.model] if self.listed is None else self.listed
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response()


#: Whole bodies that stand in place of an answer; other faults before an answer are methods of the same name.
_BODIES = {
    "ten_megabytes": b" " * 10_000_000,
    "half_json": b'{"choices": [{"index": 0, "text": "{',
    "not_json": b"<html>gateway</html>",
    "wrong_shape": b'{"object": "list", "data": []}',
}


def said_to(body: dict[str, Any], model: str, *, chat: bool) -> tuple[Answer, str]:
    """Return what a model says to a request, and its text: of an answer that is begun, what follows.

    Whole fields of the beginning are the answer's own; the model gives the others as it would alone.
    """
    if chat:
        begins = body["messages"][-1]["role"] == "assistant"
        assert begins == bool(body.get("continue_final_message")) == (body.get("add_generation_prompt") is False)
        prompt, begun = body["messages"][0]["content"], body["messages"][-1]["content"] if begins else ""
    else:
        prompt, brace, rest = body["prompt"].rpartition('{"')
        prompt, begun = (prompt, brace + rest) if brace and rest.endswith(",") else (body["prompt"], "")
    answer = answer_to(prompt, model)
    if not begun:
        return answer, json.dumps(answer.entities)
    given = json.loads(begun.rstrip(", ") + "}")
    left = {name: value for name, value in answer.entities.items() if name not in given}
    return Answer(given | left, answer.p1), " " + json.dumps(left)[1:]


def chunks(document: dict[str, Any], *, chat: bool) -> Iterator[dict[str, Any]]:
    """Yield a completion as the documents of a stream: its tokens one by one, each with its part of the text."""
    (choice,) = document["choices"]
    text = choice["message"]["content"] if chat else choice["text"]
    logprobs = choice["logprobs"]
    count = len(logprobs["content"] if chat else logprobs["tokens"])
    size = -(-len(text) // max(1, count - 1))
    if chat:
        yield document | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}]}
    for place in range(count):
        part = text[place * size : (place + 1) * size]
        listed = {name: values[place : place + 1] for name, values in logprobs.items()}
        reason = choice["finish_reason"] if place == count - 1 else None
        content = {"delta": {"content": part}} if chat else {"text": part}
        yield document | {
            "choices": [{"index": 0, "finish_reason": reason, "logprobs": listed, **content}],
            "usage": None,
        }
    yield document | {"choices": []}


def completion(body: dict[str, Any], answer: Answer, text: str, *, chat: bool) -> dict[str, Any]:
    """Return the reply to a request, in the shapes that vLLM 0.32 was seen to send."""
    p1 = answer.p1[:1] if body.get("max_tokens") == 1 else answer.p1
    logs = [(math.log(p), math.log(1.0 - p) if p < 1.0 else -9999.0) for p in p1]
    tokens = [{f"token_id:{2 * i}": one, f"token_id:{2 * i + 1}": other} for i, (one, other) in enumerate(logs)]
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length" if len(p1) == 1 else "stop", "stop_reason": None}
    if chat:
        entries = [[{"token": t, "logprob": lp, "bytes": []} for t, lp in token.items()] for token in tokens]
        choice["message"] = {"role": "assistant", "content": text}
        choice["logprobs"] = {"content": [{**e[0], "top_logprobs": e[: body["top_logprobs"]]} for e in entries]}
    else:
        choice["text"] = text
        choice["logprobs"] = {
            "tokens": [next(iter(token)) for token in tokens],
            "token_logprobs": [next(iter(token.values())) for token in tokens],
            "top_logprobs": tokens,
            "text_offset": [0] * len(tokens),
        }
    usage = {"prompt_tokens": 1, "completion_tokens": len(tokens), "total_tokens": 1 + len(tokens)}
    return {"id": "cmpl-1", "object": "text_completion", "model": body["model"], "choices": [choice], "usage": usage}


def _disturb(document: dict[str, Any], fault: Fault | None, *, chat: bool) -> None:
    """Apply a fault that hits the answer itself."""
    if fault is None:
        return
    choice = document["choices"][0]
    holder, name = (choice["message"], "content") if chat else (choice, "text")
    said = holder[name]
    ends = {"abort": "abort", "length": "length", "no_reason": None, "reason": fault.said}
    choice["finish_reason"] = ends.get(fault.kind, choice["finish_reason"])
    _disturb_numbers(document, fault, said, chat=chat)
    if fault.kind == "abort":
        holder[name] = json.dumps({"camera": "half"})[:-3]
    elif fault.kind == "bad_answer":
        holder[name] = "Sure! Here are the entities you asked for."
    elif fault.kind == "wrong_value":
        holder[name] = json.dumps(json.loads(said) | {FIELDS[0]: "as scripted"})
    elif fault.kind in ("text", "thinks"):
        holder[name] = fault.said + (said if fault.kind == "thinks" else "")


#: Log-probabilities of the two alternatives of every token.
_NUMBERS = {"certain": (0.0, -9999.0), "logits": (23.5, 17.25)}


def _disturb_numbers(document: dict[str, Any], fault: Fault, said: str, *, chat: bool) -> None:
    choice = document["choices"][0]
    if fault.kind == "no_tokens":
        choice["logprobs"] = {"content": []} if chat else {"tokens": [], "token_logprobs": [], "top_logprobs": []}
        document["usage"]["completion_tokens"] = 0
    elif fault.kind == "few_tokens":
        choice["logprobs"] = {name: values[:1] for name, values in choice["logprobs"].items()}
    elif fault.kind == "thinks":
        choice["logprobs"] = _spelt_apart(choice["logprobs"], fault.said, said)
    elif fault.kind in _NUMBERS:
        for token in choice["logprobs"]["top_logprobs"]:
            token |= dict(zip(token, _NUMBERS[fault.kind], strict=True))


def _spelt_apart(logprobs: dict[str, Any], thoughts: str, answer: str) -> dict[str, Any]:
    """Return the log-probabilities of a completion whose tokens are named by their text, a word of thoughts each."""
    words = thoughts.replace(" ", "\n ").splitlines()
    count = len(logprobs["top_logprobs"])
    size = -(-len(answer) // (count - 1))
    parts = [answer[place * size : (place + 1) * size] for place in range(count)]
    unsure = [{word: -0.7, f"not {word}": -0.7} for word in words]
    return {"tokens": [*words, *parts], "top_logprobs": [*unsure, *logprobs["top_logprobs"]]}


def _error(message: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": "Error", "param": None, "code": code}}
