"""A transaction commits, aborts, or its end is asked of the group; what is final is raised. The client is scripted."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.support.recalibrator_memory import Counts
from ucci_runtime.broker import kafka_producer as producer
from ucci_runtime.broker import kafka_session
from ucci_runtime.broker.errors import AccessDenied, BrokerUnreachable, Fenced
from ucci_runtime.broker.kafka_session import KafkaTransactionSession as Session
from ucci_runtime.broker.kafka_session import SessionClients
from ucci_runtime.broker.kafka_watched_calls import CallStuck, WatchedCalls
from ucci_runtime.broker.ports import Aborted, CheckedTopics, Committed, GroupOffsets, Unknown
from ucci_runtime.broker.records import Count, Input, OffsetCommit, OutputRecord
from ucci_runtime.broker.transaction_states import TRANSACTIONAL

RECORD = OutputRecord("out", b"k", b"v", (("h", b"1"),))
OFFSETS = {Input("in", 2): OffsetCommit(8, "note")}
LIMIT = 5_000
TIMED_OUT = KafkaError(KafkaError._TIMED_OUT, "slow", False, True)
GENERATION = KafkaError(KafkaError.ILLEGAL_GENERATION, "moved on", False, False, True)
FENCED = KafkaError(KafkaError._FENCED, "newer", True)
SPOILT = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "large", False, False, True)
DENIED = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no", True)

Script = dict[str, list[KafkaError]]
#: What each call sends.
REQUESTS = {
    "init_transactions": ("InitProducerId",),
    "send_offsets_to_transaction": ("AddOffsetsToTxn", "AddPartitionsToTxn", "TxnOffsetCommit"),
    "commit_transaction": ("Produce", "EndTxn"),
    "abort_transaction": ("EndTxn",),
}


class ScriptedProducer:
    """Raises what the script holds for a call, once each; logs the requests behind those that return."""

    script: ClassVar[Script] = {}
    calls: ClassVar[list[str]] = []
    made: ClassVar[int] = 0
    #: Kinds of requests that are sent twice and answered once, each in turn.
    unanswered: ClassVar[list[str]] = []

    def __init__(self, properties: dict[str, Any]) -> None:
        type(self).made += 1
        self._log = properties["logger"].log
        self._numbers = itertools.count(1)

    def poll(self, _timeout_s: float) -> None:
        """Nothing is reported on the side."""

    def list_topics(self, *_: Any) -> None:
        """It is connected from the beginning."""

    def _exchange(self, kind: str) -> None:
        number = next(self._numbers)
        self._line("SEND", f"Sent {kind}Request (v1, 36 bytes @ 0, CorrId {number})")
        if self.unanswered and self.unanswered[-1] == kind:
            self.unanswered.pop()
            self._exchange(kind)
        else:
            self._line("RECV", f"Received {kind}Response (v1, 6 bytes, CorrId {number}, rtt 1.50ms)")

    def _line(self, facility: str, text: str) -> None:
        self._log(10, "%s [%s] %s", facility, "rdkafka#producer-1", f"[thrd:TxnCoordinator]: TxnCoordinator/1: {text}")

    def __getattr__(self, name: str) -> Any:
        def call(*_: Any, **__: Any) -> None:
            self.calls.append(name)
            if self.script.get(name):
                raise KafkaException(self.script[name].pop(0))
            for kind in REQUESTS.get(name, ()):
                self._exchange(kind)

        call.__name__ = name
        return call


def answer(_properties: object, sources: Iterable[Input], **_: Any) -> GroupOffsets:
    """Answer that nothing was committed."""
    return dict.fromkeys(sources)


def stage_counts() -> Count:
    return partial(Counts(), stage="join")


def new_session(room: Callable[[], int] = lambda: LIMIT, closing: Event | None = None) -> Session:
    """Return a session whose topics take records of so many bytes when they are checked again."""
    clients = SessionClients(lambda limit: {"message.max.bytes": limit}, {}, lambda: CheckedTopics("cluster", room()))
    return Session("join", clients, LIMIT, stage_counts(), closing or Event())


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """What the client's calls raise."""
    for name, value in (("script", {}), ("calls", []), ("made", 0), ("unanswered", [])):
        monkeypatch.setattr(ScriptedProducer, name, value)
    monkeypatch.setattr(producer, "Producer", ScriptedProducer)
    monkeypatch.setattr(kafka_session, "BACKOFF_S", (0.0, 0.0))
    monkeypatch.setattr(kafka_session, "ask_group_offsets", answer)
    monkeypatch.setattr(producer, "REPEAT_BUDGET_S", 600.0)
    return ScriptedProducer.script


