"""The join's file: rows and offsets together or not at all; damage is set aside, not trusted."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from recalibrator.errors import DiskFull, StoreDamaged
from recalibrator.join import sqlite_store
from recalibrator.join.broker_time import to_ms
from recalibrator.join.ports import RequestKey, StoredRow
from recalibrator.join.query_state import NOTHING_KNOWN, QueryState, take_feedback, take_result
from recalibrator.join.sqlite_store import KINDS, RowBounds, SqliteJoinStore
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


def opened(path: Path, bounds: RowBounds = BOUNDS) -> closing[SqliteJoinStore]:
    return closing(SqliteJoinStore(path, bounds))


@pytest.fixture
def store(path: Path) -> Iterator[SqliteJoinStore]:
    with opened(path) as made:
        yield made


def asked(number: int, **changes: Any) -> QueryState:
    return take_result(NOTHING_KNOWN, routed(number, **changes), RULES).state


def state(number: int) -> QueryState:
    return take_feedback(asked(number), feedback(number), START, RULES).state


def unasked(number: int) -> QueryState:
    return asked(number, label=LabelRequest(requested=False, probability=0.1))


def early(number: int) -> QueryState:
    return take_feedback(NOTHING_KNOWN, feedback(number), START, RULES).state


MADE: dict[str, Callable[[int], QueryState]] = {"early": early, "unasked": unasked, "joined": state, "asked": asked}


def put(store: SqliteJoinStore, *numbers: int, offset: int = 7) -> None:
    store.commit({(0, f"q-{n}"): StoredRow(state(n), n) for n in numbers}, {SOURCE: offset})


def ids(requests: Iterable[RequestKey]) -> list[str]:
    return [key.query_id for key in requests]


def by_kind(*counts: int) -> dict[str, int]:
    return dict(zip(KINDS, counts, strict=True))


def test_what_is_stored_comes_back_equal_after_a_restart(store: SqliteJoinStore, path: Path) -> None:
    put(store, 1, 2)
    store.close()
    with opened(path) as again:
        assert again.load(0, ["q-1", "q-2", "q-3"]) == {"q-1": state(1), "q-2": state(2)}
        assert (again.load(1, ["q-1"]), again.offsets(), again.size.rows) == ({}, {SOURCE: 7}, 2)


def test_more_queries_can_be_asked_for_than_one_statement_takes(store: SqliteJoinStore) -> None:
    put(store, 1)
    assert set(store.load(0, [f"q-{n}" for n in range(3_000)])) == {"q-1"}


def test_requests_leave_by_age_number_or_with_their_row(store: SqliteJoinStore) -> None:
    """They follow from the rows alone."""
    start_ms = to_ms(START)
    store.commit({(n % 2, f"q-{n}"): StoredRow(asked(n), start_ms + 10**6) for n in range(6)}, {})
    store.commit({(1, "q-5"): StoredRow(state(5), start_ms)}, {})
    assert store.open_requests == {"photo": 5}
    assert ids(store.overdue_requests([0, 1], start_ms, 3)) == ["q-0", "q-1"]
    assert ids(store.overdue_requests([0, 1], start_ms + 2_500, 9)) == ["q-0", "q-1", "q-2"]
    assert ids(store.overdue_requests([1], start_ms + 2_500, 9)) == ["q-1"]
    store.expire(start_ms + 1, ALL)
    assert store.overdue_requests([0, 1], 0, 9) == []
    store.expire(start_ms + 10**7, ALL)
    gone = store.overdue_requests([0, 1], 0, 9)
    assert ids(gone) == ["q-0", "q-1", "q-2", "q-3", "q-4"]
    store.close_requests(gone)
    assert store.open_requests == {}


def of_bytes(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def of_statements(*statements: str) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database:
            for statement in statements:
                database.execute(statement)
            database.commit()

    return write


def torn(path: Path) -> None:
    with opened(path, RowBounds(10_000, 10**9)) as store:
        put(store, *range(500))
    content = path.read_bytes()
    path.write_bytes(content[:8_192] + b"\xff" * (len(content) - 8_192))


@pytest.mark.parametrize(
    "write",
    [
        of_bytes(b"not a database at all, but long enough to be looked at" * 20),
        of_statements("CREATE TABLE rows (something TEXT)"),
        torn,
    ],
    ids=["no database", "tables of another program", "torn page"],
)
def test_a_file_that_is_no_sound_store_is_set_aside(path: Path, write: Callable[[Path], object]) -> None:
    """And an empty one is begun, which the next start finds."""
    write(path)
    SqliteJoinStore(path, BOUNDS).close()
    assert is_set_aside(path)
    with opened(path) as store:
        assert (store.size.rows, store.offsets()) == (0, {})


@pytest.mark.parametrize("number", [2, 99], ids=["former", "later"])
def test_another_releases_store_is_set_aside_as_sound(path: Path, number: int) -> None:
    """An upgrade or its way back begins an empty store, and calls nothing damaged."""
    with opened(path) as store:
        put(store, 1)
    of_statements(f"PRAGMA user_version = {number}")(path)
    with capture_logs() as lines, opened(path) as store:
        assert (store.size.rows, store.offsets()) == (0, {})
    assert not is_set_aside(path)
    (kept,) = path.parent.glob(f"{path.name}.format-{number}-*")
    assert [(line["log_level"], line["kept"]) for line in lines] == [("info", str(kept))]
    assert lines[0]["event"] == "the join's store is of another release; set aside, and rebuilt from the topics"


def test_an_unreadable_row_sets_the_file_aside(store: SqliteJoinStore, path: Path) -> None:
    """The process ends, and the next start begins anew."""
    put(store, 1)
    of_statements("UPDATE rows SET state = 'torn'")(path)
    with pytest.raises(StoreDamaged, match="start again"):
        store.load(0, ["q-1"])
    with opened(path) as again:
        assert again.offsets() == {}


def is_set_aside(path: Path) -> bool:
    return any("damaged" in found.name for found in path.parent.iterdir())


def test_a_lock_at_start_sets_no_healthy_store_aside(
    store: SqliteJoinStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "LOCK_TIMEOUT_S", 0.0)
    put(store, 1)
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(OSError, match=r"join.sqlite3: database is locked; .*other process.*start again"):
            opened(path)
    assert not is_set_aside(path)
    with opened(path) as again:
        assert again.load(0, ["q-1"]) == {"q-1": state(1)}


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
        opened(path)
    assert not is_set_aside(path)
    full_disk.undo()
    with opened(path) as again:
        assert (again.size.rows, again.offsets()) == (0, {})


def test_a_file_that_cannot_be_opened_is_named_and_kept(path: Path) -> None:
    path.mkdir()
    with pytest.raises(OSError, match=r"join.sqlite3: .*start again"):
        opened(path)
    assert path.is_dir()


def test_a_full_disk_during_a_commit_keeps_the_store(path: Path, request: pytest.FixtureRequest) -> None:
    with opened(path) as first:
        put(first, 1)
    request.getfixturevalue("full_disk")
    with opened(path) as store:
        with pytest.raises(DiskFull, match="disk is full"):
            put(store, *range(2, 200), offset=99)
        assert (store.load(0, ["q-2"]), store.offsets()) == ({}, {SOURCE: 7})
    assert not is_set_aside(path)


def test_the_store_and_its_side_files_are_the_owners_alone(store: SqliteJoinStore, path: Path) -> None:
    put(store, 1)
    modes = {found.name: stat.S_IMODE(found.stat().st_mode) for found in path.parent.iterdir()}
    assert modes == {path.name: 0o600, f"{path.name}-wal": 0o600, f"{path.name}-shm": 0o600}


def test_a_router_clock_ahead_keeps_no_request_open_longer(store: SqliteJoinStore) -> None:
    store.commit({(0, "q-1"): StoredRow(asked(1, routed_at=START + timedelta(days=12)), to_ms(START))}, {})
    assert store.overdue_requests([0], to_ms(START), 9) == []
    assert len(store.overdue_requests([0], to_ms(START) + 1, 9)) == 1


def test_each_kind_is_spared_a_tenth_of_the_bound(path: Path) -> None:
    with opened(path, RowBounds(100, 10**9)) as store:
        for name, made in MADE.items():
            store.commit({(0, f"{name}-{n}"): StoredRow(made(n), n) for n in range(60)}, {})
        assert store.expire(0, ALL) == by_kind(50, 50, 40, 0)
        store.commit({(0, f"more-{n}"): StoredRow(asked(n), 100 + n) for n in range(200)}, {})
        assert store.expire(0, ALL) == by_kind(0, 0, 10, 190)
        assert set(store.load(0, [f"joined-{n}" for n in range(60)])) == {f"joined-{n}" for n in range(50, 60)}


def test_each_kind_is_spared_a_tenth_of_the_bytes(path: Path) -> None:
    with opened(path, RowBounds(10**9, 10**9)) as store:
        store.commit({(0, f"unasked-{n:02}"): StoredRow(unasked(n), n) for n in range(60)}, {})
        one = store.size.bytes / 60
        store.commit({(0, f"asked-{n}"): StoredRow(asked(n), 100 + n) for n in range(400)}, {})
        bound = store.size.bytes // 2
    with opened(path, RowBounds(10**9, bound)) as store:
        gone = store.expire(0, ALL)
        kept = 60 - gone["result_without_label"]
        assert bound - 2 * one < store.size.bytes <= bound
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
    with closing(sqlite3.connect(path)) as database:
        stored = database.execute("SELECT sum(length(state) + 2 * length(query_id) + 100) FROM rows").fetchone()[0]
    assert store.size.bytes == stored
    store.expire(100, ALL)
    assert (store.size.rows, store.size.bytes) == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(sorted(MADE)), st.integers(0, 50)), max_size=30))
@settings(max_examples=25, deadline=None)
def test_the_bounds_hold_and_totals_add_up_whatever_comes(steps: list[tuple[int, str, int]]) -> None:
    with TemporaryDirectory() as directory, opened(Path(directory) / "join.sqlite3", RowBounds(5, 3_000)) as store:
        kept: dict[str, int] = {}
        for number, kind, touched_ms in steps:
            store.commit({(0, f"q-{number}"): StoredRow(MADE[kind](number), touched_ms)}, {})
            kept[f"q-{number}"] = max(touched_ms, kept.get(f"q-{number}", 0))
            store.expire(0, 10)
            found = store.load(0, kept)
            kept = {key: age for key, age in kept.items() if key in found}
            assert store.size.rows == len(found) <= 5
            assert store.size.bytes <= 3_000
            least = min(kept.values(), default=0)
            assert sum(store.expire(least, 10).values()) == 0, "no row is older than its latest touch"


@pytest.mark.parametrize("damage", ["DELETE FROM rows WHERE query_id = 'q-1'", "UPDATE rows SET query_id = 'q-11'"])
def test_rows_that_the_disk_lost_or_altered_are_missed(path: Path, damage: str) -> None:
    """Beside the triggers, as pages that come back otherwise do: the totals tell, and the topics have what is gone."""
    with opened(path) as store:
        put(store, 1)
    of_statements(*(f"DROP TRIGGER row_{change}" for change in ("added", "changed", "removed")), damage)(path)
    with opened(path) as store:
        assert store.offsets() == {}
