"""The gateway over HTTP, without models, on the broker in memory: who is served, who is refused, what is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from hashlib import sha256
from threading import Event, current_thread
from threading import enumerate as threads
from typing import Any

import aiohttp
import pytest

from schemas.routed import QueryEvent, RoutedEvent
from schemas.settings import GatewaySettings
from stream_router.gateway import admission, http_api
from stream_router.gateway import service as gateway_service
from tests.support.gateways import DEADLINE_S, RunningGateway, cluster, echo, gateway, gateway_settings
from tests.support.memory_broker import broker as memory
from tests.support.memory_broker.broker import MemoryCluster, MemoryPublisher
from ucci_runtime.broker.errors import BrokerUnreachable
from ucci_runtime.broker.records import Record

KEY = "a-key-of-some-length"
KEYS = {"shop": {"key_sha256": sha256(KEY.encode()).hexdigest(), "quota_per_minute": 2}}
PATIENCE_S = 30.0
SLOW = (
    b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{"
)


class Held:
    """Holds queries until they are let go."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.taken = 0
        self.cancelled = 0

    async def __call__(self, query: QueryEvent) -> None:
        self.taken += 1
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


def results(of: MemoryCluster) -> list[RoutedEvent]:
    return [RoutedEvent.from_json(record.value or b"") for record in of.records("ucci.results")]


def letters(of: MemoryCluster) -> list[Record]:
    return list(of.records("ucci.dead-letters"))


@asynccontextmanager
async def holding(
    count: int = 1, **options: Any
) -> AsyncIterator[tuple[RunningGateway, Held, list[asyncio.Task[Any]]]]:
    """A gateway with so many queries in flight that do not end by themselves."""
    held = Held()
    async with gateway(gateway_settings(gateway=options), build=echo(held)) as running:
        asking = [asyncio.create_task(running.complete("held", f"held-{n}")) for n in range(count)]
        await running.until(lambda: held.taken == count, "in flight")
        try:
            yield running, held, asking
        finally:
            held.release.set()
            await asyncio.gather(*asking, return_exceptions=True)


@asynccontextmanager
async def connected(
    port: int, sent: bytes = b"", count: int = 1
) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    """So many connections, each of which has sent this; closed at the end."""
    made = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    for _, writer in made:
        writer.write(sent)
    try:
        yield made
    finally:
        for _, writer in made:
            writer.close()


async def status_of(reader: asyncio.StreamReader) -> int:
    """Wait for the first line of an answer."""
    return int((await asyncio.wait_for(reader.readline(), PATIENCE_S)).split()[1])


async def ends_unanswered(reader: asyncio.StreamReader) -> bool:
    """Wait for the end of a connection."""
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_an_answer_is_the_result_that_was_written(path: str) -> None:
    """Under the caller's id and trace context."""
    topics, parent = cluster(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    body: dict[str, Any] = {"model": "photo", "metadata": {"query_id": "q-1"}}
    body |= {"prompt": "canon"} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "canon"}]}
    async with gateway(connect=topics) as running:
        found = await running.post(path, body, traceparent=parent)
    (written,) = results(topics)
    assert (written.query_id, written.text, written.metadata) == ("q-1", "canon", {"query_id": "q-1"})
    (record,) = topics.records("ucci.results")
    assert (record.key, dict(record.headers)) == (b"q-1", {"traceparent": parent.encode()})
    assert record.source == topics.place("ucci.results", b"q-1")
    assert found.status == 200
    assert found.json["ucci"]["entities"] == written.entities
    assert found.headers["X-Query-Id"] == found.headers["X-Request-ID"] == found.json["id"] == "q-1"


async def test_results_carry_a_schema_id_as_a_routers_do() -> None:
    """A consumer that reads by the registry must not care which way a query came."""
    topics = cluster()
    async with gateway(gateway_settings(topics={"results_schema_id": 7}), topics) as running:
        assert (await running.complete(query_id="q-1")).status == 200
    (record,) = topics.records("ucci.results")
    value = record.value or b""
    assert (value[:5], RoutedEvent.from_json(value[5:]).query_id) == (b"\0\0\0\0\x07", "q-1")