@pytest.fixture
def impatient(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call is repeated."""
    monkeypatch.setattr(producer, "REPEAT_BUDGET_S", 0.0)


@pytest.fixture
def session(script: Script) -> Iterator[Session]:
    with closing(new_session()) as made:
        yield made


@pytest.mark.parametrize("call", ["init_transactions", "send_offsets_to_transaction", "commit_transaction"])
def test_unfinished_call_is_repeated(script: Script, session: Session, call: str) -> None:
    script[call] = [TIMED_OUT, TIMED_OUT]
    session.commit([RECORD], OFFSETS, "group")
    assert ScriptedProducer.calls.count(call) == 3
    assert ScriptedProducer.made == 1


@pytest.mark.parametrize("call", ["send_offsets_to_transaction", "commit_transaction"])
def test_stale_generation_aborts_and_keeps_the_producer(script: Script, session: Session, call: str) -> None:
    """If the group has moved on, the transaction aborts, and the same producer commits the next one."""
    script[call] = [GENERATION]
    assert isinstance(session.commit([RECORD], OFFSETS, "group"), Aborted)
    assert ScriptedProducer.calls[-1] == "abort_transaction"
    assert session.commit([RECORD, RECORD], OFFSETS, "group") == Committed((RECORD, RECORD))
    sent = ["begin_transaction", "produce", "produce", "send_offsets_to_transaction", "commit_transaction"]
    assert (ScriptedProducer.calls[-5:], ScriptedProducer.made) == (sent, 1)


@pytest.mark.usefixtures("impatient")
def test_a_slow_broker_is_waited_for_longer_in_the_end(script: Script, session: Session) -> None:
    """A client that has lost its way is left behind soon, but not one after the other where each call takes seconds."""
    script["send_offsets_to_transaction"] = [TIMED_OUT] * 3
    waited = list[float]()
    for _ in range(4):
        session.commit([RECORD], OFFSETS, "group")
        assert session._producer is not None
        waited.append(session._producer._watchdog_s)
    assert list(dict.fromkeys(waited)) == [producer.WATCHDOG_S, producer.PATIENT_WATCHDOG_S]


@pytest.mark.parametrize("kind", sorted(TRANSACTIONAL - {"InitProducerId"}))
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_request_without_answer_raises_the_epoch(
    script: Script, session: Session, kind: str, *, is_committed: bool
) -> None:
    """Sent twice and answered once: the first one could arrive in the next transaction of its producer."""
    if not is_committed:
        script["commit_transaction"] = [GENERATION]
    session.start()
    ScriptedProducer.unanswered += [kind]
    session.commit([RECORD], OFFSETS, "group")
    assert ScriptedProducer.made == (2 if not ScriptedProducer.unanswered else 1)
    session.commit([RECORD], OFFSETS, "group")
    assert ScriptedProducer.made == 2


def test_a_client_that_logs_otherwise_raises_each_epoch(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the log does not show answered counts as unanswered: each commit is slow then, and none is wrong."""
    monkeypatch.setattr(ScriptedProducer, "_line", lambda *_: None)
    for _ in range(3):
        assert session.commit([RECORD], OFFSETS, "group") == Committed((RECORD,))
    assert ScriptedProducer.made == 4


def test_a_late_start_of_our_own_fences_once(script: Script, session: Session) -> None:
    """A start that was not answered may come late: its fence is forgiven, the next one is another process's."""
    ScriptedProducer.unanswered += ["InitProducerId"]
    session.start()
    script["commit_transaction"] = [FENCED]
    assert isinstance(session.commit([RECORD], OFFSETS, "group"), Unknown)
    script["commit_transaction"] = [FENCED]
    with pytest.raises(Fenced):
        session.commit([RECORD], OFFSETS, "group")


@pytest.mark.usefixtures("impatient")
def test_a_dead_broker_held_each_new_producer_for_seconds(script: Script) -> None:
    """The topics were checked at each, which asked the dead one; only a record too large is a reason to check them."""
    room = Mock(return_value=LIMIT // 2)
    made = new_session(room)
    script["send_offsets_to_transaction"] = [TIMED_OUT]
    assert isinstance(made.commit([RECORD], OFFSETS, "group"), Unknown)
    room.assert_not_called()
    script["commit_transaction"] = [SPOILT]
    assert isinstance(made.commit([RECORD], OFFSETS, "group"), Unknown)
    room.assert_called_once_with()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("failures", "reason"),
    [
        ({"commit_transaction": SPOILT}, "MSG_SIZE_TOO_LARGE: large"),
        ({"commit_transaction": TIMED_OUT}, "commit_transaction: _TIMED_OUT: slow"),
        ({"commit_transaction": GENERATION, "abort_transaction": SPOILT}, "MSG_SIZE_TOO_LARGE: large"),
    ],
    ids=["a spoilt producer", "a call that never succeeds", "an abort that fails"],
)
def test_a_hopeless_call_replaces_the_producer(
    script: Script, session: Session, failures: dict[str, KafkaError], reason: str
) -> None:
    script |= {call: [error] for call, error in failures.items()}
    assert session.commit([RECORD], OFFSETS, "group") == Unknown(reason, dict.fromkeys(OFFSETS))
    assert ScriptedProducer.made == 2
    assert not session.hangs, "no call of it is stuck"
    assert session.commit([RECORD], OFFSETS, "group") == Committed((RECORD,))


@pytest.mark.parametrize(("error", "raised"), [(FENCED, Fenced), (DENIED, AccessDenied)])
@pytest.mark.parametrize("call", ["init_transactions", "send_offsets_to_transaction", "commit_transaction"])
def test_what_waiting_cannot_mend_is_raised(
    script: Script, session: Session, call: str, error: KafkaError, raised: type[Exception]
) -> None:
    script[call] = [error]
    with pytest.raises(raised):
        session.commit([RECORD], OFFSETS, "group")


def test_each_minute_of_an_outage_leaked_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four threads and six files for each producer that was replaced while no broker answered."""
    monkeypatch.setattr(producer, "START_BUDGET_S", 0.0)
    monkeypatch.setattr(producer, "CALL_TIMEOUT_S", 0.05)
    monkeypatch.setattr(kafka_session, "BACKOFF_S", (0.0, 0.0))
    end, held = Event(), list[tuple[int, ...]]()

    def count(name: str, amount: float = 1.0, **labels: str) -> None:
        if name == "producers_abandoned":
            held.append(tuple(len(list(Path("/proc/self", kind).iterdir())) for kind in ("task", "fd")))
            if len(held) == 8:
                end.set()

    def properties(limit: int) -> dict[str, Any]:
        return {"bootstrap.servers": "127.0.0.1:1", "transactional.id": "leak", "log_level": 0}

    clients = SessionClients(properties, {}, lambda: CheckedTopics("cluster", LIMIT))
    made = Session("join", clients, LIMIT, count, end)
    # What tests before left to the collector must not go meanwhile.
    gc.collect()
    gc.disable()
    try:
        made.start()
    finally:
        gc.enable()
        made.close()
    for first, last in zip(held[0], held[-1], strict=True):
        assert last < first + len(held), f"threads and files at each replacement: {held}"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("failing", ["send_offsets_to_transaction", "abort_transaction"])
def test_each_outage_left_its_producer_behind(script: Script, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """Where the topics could not be checked either, the client's error kept the one being handled, for good."""
    made = list[weakref.ref[ScriptedProducer]]()

    class Noted(ScriptedProducer):
        def __init__(self, properties: dict[str, Any]) -> None:
            super().__init__(properties)
            made.append(weakref.ref(self))

    not_started = Producer({"bootstrap.servers": "127.0.0.1:1", "transactional.id": "unused", "log_level": 0})

    def room() -> int:
        try:
            not_started.begin_transaction()
        except KafkaException as error:
            raise BrokerUnreachable(str(error)) from None
        raise AssertionError("a transaction began without a broker")

    monkeypatch.setattr(producer, "Producer", Noted)
    session = new_session(room)
    script |= {"commit_transaction": [GENERATION], "abort_transaction": [SPOILT]}
    if failing == "send_offsets_to_transaction":
        script[failing] = [TIMED_OUT]
    gc.disable()
    try:
        assert isinstance(session.commit([RECORD], OFFSETS, "group"), Unknown)
        assert [one() is not None for one in made] == [False, True], "alive: the former, the present"
    finally:
        gc.enable()
        session.close()


def test_a_stuck_call_holds_up_no_clean_end_for_good() -> None:
    """While a call has not returned the process may not clean up; afterwards it may again."""
    returns, calls = Event(), WatchedCalls("stuck")
    with pytest.raises(CallStuck, match="wait has not returned for 0 s"):
        calls.call(0.0, returns.wait, 60)
    assert calls.is_stuck
    returns.set()
    calls.close()
    # Its result is there as soon as the thread has taken note of it.
    while calls.is_stuck:
        pass


@pytest.mark.usefixtures("script")
def test_a_session_that_is_closing_does_not_begin() -> None:
    end = Event()
    end.set()
    assert isinstance(new_session(closing=end).commit([RECORD], OFFSETS, "group"), Aborted)
    assert ScriptedProducer.made == 0
