"""The join's rows and offsets in one SQLite file: stored together, so that neither is ever ahead of the other.

A damaged file, or one of another release's format, is set aside and rebuilt from the topics. Rows have four kinds, in
the order in which they are given up where the file is full: a label without its result, a result that nobody was asked
about, a joined row, a result whose label was requested and has not come. The labelers' counts are stored with the
offsets that they stand at, so that a crash neither loses nor doubles any.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import structlog
from pydantic import ValidationError

from recalibrator.errors import DiskFull, StoreDamaged, StoreOfOtherRelease
from recalibrator.join.broker_time import to_ms
from recalibrator.join.ports import (
    LABELER_COUNTS,
    LabelerKey,
    RequestKey,
    StoredRow,
    StoreSize,
    WaitingLabels,
)
from recalibrator.join.query_state import QueryState, decoded, encoded
from schemas.event import from_ms
from schemas.status import FEW_IDS, LabelerCounts, LabelerStatus, LabelsWithoutResult
from ucci_runtime.broker.records import Input

_log = structlog.get_logger()

#: What a row takes in the file besides its state and twice its query id: in the table, in the index and as slack.
_ROW_BYTES = 100


#: Labelers' rows, one for a labeler, workload and partition; the longest silent go first, since names are the senders'
#: to choose.
MOST_LABELERS = 2_000

#: Labelers of one workload in a status.
MOST_SHOWN = 50


def _size(row: str) -> str:
    return f"(length({row}state) + 2 * length({row}query_id) + {_ROW_BYTES})"


_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS rows (
    partition INTEGER NOT NULL,
    query_id TEXT NOT NULL,
    kind INTEGER NOT NULL,
    touched_ms INTEGER NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (partition, query_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS rows_by_kind ON rows (kind, touched_ms);
CREATE TABLE IF NOT EXISTS totals (
    kind INTEGER NOT NULL PRIMARY KEY,
    rows INTEGER NOT NULL,
    bytes INTEGER NOT NULL
);
INSERT OR IGNORE INTO totals (kind, rows, bytes) VALUES (0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0);
CREATE TRIGGER IF NOT EXISTS row_added AFTER INSERT ON rows BEGIN
    UPDATE totals SET rows = rows + 1, bytes = bytes + {_size("NEW.")} WHERE kind = NEW.kind;
END;
CREATE TRIGGER IF NOT EXISTS row_changed AFTER UPDATE ON rows BEGIN
    UPDATE totals SET rows = rows - 1, bytes = bytes - {_size("OLD.")} WHERE kind = OLD.kind;
    UPDATE totals SET rows = rows + 1, bytes = bytes + {_size("NEW.")} WHERE kind = NEW.kind;
END;
CREATE TRIGGER IF NOT EXISTS row_removed AFTER DELETE ON rows BEGIN
    UPDATE totals SET rows = rows - 1, bytes = bytes - {_size("OLD.")} WHERE kind = OLD.kind;
END;
CREATE TABLE IF NOT EXISTS requests (
    partition INTEGER NOT NULL,
    query_id TEXT NOT NULL,
    workload TEXT NOT NULL,
    requested_ms INTEGER NOT NULL,
    PRIMARY KEY (partition, query_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS requests_by_age ON requests (workload, requested_ms);
CREATE TABLE IF NOT EXISTS offsets (
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    next_offset INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS labelers (
    partition INTEGER NOT NULL,
    workload TEXT NOT NULL,
    labeler TEXT NOT NULL,
    {", ".join(f"{name} INTEGER NOT NULL" for name in LABELER_COUNTS)},
    last_ms INTEGER NOT NULL,
    PRIMARY KEY (partition, workload, labeler)
) WITHOUT ROWID;
"""  # noqa: S608 no value from outside
#: 3: rows lie at the homes of their queries; before, where their producers had put them.
_FORMAT = 3
_DIFFERING = f"""
SELECT kind, rows, bytes FROM totals WHERE rows > 0
EXCEPT SELECT kind, count(*), sum({_size("")}) FROM rows GROUP BY kind
"""  # noqa: S608 no value from outside
_PUT = """
INSERT INTO rows (partition, query_id, kind, touched_ms, state) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    kind = excluded.kind, touched_ms = max(touched_ms, excluded.touched_ms), state = excluded.state
"""
_OLDEST = "SELECT partition, query_id FROM rows WHERE kind = ? AND touched_ms < ? ORDER BY touched_ms LIMIT ?"
_LEAST_KEPT = f"""
SELECT partition, query_id, {_size("")} FROM rows WHERE kind = ? ORDER BY touched_ms LIMIT ?
"""  # noqa: S608 no value from outside
_LOAD = """
SELECT query_id, CAST(state AS BLOB) FROM rows
WHERE partition = ? AND query_id IN (SELECT value FROM json_each(?))
"""
_WAITING = """
SELECT count(*), coalesce(sum(touched_ms >= ? AND touched_ms < ?), 0), min(touched_ms) FROM rows
WHERE kind = ? AND partition IN (SELECT value FROM json_each(?))
"""
_LATEST_WAITING = """
SELECT query_id FROM rows WHERE kind = ? AND touched_ms < ? AND partition IN (SELECT value FROM json_each(?))
ORDER BY touched_ms DESC LIMIT ?
"""
_EXPIRED_AT_ONCE = 20_000
_OVERDUE = """
SELECT partition, query_id, workload FROM (
    SELECT *, row_number() OVER (PARTITION BY workload ORDER BY requested_ms DESC, query_id DESC) AS place FROM requests
    WHERE partition IN (SELECT value FROM json_each(?))
) AS open WHERE requested_ms < ? OR place > ? OR NOT EXISTS (
    SELECT 1 FROM rows WHERE rows.partition = open.partition AND rows.query_id = open.query_id
) ORDER BY requested_ms LIMIT ?
"""
_ADD_COUNTS = f"""
INSERT INTO labelers (partition, workload, labeler, {", ".join(LABELER_COUNTS)}, last_ms)
VALUES ({", ".join("?" * (len(LABELER_COUNTS) + 4))})
ON CONFLICT DO UPDATE SET
    {", ".join(f"{name} = {name} + excluded.{name}" for name in LABELER_COUNTS)},
    last_ms = max(last_ms, excluded.last_ms)
"""  # noqa: S608 names of columns, as above
_SUMS = f"""
SELECT workload, labeler, {", ".join(f"sum({name})" for name in LABELER_COUNTS)}, max(last_ms) FROM labelers
WHERE partition IN (SELECT value FROM json_each(?)) GROUP BY workload, labeler ORDER BY 3 DESC, 2
"""  # noqa: S608 names of columns, as above
_EXPIRE_LABELERS = """
DELETE FROM labelers WHERE last_ms < ? OR (partition, workload, labeler) NOT IN (
    SELECT partition, workload, labeler FROM labelers ORDER BY last_ms DESC LIMIT ?
)
"""
#: In the order in which they are given up.
KINDS = ("feedback_without_result", "result_without_label", "joined", "requested_without_label")
_WITHOUT_RESULT = KINDS.index("feedback_without_result")

