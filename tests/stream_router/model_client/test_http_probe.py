"""What a probe finds at two model servers, in lines that say what to do; and what a router says when it starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from schemas.settings import Settings, WorkloadSettings
from schemas.settings_text import doubt_of_order, settings_warnings
from stream_router.cli import app
from stream_router.model_client.http_probe import Probed, probe_workload
from tests.support.model_clients import client, request, workload
from tests.support.model_desk import model_desk
from tests.support.scripted_model_server import Fault, FaultKind, ScriptedModelServer

Servers = tuple[ScriptedModelServer, ScriptedModelServer]


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    async with ScriptedModelServer("small") as small, ScriptedModelServer("large") as large:
        yield small, large


def asking(servers: Servers, **changes: Any) -> WorkloadSettings:
    return workload(*(server.base_url for server in servers), name="w", **changes)


def lines(probed: tuple[Probed, ...]) -> list[tuple[str, str]]:
    return [(finding.kind, finding.line) for one in probed for finding in one.findings]


@pytest.mark.parametrize(
    ("faults", "changes", "kind", "line", "remedy"),
    [
        ({}, {"small_model": "tiny"}, "fault", "small.model: tiny is not served at {small}; served there: small", ""),
        ({"large": "no_tokens"}, {}, "fault", "large: large at {large} returns no log-probabilities", "let the server"),
        # As seen under speculative decoding: u is 0 whatever the answer. What the large model reports decides nothing.
        (
            {"small": "certain", "large": "certain"},
            {},
            "fault",
            "small: small at {small} gives every token of its answer",
            "without speculative decoding",
        ),
        # The template may be wrong; the model may also just stumble over this query.
        ({"small": "bad_answer"}, {}, "doubt", "small: the answer of small", "Check prompt, api and max_tokens"),
        ({"large": None}, {}, "away", "large: {large} does not answer", ""),
    ],
)
async def test_what_a_probe_finds_is_one_line_with_its_remedy(
    servers: Servers, faults: dict[str, FaultKind | None], changes: dict[str, str], kind: str, line: str, remedy: str
) -> None:
    """A server without a kind of fault is down."""
    by_role = dict(zip(("small", "large"), servers, strict=True))
    for role, fault in faults.items():
        if fault is None:
            await by_role[role].stop()
        else:
            by_role[role].play(Fault(fault))
    ((found, said),) = lines(await probe_workload(asking(servers, **changes)))
    assert found == kind
    assert said.startswith("workloads.w." + line.format(**{role: one.base_url for role, one in by_role.items()}))
    assert remedy in said


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
    photo = workload("http://h/v1", "http://h/v1", name="w", small_model="qwen-72b", large_model="qwen-7b").model_dump()
    (warning,) = settings_warnings(Settings.model_validate({"workloads": {"w": photo}}), at_start=True)
    assert warning.startswith("workloads.w.large.model: has 7 billion parameters")


async def test_check_config_probes_and_exits_by_what_it_found(tmp_path: Path) -> None:
    """A fault gives exit code 1, and so does a server that is down."""
    async with model_desk(tmp_path, "target = { micro_f1 = 0.9 }") as desk:

        async def check(small: str) -> tuple[int, str]:
            desk.small_model = small
            words = ["check-config", "--config", str(desk.configure()), "--probe"]
            done = await asyncio.to_thread(CliRunner().invoke, app, words)
            return done.exit_code, done.stderr

        code, said = await check("small")
        assert (code, said.splitlines()[-1]) == (0, "both models of every workload answer, with log-probabilities")
        code, said = await check("tiny")
        assert (code, "\nfault: workloads.w.small.model: tiny is not served" in said) == (1, True)
        await desk.small.stop()
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
