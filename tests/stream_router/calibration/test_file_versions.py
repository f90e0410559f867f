"""Versions on the router's disk: a stand-in for a topic that is slow or lost, and never more than that."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from schemas.calibration import CalibrationVersion
from schemas.made_for import made_for
from schemas.settings import Settings
from schemas.signature import signed
from stream_router.calibration.active_versions import ActiveVersions
from stream_router.calibration.feed_thread import CalibrationFeed, VersionFile
from stream_router.prometheus_metrics import Metrics
from tests.support.model_clients import workload
from tests.support.versions import CREATED_AT, sealed_version
from ucci_runtime.broker.records import Input, Record
from ucci_runtime.process import SystemClock

OWNER = ("router-0", "cluster", "ucci")
KEY = b"one signing key of thirty-two characters"


class Topic:
    """A reader of records that a test appends to, and whose end it says is reached."""

    def __init__(self, versions: Sequence[CalibrationVersion] = (), *, ends: bool = True) -> None:
        self.waiting = [self.record(version) for version in versions]
        self.has_reached_ends = ends

    def record(self, version: CalibrationVersion) -> Record:
        return Record(Input("ucci.calibration", 0), version.version, version.workload.encode(), version.to_json())

    def poll(self, timeout_s: float) -> Iterator[Record]:
        found, self.waiting = self.waiting, []
        return iter(found)

    def up_to_end(self) -> Iterator[Record]:
        return self.poll(0.0)

    def close(self) -> None:
        """Close nothing."""


class Router:
    """The calibration of a router between its start and its end, on a state directory."""

    def __init__(self, root: Path, topic: Topic, keys: Sequence[bytes] = (), **changed: Any) -> None:
        settings = Settings.model_validate({"workloads": {"photo": workload(**changed).model_dump()}})
        self.topic = topic
        self.active = ActiveVersions({"photo": made_for(settings.workloads["photo"])}, keys)
        self.file = VersionFile(root, OWNER, settings.workloads)
        self.failures: list[BaseException] = []
        self.feed = CalibrationFeed(
            settings, self.active, clock=SystemClock(), on_failure=self.failures.append, metrics=Metrics()
        )
        self.feed.open(topic, self.file)

    def turn(self, *more: CalibrationVersion) -> Router:
        """Read the topic, to which these versions were written meanwhile."""
        self.topic.waiting += map(self.topic.record, more)
        self.feed.turn()
        return self

    @property
    def decides_by(self) -> tuple[int | None, str | None]:
        found = self.active.versions()["photo"]
        return found.version, found.source


def version(number: int, **changed: Any) -> CalibrationVersion:
    return sealed_version(version=number, **changed)


def test_an_emptied_topic_leaves_the_version_on_disk_in_force(tmp_path: Path) -> None:
    assert Router(tmp_path, Topic()).turn(version(3)).decides_by == (3, "topic")
    again = Router(tmp_path, Topic())
    assert again.decides_by == (3, "disk")
    assert again.turn().decides_by == (3, "disk")
    assert again.active.is_complete


def test_older_versions_are_passed_over_until_the_end_is_read(tmp_path: Path) -> None:
    """A topic that is not compacted yet is read from its oldest version on: a restart decides by none of them."""
    Router(tmp_path, Topic([version(3)])).turn()
    again = Router(tmp_path, Topic([version(1), version(2)], ends=False))
    assert again.turn().decides_by == (3, "disk")
    again.topic.has_reached_ends = True
    assert again.turn(version(3), version(4)).decides_by == (4, "topic")


def test_a_topic_made_anew_wins_over_the_disk_by_any_number(tmp_path: Path) -> None:
    """Otherwise the disk would shut out all versions until the fit has numbered above what was lost."""
    Router(tmp_path, Topic([version(57)])).turn()
    again = Router(tmp_path, Topic([version(1)])).turn()
    assert again.decides_by == (1, "topic")
    assert again.turn(version(2)).decides_by == (2, "topic")
    assert Router(tmp_path, Topic()).decides_by == (2, "disk")


@pytest.mark.parametrize("overwritten", ["before the start", "after it"])
def test_an_old_version_sent_again_wins_over_the_disk(tmp_path: Path, overwritten: str) -> None:
    before = version(56, created_at=CREATED_AT - timedelta(minutes=1))
    Router(tmp_path, Topic([version(57)])).turn()
    again = Router(tmp_path, Topic([before] if overwritten == "before the start" else [])).turn()
    assert again.turn(before).decides_by == (57, "disk")
    assert again.active.rejected() == {"older": 2 if overwritten == "before the start" else 1}


@pytest.mark.parametrize(
    "changed",
    [
        {"prompt": "Find {text}"},
        {"target": {"micro_f1": 0.95}},
        {"uncertainty": "entropy"},
    ],
)
def test_changed_settings_leave_the_disk_alone(tmp_path: Path, changed: dict[str, Any]) -> None:
    Router(tmp_path, Topic([version(3)])).turn()
    assert Router(tmp_path, Topic(), **changed).turn().decides_by == (None, None)


def test_the_disk_passes_the_checks_of_the_topic(tmp_path: Path) -> None:
    """An unsigned version, or one that was altered on disk, does not take force where a key is configured."""
    Router(tmp_path, Topic([version(3)])).turn()
    assert Router(tmp_path, Topic(), [KEY]).decides_by == (None, None)
    keyed = Router(tmp_path, Topic([signed(version(4), KEY)]), [KEY]).turn()
    assert Router(tmp_path, Topic(), [KEY]).decides_by == (4, "disk")
    text = keyed.file.path.read_text(encoding="utf-8")
    keyed.file.path.write_text(text.replace("0.25", "0.26"), encoding="utf-8")
    assert Router(tmp_path, Topic(), [KEY]).decides_by == (None, None)


def _with(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        document = json.loads(data)
        change(document)
        return json.dumps(document).encode()

    return changed


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        _with(lambda document: document.update(format=2)),
        _with(lambda document: document.update(owner=["router-0", "another", "ucci"])),
        _with(lambda document: document["versions"].update(photo=3)),
        _with(lambda document: document["versions"]["photo"].update(record="\ud800")),
    ],
)
def test_a_damaged_file_counts_as_none(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    router = Router(tmp_path, Topic([version(3)])).turn()
    router.file.path.write_bytes(damage(router.file.path.read_bytes()))
    again = Router(tmp_path, Topic([version(4)]))
    assert again.decides_by == (None, None)
    assert again.turn().decides_by == (4, "topic")
    assert Router(tmp_path, Topic()).decides_by == (4, "disk")


def test_the_file_is_its_owners_alone_and_written_whole(tmp_path: Path) -> None:
    router = Router(tmp_path / "state", Topic([version(3)])).turn()
    assert stat.S_IMODE(router.file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(router.file.path.parent.stat().st_mode) == 0o700
    assert list((tmp_path / "state").iterdir()) == [router.file.path]


def test_a_disk_that_refuses_does_not_stop_the_router(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Logged once; the version of the topic is in force all the same, and is kept as soon as the disk takes it."""

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    router = Router(tmp_path, Topic([version(3)]))
    with monkeypatch.context() as patched:
        patched.setattr("stream_router.calibration.feed_thread.replace_file", refuse)
        router.turn()
        assert router.turn(version(4)).decides_by == (4, "topic")
    assert capsys.readouterr().out.count("No space left on device") == 1
    router.turn(version(5))
    assert router.failures == []
    assert Router(tmp_path, Topic()).decides_by == (5, "disk")


def test_routers_of_one_directory_keep_files_of_their_own(tmp_path: Path) -> None:
    workloads = {"photo": workload()}
    owners = [OWNER, ("router-1", *OWNER[1:]), ("router-0", "other", "ucci"), ("router-0", "cluster", "other")]
    assert len({VersionFile(tmp_path, owner, workloads).path for owner in owners}) == len(owners)
