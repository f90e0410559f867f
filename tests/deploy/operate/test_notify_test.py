"""`ucci-stream notify test` shows at once whether a webhook takes what it is sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from schemas.errors import ConfigError
from tests.support.commands import call
from tests.support.webhooks import receiving
from ucci_stream.cli import app


def config(directory: Path, **urls: str) -> str:
    tables = [f'[notify.webhooks.{name}]\nurl = "{url}"\nsecret = "a-secret-long-enough"' for name, url in urls.items()]
    path = directory / "ucci.toml"
    path.write_text("\n".join(tables))
    return str(path)


def test_each_webhook_says_how_it_answered(tmp_path: Path) -> None:
    with receiving() as good, receiving(404) as bad:
        path = config(tmp_path, ops=good.url, chat=bad.url)
        result = CliRunner().invoke(app, ["notify", "test", "--config", path, "--json"])
        assert result.exit_code == 1
        found = json.loads(result.stdout)
        assert (found["ops"]["outcome"], found["chat"]["outcome"]) == ("delivered", "refused")
        assert "404" in found["chat"]["detail"]
        assert good.received[0].headers["webhook-signature"].startswith("v1,")
        only = CliRunner().invoke(app, ["notify", "test", "--config", path, "--webhook", "ops"])
        assert (only.exit_code, len(good.received), len(bad.received)) == (0, 2, 1)
        assert "secret-token" not in result.stdout + only.stdout


def test_no_webhook_and_an_unknown_one_are_bad_usage(tmp_path: Path) -> None:
    for arguments, urls in (([], {}), (["--webhook", "nobody"], {"ops": "http://127.0.0.1:9/x"})):
        with pytest.raises(ConfigError):
            call("notify", "test", "--config", config(tmp_path, **urls), *arguments)
