"""How the intake waits for slots: it is woken as soon as there are enough, and never waits longer than it asked."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import pytest

from stream_router.commit.done_offsets import CommittedOffsets
from stream_router.commit.outcome import Outcome
from stream_router.commit.shared_ledger import SharedLedger
from ucci_runtime.broker.records import Input, OutputRecord, Record

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


def waiting(ledger: SharedLedger, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> Future[int]:
    """Begin to wait for slots in a thread; return once it does wait."""
    waits, wait_for = Event(), ledger._slot_freed.wait_for

    def noted(predicate: object, timeout: float | None = None) -> bool:
        waits.set()
        return wait_for(predicate, LONG_S if timeout else timeout)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger._slot_freed, "wait_for", noted)
    free = pool.submit(ledger.await_slots, LONG_S)
    assert waits.wait(BOUND_S), "the intake does not wait for slots"
    return free


def test_the_intake_goes_on_once_a_quarter_is_free(full: SharedLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not woken by the first query that ends, and is by the one that makes it a quarter."""
    with ThreadPoolExecutor(1) as pool:
        free = waiting(full, pool, monkeypatch)
        end(full, QUERIES[3])
        assert not free.done()
        end(full, QUERIES[5])
        assert free.result(BOUND_S) == SLOTS // 4


def test_a_commit_frees_the_slots_of_a_full_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where answers that wait for their commit fill the router, the end of the commit wakes the intake."""
    ledger = SharedLedger(SLOTS)
    monkeypatch.setattr("stream_router.commit.shared_ledger.MAX_UNCOMMITTED_BYTES", 1)
    ledger.assigned({0: CommittedOffsets(0)}, None)
    for query in ledger.delivered(QUERIES, None):
        end(ledger, query)
    with ThreadPoolExecutor(1) as pool:
        free = waiting(ledger, pool, monkeypatch)
        taken = ledger.take()
        assert taken is not None
        assert not free.done()
        ledger.committed(taken.batch)
        assert free.result(BOUND_S) == SLOTS


def test_a_single_free_slot_is_taken_after_a_short_wait(full: SharedLedger) -> None:
    """A router whose other queries take long does not stand still for a quarter of its slots."""
    end(full, QUERIES[0])
    assert full.await_slots(LONG_S) == 1


def test_the_end_of_the_last_query_wakes_who_waits_for_it(full: SharedLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its end a router waits for the queries in flight, and no longer than they take."""
    waits, wait = Event(), full._idle.wait

    def noted(timeout: float | None = None) -> bool:
        waits.set()
        return wait(timeout)

    monkeypatch.setattr(full._idle, "wait", noted)
    with ThreadPoolExecutor(1) as pool:
        idle = pool.submit(full.await_idle, LONG_S)
        assert waits.wait(BOUND_S)
        for query in QUERIES:
            end(full, query)
        assert idle.result(BOUND_S)


def test_a_full_router_sleeps_until_a_slot_is_free(full: SharedLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the short wait for a quarter of the slots it waits for one as long as it was asked to."""
    waits, wait_for = Event(), full._slot_freed.wait_for

    def noted(predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        if timeout == LONG_S:
            waits.set()
        return wait_for(predicate, timeout)

    monkeypatch.setattr(full._slot_freed, "wait_for", noted)
    with ThreadPoolExecutor(1) as pool:
        free = pool.submit(full.await_slots, LONG_S)
        assert waits.wait(BOUND_S)
        end(full, QUERIES[0])
        assert free.result(BOUND_S) == 1