async def test_a_made_query_id_is_returned() -> None:
    """In a header one that goes beyond ASCII is encoded."""
    topics = cluster()
    async with gateway(connect=topics) as running:
        found = [*[await running.complete() for _ in range(2)], await running.complete(query_id="ключ 1")]
    ids = [one.json["id"] for one in found]
    assert len(set(ids)) == 3
    assert (ids[2], found[2].headers["X-Query-Id"]) == ("ключ 1", "%D0%BA%D0%BB%D1%8E%D1%87%201")
    assert {one.query_id for one in results(topics)} == set(ids)


@pytest.mark.parametrize("text", ["fail this", "canon"])
async def test_a_failed_query_is_lost_to_who_named_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal names the query, by which it is asked for again and its dead letter is found: `error.request_id`."""
    topics = cluster()
    async with gateway(connect=topics) as running:
        if text == "canon":
            Refusing(monkeypatch)
        found = await running.complete(text)
        assert found.status == (503 if text == "canon" else 502)
        assert found.headers["X-Request-ID"] == found.headers["X-Query-Id"]
        assert found.headers["X-Query-Id"].startswith("gw-")
    assert [(letter.key or b"").decode() for letter in letters(topics)] == (
        [] if text == "canon" else [found.headers["X-Query-Id"]]
    )


async def test_a_query_that_both_models_fail_is_a_dead_letter() -> None:
    """The letter holds the query as its topic would, to be replayed there, and alone says what the servers said."""
    topics = cluster()
    async with gateway(connect=topics) as running:
        found = await running.complete("fail this", "q-1")
        assert running.metric("ucci_router_dead_letters_total", reason="models_failed") == 1
    assert (found.status, found.code) == (502, "models_failed")
    assert found.headers["X-Should-Retry"] == "false", "OpenAI's clients would ask three times"
    (letter,) = letters(topics)
    query = QueryEvent.from_json(letter.value or b"")
    assert (letter.key, query.query_id, query.text, query.workload) == (b"q-1", "q-1", "fail this", "photo")
    said = {"dlq.topic": b"ucci.queries", "dlq.stage": b"gateway", "dlq.reason": b"models_failed"}
    said["dlq.error"] = b"small: refused; large: refused"
    assert said.items() <= dict(letter.headers).items()
    assert b"refused" not in found.body
    assert not results(topics)


async def test_a_result_that_is_too_large_is_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = cluster()
    monkeypatch.setattr("stream_router.gateway.service.MAX_RECORD_BYTES", 6_000)
    async with gateway(connect=topics) as running:
        found = await running.complete("x" * 20_000)
    assert (found.status, found.code) == (502, "too_large")
    (letter,) = letters(topics)
    assert dict(letter.headers)["dlq.truncated"]
    assert not results(topics)


class Refusing:
    """A publisher whose records the broker does not acknowledge while it is away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_away = True
        self.release = asyncio.Event()
        self.release.set()
        send = MemoryPublisher.queue

        async def refusing(
            publisher: MemoryPublisher, topic: str, key: bytes, value: bytes, headers: Mapping[str, bytes] | None = None
        ) -> None:
            await self.release.wait()
            if self.is_away:
                raise BrokerUnreachable("not acknowledged within 5 s (_MSG_TIMED_OUT)")
            await send(publisher, topic, key, value, headers)

        monkeypatch.setattr(memory.MemoryPublisher, "queue", refusing)


async def test_models_are_spared_while_the_broker_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """One query at a time finds out whether it is back; the others are refused at once."""
    broker = Refusing(monkeypatch)
    held = Held()
    held.release.set()
    async with gateway(build=echo(held)) as running:
        assert (await running.complete()).status == 503
        broker.release.clear()
        asking = [asyncio.create_task(running.complete()) for _ in range(20)]
        await running.until(lambda: sum(one.done() for one in asking) == 19, "19 refused")
        assert {one.result().code for one in asking if one.done()} == {"broker_unreachable"}
        assert held.taken == 2, "the first, and the one that finds out"
        broker.is_away = False
        broker.release.set()
        await asyncio.gather(*asking)
        assert (await running.complete()).status == 200


