"""`init` writes a file that a router takes, from what the servers list and the gold lines name."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typer.testing import Result

from schemas.settings_text import load_settings
from tests.support.commands import invoke, refused
from tests.support.scripted_model_server import FIELDS, Fault, ScriptedModelServer
from ucci_stream import cli

Servers = tuple[ScriptedModelServer, ScriptedModelServer]


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    async with ScriptedModelServer("small") as small, ScriptedModelServer("large") as large:
        yield small, large


async def init(servers: Servers, folder: Path, *more: str) -> Result:
    urls = ["--small-url", servers[0].base_url, "--large-url", servers[1].base_url]
    return await invoke("init", *urls, "--out", folder / "ucci.toml", *more)


async def test_models_and_fields_need_not_be_named(servers: Servers, tmp_path: Path) -> None:
    gold, line = tmp_path / "gold.jsonl", {"text": "x", "entities": dict.fromkeys(FIELDS, "1")}
    gold.write_text(json.dumps(line) + "\n", encoding="utf-8")
    done = await init(servers, tmp_path, "--gold", str(gold), "--workload", "photo search")
    assert done.exit_code == 0, done.exception
    assert done.stdout.index("topics create") < done.stdout.index("calibrate") < done.stdout.index("recalibrator run")
    workload = load_settings(tmp_path / "ucci.toml", {}).workloads["photo search"]
    assert (workload.small and workload.small.model, workload.large and workload.large.model) == ("small", "large")
    assert set(workload.fields) == set(FIELDS)
    assert [body["prompt"] for body in servers[0].seen.bodies] == [workload.prompt.replace("{text}", "x")]


async def test_an_existing_file_stays_without_force(servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "ucci.toml").write_text("mine", encoding="utf-8")
    refused(await init(servers, tmp_path, "--fields", "iso"))
    assert (tmp_path / "ucci.toml").read_text(encoding="utf-8") == "mine"
    assert servers[0].seen.calls == 0
    assert (await init(servers, tmp_path, "--fields", "iso", "--force")).exit_code == 0
    assert load_settings(tmp_path / "ucci.toml", {}).workloads["queries"].fields == ("iso",)


async def test_a_workload_is_added_to_an_existing_file(servers: Servers, tmp_path: Path) -> None:
    """What the file says stays, comments included; the same name a second time changes nothing."""
    assert (await init(servers, tmp_path, "--fields", "iso", "--kafka", "kafka:1")).exit_code == 0
    before = (tmp_path / "ucci.toml").read_text(encoding="utf-8")
    done = await init(servers, tmp_path, "--fields", "lens,iso", "--workload", "reviews", "--add")
    assert done.exit_code == 0, done.exception
    after = (tmp_path / "ucci.toml").read_text(encoding="utf-8")
    assert after.startswith(before.rstrip())
    settings = load_settings(tmp_path / "ucci.toml", {})
    assert [workload.fields for workload in settings.workloads.values()] == [("iso",), ("lens", "iso")]
    assert settings.kafka["bootstrap.servers"] == "kafka:1"
    assert "default_workload: is not set" in done.stderr
    refused(await init(servers, tmp_path, "--fields", "iso", "--workload", "reviews", "--add"))
    assert (tmp_path / "ucci.toml").read_text(encoding="utf-8") == after


async def test_a_script_is_given_the_missing_option(servers: Servers, tmp_path: Path) -> None:
    assert refused(await init(servers, tmp_path)).startswith("--fields: is needed")


async def test_a_person_is_asked_and_the_answer_names_fields(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt is tried once; the keys of the model's answer are the default."""
    asked: list[tuple[str, str | None]] = []

    def answer(_option: str, question: str, default: str | None) -> str:
        asked.append((question, default))
        return default or "canon 5d"

    monkeypatch.setattr(cli, "_ask_at_terminal", answer)
    done = await init(servers, tmp_path, "--prompt", "Find {text} <now>\n")
    assert done.exit_code == 0, done.exception
    assert asked == [("A query to try the prompt with", None), ("Fields", ",".join(FIELDS))]
    assert load_settings(tmp_path / "ucci.toml", {}).workloads["queries"].prompt == "Find {text} <now>\n"


async def test_a_wildcard_is_never_proposed_as_a_model(servers: Servers, tmp_path: Path) -> None:
    """Beside one real name it is passed over; alone, the name has to be given."""
    servers[0].listed = ["provider/*", "small"]
    assert (await init(servers, tmp_path, "--fields", ",".join(FIELDS))).exit_code == 0
    small = load_settings(tmp_path / "ucci.toml", {}).workloads["queries"].small
    assert small is not None
    assert small.model == "small"
    servers[0].listed = ["provider/*"]
    said = refused(await init(servers, tmp_path, "--fields", "iso", "--force"))
    assert said.startswith("--small-model: is needed")
    assert "*" not in (tmp_path / "ucci.toml").read_text(encoding="utf-8")
    named = ["--fields", ",".join(FIELDS), "--force", "--small-model", "small"]
    assert (await init(servers, tmp_path, *named)).exit_code == 0


async def test_keys_that_are_not_the_fields_are_warned_of(servers: Servers, tmp_path: Path) -> None:
    servers[0].play(Fault("text", said='{"Camera": "z1", "ISO": "100"}'))
    done = await init(servers, tmp_path, "--fields", ",".join(FIELDS))
    assert done.exit_code == 0
    assert '"ISO" (iso is meant?)' in done.stderr


async def test_a_useless_server_leaves_no_file(servers: Servers, tmp_path: Path) -> None:
    servers[1].play(Fault("no_tokens"))
    assert "returns no log-probabilities" in refused(await init(servers, tmp_path, "--fields", "iso"))
    assert not (tmp_path / "ucci.toml").exists()


@pytest.mark.parametrize(
    ("option", "value", "fault"),
    [("--prompt", "no place", "must contain {text}"), ("--api", "soap", "api"), ("--small-url", "h:1", "--small-url")],
)
async def test_a_bad_option_is_named(servers: Servers, tmp_path: Path, option: str, value: str, fault: str) -> None:
    assert fault in refused(await init(servers, tmp_path, "--fields", "iso", option, value))
    assert not (tmp_path / "ucci.toml").exists()