#: Share of the bounds up to which a kind is spared for the sake of those after it: without it, requests that nobody
#: answers would fill the file, and no other label would find its result.
_SPARED = 0.1


@dataclass(frozen=True, slots=True)
class RowBounds:
    """Most rows, and most bytes that they take."""

    rows: int = 5_000_000
    bytes: int = 4_000_000_000


#: How long to wait for another process that has the file locked.
LOCK_TIMEOUT_S = 5.0

#: What SQLite reports of a file that no later start could read either.
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_REMEDIES = {
    sqlite3.SQLITE_BUSY: "end the other process that uses it",
    sqlite3.SQLITE_LOCKED: "end the other process that uses it",
    sqlite3.SQLITE_READONLY: "make it writable for this process",
    sqlite3.SQLITE_CANTOPEN: "make it a file that this process may open",
    sqlite3.SQLITE_PERM: "make it writable for this process",
}


class SqliteJoinStore:
    """The join's state on disk, for one thread. Raises OSError when a sound file is locked, or the disk is full."""

    def __init__(self, path: Path, bounds: RowBounds) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._bounds = bounds
        try:
            self._database = _open(path)
        except StoreDamaged as error:
            _set_aside(path, error)
            self._database = _open(path)

    @property
    def size(self) -> StoreSize:
        """Number of rows stored, and the bytes that they take."""
        totals = self._totals().values()
        return StoreSize(sum(rows for rows, _ in totals), sum(size for _, size in totals))

    def _totals(self) -> dict[int, tuple[int, int]]:
        """Return (rows, bytes) of each kind."""
        with self._guarded():
            found = self._database.execute("SELECT kind, rows, bytes FROM totals")
            return {kind: (rows, size) for kind, rows, size in found}

    def load(self, partition: int, query_ids: Iterable[str]) -> dict[str, QueryState]:
        """Return the stored states of those queries that have one. Raises StoreDamaged."""
        with self._guarded():
            rows = self._database.execute(_LOAD, (partition, json.dumps(list(query_ids))))
            return {query_id: decoded(state) for query_id, state in rows}

    def offsets(self) -> dict[Input, int]:
        """Return the offsets up to which the rows are complete."""
        with self._guarded():
            rows = self._database.execute("SELECT topic, partition, next_offset FROM offsets")
            return {Input(topic, partition): next_offset for topic, partition, next_offset in rows}

    def commit(
        self,
        rows: Mapping[tuple[int, str], StoredRow],
        offsets: Mapping[Input, int],
        agreement: Mapping[LabelerKey, LabelerCounts] = MappingProxyType({}),
    ) -> None:
        """Store rows and offsets, and add to the labelers' counts, in one transaction.

        A row's time of touch never moves backwards, whatever a late record carries. Raises StoreDamaged or OSError.
        """
        with self._writing():
            self._database.executemany(
                _PUT,
                (
                    (partition, query_id, _kind(row.state), row.touched_ms, encoded(row.state))
                    for (partition, query_id), row in rows.items()
                ),
            )
            self._note_requests(rows)
            self._database.executemany(
                "INSERT OR REPLACE INTO offsets (topic, partition, next_offset) VALUES (?, ?, ?)",
                ((source.topic, source.partition, offset) for source, offset in offsets.items()),
            )
            self._database.executemany(_ADD_COUNTS, (_labeler_row(*one) for one in agreement.items()))

    def labelers(self, partitions: Collection[int]) -> Mapping[str, tuple[LabelerStatus, ...]]:
        """Return the busiest labelers of these partitions, by workload. Raises StoreDamaged."""
        with self._guarded():
            rows = self._database.execute(_SUMS, (json.dumps(list(partitions)),)).fetchall()
        found: dict[str, list[LabelerStatus]] = defaultdict(list)
        for workload, labeler, *sums, last_ms in rows:
            if len(found[workload]) < MOST_SHOWN:
                counts = dict(zip(LABELER_COUNTS, sums, strict=True))
                found[workload].append(LabelerStatus(labeler=labeler or None, last_at=from_ms(last_ms), **counts))
        return {workload: tuple(labelers) for workload, labelers in found.items()}

    def expire(
        self,
        before_ms: int,
        most: int,
        *,
        spared: Collection[int] = (),
        set_aside: Callable[[Sequence[WaitingLabels]], None] = lambda _labels: None,
    ) -> Mapping[str, int]:
        """Delete rows not touched since, and rows above the bounds.

        Above the bounds, rows go in the order of the kinds, within one the longest untouched first; a kind is spared
        once it holds no more than a tenth of what is bounded. ``spared``: homes whose labels without a result stay.
        ``set_aside``: called with the others before they are deleted; where it raises, nothing is.
        """
        with self._writing():
            counts: dict[str, int] = {}
            for kind, name in enumerate(KINDS):
                overdue = self._database.execute(_OLDEST, (kind, before_ms, most)).fetchall()
                counts[name] = self._give_up(kind, overdue, spared, set_aside)
            for kind, surplus in self._above_bounds(most):
                counts[KINDS[kind]] += self._give_up(kind, surplus, spared, set_aside)
        return counts

    def _give_up(
        self,
        kind: int,
        keys: Sequence[tuple[int, str]],
        spared: Collection[int],
        set_aside: Callable[[Sequence[WaitingLabels]], None],
    ) -> int:
        """Delete rows of one kind, labels without a result once they are set aside; return how many."""
        if kind == _WITHOUT_RESULT:
            keys = [(home, query_id) for home, query_id in keys if home not in spared]
            set_aside(self._waiting_labels(keys))
        return self._delete(keys)

    def labels_without_result(self, homes: Collection[int], since_ms: int, until_ms: int) -> LabelsWithoutResult:
        """Return what waits at these homes for its result; ``last_hour`` are those that came between these times.

        The labels of the last hour are not counted here.
        """
        if not self._totals()[_WITHOUT_RESULT][0]:
            return LabelsWithoutResult()
        owned = json.dumps(sorted(homes))
        with self._guarded():
            arguments = (since_ms, until_ms, _WITHOUT_RESULT, owned)
            queries, recent, oldest_ms = self._database.execute(_WAITING, arguments).fetchone()
            latest = self._database.execute(_LATEST_WAITING, (_WITHOUT_RESULT, until_ms, owned, FEW_IDS)).fetchall()
        return LabelsWithoutResult(
            queries=queries,
            oldest_at=None if oldest_ms is None else from_ms(oldest_ms),
            last_hour=recent,
            latest=tuple(query_id for (query_id,) in latest),
        )

    def _waiting_labels(self, keys: Iterable[tuple[int, str]]) -> list[WaitingLabels]:
        by_home: dict[int, list[str]] = defaultdict(list)
        for home, query_id in keys:
            by_home[home].append(query_id)
        return [
            WaitingLabels(home, query_id, state)
            for home, query_ids in by_home.items()
            for query_id, state in self.load(home, query_ids).items()
        ]

    def expire_labelers(self, before_ms: int) -> None:
        """Forget the counts of labelers who have been silent since, and of the longest silent beyond 2,000."""
        with self._writing():
            self._database.execute(_EXPIRE_LABELERS, (before_ms, MOST_LABELERS))

    @property
    def open_requests(self) -> dict[str, int]:
        """Number of open label requests, by workload."""
        with self._guarded():
            return dict(self._database.execute("SELECT workload, count(*) FROM requests GROUP BY workload").fetchall())

    def overdue_requests(self, partitions: Iterable[int], before_ms: int, most: int) -> list[RequestKey]:
        """Return 20,000 requests at most: old ones, beyond the ``most`` newest, without row. Raises StoreDamaged."""
        with self._guarded():
            arguments = (json.dumps(sorted(partitions)), before_ms, most, _EXPIRED_AT_ONCE)
            return [RequestKey(*found) for found in self._database.execute(_OVERDUE, arguments)]

    def close_requests(self, keys: Iterable[RequestKey]) -> None:
        """Forget these label requests. Raises StoreDamaged; raises OSError when the disk takes no more."""
        with self._writing():
            self._delete_requests((key.partition, key.query_id) for key in keys)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold a transaction that writes, rolled back where the block fails."""
        with self._guarded(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Set a damaged file aside, so that the next start rebuilds it; a lock or a full disk damages nothing."""
        try:
            yield
        except (sqlite3.DatabaseError, zlib.error, ValidationError) as error:
            if isinstance(error, sqlite3.DatabaseError) and _code(error) not in _DAMAGE:
                raise _unusable(self._path, error) from None
            self._database.close()
            damaged = StoreDamaged(f"{self._path}: {error}; start again to have it rebuilt from the topics")
            _set_aside(self._path, damaged)
            raise damaged from None

    def _note_requests(self, rows: Mapping[tuple[int, str], StoredRow]) -> None:
        """Bring the open label requests up to date with the rows; they follow from them alone."""
        opened, closed = [], []
        for (partition, query_id), (state, touched_ms) in rows.items():
            if state.routed is None or not state.routed.label.requested:
                continue
            if state.awaits_label:
                # By the broker's clock, where the row knows it: a router whose clock is behind would have its requests
                # closed at once, and one whose clock is ahead would keep them open for longer.
                requested_ms = min(to_ms(state.asked_at or state.routed.routed_at), touched_ms)
                opened.append((partition, query_id, state.routed.workload, requested_ms))
            else:
                closed.append((partition, query_id))
        insert = "INSERT OR REPLACE INTO requests (partition, query_id, workload, requested_ms) VALUES (?, ?, ?, ?)"
        self._database.executemany(insert, opened)
        self._delete_requests(closed)

    def _delete_requests(self, keys: Iterable[tuple[int, str]]) -> None:
        self._database.executemany("DELETE FROM requests WHERE partition = ? AND query_id = ?", keys)

    def _above_bounds(self, most: int) -> Iterator[tuple[int, list[tuple[int, str]]]]:
        """Yield (kind, keys) to delete until the bounds hold, or until there are ``most``."""
        totals, bounds = self._totals(), self._bounds
        rows_over = sum(rows for rows, _ in totals.values()) - bounds.rows
        bytes_over = sum(size for _, size in totals.values()) - bounds.bytes
        for kind, (rows, size) in sorted(totals.items()):
            keys: list[tuple[int, str]] = []
            spare_rows, spare_bytes = rows - _SPARED * bounds.rows, size - _SPARED * bounds.bytes
            if max(rows_over, bytes_over) > 0 and most > 0:
                for partition, query_id, taken in self._database.execute(_LEAST_KEPT, (kind, most)):
                    if not ((rows_over > 0 and spare_rows > 0) or (bytes_over > 0 and spare_bytes > 0)):
                        break
                    keys.append((partition, query_id))
                    rows_over, spare_rows = rows_over - 1, spare_rows - 1
                    bytes_over, spare_bytes = bytes_over - taken, spare_bytes - taken
            most -= len(keys)
            yield kind, keys

    def _delete(self, keys: Sequence[tuple[int, str]]) -> int:
        self._database.executemany("DELETE FROM rows WHERE partition = ? AND query_id = ?", keys)
        return len(keys)


