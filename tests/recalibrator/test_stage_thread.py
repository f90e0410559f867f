"""A stage that fails ends the process with its error; one told to end while the broker is away ends in peace."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Any

import pytest
from prometheus_client import generate_latest

from recalibrator import stage_thread
from recalibrator.core import Recalibrator
from recalibrator.errors import DiskFull
from recalibrator.prometheus_metrics import Metrics
from recalibrator.stage import NotCommitted, Stage
from recalibrator.stage_thread import StageThread
from schemas.settings import Settings
from schemas.status import WorkloadStatus
from tests.support.cascade_stream import settings
from ucci_runtime.broker.errors import BrokerUnreachable, Fenced


class ScriptedStage(Stage):
    """Raises in a turn or at its close; ends the service after some turns."""

    def __init__(self, *, in_turn: Exception | None = None, in_close: Exception | None = None) -> None:
        self.closing = Event()
        self.failures: list[BaseException] = []
        self._in_turn = in_turn
        self._in_close = in_close
        self.calls: list[str] = []

    def thread(self, name: str = "join", first: Sequence[Stage] = (), **options: Any) -> StageThread:
        """Return its thread, to be run in this one, in which others come first."""
        stages = [*first, self]
        more = {"metrics": Metrics()} | options
        return StageThread(name, lambda: stages.pop(0), closing=self.closing, on_failure=self.failures.append, **more)

    is_ready = True

    def start(self) -> None:
        self.calls.append("start")

    def turn(self) -> None:
        self.calls.append("turn")
        if self._in_turn is not None:
            raise self._in_turn
        if len(self.calls) > 3:
            self.closing.set()

    def use(self, settings: Settings) -> None:
        self.calls.append(f"use {settings.topics.prefix}")

    def close(self) -> None:
        self.calls.append("close")
        if self._in_close is not None:
            raise self._in_close


def test_settings_are_taken_over_between_two_turns() -> None:
    """In the stage's thread, in the order in which they came; the stage is started before, and closed at the end."""
    stage = ScriptedStage()
    thread = stage.thread()
    for prefix in ("first", "second"):
        thread.use(Settings.model_validate({"topics": {"prefix": prefix}}))
    thread.run()
    assert stage.calls == ["start", "turn", "use first", "use second", "turn", "close"]
    assert stage.failures == []


@pytest.mark.parametrize(
    ("where", "error", "is_failure"),
    [
        ("in_turn", BrokerUnreachable("away"), True),
        ("in_turn", Fenced("other"), True),
        ("in_turn", ZeroDivisionError(), True),
        ("in_close", BrokerUnreachable("away"), False),
        ("in_close", NotCommitted("unseen"), False),
        ("in_close", Fenced("other"), True),
    ],
)
def test_an_error_is_handed_on_but_an_absence_at_the_end(where: str, error: Exception, *, is_failure: bool) -> None:
    stage = ScriptedStage(**{where: error})
    stage.thread().run()
    assert stage.failures == ([error] if is_failure else [])


@pytest.mark.parametrize("hears", [True, False], ids=["webhooks", "no webhooks"])
def test_a_fit_without_webhooks_kept_a_thousand_statuses(*, hears: bool) -> None:
    """They took some 70 MB after 15 minutes: the thread takes statuses from its stage even if nobody listens."""

    class WithStatuses(ScriptedStage):
        def statuses(self) -> Sequence[WorkloadStatus]:
            self.calls.append("statuses")
            return [status]

    status, heard, stage = Recalibrator(settings()).status(), list[WorkloadStatus](), WithStatuses()
    stage.thread("fit", on_status=heard.append if hears else None).run()
    assert "statuses" in stage.calls
    assert bool(heard) is hears


def test_a_full_disk_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage is closed, and built again once there is room."""
    monkeypatch.setattr(stage_thread, "AGAIN_S", 0.0)
    full = ScriptedStage(in_turn=DiskFull("join.sqlite3: full"), in_close=NotCommitted("unseen"))
    last = ScriptedStage()
    thread = last.thread(first=(full, full))
    thread.run()
    assert (last.failures, thread.report.trouble) == ([], "")
    assert full.calls == 2 * ["start", "turn", "close"]


def test_a_disk_that_fills_up_is_told_before_it_is_full() -> None:
    metrics = Metrics()
    thread = ScriptedStage().thread(metrics=metrics, free_bytes=lambda: 5e7)
    thread.run()
    assert thread.report.trouble == "only 0.05 GB are left"
    assert "ucci_recalibrator_disk_free_bytes 5e+07" in generate_latest(metrics.registry).decode()


def test_a_process_without_a_join_fills_no_disk() -> None:
    """A fit, or an API, in a process of its own told of 0 bytes left, and the alert spoke of a full disk for good."""
    assert "ucci_recalibrator_disk_free_bytes NaN" in generate_latest(Metrics().registry).decode()
