"""Callers who ask all the time while the broker behind a service hangs, dies and comes back."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from threading import Condition, Event, Thread

from ucci_stream.local.kafka_node import LocalBroker

DEADLINE_S = 60.0
ENOUGH = 200
_PAUSE_S = 0.05


@dataclass(frozen=True)
class Question:
    """What one caller asks, each time under a new name, and again until all of it is acknowledged."""

    path: str
    body: Callable[[str], str]
    #: What an answer of 2xx acknowledges, by the name and the answer's body.
    acknowledged: Callable[[str, bytes], Iterable[str]]
    media_type: str = "application/json"


class Callers:
    """A thread for each question; ``away`` is the code of the only refusal that is right: 503 with Retry-After."""

    def __init__(self, port: int, questions: Sequence[Question], away: str) -> None:
        self._port, self._away = port, away
        self._changed, self._ending = Condition(), Event()
        self._answered = self._refused = 0
        self.acknowledged: set[str] = set()
        self.unexpected: list[object] = []
        named = [(f"c{number}", question) for number, question in enumerate(questions)]
        self._threads = [Thread(target=self._ask, args=one, daemon=True) for one in named]
        for thread in self._threads:
            thread.start()

    def see_through(self, broker: LocalBroker, while_frozen: Callable[[], None] = lambda: None) -> None:
        """Ask while the broker hangs and while it is dead, and after each; then end what is on its way."""
        try:
            self._until(answered=ENOUGH)
            broker.freeze()
            self._until(refused=len(self._threads))
            while_frozen()
            broker.thaw()
            self._until(answered=ENOUGH)
            broker.kill()
            self._until(refused=len(self._threads))
            broker.start()
            self._until(answered=ENOUGH)
        finally:
            self._ending.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()

    def _until(self, answered: int = 0, refused: int = 0) -> None:
        """Wait for so many more answers and refusals."""
        with self._changed:
            wanted = self._answered + answered, self._refused + refused

            def are_there() -> bool:
                return self._answered >= wanted[0] and self._refused >= wanted[1]

            assert self._changed.wait_for(are_there, DEADLINE_S), (wanted, self._answered, self._refused)

    def _ask(self, caller: str, question: Question) -> None:
        number = 0
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE_S)) as connection:
            while not self._ending.is_set():
                if self._is_acknowledged(connection, f"{caller}-{number}", question):
                    number += 1
                else:
                    self._ending.wait(_PAUSE_S)

    def _is_acknowledged(self, connection: http.client.HTTPConnection, name: str, question: Question) -> bool:
        headers = {"Content-Type": question.media_type, "Idempotency-Key": name}
        connection.request("POST", question.path, question.body(name), headers)
        answer = connection.getresponse()
        content = answer.read()
        with self._changed:
            if answer.status in (200, 202, 207):
                self._answered += 1
                self.acknowledged.update(question.acknowledged(name, content))
            elif answer.status == 503 and _is_right(answer, content, self._away):
                self._refused += 1
            else:
                self.unexpected.append((answer.status, answer.headers.items(), content[:300]))
            self._changed.notify_all()
        # Of several lines some are acknowledged: 207.
        return answer.status in (200, 202)


def _is_right(refusal: http.client.HTTPResponse, content: bytes, away: str) -> bool:
    return int(refusal.headers.get("Retry-After", "0")) > 0 and json.loads(content)["error"]["code"] == away
