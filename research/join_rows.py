"""The join's store at its bound: bytes that a row takes, rows that come and go a second.

`python -m research.join_rows [--rows 200000] [--bound 100000]`: results with six fields, one in twelve requested,
stored in ticks of 2,000 as the join does, above the bound as many leaving as come. Content depends on the seed alone.
"""

from __future__ import annotations

import argparse
import random
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from recalibrator.join.ports import StoredRow
from recalibrator.join.query_state import NOTHING_KNOWN, QueryState, take_result
from recalibrator.join.sqlite_store import RowBounds, SqliteJoinStore
from schemas.costs import QueryCost
from schemas.entities import Entities
from schemas.routed import Decision, LabelRequest, ModelRun, RoutedEvent
from schemas.settings import WorkloadSettings

START = datetime(2026, 1, 1, tzinfo=UTC)
FIELDS = ("camera", "lens", "aperture", "shutter_speed", "iso", "focal_length")
TICK = 2_000
_ASKED_EVERY = 12
_WORKLOAD = WorkloadSettings.model_validate({"name": "photo-search", "fields": FIELDS, "target": {"micro_f1": 0.9}})


def _answer(draw: random.Random) -> Entities:
    return {
        "camera": f"Canon EOS {draw.randint(1, 90)}D",
        "lens": f"EF {draw.randint(10, 70)}-{draw.randint(71, 400)}mm f/{6 * draw.random():.1f} IS USM",
        "aperture": f"f/{20 * draw.random():.1f}",
        "shutter_speed": f"1/{draw.randint(1, 4_000)} s",
        "iso": str(draw.randint(100, 6_400)),
        "focal_length": f"{draw.randint(10, 400)} mm",
    }


def result(draw: random.Random, number: int) -> RoutedEvent:
    """Return one result; three in ten escalated."""
    answer, escalated = _answer(draw), draw.random() < 0.3
    small = ModelRun(model="small", entities=answer | {"lens": "EF 50mm"} if escalated else answer, valid=True)
    asked = number % _ASKED_EVERY == 0
    return RoutedEvent(
        query_id=str(uuid.UUID(int=draw.getrandbits(128))),
        workload="photo-search",
        text=" ".join(f"{draw.getrandbits(32):x}" for _ in range(20)),
        entities=answer,
        answered_by="large" if escalated else "small",
        decision=Decision(
            escalated=escalated,
            reason="threshold" if escalated else "kept",
            uncertainty=draw.random(),
            error_probability=draw.random(),
            threshold=0.3123456789,
            calibration_version=17,
            large_probability=1.0 if escalated else 0.03,
        ),
        small=small,
        large=ModelRun(model="large", entities=answer, valid=True) if escalated else None,
        cost=QueryCost(sequential=1.0, paper=1.0),
        label=LabelRequest(requested=asked, probability=0.05, reason="random" if asked else None),
        routed_at=START + timedelta(microseconds=997_003 * number),
        routed_by="router-0",
    )


def _ticks(rows: int, seed: int) -> Iterator[dict[tuple[int, str], StoredRow]]:
    draw, rules = random.Random(seed), {"photo-search": _WORKLOAD}
    for first in range(0, rows, TICK):
        states: list[QueryState] = [
            take_result(NOTHING_KNOWN, result(draw, number), rules, START).state
            for number in range(first, min(first + TICK, rows))
        ]
        yield {
            (index % 6, state.routed.query_id): StoredRow(state, first + index)
            for index, state in enumerate(states)
            if state.routed is not None
        }


def main() -> None:
    """Print one line for each figure."""
    parser = argparse.ArgumentParser(description="The join's store at its bound.")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--bound", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    passed_s = 0.0
    with TemporaryDirectory() as directory:
        path = Path(directory) / "join.sqlite3"
        store = SqliteJoinStore(path, RowBounds(given.bound, 10**12))
        for rows in _ticks(given.rows, given.seed):
            began_s = time.perf_counter()
            store.commit(rows, {})
            store.expire(-1, 2 * len(rows))
            passed_s += time.perf_counter() - began_s
        held, counted = store.size.rows, store.size.bytes
        store.close()
        taken = path.stat().st_size
    print(f"rows held at a bound of {given.bound:,}: {held:,}")
    print(f"bytes a row, as counted: {counted / held:.0f}; of the file: {taken / held:.0f}")
    print(f"rows stored a second, those beyond the bound deleted: {given.rows / passed_s:,.0f}")


if __name__ == "__main__":
    main()
