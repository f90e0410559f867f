"""A whole recalibrator over the broker in memory: what a full disk and a taken port do to it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from recalibrator import stage_thread
from recalibrator.errors import DiskFull, StateInUse
from recalibrator.join.sqlite_store import SqliteJoinStore
from recalibrator.service import Service
from tests.support.live_recalibrator import WORKLOAD, live_settings, new_cluster, running
from tests.support.memory_broker.broker import memory_connect
from tests.support.waiting import wait_until


def missing(url: str) -> list[str]:
    """What keeps it from being ready."""
    try:
        with urllib.request.urlopen(f"{url}/readyz"):
            return []
    except urllib.error.HTTPError as error:
        return list(json.load(error)["missing"])


def test_a_full_disk_leaves_the_page_up_with_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the whole default process within 13 s; now the join alone waits, and goes on once there is room."""

    def refuses(*_: Any) -> Any:
        raise DiskFull("join.sqlite3: database or disk is full; nothing in it is lost: free space on its disk")

    monkeypatch.setattr(stage_thread, "AGAIN_S", 0.05)
    with running(live_settings(tmp_path), new_cluster()) as live:
        with monkeypatch.context() as disk:
            for method in ("offsets", "expire", "labelers"):
                disk.setattr(SqliteJoinStore, method, refuses)
            wait_until(lambda: any("disk is full" in one for one in missing(live.url)), "/readyz names the disk")

            def page() -> str:
                return str(urllib.request.urlopen(f"{live.url}/workloads/{WORKLOAD}").read().decode())

            headline = "The join waits: join.sqlite3: database or disk is full"
            wait_until(lambda: headline in page(), "the headline says so")
        wait_until(lambda: missing(live.url) == [], "the join goes on")


def test_who_finds_the_port_taken_joins_no_group(tmp_path: Path) -> None:
    """A second recalibrator took partitions from the first before it failed on its port."""
    cluster = new_cluster()
    settings = live_settings(tmp_path / "one")
    with running(settings, cluster):
        asked = list[str]()

        def connect(*arguments: Any, **options: Any) -> Any:
            asked.append("broker")
            return memory_connect(cluster)(*arguments, **options)

        other = {"state_dir": str(tmp_path / "two"), "instance_id": "second"}
        second = Service(live_settings(tmp_path, {"http_port": settings.recalibrator.http_port} | other), connect)
        with pytest.raises(OSError, match="in use"):
            second.run()
        same_state = Service(live_settings(tmp_path / "one"), connect)
        same_state.end()
        with pytest.raises(StateInUse, match="another process runs stage"):
            same_state.run()

    assert asked == []