async def test_a_full_gateway_says_when_to_come_again() -> None:
    async with holding(2, max_in_flight=2) as (running, held, asking):
        found = await running.complete()
        assert (found.status, found.code) == (429, "too_many_in_flight")
        assert int(found.headers["Retry-After"]) > 0
        assert running.service.status().in_flight == 2
        assert running.service.status().serves == "http", "no router of the topic"
        held.release.set()
        assert {(await one).status for one in asking} == {200}
        assert (await running.complete()).status == 200


async def test_an_answer_that_takes_too_long_leaves_no_result() -> None:
    topics, held = cluster(), Held()
    settings = gateway_settings(gateway={"answer_timeout_s": 0.05})
    async with gateway(settings, topics, echo(held)) as running:
        found = await running.complete()
        assert (found.status, found.code) == (504, "timeout")
        assert "Retry-After" in found.headers
        assert held.cancelled == 1
    assert not results(topics)


async def test_a_caller_who_left_costs_the_models_no_more() -> None:
    async with holding() as (running, held, (asking,)):
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        await running.until(lambda: held.cancelled == 1, "cancelled")
        await running.until(lambda: running.service.status().in_flight == 0, "its place is free")
        assert running.metric("ucci_router_gateway_requests_total", workload="photo", status="499") == 1


async def test_keys_are_asked_for_where_they_are_configured() -> None:
    """Probes, metrics and the status are open, as a router's are."""
    topics = cluster()
    async with gateway(gateway_settings(gateway={"api_keys": KEYS}), topics) as running:
        ask = partial(running.post, "/v1/completions", {"model": "photo", "prompt": "canon"})
        assert (await ask()).code == "key_missing"
        wrong = await ask(X_Api_Key="another-key-of-some-length")
        assert (wrong.status, wrong.json["error"]["type"]) == (401, "authentication_error")
        assert (await running.get("/v1/models")).status == 401
        assert (await running.get("/v1/models", Authorization=f"Bearer {KEY}")).status == 200
        assert (await ask(X_Api_Key=KEY)).status == 200
        assert (await ask(Authorization=f"Bearer {KEY}")).status == 200
        spent = await ask(X_Api_Key=KEY)
        assert (spent.status, spent.code) == (429, "over_quota")
        assert int(spent.headers["Retry-After"]) > 0
        for path in ("/healthz", "/readyz", "/metrics", "/v1/status"):
            assert (await running.get(path)).status == 200
    assert [result.caller for result in results(topics)] == ["shop"] * 2
    assert KEY not in "".join(str(record.value) for record in topics.records("ucci.results"))


async def test_a_key_that_leaked_is_good_until_a_restart() -> None:
    other = {"shop": {"key_sha256": sha256(b"another-key-of-some-length").hexdigest()}}
    async with gateway(gateway_settings(gateway={"api_keys": KEYS})) as running:
        running.service.take_over(gateway_settings(gateway={"api_keys": other}))
        assert (await running.get("/v1/models", X_Api_Key=KEY)).code == "key_unknown"
        assert (await running.get("/v1/models", X_Api_Key="another-key-of-some-length")).status == 200


