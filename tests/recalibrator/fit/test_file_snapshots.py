"""Snapshots of the fit: replaced whole or kept as they are, whatever the disk refuses."""

from __future__ import annotations

import json
import os
import stat
from hashlib import sha256
from pathlib import Path

import pytest

from recalibrator.fit.file_snapshots import SnapshotFiles
from recalibrator.fit.stage import FitState
from tests.support.cores import present
from tests.support.recalibrator_events import PHOTO


@pytest.fixture
def snapshots(tmp_path: Path) -> SnapshotFiles:
    files = SnapshotFiles(tmp_path, {"photo": PHOTO})
    assert files.save(0, FitState(7, {"photo": files.new("photo")}, {}))
    return files


def refuse(*_: object, **__: object) -> int:
    raise OSError(24, "Too many open files")


def test_too_many_open_files_keep_the_former_snapshot(
    snapshots: SnapshotFiles, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Logged once until a snapshot is stored again."""
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        assert not snapshots.save(0, FitState(8, {}, {}))
        assert not snapshots.save(0, FitState(9, {}, {}))
    assert present(snapshots.load(0)).offset == 7
    assert capsys.readouterr().out.count("Too many open files") == 1
    assert snapshots.save(0, FitState(9, {}, {}))
    assert "stored again" in capsys.readouterr().out


def test_unreadable_snapshot_is_not_taken_for_lost(snapshots: SnapshotFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that cannot be opened for the moment is not treated as lost.

    Folded anew from what the topic still holds, it would be replaced by less.
    """
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(OSError, match=r"fit-0.snapshot: Too many open files; .*start again"):
        snapshots.load(0)


def test_a_torn_snapshot_counts_as_none(snapshots: SnapshotFiles, tmp_path: Path) -> None:
    path = tmp_path / "fit-0.snapshot"
    whole = path.read_bytes()
    for torn in (b"torn", whole[:-5], whole.replace(b'"offset": ', b'"offset": 1')):
        path.write_bytes(torn)
        assert snapshots.load(0) is None
    assert snapshots.load(1) is None


@pytest.mark.usefixtures("snapshots")
def test_snapshots_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "fit-0.snapshot").stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["AAAA", "eJz7", "!", 7, None, [], {}])
def test_a_column_that_is_damaged_stops_the_start(snapshots: SnapshotFiles, tmp_path: Path, text: object) -> None:
    """Under a checksum that fits, as after a fault: the log says it all again."""
    path = tmp_path / "fit-0.snapshot"
    _, head, body = path.read_bytes().split(b"\n")
    document, state = json.loads(head), json.loads(body)
    state["state"]["_traffic"] = dict.fromkeys(state["state"]["_traffic"], text)
    body = json.dumps(state).encode()
    document["workloads"][0]["bytes"] = len(body)
    content = json.dumps(document).encode() + b"\n" + body
    path.write_bytes(sha256(content).hexdigest().encode() + b"\n" + content)
    assert snapshots.load(0) is None
