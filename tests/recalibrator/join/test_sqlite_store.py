"""The join's file: rows and offsets together or not at all; damage is set aside, not trusted."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recalibrator.errors import DiskFull, StoreDamaged
from recalibrator.join import sqlite_store
from recalibrator.join.broker_time import to_ms
from recalibrator.join.ports import StoredRow
from recalibrator.join.query_state import NOTHING_KNOWN, QueryState, take_feedback, take_result
from recalibrator.join.sqlite_store import RowBounds, SqliteJoinStore
from schemas.routed import LabelRequest
from tests.support.recalibrator_events import PHOTO, START, feedback, routed
from ucci_runtime.broker.records import Input

SOURCE = Input("results", 0)
RULES = {"photo": PHOTO}
BOUNDS = RowBounds(10, 10**9)
ALL = 20_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "join.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteJoinStore]:
    made = SqliteJoinStore(path, BOUNDS)
    yield made
    made.close()


def state(number: int) -> QueryState:
    taken = take_result(NOTHING_KNOWN, routed(number), RULES).state
    return take_feedback(taken, feedback(number), START, RULES).state


def unasked(number: int) -> QueryState:
    label = LabelRequest(requested=False, probability=0.1)
    return take_result(NOTHING_KNOWN, routed(number, label=label), RULES).state


def asked(number: int) -> QueryState:
    return take_result(NOTHING_KNOWN, routed(number), RULES).state


def early(number: int) -> QueryState:
    return take_feedback(NOTHING_KNOWN, feedback(number), START, RULES).state


def put(store: SqliteJoinStore, *numbers: int, offset: int = 7) -> None:
    store.commit({(0, f"q-{n}"): StoredRow(state(n), n) for n in numbers}, {SOURCE: offset})


def test_what_is_stored_comes_back_equal_after_a_restart(store: SqliteJoinStore, path: Path) -> None:
    put(store, 1, 2)
    store.close()
    again = SqliteJoinStore(path, BOUNDS)
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
    broken = {(0, "q-2"): StoredRow(state(2), 2), (0, "q-3"): StoredRow(state(3), 2**70)}
    with pytest.raises(OverflowError):
        store.commit(broken, {SOURCE: 99})
    assert store.load(0, ["q-2"]) == {}
    assert store.offsets() == {SOURCE: 7}


def test_rows_expire_by_age_then_above_the_bound_by_kind(
    store: SqliteJoinStore,
) -> None:
    put(store, *range(1, 16))
    waiting = take_result(NOTHING_KNOWN, routed(0), RULES).state
    store.commit({(0, "q-0"): StoredRow(waiting, 0)}, {})
    assert store.expire(3, ALL) == {
        "feedback_without_result": 0,
        "result_without_label": 0,
        "joined": 5,
        "requested_without_label": 1,
    }
    assert store.rows == 10
    assert set(store.load(0, [f"q-{n}" for n in range(20)])) == {f"q-{n}" for n in range(6, 16)}


def test_requests_leave_by_age_number_or_with_their_row(store: SqliteJoinStore) -> None:
    """They follow from the rows alone."""
    start_ms = int(START.timestamp() * 1_000)

    def waiting(number: int) -> StoredRow:
        return StoredRow(take_result(NOTHING_KNOWN, routed(number), RULES).state, start_ms + 10**6)

    store.commit({(n % 2, f"q-{n}"): waiting(n) for n in range(6)}, {})
    store.commit({(1, "q-5"): StoredRow(state(5), start_ms)}, {})
    assert store.open_requests == {"photo": 5}
    assert [key.query_id for key in store.overdue_requests([0, 1], start_ms, 3)] == ["q-0", "q-1"]
    assert [key.query_id for key in store.overdue_requests([0, 1], start_ms + 2_500, 9)] == ["q-0", "q-1", "q-2"]
    assert [key.query_id for key in store.overdue_requests([1], start_ms + 2_500, 9)] == ["q-1"]
    store.expire(start_ms + 1, ALL)
    assert store.overdue_requests([0, 1], 0, 9) == []
    store.expire(start_ms + 10**7, ALL)
    gone = store.overdue_requests([0, 1], 0, 9)
    assert [key.query_id for key in gone] == ["q-0", "q-1", "q-2", "q-3", "q-4"]
    store.close_requests(gone)
    assert store.open_requests == {}


def of_bytes(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def of_statement(statement: str) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database:
            database.execute(statement)
            database.commit()

    return write


def torn(path: Path) -> None:
    with closing(SqliteJoinStore(path, RowBounds(10_000, 10**9))) as store:
        put(store, *range(500))
    content = path.read_bytes()
    path.write_bytes(content[:8_192] + b"\xff" * (len(content) - 8_192))


@pytest.mark.parametrize(
    "write",
    [
        of_bytes(b"not a database at all, but long enough to be looked at" * 20),
        of_bytes(b"\0" * 5_000),
        of_statement("PRAGMA user_version = 99"),
        of_statement("PRAGMA user_version = 1"),
        of_statement("CREATE TABLE rows (something TEXT)"),
        torn,
    ],
    ids=["no database", "zeros", "later format", "earlier format", "tables of another program", "torn page"],
)
def test_a_file_that_is_no_sound_store_is_set_aside(path: Path, write: Callable[[Path], object]) -> None:
    """And an empty one is begun, which the next start finds."""
    write(path)
    SqliteJoinStore(path, BOUNDS).close()
    assert is_set_aside(path)
    with closing(SqliteJoinStore(path, BOUNDS)) as store:
        assert (store.rows, store.offsets()) == (0, {})


def test_another_format_sets_a_store_of_this_one_aside(
    store: SqliteJoinStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file says which format it has: rows that a release reads otherwise are never taken for its own."""
    put(store, 1)
    monkeypatch.setattr(sqlite_store, "_FORMAT", 99)
    with closing(SqliteJoinStore(path, BOUNDS)) as later:
        assert later.rows == 0
    assert is_set_aside(path)