@pytest.mark.parametrize(
    ("text", "headers", "status", "code", "told"),
    [
        ("canon", {"Origin": "https://evil.example"}, 403, "cross_site", "pages of other sites"),
        ("canon", {"Sec_Fetch_Site": "cross-site"}, 403, "cross_site", "pages of other sites"),
        ("canon", {"Host": "rebound.example"}, 403, "foreign_host", "gateway.allowed_hosts"),
        ("canon", {"Content_Type": "text/plain"}, 415, "media_type", "'text/plain' is not taken"),
        ("canon", {"Content_Encoding": "gzip"}, 415, "content_encoding", "'gzip' is not taken"),
        ("x" * 1_000_000, {}, 413, "too_large", "longer than 1000000 bytes"),
        ("break", {}, 500, "internal", "a fault of the service"),
    ],
    ids=lambda given: given[:10] if isinstance(given, str) else None,
)
async def test_what_is_refused_says_why_and_nothing_more(
    text: str, headers: dict[str, str], status: int, code: str, told: str
) -> None:
    """A page of another site asks nothing, and nobody learns of the insides of a service that is at fault."""
    async with gateway(gateway_settings(gateway={"allowed_hosts": ["desk.example"]})) as running:
        ask = partial(running.post, "/v1/completions")
        found = await ask({"model": "photo", "prompt": text}, **headers)
        assert (found.status, found.code) == (status, code)
        assert told in found.json["error"]["message"]
        assert b"ZeroDivision" not in found.body
        own = {"Origin": "https://desk.example", "Host": "desk.example"}
        assert (await ask({"model": "photo", "prompt": "canon"}, **own)).status == 200


async def test_a_body_that_does_not_come_is_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sender takes no place from others, and is answered when the time for it is over."""
    monkeypatch.setattr(http_api, "BODY_TIMEOUT_S", 1.0)
    one_place = gateway_settings(gateway={"max_in_flight": 1})
    async with gateway(one_place) as running, connected(running.port, SLOW % 100) as ((reader, _),):
        assert (await running.complete()).status == 200
        assert await status_of(reader) == 408


async def test_slow_bodies_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds a place, and so there are no more than places; the one that came first goes for the next caller."""
    monkeypatch.setattr(http_api, "BODY_TIMEOUT_S", 2 * PATIENCE_S)
    places = gateway_settings(gateway={"max_in_flight": 3})
    async with gateway(places) as running, connected(running.port, SLOW % 100, 5) as slow:
        assert [await status_of(reader) for reader, _ in slow[:2]] == [408, 408]
        assert (await running.complete()).status == 200
        assert await status_of(slow[2][0]) == 408


async def test_a_few_long_bodies_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has come of all bodies is bounded in bytes too, beyond the longest that one may have."""
    monkeypatch.setattr(admission, "COMING_BYTES", 1_500)
    monkeypatch.setattr(http_api, "MAX_BODY_BYTES", 1_500)
    sent = SLOW % 1_200 + b" " * 1_000
    async with gateway() as running, connected(running.port, sent, 2) as (first, (reader, writer)):
        assert await status_of(first[0]) == 408
        writer.write(b" " * 198 + b"}")
        assert await status_of(reader) == 400


@pytest.mark.parametrize("sent", [b"", b"POST /v1/comp", b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "])
async def test_a_head_that_never_ends_keeps_its_connection(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_api, "STRAY_TIMEOUT_S", 0.2)
    async with gateway() as running, connected(running.port, sent) as ((reader, _),):
        assert await ends_unanswered(reader)


async def test_an_answer_outlasts_the_patience_for_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_api, "STRAY_TIMEOUT_S", 1.0)
    async with holding() as (running, held, (asking,)):
        async with connected(running.port) as ((reader, _),):
            assert await ends_unanswered(reader), "silent for as long as that"
        held.release.set()
        assert (await asking).status == 200


async def test_a_kept_connection_breaks_under_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once answered, a connection outlasts one that never asked: clients and balancers keep theirs up to a minute."""
    monkeypatch.setattr(http_api, "STRAY_TIMEOUT_S", 1.0)
    asking = b"GET /v1/models/photo HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with gateway() as running, connected(running.port, asking) as ((reader, writer),):
        assert await status_of(reader) == 200
        await asyncio.wait_for(reader.readuntil(b"}"), PATIENCE_S)
        async with connected(running.port) as ((silent, _),):
            assert await ends_unanswered(silent), "silent for as long as it may be"
        writer.write(asking)
        assert await status_of(reader) == 200


