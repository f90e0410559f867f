"""The broker hangs, then dies, under feedback over HTTP: 503 until it is back, and nothing acknowledged is lost."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Event, Thread
from typing import Any

import pytest

from tests.support.broker import documents
from tests.support.probes import asked
from tests.support.recalibrator_processes import RecalibratorProcess, create_all_topics, write_recalibrator_config
from ucci_stream.local.kafka_node import LocalBroker, pick_port

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PREFIX = "outage"
DEADLINE_S = 60.0
SINGLE_SENDERS, LINES = 4, 50


class Senders:
    """Send feedback all the time, each event again until it is acknowledged, and keep count."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._changed = Condition()
        self._ending = Event()
        self.acknowledged: set[str] = set()
        self.answers: Counter[int] = Counter()
        self.unexpected: list[Any] = []
        self.without_retry_after = 0
        singles = [Thread(target=self._send, args=(f"s{n}", self._one), daemon=True) for n in range(SINGLE_SENDERS)]
        self._threads = [*singles, Thread(target=self._send, args=("b", self._batch), daemon=True)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Send no more; waits for what is on its way."""
        self._ending.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

    def until(self, status: int, times: int) -> None:
        with self._changed:
            wanted = self.answers[status] + times
            assert self._changed.wait_for(lambda: self.answers[status] >= wanted, DEADLINE_S), (status, self.answers)

    def _send(self, name: str, post: Any) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE_S)
        number, again = 0, False
        while not self._ending.is_set():
            number += not again
            again = not post(connection, f"{name}-{number}")
        connection.close()

    def _one(self, connection: http.client.HTTPConnection, name: str) -> bool:
        body = json.dumps({"query_id": name, "entities": None})
        headers = {"Content-Type": "application/json", "Idempotency-Key": name}
        status, content = self._post(connection, "/v1/feedback", body, headers)
        if status == 202:
            self.acknowledged.add(json.loads(content)["feedback_id"])
        return status == 202

    def _batch(self, connection: http.client.HTTPConnection, name: str) -> bool:
        ids = [f"{name}-{line}" for line in range(LINES)]
        lines = [json.dumps({"query_id": one, "entities": None, "feedback_id": one}) for one in ids]
        headers = {"Content-Type": "application/jsonl"}
        status, content = self._post(connection, "/v1/feedback:batch", "\n".join(lines), headers)
        if status in {202, 207}:
            told = [json.loads(line)["status"] for line in content.splitlines()]
            assert len(told) == LINES
            self.acknowledged.update(one for one, status in zip(ids, told, strict=True) if status == 202)
        return status == 202

    def _post(
        self, connection: http.client.HTTPConnection, path: str, body: str, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        with self._changed:
            self.answers[answer.status] += 1
            if answer.status == 503:
                code = json.loads(content)["error"]["code"]
                self.without_retry_after += not (int(answer.headers["Retry-After"]) > 0 and code == "broker_away")
            elif answer.status not in {202, 207}:
                self.unexpected.append((answer.status, content[:300]))
            self._changed.notify_all()
        return answer.status, content


def test_acknowledged_feedback_survives_outages(
    own_broker: LocalBroker, start: Callable[..., None], tmp_path: Path
) -> None:
    """While the broker hangs or is dead, feedback gets 503 until it is back; nothing acknowledged is lost."""
    create_all_topics(own_broker.bootstrap, PREFIX)
    port = pick_port()
    config = write_recalibrator_config(
        tmp_path / "ucci.toml", own_broker.bootstrap, PREFIX, tmp_path / "state", http_port=port
    )
    process = RecalibratorProcess(config, "api", tmp_path / "api.log", stages=("api",), forked=True)
    start(process)
    while not asked(f"http://127.0.0.1:{port}/healthz")[0]:
        process.assert_runs()
    senders = Senders(port)
    senders.start()
    senders.until(202, 200)

    own_broker.freeze()
    senders.until(503, SINGLE_SENDERS)
    own_broker.thaw()
    senders.until(202, 200)

    own_broker.kill()
    senders.until(503, SINGLE_SENDERS)
    own_broker.start()
    senders.until(202, 200)
    senders.end()

    assert senders.unexpected == []
    assert senders.without_retry_after == 0
    process.assert_runs()  # it recovers by itself
    found = {event["feedback_id"] for event in documents(own_broker.bootstrap, f"{PREFIX}.feedback")}
    assert senders.acknowledged - found == set()
    assert len(senders.acknowledged) >= 600
