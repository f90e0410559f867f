"""The join's file: rows and offsets together or not at all; damage is set aside, not trusted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from recalibrator.core.join import NOTHING_KNOWN, JoinState, take_feedback, take_result
from recalibrator.errors import StoreDamaged
from recalibrator.ports import StoredRow
from recalibrator.shell.join_store import SqliteJoinStore
from runtime.records import Input
from tests.support.recalibrator_events import FIELDS, START, feedback, routed

SOURCE = Input("results", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "join.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteJoinStore]:
    made = SqliteJoinStore(path, 10)
    yield made
    made.close()


def state(number: int) -> JoinState:
    taken = take_result(NOTHING_KNOWN, routed(number), {"photo": FIELDS}).state
    return take_feedback(taken, feedback(number), START, {"photo": FIELDS}).state


def put(store: SqliteJoinStore, *numbers: int, offset: int = 7) -> None:
    store.commit({(0, f"q-{n}"): StoredRow(state(n), n, True) for n in numbers}, {SOURCE: offset})


def test_what_is_stored_comes_back_equal_after_a_restart(store: SqliteJoinStore, path: Path) -> None:
    put(store, 1, 2)
    store.close()
    again = SqliteJoinStore(path, 10)
    assert again.load(0, ["q-1", "q-2", "q-3"]) == {"q-1": state(1), "q-2": state(2)}
    assert again.load(1, ["q-1"]) == {}
    assert again.offsets() == {SOURCE: 7}
    assert again.rows == 2
    again.close()


def test_more_queries_can_be_asked_for_than_one_statement_takes(store: SqliteJoinStore) -> None:
    put(store, 1)
    assert set(store.load(0, [f"q-{n}" for n in range(3_000)])) == {"q-1"}


def test_a_commit_that_fails_leaves_neither_rows_nor_offsets(store: SqliteJoinStore) -> None:
    put(store, 1)
    broken = {(0, "q-2"): StoredRow(state(2), 2, True), (0, "q-3"): StoredRow(state(3), 2**70, True)}
    with pytest.raises(OverflowError):
        store.commit(broken, {SOURCE: 99})
    assert store.load(0, ["q-2"]) == {}
    assert store.offsets() == {SOURCE: 7}


def test_the_untouched_leave_by_age_then_the_oldest_above_the_bound_each_counted_by_kind(
    store: SqliteJoinStore,
) -> None:
    put(store, *range(1, 16))
    waiting = take_result(NOTHING_KNOWN, routed(0), {"photo": FIELDS}).state
    store.commit({(0, "q-0"): StoredRow(waiting, 0, True)}, {})
    assert store.expire(3) == {"feedback_without_result": 0, "result_without_label": 1, "joined": 5}
    assert store.rows == 10
    assert set(store.load(0, [f"q-{n}" for n in range(20)])) == {f"q-{n}" for n in range(6, 16)}


def test_open_requests_follow_from_the_rows_and_leave_by_age_number_or_with_their_row(store: SqliteJoinStore) -> None:
    start_ms = int(START.timestamp() * 1_000)

    def waiting(number: int) -> StoredRow:
        return StoredRow(take_result(NOTHING_KNOWN, routed(number), {"photo": FIELDS}).state, start_ms + 10**6, True)

    store.commit({(n % 2, f"q-{n}"): waiting(n) for n in range(6)}, {})
    store.commit({(1, "q-5"): StoredRow(state(5), start_ms, False)}, {})
    assert store.open_requests == {"photo": 5}
    assert [key.query_id for key in store.overdue_requests([0, 1], start_ms, 3)] == ["q-0", "q-1"]
    assert [key.query_id for key in store.overdue_requests([0, 1], start_ms + 2_500, 9)] == ["q-0", "q-1", "q-2"]
    assert [key.query_id for key in store.overdue_requests([1], start_ms + 2_500, 9)] == ["q-1"]
    store.expire(start_ms + 1)
    assert store.overdue_requests([0, 1], 0, 9) == []
    store.expire(start_ms + 10**7)
    gone = store.overdue_requests([0, 1], 0, 9)
    assert [key.query_id for key in gone] == ["q-0", "q-1", "q-2", "q-3", "q-4"]
    store.close_requests(gone)
    assert store.open_requests == {}


def test_a_file_from_before_label_requests_is_taken_over_as_it_is(path: Path) -> None:
    before = SqliteJoinStore(path, 10)
    put(before, 1)
    before.close()
    database = sqlite3.connect(path)
    database.execute("DROP TABLE requests")
    database.close()
    store = SqliteJoinStore(path, 10)
    assert store.load(0, ["q-1"]) == {"q-1": state(1)}
    assert store.open_requests == {}
    store.close()


def test_a_router_whose_clock_is_ahead_keeps_no_request_open_for_longer(store: SqliteJoinStore) -> None:
    ahead = take_result(NOTHING_KNOWN, routed(10**6), {"photo": FIELDS}).state
    store.commit({(0, "q"): StoredRow(ahead, 5_000, True)}, {})
    assert len(store.overdue_requests([0], 5_001, 9)) == 1


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be looked at" * 20, b"\0" * 5_000])
def test_a_file_that_is_no_database_is_set_aside_and_an_empty_one_begun(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    store = SqliteJoinStore(path, 10)
    assert store.rows == 0
    assert store.offsets() == {}
    store.close()
    assert any("damaged" in found.name for found in path.parent.iterdir())


def test_a_file_of_another_format_is_set_aside(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    SqliteJoinStore(path, 10).close()
    assert any("damaged" in found.name for found in path.parent.iterdir())


def test_a_row_that_cannot_be_read_ends_the_process_and_the_next_start_begins_anew(
    store: SqliteJoinStore, path: Path
) -> None:
    put(store, 1)
    database = sqlite3.connect(path)
    database.execute("UPDATE rows SET state = 'torn'")
    database.commit()
    database.close()
    with pytest.raises(StoreDamaged, match="start again"):
        store.load(0, ["q-1"])
    again = SqliteJoinStore(path, 10)
    assert again.offsets() == {}
    again.close()