async def test_silent_connections_shut_out_the_next_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the connection that has waited longest makes room, and never one that is being answered."""
    monkeypatch.setattr(GatewaySettings, "max_connections", 4)
    async with holding(2) as (running, held, asking), connected(running.port, count=6):
        async with connected(running.port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as ((reader, _),):
            assert await status_of(reader) == 200
        held.release.set()
        assert {(await one).status for one in asking} == {200}


async def test_a_drain_answers_what_is_in_flight() -> None:
    """Nothing more is taken meanwhile, and the process ends when the last one is answered."""
    async with holding(3) as (running, held, asking):
        assert (await running.get("/healthz")).status == 200
        running.service.end()
        await running.until(lambda: running.service._admission.is_closed, "draining")
        kept = await running.complete()
        assert (kept.status, kept.code, kept.headers["Connection"]) == (503, "draining", "close")
        async with aiohttp.ClientSession() as another:
            with pytest.raises(aiohttp.ClientConnectionError):
                await another.get(f"{running.url}/healthz")
        assert not running.task.done()
        held.release.set()
        assert {(await one).status for one in asking} == {200}
        await asyncio.wait_for(running.task, PATIENCE_S)


async def test_a_drain_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_service, "MAX_DRAIN_S", 0.05)
    async with holding() as (running, held, (asking,)):
        running.service.end()
        await asyncio.wait_for(running.task, PATIENCE_S)
        assert held.cancelled == 1
        with pytest.raises(aiohttp.ClientError):
            await asking


async def test_workloads_are_listed_as_models() -> None:
    async with gateway() as running:
        assert [one["id"] for one in (await running.get("/v1/models")).json["data"]] == ["photo"]
        for name in ("photo", "ucci:photo", "ucci"):
            assert (await running.get(f"/v1/models/{name}")).json["id"] == "photo"
        missing = await running.get("/v1/models/gpt-4o")
        assert (missing.status, missing.code) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/chat/completions", 404, "not_found"),
        ("POST", "/v1/embeddings", 404, "not_found"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
    ],
)
async def test_a_wrong_path_is_answered_without_a_remedy(method: str, path: str, status: int, code: str) -> None:
    """The line says what was asked for and what there is: a base_url without /v1 is the commonest mistake."""
    async with gateway() as running, running.session.request(method, f"{running.url}{path}", json={}) as answer:
        error = (await answer.json())["error"]
    assert (answer.status, error["code"]) == (status, code)
    assert error["message"].startswith(f"{method} {path} is not served here")
    assert all(part in error["message"] for part in ("base_url", "/v1/chat/completions, /v1/completions"))


async def test_the_status_names_the_gateway() -> None:
    """On its own port, and on the topic from which the status page lists the routers."""
    topics = cluster()
    async with gateway(connect=topics) as running:
        await running.complete()
        own = (await running.get("/v1/status")).json
        assert (own["instance_id"], own["ready"], own["counters"]["results"]) == ("gateway-0", True, 1)
        await running.until(lambda: bool(topics.records("ucci.routers")), "a status on the topic")
    assert json.loads(topics.records("ucci.routers")[-1].value or b"")["instance_id"] == "gateway-0"


async def test_a_last_report_under_way_aborted_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a drained router ended with -6, as a thread does that comes back while the interpreter ends."""
    sent = Event()

    def slowly(_: MemoryPublisher, timeout_s: float = 0.0) -> None:
        if current_thread().name == "heartbeat":
            sent.wait(DEADLINE_S + timeout_s)

    before = set(threads())
    monkeypatch.setattr(MemoryPublisher, "close", slowly)
    async with gateway() as asked:
        pass
    try:
        assert asked.service.hangs, "the process ends without the interpreter's clean-up"
    finally:
        sent.set()
        for thread in {one for one in threads() if one.name == "heartbeat"} - before:
            thread.join(DEADLINE_S)
    assert not asked.service.hangs
