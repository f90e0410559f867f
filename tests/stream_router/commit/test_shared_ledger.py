"""How the intake waits for slots: it is woken as soon as there are enough, and never waits longer than it asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Condition, Event

import pytest

from stream_router.commit.done_offsets import CommittedOffsets
from stream_router.commit.outcome import Outcome
from stream_router.commit.shared_ledger import SharedLedger
from ucci_runtime.broker.records import Input, OutputRecord, Record

#: Begins a call of a ledger that waits on one of its conditions, and returns once it does.
Asleep = Callable[..., Future[int]]

BOUND_S = 20.0
#: A wait that would fail the test, where nobody wakes the thread that waits.
LONG_S = 60.0

SLOTS = 8
QUERIES = [Record(Input("queries", 0), offset, b"key", b"{}") for offset in range(SLOTS)]


@pytest.fixture
def full() -> SharedLedger:
    """Return a ledger that has handed out all its slots."""
    ledger = SharedLedger(SLOTS)
    ledger.assigned({0: CommittedOffsets(0)}, None)
    assert len(ledger.delivered(QUERIES, None)) == SLOTS
    return ledger


def end(ledger: SharedLedger, query: Record) -> None:
    assert ledger.finished(Outcome(query, OutputRecord("results", b"key", b"{}")))


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asleep]:
    """Return what has a thread wait in a call, and returns once it does: in a wait that only a wake ends."""
    with ThreadPoolExecutor(1) as pool:

        def begin(call: Callable[[float], int], on: Condition, from_s: float = 0.0) -> Future[int]:
            waits, wait = Event(), on.wait

            def noted(timeout: float) -> bool:
                if timeout < from_s:
                    return wait(timeout)
                waits.set()
                return wait(LONG_S)

            monkeypatch.setattr(on, "wait", noted)
            waiting = pool.submit(call, LONG_S)
            assert waits.wait(BOUND_S), "nobody waits"
            return waiting

        yield begin


def test_the_intake_goes_on_once_a_quarter_is_free(full: SharedLedger, asleep: Asleep) -> None:
    """It is not woken by the first query that ends, and is by the one that makes it a quarter."""
    free = asleep(full.await_slots, full._slot_freed)
    end(full, QUERIES[3])
    assert not free.done()
    end(full, QUERIES[5])
    assert free.result(BOUND_S) == SLOTS // 4


def test_a_commit_frees_the_slots_of_a_full_backlog(
    full: SharedLedger, asleep: Asleep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where answers that wait for their commit fill the router, the end of the commit wakes the intake."""
    monkeypatch.setattr("stream_router.commit.shared_ledger.MAX_UNCOMMITTED_BYTES", 1)
    for query in QUERIES:
        end(full, query)
    free = asleep(full.await_slots, full._slot_freed)
    taken = full.take()
    assert taken is not None
    assert not free.done()
    full.ended(taken.batch)
    assert free.result(BOUND_S) == SLOTS


def test_a_single_free_slot_is_taken_after_a_short_wait(full: SharedLedger) -> None:
    """A router whose other queries take long does not stand still for a quarter of its slots."""
    end(full, QUERIES[0])
    assert full.await_slots(LONG_S) == 1


def test_the_end_of_the_last_query_wakes_who_waits_for_it(full: SharedLedger, asleep: Asleep) -> None:
    """At its end a router waits for the queries in flight, and no longer than they take."""
    idle = asleep(full.await_idle, full._idle)
    for query in QUERIES:
        end(full, query)
    assert idle.result(BOUND_S)


def test_a_full_router_sleeps_until_a_slot_is_free(full: SharedLedger, asleep: Asleep) -> None:
    """After the short wait for a quarter of the slots it waits for one as long as it was asked to."""
    free = asleep(full.await_slots, full._slot_freed, LONG_S)
    end(full, QUERIES[0])
    assert free.result(BOUND_S) == 1
