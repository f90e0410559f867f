"""One transactional producer and its calls: bounded in time, each failure turned into what to do next.

Each transaction commits records together with the offsets of the input that they answer. One that fails raises an error
that says what to do: abort the transaction (:class:`~ucci_runtime.broker.errors.AbortTransaction`), or replace the
producer because the transaction's end is unknown (:class:`~ucci_runtime.broker.errors.RecreateProducer`).
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from ucci_runtime.broker.errors import BrokerError, BrokerUnreachable, RecreateProducer
from ucci_runtime.broker.kafka_errors import Side, kafka_error, translate
from ucci_runtime.broker.kafka_properties import TRANSACTION_TIMEOUT_S, Properties
from ucci_runtime.broker.kafka_records import source_of
from ucci_runtime.broker.kafka_watched_calls import CallStuck, WatchedCalls
from ucci_runtime.broker.records import Count, Input, OffsetCommit, OutputRecord, Place
from ucci_runtime.broker.transaction_states import Event, Remedy, State, Transaction, UnansweredRequests, remedy

_FACILITIES = frozenset({"SEND", "RECV"})
_LINE = re.compile(r"(?:\[thrd:.*?\]: )?(\S+): (Sent|Received) (\w+?)Re(?:quest|sponse) \(.*CorrId (\d+)")


class RequestLog:
    """A transactional producer's ``logger``: takes the lines on requests, passes what is for people to ``others``."""

    def __init__(self, requests: UnansweredRequests, others: Any, least: int = logging.INFO) -> None:
        self._requests = requests
        self._others = others
        self._least = least

    def log(self, level: int, template: str, *parts: str) -> None:
        """Take one line: its facility, the client's own name, the text."""
        if str(parts[0]) not in _FACILITIES:
            if level >= self._least and self._others is not None:
                self._others.log(level, template, *parts)
            return
        found = _LINE.match(str(parts[-1]))
        if found is not None:
            connection, what, kind, number = found.groups()
            note = self._requests.sent if what == "Sent" else self._requests.answered
            note(kind, connection, int(number))


def with_request_log(properties: Properties, requests: UnansweredRequests) -> Properties:
    """Return a client's properties with its requests noted; what the user wants to debug is passed on as before."""
    wanted = str(properties.get("debug", ""))
    logger = RequestLog(requests, properties.get("logger"), logging.DEBUG if wanted else logging.INFO)
    return dict(properties) | {"debug": f"{wanted},protocol".lstrip(","), "logger": logger}


#: What the client library is asked to keep to.
CALL_TIMEOUT_S = 2.0

#: When a call that does not keep to it is left behind: after a broker's death a new client finds its way sooner than
#: one that waits for the dead one, and calls take milliseconds otherwise.
WATCHDOG_S = 3.0

#: The same, where the last new clients fared no better: the broker is slow.
PATIENT_WATCHDOG_S = 7.0

#: How long a start waits for its first connection before it goes on to what waits longer.
CONNECT_TIMEOUT_S = 1.0

#: How old a transaction may grow by repeating calls: below its time-out at the coordinator.
REPEAT_BUDGET_S = 8.0

#: How long a start is repeated on the same client: one that is left behind may finish later and fence the next.
START_BUDGET_S = 60.0

_REPEAT_WAIT_S = 0.05
_QUEUE_WAIT_S = 0.05

T = TypeVar("T")


