"""Strikes fall where and when they are ordered, and nowhere else."""

from __future__ import annotations

import inspect
import multiprocessing
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from recalibrator.join.sqlite_store import RowBounds, SqliteJoinStore
from tests.faults.fault_points import FAULT_POINTS, Stage, Strike, install, point_named, points_of, resolved, target_of
from ucci_runtime.broker.kafka_watched_calls import WatchedCalls
from ucci_runtime.broker.records import Input

SOURCE = Input("results", 0)


def test_every_point_names_a_function_of_the_product() -> None:
    """A step that is renamed is noticed here, before its strikes silently miss."""
    assert all(inspect.isfunction(target_of(point)) for point in FAULT_POINTS)
    names = [point.name for point in FAULT_POINTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("stage", ["router", "join", "fit"])
def test_every_stage_can_be_struck_around_its_commit(stage: Stage) -> None:
    steps = {point.name for point in points_of(stage)}
    for step in ("produce", "offsets to transaction", "commit transaction", "fence the former process"):
        assert {f"{step}, before", f"{step}, after"} <= steps


def test_a_process_without_a_strike_runs_the_product_as_it_is() -> None:
    """Nothing stands between the services and their steps unless this process was ordered to be struck."""
    assert not any(hasattr(getattr(*resolved(point.target)), "__wrapped__") for point in FAULT_POINTS)


def assert_dies(target: Callable[..., None], *arguments: object) -> None:
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    process.join(60.0)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize(("moment", "stored"), [("before", 1), ("after", 2)])
def test_the_second_armed_pass_is_struck(tmp_path: Path, moment: str, stored: int) -> None:
    """Passes before it was armed do not count; the one that is struck is done or not done, by the moment's name."""
    armed = tmp_path / "armed"
    strike = Strike(point_named(f"store rows, {moment}"), 2, armed)
    assert_dies(_commit_four, strike, tmp_path / "join.sqlite3")
    with sqlite3.connect(tmp_path / "join.sqlite3") as database:
        assert database.execute("SELECT next_offset FROM offsets").fetchone() == (1 + stored,)


def _commit_four(strike: Strike, path: Path) -> None:
    """Commit offset 1 unarmed, then 2, 3 and 4."""
    install(strike)
    store = SqliteJoinStore(path, RowBounds(1_000, 1_000_000))
    store.commit({}, {SOURCE: 1})
    strike.armed.touch()
    for offset in (2, 3, 4):
        store.commit({}, {SOURCE: offset})


def test_a_strike_on_one_client_call_spares_the_others(tmp_path: Path) -> None:
    """Calls into the client library pass through one function; only the one that is named is struck."""
    strike = Strike(point_named("commit transaction, before"), 1, tmp_path / "armed")
    strike.armed.touch()
    assert_dies(_make_calls, strike, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["armed", "began"]


def _make_calls(strike: Strike, directory: Path) -> None:
    install(strike)
    calls = WatchedCalls("test")

    def begin_transaction() -> None:
        (directory / "began").touch()

    def commit_transaction() -> None:
        (directory / "committed").touch()

    calls.call(10.0, begin_transaction)
    calls.call(10.0, commit_transaction)
