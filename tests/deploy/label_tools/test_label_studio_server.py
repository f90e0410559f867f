"""A Label Studio of one's own: what shows without starting it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import ucci_stream.label_tools.label_studio_server as server_module
from ucci_stream.label_tools.label_studio_server import LabelStudioServer
from ucci_stream.local.processes import StackFailed


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that is taken is named before anything is started."""
    monkeypatch.setattr(server_module, "ensure_side_environment", lambda *_, **__: tmp_path / "bin" / "python")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StackFailed, match=f"--port: {port} cannot be listened at"):
            LabelStudioServer(tmp_path, port).start()
