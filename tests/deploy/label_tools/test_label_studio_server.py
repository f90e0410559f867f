"""A Label Studio of one's own: what shows without starting it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import ucci_stream.label_tools.label_studio_server as server_module
from tests.support.commands import program
from ucci_stream.label_tools.label_studio_server import LabelStudioServer
from ucci_stream.local.processes import StackFailed


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "ensure_side_environment", lambda *_, **__: tmp_path / "bin" / "python")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StackFailed, match=f"--port: {port} cannot be listened at"):
            LabelStudioServer(tmp_path, port).start()


def test_password_and_token_stay_out_of_the_process_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user of the machine can read a command line; an environment only its owner."""
    said = 'echo "$0 $@"\necho "$LABEL_STUDIO_USERNAME/$LABEL_STUDIO_PASSWORD"'
    program(tmp_path / "bin" / "label-studio", said)
    monkeypatch.setattr(server_module, "ensure_side_environment", lambda *_, **__: tmp_path / "bin" / "python")
    server = LabelStudioServer(tmp_path)
    with pytest.raises(StackFailed):
        server.start()  # it ends at once, having printed how it was started
    words, user = (tmp_path / "label-studio.log").read_text(encoding="utf-8").splitlines()
    assert user == f"{server.account.user}/{server.account.password}"
    assert server.account.password not in words
    assert server.account.token not in words
