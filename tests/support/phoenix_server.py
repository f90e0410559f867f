"""A real Phoenix, installed apart on first use, on SQLite; and what people and programs do there."""

from __future__ import annotations

import json
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ucci_stream.local.kafka_node import pick_port
from ucci_stream.local.processes import ChildProcess, RunsInBlock
from ucci_stream.local.side_environment import ensure_side_environment

VERSION = "20.26.1"
_READY_TIMEOUT_S = 240.0
_STOP_TIMEOUT_S = 30.0


class PhoenixServer(RunsInBlock):
    """A running server that listens on the loopback interface; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._port = directory, pick_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: ChildProcess | None = None

    def start(self) -> None:
        python = ensure_side_environment("phoenix", VERSION, size="900 MB on disk")
        settings = {
            "PHOENIX_WORKING_DIR": str(self._directory),
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(self._port),
            "PHOENIX_GRPC_PORT": str(pick_port()),
            "PHOENIX_TELEMETRY_ENABLED": "false",
        }
        command = [str(python.parent / "phoenix"), "serve"]
        self._process = ChildProcess("phoenix", command, self._directory / "phoenix.log", settings)
        self._process.start()
        self._process.await_http(f"{self.url}/healthz", _READY_TIMEOUT_S)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.await_end(_STOP_TIMEOUT_S)

    def trace(self, trace_id: str, attributes: dict[str, Any]) -> None:
        """Have a program send a trace of one span, whose id is the trace's first half."""
        now = datetime.now(UTC).isoformat()
        span = {"name": "process ucci.queries", "span_kind": "CHAIN", "status_code": "OK", "attributes": attributes}
        span |= {"context": {"trace_id": trace_id, "span_id": trace_id[:16]}, "start_time": now, "end_time": now}
        self.call("POST", "/v1/projects/default/spans", {"data": [span]})

    def annotate(self, kind: str, place: str, **content: Any) -> None:
        annotation = {"name": "correctness", "annotator_kind": "HUMAN", f"{kind}_id": place} | content
        self.call("POST", f"/v1/{kind}_annotations?sync=true", {"data": [annotation]})

    def annotations(self, trace_id: str) -> list[dict[str, Any]]:
        asked = f"/v1/projects/default/trace_annotations?trace_ids={trace_id}&limit=100"
        return list(self.call("GET", asked)["data"])

    def spans(self) -> int:
        return len(self.call("GET", "/v1/projects/default/spans?limit=1000")["data"])

    def call(self, method: str, path: str, content: Any = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers, method=method)) as answer:
            return json.loads(answer.read() or b"{}")
