"""`measure-costs` times both models under equal conditions, and its line goes into the settings as it is."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import Result

from schemas.costs import TokenUse
from schemas.errors import ConfigError
from schemas.routed import ModelRole, QueryEvent
from schemas.settings import WorkloadSettings
from schemas.settings_text import load_settings
from schemas.topics import QUERIES
from stream_router.model_client.http_probe import ROLES
from stream_router.model_client.request import ModelRequest
from stream_router.ports import Reply
from tests.support.broker import create, produce
from tests.support.commands import invoke, said
from tests.support.model_desk import ModelDesk, model_desk
from tests.support.scripted_model_server import FIELDS, Fault
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.offline.cost_estimate import TimedCall, estimate_costs
from ucci_stream.offline.cost_measurement import LEAST_BLOCKS, MeasurementPlan, Turns

EQUAL: dict[ModelRole, float] = {"small": 1.0, "large": 1.0}
MODELS = {role: {"base_url": "http://127.0.0.1:1/v1", "model": role} for role in ROLES}
WORKLOAD = WorkloadSettings.model_validate({"name": "w", "fields": list(FIELDS), "target": {"micro_f1": 0.9}} | MODELS)
Seconds = Callable[[float, int, int], float]


def plan(queries: int = 400, concurrency: int = 1) -> MeasurementPlan:
    return MeasurementPlan(queries, concurrency, no_prefix_cache=False, server_prices=EQUAL)


def texts(count: int) -> list[str]:
    """Queries of different lengths, each only once."""
    return [f"query {number}" + " x" * (number % 7) for number in range(count)]


@dataclass
class Clock:
    """Time that passes only while a server works."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class TimedServer:
    """Takes as long as is said; counts how many calls are in flight when each is answered."""

    clock: Clock
    seconds: Seconds
    in_flight: int = 0
    company: dict[str, int] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)

    async def attempt(self, request: ModelRequest) -> Reply:
        body = json.loads(request.body)
        prompt = body["prompt"]
        read, generated = len(prompt), 1 if body["max_tokens"] == 1 else 20 + len(prompt) % 5
        self.in_flight += 1
        for _ in range(3 + len(prompt) % 4):
            await asyncio.sleep(0)
        self.asked[prompt] += 1
        self.company[prompt] = self.in_flight
        self.in_flight -= 1
        self.clock.now_s += self.seconds(self.clock.now_s, read, generated)
        return Reply("{}", "stop", generated, 0.1, read)


async def timed(
    small: Seconds, large: Seconds, asked: MeasurementPlan, *, readings: bool = False
) -> tuple[list[TimedCall], list[TimedServer]]:
    """Measure servers that take so many seconds; both share a clock."""
    clock = Clock()
    servers: dict[ModelRole, TimedServer] = {"small": TimedServer(clock, small), "large": TimedServer(clock, large)}
    turns = Turns(WORKLOAD, servers, texts(asked.texts), asked, clock=clock)
    return await turns.measure(readings=readings), list(servers.values())


async def test_drift_of_the_machine_hits_both_models() -> None:
    """A machine that gets three times slower in the course of it leaves the ratio as it is."""

    def growing(base_s: float) -> Seconds:
        return lambda now_s, _read, _generated: base_s * (1.0 + now_s / 1_200.0)

    calls, _ = await timed(growing(1.0), growing(3.0), plan())
    slowest, quickest = (pick(call.latency_s for call in calls if call.role == "small") for pick in (max, min))
    assert slowest > 3.0 * quickest
    found = estimate_costs(calls, 1, EQUAL).large
    assert found.lower <= 3.0 <= found.upper
    assert found.estimate == pytest.approx(3.0, rel=0.01)
    assert found.upper - found.lower < 0.3


async def test_tokens_read_and_generated_are_priced_apart() -> None:
    def priced(read_s: float, generated_s: float) -> Seconds:
        return lambda _now_s, read, generated: read_s * read + generated_s * generated

    calls, _ = await timed(priced(0.001, 0.02), priced(0.004, 0.05), plan(), readings=True)
    tokens = estimate_costs(calls, 1, EQUAL).tokens
    assert tokens.prompt_small is not None
    assert tokens.prompt_large is not None
    found = (tokens.large.estimate, tokens.prompt_small.estimate, tokens.prompt_large.estimate)
    assert found == pytest.approx((2.5, 0.05, 0.2))


async def test_dearer_server_makes_dearer_calls() -> None:
    calls, _ = await timed(lambda *_: 1.0, lambda *_: 3.0, plan(80))
    assert estimate_costs(calls, 1, {"small": 1.0, "large": 4.0}).large.estimate == pytest.approx(12.0)


async def test_all_places_are_taken_and_no_query_twice() -> None:
    """Else the last calls of a block would be quicker than those in production, and the prefix cache know a query."""
    asked = plan(120, concurrency=4)
    calls, servers = await timed(lambda *_: 1.0, lambda *_: 1.0, asked, readings=True)
    measured = texts(asked.texts)[asked.warm_up :]
    assert len(calls) == len(ROLES) * len(measured)
    for server in servers:
        assert {(server.company[text], server.asked[text]) for text in measured} == {(4, 1)}


