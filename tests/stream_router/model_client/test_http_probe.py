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
from stream_router.errors import MisconfiguredError
from stream_router.model_client.http_call import ModelConnection
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
        (
            {"small": "logits"},
            {},
            "fault",
            "small: small at {small} answers, but u cannot be measured",
            "logits, perhaps",
        ),
        (
            {"large": "few_tokens"},
            {},
            "fault",
            "large: large at {large} answers, but u cannot",
            "of 1 of the 12 tokens",
        ),
        ({"small": "thinks"}, {}, "doubt", "small: small at {small} thinks before it answers", "switch it off"),
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
            by_role[role].play(Fault(fault, said="<think>A camera?</think>"))
    ((found, said),) = lines(await probe_workload(asking(servers, **changes)))
    assert found == kind
    assert said.startswith("workloads.w." + line.format(**{role: one.base_url for role, one in by_role.items()}))
    assert remedy in said


@pytest.mark.parametrize(
    ("text", "key", "field"),
    [
        ('{"Camera": "z1", "ISO": "100"}', "Camera", "camera"),
        ('{"iso": "1", "focalLength": "50"}', "focalLength", "focal_length"),
    ],
)
async def test_a_probe_names_keys_and_the_fields_that_are_meant(
    servers: Servers, text: str, key: str, field: str
) -> None:
    servers[0].play(Fault("text", said=text))
    ((kind, line),) = lines(await probe_workload(asking(servers)))
    assert (kind, f'"{key}" ({field} is meant?)' in line) == ("doubt", True)
    assert "Name the fields in the prompt exactly" in line


async def test_a_refusal_of_the_probe_is_told_in_the_servers_words(servers: Servers) -> None:
    servers[0].play(Fault("status", status=400, said="max_logprobs is 0"))
    ((kind, line),) = lines(await probe_workload(asking(servers)))
    assert (kind, "HTTP 400: max_logprobs is 0" in line) == ("fault", True)


@pytest.mark.parametrize(
    ("listed", "model"),
    [
        (["m:latest"], "m"),
        (["/models/m-q4.gguf"], "m-q4"),
        (["provider/*"], "provider/m"),
        (["*"], "m"),
        (["M"], "m"),
        (["quite-another"], "m"),
        ([], "m"),
    ],
)
async def test_a_name_that_is_answered_is_served_whatever_is_listed(
    servers: Servers, listed: list[str], model: str
) -> None:
    servers[0].model, servers[0].listed = model, listed
    assert lines(await probe_workload(asking(servers, small_model=model))) == []
    logged = await _start_and_call(asking(servers, small_model=model), calls=1)
    assert [line["served"] for line in logged if line["event"] == "model not listed"] == (
        [listed] if listed == ["quite-another"] else []
    )


async def test_a_list_that_is_refused_leaves_the_model_to_be_tried(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: ModelConnection) -> dict[str, str]:
        raise MisconfiguredError("HTTP 403")

    monkeypatch.setattr(ModelConnection, "models", refuse)
    assert lines(await probe_workload(asking(servers))) == []


@pytest.mark.parametrize("listed", [["tiny:latest"], ["*"], []])
async def test_a_name_that_nobody_serves_is_a_fault_all_the_same(servers: Servers, listed: list[str]) -> None:
    servers[0].listed = listed
    ((kind, line),) = lines(await probe_workload(asking(servers, small_model="tiny")))
    assert (kind, "The model `tiny` does not exist" in line) == ("fault", True)


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
    (warning,) = [line for line in logged if line["event"] == "model not listed"]
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
