"""Those who send: an owner of queries at a steady rate, a labeler who answers late, an operator who asks for refits.

They note what the broker has acknowledged, by record. Their producer never gives a record up and never doubles one
(idempotent, no time-out), so that what is on the topics is what was sent.
"""

from __future__ import annotations

import heapq
import json
import random
import time
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from threading import Event, Lock
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from schemas.command import Command
from schemas.event import rfc3339
from tests.faults.evidence import Answer, Kept
from tests.faults.worker import Worker
from tests.support.hashings import SEE_GROWTH, WAYS, Hashings
from tests.support.scripted_model_server import answer_to

WORKLOAD = "photo"
PROMPT = "find {text}"
LABELER = "ada"
#: Shares of labels that are sent twice, put right later, and taken back.
_REPEATED, _CORRECTED, _WITHDRAWN = 0.10, 0.05, 0.02

#: Shares of queries on which the large model errs: a world in which it never does has rates of zero, which no estimate
#: of a rate can predict.
_SMALL_RIGHT, _NEITHER_RIGHT = 0.10, 0.04

_DELAY_S = (0.1, 0.6)
_TICK_S = 0.02
_REFIT_S = 2.0


def answer(model: str, text: str) -> Answer:
    said = answer_to(PROMPT.replace("{text}", text), model)
    return Answer(said.entities, said.uncertainty)


def truth(text: str) -> dict[str, str]:
    """Return what people say to a query: mostly what the large model says, at times the small one or neither."""
    draw = random.Random(f"truth of {text}").random()
    said = answer("small" if draw < _SMALL_RIGHT else "large", text).entities
    gold = {name: value for name, value in said.items() if value is not None}
    if draw > 1.0 - _NEITHER_RIGHT and gold:
        gold[max(gold)] = "seen by people alone"
    return gold