def test_fewer_queries_are_measured_with_few_texts() -> None:
    asked = plan(400, concurrency=4)
    possible = asked.within(200)
    assert possible.texts <= 200
    assert LEAST_BLOCKS * 4 <= possible.queries < 400
    assert asked.within(asked.texts) == asked


@pytest.mark.parametrize(
    ("queries", "concurrency", "given", "named"), [(400, 32, 300, "--concurrency"), (9, 2, 900, "--queries")]
)
def test_plan_that_says_nothing_is_refused(queries: int, concurrency: int, given: int, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        plan(queries, concurrency).within(given)


TARGET = "target = { micro_f1 = 0.9 }\n"


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[ModelDesk]:
    async with model_desk(tmp_path, TARGET, "Name the camera: {text}") as made:
        yield made


def file(desk: ModelDesk, count: int) -> Path:
    path = desk.folder / "queries.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts(count)), encoding="utf-8")
    return path


async def measure(desk: ModelDesk, *more: object) -> Result:
    return await invoke("measure-costs", "--workload", "w", "--config", desk.config, *more)


@pytest.mark.parametrize("form", ["by_query", "by_token"])
async def test_printed_line_goes_into_the_settings(desk: ModelDesk, form: str) -> None:
    found = said(await measure(desk, file(desk, 100), "--queries", 32, "--concurrency", 2, "--json"))
    desk.workload += found["settings"][form]
    cost = load_settings(desk.configure(), {}).workloads["w"].cost
    assert cost is not None
    if form == "by_query":
        assert cost.large == pytest.approx(found["large"]["estimate"], rel=0.01)
    else:
        used = {
            role: TokenUse(one["prompt_tokens"], one["completion_tokens"]) for role, one in found["servers"].items()
        }
        ratio = cost.of_large(used["large"]) / cost.of_small(used["small"])
        assert ratio == pytest.approx(found["large"]["estimate"], rel=0.05)


async def test_people_are_shown_both_lines(desk: ModelDesk) -> None:
    done = await measure(desk, file(desk, 100), "--queries", 32, "--concurrency", 2)
    assert done.exit_code == 0, done.output
    assert "cost = { small = 1.0, large = " in done.stdout
    assert 'cost = { unit = "token", small = 1.0, large = ' in done.stdout
    assert "--no-prefix-cache" in done.stdout


@pytest.mark.parametrize("option", [[], ["--no-prefix-cache"]])
async def test_prefix_cache_is_kept_out_on_request(desk: ModelDesk, option: list[str]) -> None:
    """With vLLM's `cache_salt`, another one in each call; the router never sends one."""
    await measure(desk, file(desk, 100), "--queries", 32, "--concurrency", 2, *option)
    prompts = [body for body in desk.small.seen.bodies if body["prompt"].startswith("Name")]
    salts = [body["cache_salt"] for body in prompts if "cache_salt" in body]
    assert len(salts) == len(set(salts))
    assert bool(salts) == bool(option)


async def test_server_that_fails_often_ends_the_measurement(desk: ModelDesk) -> None:
    desk.large.play(Fault("status", status=500, containing="query 3"))
    done = await measure(desk, file(desk, 100), "--queries", 32, "--concurrency", 2)
    assert done.exit_code == 1
    assert "w/large: 6 calls failed" in str(done.exception)


async def test_more_places_than_a_router_opens_are_refused(desk: ModelDesk) -> None:
    done = await measure(desk, file(desk, 2000), "--queries", 800, "--concurrency", 65)
    assert isinstance(done.exception, ConfigError)
    assert "workloads.w.large.max_concurrency is 64" in str(done.exception)


@pytest.mark.broker
async def test_queries_come_from_the_topic_where_no_file_is_given(
    desk: ModelDesk, broker: LocalBroker, topic_prefix: str
) -> None:
    topic = QUERIES.name(topic_prefix)
    desk.broker, desk.prefix = broker.bootstrap, topic_prefix
    desk.configure()
    sent = [QueryEvent(query_id=f"q{i}", text=text) for i, text in enumerate(texts(100))]
    foreign = QueryEvent(query_id="other", text="of another workload", workload="other")

    def fill() -> None:
        create(broker.bootstrap, {topic: 2})
        produce(broker.bootstrap, topic, [(query.query_id, query.to_json()) for query in [*sent, foreign]])

    await asyncio.to_thread(fill)
    found = said(await measure(desk, "--queries", 32, "--concurrency", 2, "--json"))
    assert found["servers"]["small"]["calls"] == 32
    asked = {body["prompt"].removeprefix("Name the camera: ") for body in desk.small.seen.bodies}
    assert asked <= {query.text for query in sent}
