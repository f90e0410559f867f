"""What a probe finds at two model servers, in lines that say what to do; and what a router says when it starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from schemas.settings import WorkloadSettings
from schemas.settings_text import doubt_of_order, parse_settings, settings_warnings
from stream_router.cli import app
from stream_router.model_client.http_probe import Probed, probe_workload
from tests.support.model_clients import client, request, workload
from tests.support.scripted_model_server import Fault, ScriptedModelServer

Servers = tuple[ScriptedModelServer, ScriptedModelServer]


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    async with ScriptedModelServer("small") as small, ScriptedModelServer("large") as large:
        yield small, large


def asking(servers: Servers, **changes: Any) -> WorkloadSettings:
    return workload(*(server.base_url for server in servers), name="w", **changes)


def lines(probed: tuple[Probed, ...]) -> list[tuple[str, str]]:
    return [(finding.kind, finding.line) for one in probed for finding in one.findings]


async def test_two_good_servers_leave_nothing_to_say(servers: Servers) -> None:
    assert lines(await probe_workload(asking(servers))) == []


async def test_a_wrong_model_name_is_a_fault(servers: Servers) -> None:
    ((kind, line),) = lines(await probe_workload(asking(servers, small_model="tiny")))
    assert kind == "fault"
    assert line == f"workloads.w.small.model: tiny is not served at {servers[0].base_url}; served there: small"


async def test_missing_log_probabilities_are_a_fault(servers: Servers) -> None:
    servers[1].play(Fault("no_tokens"))
    ((kind, line),) = lines(await probe_workload(asking(servers)))
    assert kind == "fault"
    assert line.startswith(f"workloads.w.large: large at {servers[1].base_url} returns no log-probabilities")


async def test_every_token_of_probability_1_is_a_fault(servers: Servers) -> None:
    """As seen under speculative decoding: u is 0 whatever the answer. What the large model reports decides nothing."""
    for server in servers:
        server.play(Fault("certain"))
    ((kind, line),) = lines(await probe_workload(asking(servers)))
    assert kind == "fault"
    assert line.startswith(f"workloads.w.small: small at {servers[0].base_url} gives every token of its answer")
    assert "without speculative decoding" in line


async def test_an_answer_that_does_not_parse_is_a_doubt(servers: Servers) -> None:
    """The template may be wrong; the model may also just stumble over this query."""
    servers[0].play(Fault("bad_answer"))
    ((kind, line),) = lines(await probe_workload(asking(servers)))
    assert kind == "doubt"
    assert 'it begins "Sure! Here are the entities' in line
    assert "Check prompt, api and max_tokens" in line


async def test_a_server_that_is_down_is_away(servers: Servers) -> None:
    await servers[1].stop()
    ((kind, line),) = lines(await probe_workload(asking(servers)))
    assert kind == "away"
    assert line.startswith(f"workloads.w.large: {servers[1].base_url} does not answer")


@pytest.mark.parametrize(
    ("small", "large", "doubted"),
    [
        ("gemma-3-12b-it", "gemma-3-4b-it", True),
        ("gemma-3-4b-it", "gemma-3-12b-it", False),
        ("photo-large", "photo-small", True),
        ("web2b", "4bit", False),
        ("0.5B", "7B", False),
    ],
)
def test_names_show_models_that_are_swapped(small: str, large: str, *, doubted: bool) -> None:
    assert (doubt_of_order(small, large) is not None) == doubted


def test_swapped_models_are_among_the_warnings() -> None:
    ends = [f'{role} = {{ base_url = "http://h/v1", model = "{name}" }}' for role, name in
            (("small", "qwen-72b"), ("large", "qwen-7b"))]  # fmt: skip
    text = "\n".join(["[workloads.w]", 'fields = ["a"]', "target = { micro_f1 = 0.9 }", *ends])
    (warning,) = settings_warnings(parse_settings(text, {}), at_start=True)
    assert warning.startswith("workloads.w.large.model: has 7 billion parameters")


async def test_check_config_probes_and_exits_by_what_it_found(servers: Servers, tmp_path: Path) -> None:
    """A fault gives exit code 1, and so does a server that is down."""

    async def check(small: str) -> tuple[int, str]:
        ends = [
            f'{role} = {{ base_url = "{server.base_url}", model = "{name}" }}'
            for role, server, name in zip(("small", "large"), servers, (small, "large"), strict=True)
        ]
        config = tmp_path / "ucci.toml"
        config.write_text("\n".join(["[workloads.w]", 'fields = ["iso"]', "target = { micro_f1 = 0.9 }", *ends]))
        done = await asyncio.to_thread(CliRunner().invoke, app, ["check-config", "--config", str(config), "--probe"])
        return done.exit_code, done.stderr

    code, said = await check("small")
    assert (code, said.splitlines()[-1]) == (0, "both models of every workload answer, with log-probabilities")
    code, said = await check("tiny")
    assert (code, "\nfault: workloads.w.small.model: tiny is not served" in said) == (1, True)
    await servers[0].stop()
    code, said = await check("small")
    assert (code, "workloads.w.small: " in said) == (1, True)


async def test_a_starting_client_names_what_is_served(servers: Servers) -> None:
    """The router goes on: the server may be given the model while it waits."""
    logged = await _start_and_call(asking(servers, small_model="tiny"), calls=0)
    (warning,) = [line for line in logged if line["event"] == "model not served"]
    assert (warning["model"], warning["served"]) == ("tiny", ["small"])


async def test_missing_log_probabilities_are_logged_once(servers: Servers) -> None:
    servers[0].play(Fault("no_tokens"))
    logged = await _start_and_call(asking(servers), calls=3)
    assert len([line for line in logged if "no log-probabilities" in str(line["event"])]) == 1


async def _start_and_call(settings: WorkloadSettings, calls: int) -> list[dict[str, object]]:
    with capture_logs() as logged:
        async with client(settings) as server:
            for number in range(calls):
                await server.call(request(settings, f"query {number}"))
    return [dict(line) for line in logged]