def _set_aside(path: Path, error: StoreDamaged) -> None:
    if isinstance(error, StoreOfOtherRelease):
        kind = f"format-{error.found}"
        why = "is of another release"
        log = _log.info
    else:
        kind = "damaged"
        why = "is damaged"
        log = _log.warning
    aside = path.with_name(f"{path.name}.{kind}-{time.time_ns()}")
    log(f"the join's store {why}; set aside, and rebuilt from the topics", error=str(error), kept=str(aside))
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))


def _code(error: sqlite3.DatabaseError) -> int | None:
    """Return SQLite's primary result code; None for what Python's module raised by itself."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else int(code) & 0xFF


def _unusable(path: Path, error: sqlite3.DatabaseError) -> Exception:
    """Return what to raise where the file is sound; an error that SQLite did not report is one of this program."""
    code = _code(error)
    if code is None:
        return error
    if code == sqlite3.SQLITE_FULL:
        return DiskFull(f"{path}: {error}; nothing in it is lost: free space on its disk")
    return OSError(f"{path}: {error}; nothing in it is lost: {_REMEDIES.get(code, 'check its disk')} and start again")


def _open(path: Path) -> sqlite3.Connection:
    if not path.exists():
        # SQLite gives its other files the mode of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    database = None
    try:
        database = sqlite3.connect(path, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        _prepare(database, path)
    except (sqlite3.DatabaseError, StoreDamaged) as error:
        if database is not None:
            database.close()
        if isinstance(error, StoreDamaged):
            raise
        # A statement that does not fit the file's tables: another program made them.
        if _code(error) in _DAMAGE | {sqlite3.SQLITE_ERROR}:
            raise StoreDamaged(f"{path}: {error}") from None
        raise _unusable(path, error) from None
    return database


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    database.execute("PRAGMA journal_mode = WAL")
    # A power cut may lose the last commits, never tear them; what is lost is read again from the topics.
    database.execute("PRAGMA synchronous = NORMAL")
    found = int(database.execute("PRAGMA user_version").fetchone()[0])
    if found not in (0, _FORMAT):
        raise StoreOfOtherRelease(str(path), found, _FORMAT)
    database.executescript(_SCHEMA)
    database.execute(f"PRAGMA user_version = {_FORMAT}")
    # Each row's content has a checksum of its own. What the pages lost or altered beside it shows in their structure,
    # in the indexes, and in the totals, which are kept row by row.
    fault = database.execute("PRAGMA integrity_check(1)").fetchone()[0]
    differing = database.execute(_DIFFERING).fetchall()
    if fault != "ok" or differing:
        raise StoreDamaged(f"{path}: {'the rows are not those that were written' if fault == 'ok' else fault}")


def _labeler_row(whose: LabelerKey, counts: LabelerCounts) -> tuple[Any, ...]:
    last_ms = 0 if counts.last_at is None else to_ms(counts.last_at)
    said = (getattr(counts, name) for name in LABELER_COUNTS)
    return whose.partition, whose.workload, whose.labeler or "", *said, last_ms


def _kind(state: QueryState) -> int:
    if state.routed is None:
        return _WITHOUT_RESULT
    if state.awaits_label:
        return KINDS.index("requested_without_label")
    return KINDS.index("joined" if state.opinions else "result_without_label")