def test_an_unreadable_row_sets_the_file_aside(store: SqliteJoinStore, path: Path) -> None:
    """The process ends, and the next start begins anew."""
    put(store, 1)
    of_statement("UPDATE rows SET state = 'torn'")(path)
    with pytest.raises(StoreDamaged, match="start again"):
        store.load(0, ["q-1"])
    again = SqliteJoinStore(path, BOUNDS)
    assert again.offsets() == {}
    again.close()


def is_set_aside(path: Path) -> bool:
    return any("damaged" in found.name for found in path.parent.iterdir())


def test_a_lock_at_start_sets_no_healthy_store_aside(
    store: SqliteJoinStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "LOCK_TIMEOUT_S", 0.0)
    put(store, 1)
    store.close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(OSError, match=r"join.sqlite3: database is locked; .*other process.*start again"):
        SqliteJoinStore(path, BOUNDS)
    other.close()
    assert not is_set_aside(path)
    again = SqliteJoinStore(path, BOUNDS)
    assert again.load(0, ["q-1"]) == {"q-1": state(1)}
    again.close()


class FullDisk(sqlite3.Connection):
    """A connection that may add no page to its file."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        super().execute("PRAGMA max_page_count = 1")
        return super().execute(sql, parameters)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Every file opened from here on finds the disk full; undone by ``undo``."""
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=FullDisk))
    return monkeypatch


def test_a_full_disk_at_start_sets_no_store_aside(path: Path, full_disk: pytest.MonkeyPatch) -> None:
    """The next start finds room, and begins an empty store."""
    with pytest.raises(DiskFull, match=r"disk is full; .*free space"):
        SqliteJoinStore(path, BOUNDS)
    assert not is_set_aside(path)
    full_disk.undo()
    with closing(SqliteJoinStore(path, BOUNDS)) as again:
        assert (again.rows, again.offsets()) == (0, {})


def test_a_file_that_cannot_be_opened_is_named_and_kept(path: Path) -> None:
    path.mkdir()
    with pytest.raises(OSError, match=r"join.sqlite3: .*start again"):
        SqliteJoinStore(path, BOUNDS)
    assert path.is_dir()


def test_a_full_disk_during_a_commit_keeps_the_store(path: Path, request: pytest.FixtureRequest) -> None:
    first = SqliteJoinStore(path, BOUNDS)
    put(first, 1)
    first.close()
    request.getfixturevalue("full_disk")
    store = SqliteJoinStore(path, BOUNDS)
    with pytest.raises(DiskFull, match="disk is full"):
        put(store, *range(2, 200), offset=99)
    assert store.offsets() == {SOURCE: 7}
    store.close()
    assert not is_set_aside(path)


def test_the_store_and_its_side_files_are_the_owners_alone(store: SqliteJoinStore, path: Path) -> None:
    put(store, 1)
    modes = {found.name: stat.S_IMODE(found.stat().st_mode) for found in path.parent.iterdir()}
    assert modes == {path.name: 0o600, f"{path.name}-wal": 0o600, f"{path.name}-shm": 0o600}


@pytest.mark.parametrize(("ahead", "arrived_at"), [(timedelta(days=12), None), (-timedelta(days=365), START)])
def test_a_request_is_as_old_as_its_arrival(
    store: SqliteJoinStore, ahead: timedelta, arrived_at: datetime | None
) -> None:
    """A router's clock ahead keeps no request open longer, and one behind closes none at once."""
    result = take_result(NOTHING_KNOWN, routed(1, routed_at=START + ahead), RULES, arrived_at).state
    store.commit({(0, "q-1"): StoredRow(result, to_ms(START))}, {})
    assert store.overdue_requests([0], to_ms(START), 9) == []
    assert len(store.overdue_requests([0], to_ms(START) + 1, 9)) == 1


