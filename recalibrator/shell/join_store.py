"""The join's rows and offsets in one SQLite file: stored together, so that neither is ever ahead of the other.

States flow in and out as compact JSON. A file that cannot be read is set aside, and the topics tell it all again.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import structlog
from pydantic import ValidationError

from recalibrator.core.join import JoinState
from recalibrator.errors import StoreDamaged
from recalibrator.ports import LabelerKey, RequestKey, StoredRow
from recalibrator.shell import labeler_rows
from runtime.records import Input
from schemas.status import LabelerCounts, LabelerStatus

_log = structlog.get_logger()

_SCHEMA = """
CREATE TABLE IF NOT EXISTS rows (
    partition INTEGER NOT NULL,
    query_id TEXT NOT NULL,
    kind INTEGER NOT NULL,
    touched_ms INTEGER NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (partition, query_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS rows_by_age ON rows (touched_ms);
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
"""
_FORMAT = 1
_MILLISECONDS = 1_000
_ASKED_AT_ONCE = 500
_EXPIRED_AT_ONCE = 20_000
_OVERDUE = """
SELECT partition, query_id, workload FROM (
    SELECT *, row_number() OVER (PARTITION BY workload ORDER BY requested_ms DESC, query_id DESC) AS place FROM requests
    WHERE partition IN (SELECT value FROM json_each(?))
) AS open WHERE requested_ms < ? OR place > ? OR NOT EXISTS (
    SELECT 1 FROM rows WHERE rows.partition = open.partition AND rows.query_id = open.query_id
) ORDER BY requested_ms LIMIT ?
"""
KINDS = ("feedback_without_result", "result_without_label", "joined")


class SqliteJoinStore:
    """The join's state on disk; used by the join's thread alone.

    Parameters
    ----------
    path : Path
        The file; created where missing.
    max_rows : int
        Bound of :meth:`expire`.
    """

    def __init__(self, path: Path, max_rows: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._max_rows = max_rows
        try:
            self._database, self._rows = _open(path)
        except StoreDamaged as error:
            _set_aside(path, error)
            self._database, self._rows = _open(path)

    @property
    def rows(self) -> int:
        """Number of rows stored."""
        return self._rows

    def load(self, partition: int, query_ids: Iterable[str]) -> dict[str, JoinState]:
        """Return the stored states of those queries that have one.

        Raises
        ------
        StoreDamaged
        """
        with self._guarded():
            return self._load(partition, list(query_ids))

    def _load(self, partition: int, wanted: list[str]) -> dict[str, JoinState]:
        found: dict[str, JoinState] = {}
        for start in range(0, len(wanted), _ASKED_AT_ONCE):
            ids = wanted[start : start + _ASKED_AT_ONCE]
            marks = ",".join("?" * len(ids))
            query = f"SELECT query_id, state FROM rows WHERE partition = ? AND query_id IN ({marks})"  # noqa: S608 marks are question marks
            for query_id, state in self._database.execute(query, (partition, *ids)):
                found[query_id] = JoinState.model_validate_json(state)
        return found

    def offsets(self) -> dict[Input, int]:
        """Return the offsets up to which the rows are complete."""
        rows = self._database.execute("SELECT topic, partition, next_offset FROM offsets")
        return {Input(topic, partition): next_offset for topic, partition, next_offset in rows}

    def commit(
        self,
        rows: Mapping[tuple[int, str], StoredRow],
        offsets: Mapping[Input, int],
        judged: Mapping[LabelerKey, LabelerCounts] = MappingProxyType({}),
    ) -> None:
        """Store rows and offsets, and add to the labelers' counts, in one transaction.

        Raises
        ------
        StoreDamaged
        OSError
            When the disk takes no more.
        """
        with self._writing():
            self._database.executemany(
                "INSERT OR REPLACE INTO rows (partition, query_id, kind, touched_ms, state) VALUES (?, ?, ?, ?, ?)",
                (
                    (partition, query_id, _kind(row.state), row.touched_ms, _encoded(row.state))
                    for (partition, query_id), row in rows.items()
                ),
            )
            self._note_requests(rows)
            self._database.executemany(
                "INSERT OR REPLACE INTO offsets (topic, partition, next_offset) VALUES (?, ?, ?)",
                ((source.topic, source.partition, offset) for source, offset in offsets.items()),
            )
            labeler_rows.add(self._database, judged)
        self._rows += sum(row.is_new for row in rows.values())

    def labelers(self, partitions: Collection[int]) -> Mapping[str, tuple[LabelerStatus, ...]]:
        """Return the busiest labelers of these partitions, by workload.

        Raises
        ------
        StoreDamaged
        """
        with self._guarded():
            return labeler_rows.read(self._database, partitions)

    def expire(self, before_ms: int) -> Mapping[str, int]:
        """Delete rows not touched since, and the oldest above the bound; at most 20,000 of each at a time.

        Parameters
        ----------
        before_ms : int
            Unix time in milliseconds.

        Returns
        -------
        mapping of kind to count
        """
        counts = dict.fromkeys(KINDS, 0)
        with self._writing():
            self._delete("WHERE touched_ms < ? ORDER BY touched_ms LIMIT ?", (before_ms, _EXPIRED_AT_ONCE), counts)
            surplus = self._rows - sum(counts.values()) - self._max_rows
            if surplus > 0:
                self._delete("ORDER BY touched_ms LIMIT ?", (min(surplus, _EXPIRED_AT_ONCE),), counts)
            labeler_rows.expire(self._database, before_ms)
        self._rows -= sum(counts.values())
        return counts

    @property
    def open_requests(self) -> dict[str, int]:
        """Number of label requests held for open, by workload."""
        return dict(self._database.execute("SELECT workload, count(*) FROM requests GROUP BY workload").fetchall())

    def overdue_requests(self, partitions: Iterable[int], before_ms: int, most: int) -> list[RequestKey]:
        """Return open label requests that should be open no longer; at most 20,000 at a time, oldest first.

        Parameters
        ----------
        partitions : iterable of int
            Where to look; others may know more of theirs.
        before_ms : int
            Unix time in milliseconds: requests older than it.
        most : int
            The oldest beyond so many of a workload.

        Raises
        ------
        StoreDamaged
        """
        with self._guarded():
            arguments = (json.dumps(sorted(partitions)), before_ms, most, _EXPIRED_AT_ONCE)
            return [RequestKey(*found) for found in self._database.execute(_OVERDUE, arguments)]

    def close_requests(self, keys: Iterable[RequestKey]) -> None:
        """Hold these label requests no longer for open.

        Raises
        ------
        StoreDamaged
        OSError
            When the disk takes no more.
        """
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
        """Set a damaged file aside, so that the next start rebuilds it; a full disk damages nothing."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise OSError(f"{self._path}: {error}") from None
        except (sqlite3.DatabaseError, ValidationError) as error:
            self._database.close()
            damaged = StoreDamaged(f"{self._path}: {error}; start again to have it read anew from the topics")
            _set_aside(self._path, damaged)
            raise damaged from None

    def _note_requests(self, rows: Mapping[tuple[int, str], StoredRow]) -> None:
        """Bring the open label requests up to date with the rows; they follow from them alone."""
        opened, closed = [], []
        for (partition, query_id), (state, touched_ms, _) in rows.items():
            if state.routed is None or not state.routed.label.requested:
                continue
            if state.awaits_label:
                # A router whose clock is ahead must not keep its requests open for longer.
                requested_ms = min(int(state.routed.routed_at.timestamp() * _MILLISECONDS), touched_ms)
                opened.append((partition, query_id, state.routed.workload, requested_ms))
            else:
                closed.append((partition, query_id))
        insert = "INSERT OR REPLACE INTO requests (partition, query_id, workload, requested_ms) VALUES (?, ?, ?, ?)"
        self._database.executemany(insert, opened)
        self._delete_requests(closed)

    def _delete_requests(self, keys: Iterable[tuple[int, str]]) -> None:
        self._database.executemany("DELETE FROM requests WHERE partition = ? AND query_id = ?", keys)

    def _delete(self, which: str, arguments: tuple[int, ...], counts: dict[str, int]) -> None:
        chosen = f"SELECT partition, query_id FROM rows {which}"  # noqa: S608 one of two constants above
        deleted = self._database.execute(
            f"DELETE FROM rows WHERE (partition, query_id) IN ({chosen}) RETURNING kind",  # noqa: S608 see above
            arguments,
        )
        for (kind,) in deleted.fetchall():
            counts[KINDS[kind]] += 1


def _set_aside(path: Path, error: StoreDamaged) -> None:
    aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
    _log.warning("the join's state is set aside and read again from the topics", error=str(error), kept=str(aside))
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))


def _open(path: Path) -> tuple[sqlite3.Connection, int]:
    try:
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA journal_mode = WAL")
        # A power cut may lose the last commits, never tear them; what is lost is read again from the topics.
        database.execute("PRAGMA synchronous = NORMAL")
        found = int(database.execute("PRAGMA user_version").fetchone()[0])
        if found not in (0, _FORMAT):
            raise StoreDamaged(f"{path}: is of format {found}, this version reads {_FORMAT}")
        database.executescript(_SCHEMA + labeler_rows.SCHEMA)
        database.execute(f"PRAGMA user_version = {_FORMAT}")
        rows = int(database.execute("SELECT count(*) FROM rows").fetchone()[0])
    except sqlite3.DatabaseError as error:
        raise StoreDamaged(f"{path}: {error}") from None
    return database, rows


def _kind(state: JoinState) -> int:
    if state.routed is None:
        return KINDS.index("feedback_without_result")
    return KINDS.index("joined" if state.opinions else "result_without_label")


def _encoded(state: JoinState) -> bytes:
    return state.model_dump_json(exclude_defaults=True).encode()
