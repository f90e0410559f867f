"""The labelers' counts in the join's SQLite file: counts to add flow in, sums by labeler flow out.

They are stored with the offsets that they stand at, so that a crash neither loses nor doubles any.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from recalibrator.join.ports import LabelerKey
from schemas.status import LabelerCounts, LabelerStatus

MOST_KEPT = 2_000
"""Rows, one for a labeler, workload and partition; the longest silent go first. Names are the senders' to choose."""

MOST_TOLD = 50
"""Labelers of one workload in a status."""

_COUNTS = ("labels", "skipped", "compared", "agreeing", "unanimous", "confirmed")
_MILLISECONDS = 1_000
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS labelers (
    partition INTEGER NOT NULL,
    workload TEXT NOT NULL,
    labeler TEXT NOT NULL,
    {", ".join(f"{name} INTEGER NOT NULL" for name in _COUNTS)},
    last_ms INTEGER NOT NULL,
    PRIMARY KEY (partition, workload, labeler)
) WITHOUT ROWID;
"""
_ADD = f"""
INSERT INTO labelers (partition, workload, labeler, {", ".join(_COUNTS)}, last_ms)
VALUES ({", ".join("?" * (len(_COUNTS) + 4))})
ON CONFLICT DO UPDATE SET
    {", ".join(f"{name} = {name} + excluded.{name}" for name in _COUNTS)},
    last_ms = max(last_ms, excluded.last_ms)
"""  # noqa: S608 names of columns, as above
_SUMS = f"SELECT workload, labeler, {', '.join(f'sum({name})' for name in _COUNTS)}, max(last_ms) FROM labelers"  # noqa: S608
_EXPIRE = """
DELETE FROM labelers WHERE last_ms < ? OR (partition, workload, labeler) NOT IN (
    SELECT partition, workload, labeler FROM labelers ORDER BY last_ms DESC LIMIT ?
)
"""


def add(database: sqlite3.Connection, judged: Mapping[LabelerKey, LabelerCounts]) -> None:
    """Add counts within the open transaction; feedback without a labeler goes under the empty name."""
    database.executemany(
        _ADD,
        (
            (key.partition, key.workload, key.labeler or "", *(getattr(counts, c) for c in _COUNTS), _last_ms(counts))
            for key, counts in judged.items()
        ),
    )


def read(database: sqlite3.Connection, partitions: Collection[int]) -> dict[str, tuple[LabelerStatus, ...]]:
    """Return the busiest labelers of these partitions, by workload."""
    marks = ",".join("?" * len(partitions))
    query = f"{_SUMS} WHERE partition IN ({marks}) GROUP BY workload, labeler ORDER BY 3 DESC, 2"
    found: dict[str, list[LabelerStatus]] = defaultdict(list)
    for workload, labeler, *counts, last_ms in database.execute(query, tuple(partitions)):
        if len(found[workload]) < MOST_TOLD:
            told = dict(zip(_COUNTS, counts, strict=True))
            last_at = datetime.fromtimestamp(last_ms / _MILLISECONDS, UTC)
            found[workload].append(LabelerStatus(labeler=labeler or None, last_at=last_at, **told))
    return {workload: tuple(labelers) for workload, labelers in found.items()}


def expire(database: sqlite3.Connection, before_ms: int) -> None:
    """Forget who has been silent since, and the longest silent above the bound, within the open transaction."""
    database.execute(_EXPIRE, (before_ms, MOST_KEPT))


def _last_ms(counts: LabelerCounts) -> int:
    return 0 if counts.last_at is None else int(counts.last_at.timestamp() * _MILLISECONDS)