def test_each_kind_is_spared_a_tenth_of_the_bound(path: Path) -> None:
    store = SqliteJoinStore(path, RowBounds(100, 10**9))
    kinds = {"early": early, "unasked": unasked, "joined": state, "asked": asked}
    for name, made in kinds.items():
        store.commit({(0, f"{name}-{n}"): StoredRow(made(n), n) for n in range(60)}, {})
    assert store.expire(0, ALL) == {
        "feedback_without_result": 50,
        "result_without_label": 50,
        "joined": 40,
        "requested_without_label": 0,
    }
    store.commit({(0, f"more-{n}"): StoredRow(asked(n), 100 + n) for n in range(200)}, {})
    assert store.expire(0, ALL) == {
        "feedback_without_result": 0,
        "result_without_label": 0,
        "joined": 10,
        "requested_without_label": 190,
    }
    assert set(store.load(0, [f"joined-{n}" for n in range(60)])) == {f"joined-{n}" for n in range(50, 60)}
    store.close()


def test_each_kind_is_spared_a_tenth_of_the_bytes(path: Path) -> None:
    with closing(SqliteJoinStore(path, RowBounds(10**9, 10**9))) as store:
        store.commit({(0, f"unasked-{n:02}"): StoredRow(unasked(n), n) for n in range(60)}, {})
        one = store.row_bytes / 60
        store.commit({(0, f"asked-{n}"): StoredRow(asked(n), 100 + n) for n in range(400)}, {})
        bound = store.row_bytes // 2
    with closing(SqliteJoinStore(path, RowBounds(10**9, bound))) as store:
        gone = store.expire(0, ALL)
        kept = 60 - gone["result_without_label"]
        assert bound - 2 * one < store.row_bytes <= bound
        assert bound / 10 - one <= kept * one <= bound / 10 + one
        assert gone["requested_without_label"] > 0
        assert len(store.load(0, [f"unasked-{n:02}" for n in range(60 - kept, 60)])) == kept


def test_no_more_rows_leave_at_a_time_than_asked_for(store: SqliteJoinStore) -> None:
    put(store, *range(40))
    assert sum(store.expire(0, 7).values()) == 7
    assert sum(store.expire(20, 5).values()) == 10, "five by age, five by number"


def test_the_bytes_counted_follow_every_change_of_a_row(store: SqliteJoinStore, path: Path) -> None:
    store.commit({(0, "q-1"): StoredRow(asked(1), 1), (0, "q-2"): StoredRow(unasked(2), 2)}, {})
    store.commit({(0, "q-1"): StoredRow(state(1), 3)}, {})
    with sqlite3.connect(path) as database:
        stored = database.execute("SELECT sum(length(state) + 2 * length(query_id) + 100) FROM rows").fetchone()[0]
    database.close()
    assert store.row_bytes == stored
    store.expire(100, ALL)
    assert (store.rows, store.row_bytes) == (0, 0)


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.sampled_from(["early", "unasked", "joined", "asked"]), st.integers(0, 50)),
        max_size=30,
    )
)
@settings(max_examples=25, deadline=None)
def test_the_bounds_hold_and_totals_add_up_whatever_comes(steps: list[tuple[int, str, int]]) -> None:
    made = {"early": early, "unasked": unasked, "joined": state, "asked": asked}
    with TemporaryDirectory() as directory:
        store = SqliteJoinStore(Path(directory) / "join.sqlite3", RowBounds(5, 3_000))
        kept: dict[str, int] = {}
        for number, kind, touched_ms in steps:
            store.commit({(0, f"q-{number}"): StoredRow(made[kind](number), touched_ms)}, {})
            kept[f"q-{number}"] = max(touched_ms, kept.get(f"q-{number}", 0))
            store.expire(0, 10)
            found = store.load(0, kept)
            kept = {key: age for key, age in kept.items() if key in found}
            assert store.rows == len(found) <= 5
            assert store.row_bytes <= 3_000
            least = min(kept.values(), default=0)
            assert sum(store.expire(least, 10).values()) == 0, "no row is older than its latest touch"
        store.close()


@pytest.mark.parametrize("damage", ["DELETE FROM rows WHERE query_id = 'q-1'", "UPDATE rows SET query_id = 'q-11'"])
def test_rows_that_the_disk_lost_or_altered_are_missed(path: Path, damage: str) -> None:
    """Beside the triggers, as pages that come back otherwise do: the totals tell, and the topics have what is gone."""
    with closing(SqliteJoinStore(path, BOUNDS)) as store:
        store.commit({(0, "q-1"): StoredRow(state(1), 1)}, {SOURCE: 7})
    with closing(sqlite3.connect(path)) as database:
        for trigger in ("row_added", "row_changed", "row_removed"):
            database.execute(f"DROP TRIGGER {trigger}")
        database.execute(damage)
        database.commit()
    with closing(SqliteJoinStore(path, BOUNDS)) as store:
        assert store.offsets() == {}