class TransactionalProducer:
    """One client under a transactional id, for one thread; a patient one waits longer before leaving a call behind."""

    def __init__(
        self, name: str, properties: Properties, transaction: Transaction, *, is_patient: bool = False
    ) -> None:
        self._requests = UnansweredRequests()
        self._producer = Producer(with_request_log(properties, self._requests))
        self._calls = WatchedCalls(name)
        self._watchdog_s = PATIENT_WATCHDOG_S if is_patient else WATCHDOG_S
        self._transaction = transaction
        self._opened_at_s = self._calls_since_s = time.monotonic()
        self.acknowledged: list[tuple[OutputRecord, Place]] = []
        """The records of the latest transaction that the broker has, with where it put them."""

    def start(self) -> None:
        """Fence any earlier producer of this id, end what it left open, in ``START_BUDGET_S``. Raises BrokerError."""
        self._opened_at_s = self._calls_since_s = time.monotonic()
        self._connect()
        self._call(self._producer.init_transactions, CALL_TIMEOUT_S)
        self.serve()
        self._transaction.expect_fences(self._requests.late_starts)
        self._transaction.advance(Event.INITIALISED)

    def begin(self) -> None:
        """Begin a transaction. Raises BrokerError."""
        self._opened_at_s = self._calls_since_s = time.monotonic()
        self.acknowledged = []
        self._call(self._producer.begin_transaction)
        self._transaction.advance(Event.BEGUN)

    def produce(self, record: OutputRecord) -> bool:
        """Produce a record; False, and no harm done, when the client refuses it as too large. Raises BrokerError."""
        more: dict[str, Any] = {"on_delivery": partial(_acknowledge, self.acknowledged, record)}
        if record.headers:
            more["headers"] = list(record.headers)
        if record.partition is not None:
            more["partition"] = record.partition
        while True:
            try:
                self._producer.produce(record.topic, record.value, record.key, **more)
            except BufferError:
                if self._is_out_of_time():
                    raise RecreateProducer("the client's queue stayed full") from None
                self._producer.poll(_QUEUE_WAIT_S)
            except KafkaException as raised:
                found = kafka_error(raised)
                if found.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    return False
                raise translate(found, Side.PRODUCER, overdue=self._is_overdue()) from None
            else:
                return True

    def commit(self, offsets: Mapping[Input, OffsetCommit], group: object) -> None:
        """Commit what was produced with the group's offsets. Raises BrokerError: the state says whether to abort."""
        positions = [TopicPartition(*source, *found) for source, found in offsets.items()]
        self._call(self._producer.send_offsets_to_transaction, positions, group, CALL_TIMEOUT_S)
        self._transaction.advance(Event.OFFSETS_SENT)
        self._call(self._producer.commit_transaction, CALL_TIMEOUT_S)
        self._transaction.advance(Event.COMMITTED)

    def abort(self) -> None:
        """Abort the transaction after a failure. Raises BrokerError when that fails too: its end is then unknown."""
        self._transaction.advance(Event.FAILED)
        self._calls_since_s = time.monotonic()
        self._call(self._producer.abort_transaction, CALL_TIMEOUT_S)
        self._transaction.advance(Event.ABORTED)

    def serve(self) -> None:
        """Let the client report errors; never blocks."""
        self._producer.poll(0)

    @property
    def has_unanswered(self) -> bool:
        """Whether a request may still arrive in a transaction that begins now; asked between two transactions."""
        self.serve()  # the client's log says it, and is read by polling
        return self._requests.may_arrive

    @property
    def is_stuck(self) -> bool:
        """Whether a call that was left behind has still not returned."""
        return self._calls.is_stuck

    def close(self) -> None:
        """Let go of the client, and of the thread behind its calls; a call that is stuck keeps both until it returns.

        What the client's own close does may block for minutes: it delivers what nobody wants any more.
        """
        self._calls.close()
        del self._producer

    def _connect(self) -> None:
        """Connect by asking for anything: a client without a connection looks for its coordinator each half second.

        Measured: starts take 60 ms instead of 510.
        """
        try:
            self._calls.call(self._watchdog_s, self._producer.list_topics, None, CONNECT_TIMEOUT_S)
        except KafkaException:
            pass  # whatever it is, the call that matters says it next
        except CallStuck as stuck:
            raise RecreateProducer(str(stuck)) from None

    def _call(self, function: Callable[..., T], *args: Any) -> T:
        while True:
            error: BrokerError
            try:
                return self._calls.call(self._watchdog_s, function, *args)
            except KafkaException as raised:
                error = translate(kafka_error(raised), Side.PRODUCER, overdue=self._is_overdue())
            except CallStuck as stuck:
                raise RecreateProducer(str(stuck)) from None
            following = remedy(self._transaction.state, error, out_of_time=self._is_out_of_time())
            if following is Remedy.ABANDON and not isinstance(error, RecreateProducer):
                raise RecreateProducer(f"{getattr(function, '__name__', function)}: {error}") from error
            if following is not Remedy.REPEAT:
                raise error
            time.sleep(_REPEAT_WAIT_S)

    def _is_out_of_time(self) -> bool:
        budget_s = START_BUDGET_S if self._transaction.state is State.STARTING else REPEAT_BUDGET_S
        return time.monotonic() - self._calls_since_s >= budget_s

    def _is_overdue(self) -> bool:
        """Whether the coordinator may have ended the transaction by itself."""
        return time.monotonic() - self._opened_at_s >= TRANSACTION_TIMEOUT_S


def _acknowledge(
    acknowledged: list[tuple[OutputRecord, Place]], record: OutputRecord, error: KafkaError | None, message: Message
) -> None:
    """Note where a record is; a client that is left behind with undelivered ones keeps only this list."""
    if error is None:
        acknowledged.append((record, (source_of(message), cast(int, message.offset()))))


_POLL_S = 0.1
_MILLISECONDS = 1_000


class KafkaPublisher:
    """An idempotent producer; see :class:`~ucci_runtime.broker.ports.Publisher`."""

    def __init__(self, name: str, properties: Properties, count: Count) -> None:
        self._name = name
        self._count = count
        self._timeout_s = properties["message.timeout.ms"] / _MILLISECONDS
        self._producer = Producer(properties)
        self._closing = threading.Event()
        self._poller = threading.Thread(target=self._poll, name=name, daemon=True)
        self._poller.start()

    def queue(
        self, topic: str, key: bytes, value: bytes, headers: Mapping[str, bytes] | None = None
    ) -> asyncio.Future[None]:
        """Queue one record; see the port."""
        loop = asyncio.get_running_loop()
        acknowledged: asyncio.Future[None] = loop.create_future()

        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            loop.call_soon_threadsafe(_settle, acknowledged, error, self._timeout_s)

        options: dict[str, Any] = {"headers": list(headers.items())} if headers else {}
        try:
            self._producer.produce(topic, value, key, on_delivery=on_delivery, **options)
        except (BufferError, KafkaException) as error:
            reason = "too many records wait for the broker" if isinstance(error, BufferError) else str(error)
            acknowledged.set_exception(BrokerUnreachable(reason))
        return acknowledged

    def post(self, topic: str, key: bytes, value: bytes) -> bool:
        """Queue one record that nobody waits for; False when it was dropped. Never blocks."""
        try:
            self._producer.produce(topic, value, key)
        except (BufferError, KafkaException):
            self._count("client_errors", client=self._name, code="not_sent")
            return False
        return True

    def close(self, timeout_s: float = 5.0) -> None:
        """Deliver what is queued, for up to so many seconds, and end."""
        self._closing.set()
        self._poller.join()
        self._producer.flush(timeout_s)

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(_POLL_S)


def _settle(acknowledged: asyncio.Future[None], error: KafkaError | None, timeout_s: float) -> None:
    if acknowledged.done():
        return
    if error is None:
        acknowledged.set_result(None)
    else:
        acknowledged.set_exception(BrokerUnreachable(f"not acknowledged within {timeout_s:g} s ({error.name()})"))
