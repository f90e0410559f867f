"""A real Label Studio, installed apart on first use, on SQLite."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import NamedTuple

from ucci_stream.local.kafka_node import pick_port
from ucci_stream.local.processes import ChildProcess, RunsInBlock
from ucci_stream.local.side_environment import ensure_side_environment

LABEL_STUDIO_VERSION = "1.23.2"
_USER = "labeler@localhost.localdomain"
_READY_TIMEOUT_S = 300.0
_STOP_TIMEOUT_S = 20.0
_ENVIRONMENT = {
    # Webhooks to this machine are refused otherwise.
    "SSRF_PROTECTION_ENABLED": "false",
    # It sends no telemetry and looks for no updates.
    "COLLECT_ANALYTICS": "false",
    "SENTRY_DSN": "",
    "FRONTEND_SENTRY_DSN": "",
    "LATEST_VERSION_CHECK": "false",
}


class Account(NamedTuple):
    user: str
    password: str
    token: str


class LabelStudioServer(RunsInBlock):
    """A running server that listens on the loopback interface; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._port = directory, pick_port()
        self._process: ChildProcess | None = None
        self.account = Account("", "", "")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        python = ensure_side_environment("label-studio", LABEL_STUDIO_VERSION, size="1 GB on disk")
        self.account = Account(_USER, secrets.token_urlsafe(12), secrets.token_hex(20))
        # Every user of the machine can read a command line; an environment only its owner.
        account = {
            "LABEL_STUDIO_USERNAME": self.account.user,
            "LABEL_STUDIO_PASSWORD": self.account.password,
            "LABEL_STUDIO_USER_TOKEN": self.account.token,
        }
        command = [str(python.parent / "label-studio"), "start", "--no-browser", "--enable-legacy-api-token"]
        command += ["--internal-host", "127.0.0.1", "--port", str(self._port), "--data-dir", str(self._directory)]
        log = self._directory / "label-studio.log"
        self._process = ChildProcess("label-studio", command, log, _ENVIRONMENT | account)
        self._process.start()
        self._process.await_http(f"{self.url}/health", _READY_TIMEOUT_S)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop(_STOP_TIMEOUT_S)
