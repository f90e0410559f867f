"""A local Label Studio: installed separately on first use, on SQLite, to try out and to test with."""

from __future__ import annotations

import json
import secrets
import socket
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from ucci_stream.local.processes import ChildProcess, RunsInBlock, StackFailed, await_signal, free_port
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
    """The only account of the server."""

    user: str
    password: str
    token: str


class LabelStudioServer(RunsInBlock):
    """A running server that listens on the loopback interface; a context manager."""

    def __init__(self, directory: Path, port: int = 0) -> None:
        self._directory = directory
        self._port = port or free_port()
        self._process: ChildProcess | None = None
        self.account = Account("", "", "")

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Install it where it is not yet, start it and wait until it answers.

        Raises StackFailed when it cannot be installed or does not start.
        """
        python = ensure_side_environment("label-studio", LABEL_STUDIO_VERSION, size="1 GB on disk")
        _require_free(self._port)
        data = self._directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        self.account = _account(self._directory / "account.json")
        # Every user of the machine can read a command line; an environment only its owner.
        account = {
            "LABEL_STUDIO_USERNAME": self.account.user,
            "LABEL_STUDIO_PASSWORD": self.account.password,
            "LABEL_STUDIO_USER_TOKEN": self.account.token,
        }
        command = [str(python.parent / "label-studio"), "start", "--no-browser", "--enable-legacy-api-token"]
        command += ["--internal-host", "127.0.0.1", "--port", str(self._port), "--data-dir", str(data.resolve())]
        log = self._directory / "label-studio.log"
        self._process = ChildProcess("label-studio", command, log, _ENVIRONMENT | account)
        self._process.start()
        self._process.await_http(f"{self.url}/health", _READY_TIMEOUT_S)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.stop(_STOP_TIMEOUT_S)

    def require_alive(self) -> None:
        """Raise StackFailed when it has ended."""
        if self._process is not None:
            self._process.require_alive()


def serve(directory: Path, port: int, console: Console) -> None:
    """Run a server until SIGTERM or Ctrl-C. Raises StackFailed when it does not start, or dies."""
    with LabelStudioServer(directory, port) as server:
        user, password, token = server.account
        lines = (
            f"Label Studio at {server.url} · {user} · password {password}",
            f"export LABEL_STUDIO_URL={server.url} LABEL_STUDIO_API_KEY={token}",
        )
        await_signal(server.require_alive, lambda: console.print("\n".join(lines), highlight=False, soft_wrap=True))


def _require_free(port: int) -> None:
    """Refuse a port that is taken: Label Studio would take the next one without a word."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise StackFailed(f"--port: {port} cannot be listened at ({error.strerror}); give another") from None


def _account(path: Path) -> Account:
    if not path.exists():
        path.touch(mode=0o600)
        account = Account(_USER, secrets.token_urlsafe(12), secrets.token_hex(20))
        path.write_text(json.dumps(account._asdict()), encoding="utf-8")
    return Account(**json.loads(path.read_text(encoding="utf-8")))