class Senders(Worker):
    """One thread that sends: labels from its start, queries once they are asked for.

    ``seed``: of the texts, the labels' delays and what becomes of them; ``rate``: queries a second.
    """

    def __init__(self, bootstrap: str, prefix: str, seed: int, *, rate: float) -> None:
        super().__init__("senders")
        self._prefix = prefix
        self._seed = seed
        self._draw = random.Random(seed)
        self._rate = rate
        patient = {"enable.idempotence": True, "message.timeout.ms": 0, "linger.ms": 5, "log_level": 2} | SEE_GROWTH
        # Kafka 4.1 takes the second of two requests to a partition that was just added where it has refused the first,
        # which the client then counts as acknowledged, too (KAFKA-15591): one query in 39,589 was lost so.
        patient |= {"max.in.flight": 1}
        self._producer = Producer(patient | {"bootstrap.servers": bootstrap})
        self._bootstrap, self._patient = bootstrap, patient
        self._hashings: Hashings | None = None
        self._sent: Counter[str] = Counter()
        """Feedback sent, by query."""
        self._lock = Lock()
        self._waiting: list[tuple[float, int, dict[str, Any]]] = []
        self._count = 0
        self._asking = Event()
        self.queries: dict[str, str] = {}
        self.acknowledged: set[str] = set()
        self.labels: set[str] = set()

    def ask(self, queries: int) -> None:
        with self._lock:
            for _ in range(queries):
                self._ask()

    def refit(self) -> None:
        with self._lock:
            self._refit()

    def scatter(self) -> None:
        """From now on, label every result, and send labels by five ways of hashing in turn.

        What is said of a query later goes another way than what was said before, once that was acknowledged.
        """
        with self._lock:
            self._hashings = Hashings(self._bootstrap, **self._patient)

    @property
    def ways(self) -> Counter[str]:
        """Return how many records of feedback went each way."""
        with self._lock:
            return Counter(_way(query_id, number) for query_id, sent in self._sent.items() for number in range(sent))

    def stop_asking(self) -> None:
        """Send no further queries; labels go on."""
        self._asking.clear()

    def go_on(self) -> None:
        self._asking.set()

    @property
    def is_idle(self) -> bool:
        """Whether every label that is due was sent, and all that was sent is acknowledged."""
        with self._lock:
            on_their_way = len(self._producer) + (0 if self._hashings is None else len(self._hashings))
            return not self._waiting and on_their_way == 0

    def heard(self, result: Kept) -> None:
        """Label a result where its label was requested; called with each one once."""
        routed = json.loads(result.value or b"{}")
        if not (routed["label"]["requested"] or self._hashings is not None):
            return
        gold = truth(routed["text"])
        with self._lock:
            for delay_s, event in self._words(routed["query_id"], gold):
                self._count += 1
                heapq.heappush(self._waiting, (time.monotonic() + delay_s, self._count, event))

    def _words(self, query_id: str, gold: dict[str, str]) -> list[tuple[float, dict[str, Any]]]:
        """Return what the labeler says of a query, and when."""
        draw, delay_s = random.Random(f"{self._seed} {query_id}"), self._draw.uniform(*_DELAY_S)
        fate, more_s = draw.random(), draw.uniform(*_DELAY_S)
        if fate < _CORRECTED and gold:
            mistaken = gold | {min(gold): "mistaken by a person"}
            return [(delay_s, _label(query_id, 1, mistaken)), (delay_s + more_s, _label(query_id, 2, gold))]
        said = [(delay_s, _label(query_id, 1, gold))]
        if fate > 1.0 - _WITHDRAWN:
            said.append((delay_s + more_s, _label(query_id, 2, gold) | {"retracted": True}))
        elif fate > 1.0 - _WITHDRAWN - _REPEATED:
            said.append((delay_s + more_s, said[0][1]))
        return said

    def work(self) -> None:
        due_s = refit_due_s = time.monotonic()
        while not self.closing.is_set():
            now_s = time.monotonic()
            with self._lock:
                if not self._asking.is_set():
                    due_s = now_s
                while due_s < now_s:
                    self._ask()
                    due_s += 1.0 / self._rate
                while self._waiting and self._waiting[0][0] <= now_s:
                    self._say(heapq.heappop(self._waiting)[2], now_s)
                if refit_due_s < now_s and self._asking.is_set():
                    self._refit()
                    refit_due_s = now_s + _REFIT_S
            self._producer.poll(_TICK_S)
            if self._hashings is not None:
                self._hashings.poll()
        self._producer.flush(1.0)

    def _say(self, event: dict[str, Any], now_s: float) -> None:
        query_id, name = event["query_id"], event["feedback_id"]
        if self._hashings is None:
            self._produce("feedback", query_id, event, self.labels, name)
        elif event["revision"] > 1 and f"{query_id}/1" not in self.labels:
            # In another partition it could overtake what it corrects, if that is still on its way.
            self._count += 1
            heapq.heappush(self._waiting, (now_s + _TICK_S, self._count, event))
        else:
            way = _way(query_id, self._sent[query_id])
            self._sent[query_id] += 1
            report = partial(_report, self.labels, name)
            self._hashings.produce(way, f"{self._prefix}.feedback", query_id, json.dumps(event), report)

    def _ask(self) -> None:
        query_id = f"q-{len(self.queries)}"
        text = f"photo {len(self.queries)} of seed {self._seed}"
        self.queries[query_id] = text
        self._produce("queries", query_id, {"query_id": query_id, "text": text}, self.acknowledged, query_id)

    def _refit(self) -> None:
        command = Command(workload=WORKLOAD, action="refit", issued_by="operator", issued_at=datetime.now(UTC))
        self._produce("observations", WORKLOAD, json.loads(command.to_json()), set(), "")

    def _produce(self, topic: str, key: str, event: dict[str, Any], done: set[str], name: str) -> None:
        self._producer.produce(
            f"{self._prefix}.{topic}", key=key, value=json.dumps(event), on_delivery=partial(_report, done, name)
        )


def _way(query_id: str, number: int) -> str:
    """Return which way a query's feedback goes that is the so-manieth, from 0."""
    return WAYS[(int(query_id.removeprefix("q-")) + number) % len(WAYS)]


def _report(done: set[str], name: str, error: KafkaError | None, _message: Message) -> None:
    if error is None:
        done.add(name)


def _label(query_id: str, revision: int, gold: dict[str, str]) -> dict[str, Any]:
    return {
        "query_id": query_id,
        "entities": gold,
        "labeler": LABELER,
        "labelled_at": rfc3339(datetime.now(UTC)),
        "feedback_id": f"{query_id}/{revision}",
        "revision": revision,
    }
