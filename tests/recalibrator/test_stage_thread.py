"""A stage that fails ends the process with its error; one told to end while the broker is away ends in peace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Event

import pytest
from prometheus_client import generate_latest

from recalibrator import stage_thread
from recalibrator.core import Recalibrator
from recalibrator.errors import DiskFull, RecalibratorError
from recalibrator.prometheus_metrics import Metrics
from recalibrator.stage import News, NotCommitted, Stage
from recalibrator.stage_thread import StageThread
from schemas.settings import Settings
from schemas.status import WorkloadStatus
from tests.support.cascade_stream import settings
from ucci_runtime.broker.errors import BrokerUnreachable, Fenced
from ucci_runtime.broker.records import Input, Lag

LAG = {Input("in", 0): Lag(3, 0.5)}


class ScriptedStage(Stage):
    """Raises in a turn or at its close; ends the service after some turns."""

    def __init__(self, closing: Event, *, in_turn: Exception | None = None, in_close: Exception | None = None) -> None:
        self._closing = closing
        self._in_turn = in_turn
        self._in_close = in_close
        self.calls: list[str] = []

    is_ready = True

    def start(self) -> None:
        self.calls.append("start")

    def turn(self) -> None:
        self.calls.append("turn")
        if self._in_turn is not None:
            raise self._in_turn
        if len(self.calls) > 3:
            self._closing.set()

    def gauges(self) -> Mapping[str, float]:
        return {"rows": 5.0}

    def lag(self) -> Mapping[Input, Lag]:
        return LAG

    def use(self, settings: Settings) -> None:
        self.calls.append(f"use {settings.topics.prefix}")

    def news(self) -> Sequence[News]:
        return (News("drift state", {"workload": "photo", "state": "drifted"}, is_bad=True),)

    def close(self) -> None:
        self.calls.append("close")
        if self._in_close is not None:
            raise self._in_close


def run(stage: ScriptedStage, closing: Event) -> list[BaseException]:
    failures: list[BaseException] = []
    StageThread("join", lambda: stage, closing=closing, on_failure=failures.append, metrics=Metrics()).run()
    return failures


def test_a_stage_is_started_turned_and_closed() -> None:
    closing = Event()
    stage = ScriptedStage(closing)
    assert run(stage, closing) == []
    assert (stage.calls[0], stage.calls[-1]) == ("start", "close")


def test_settings_are_taken_over_between_two_turns() -> None:
    """In the stage's thread, in the order in which they came."""
    closing = Event()
    stage = ScriptedStage(closing)
    thread = StageThread("join", lambda: stage, closing=closing, on_failure=print, metrics=Metrics())
    for prefix in ("first", "second"):
        thread.use(Settings.model_validate({"topics": {"prefix": prefix}}))
    thread.run()
    assert stage.calls[:4] == ["start", "turn", "use first", "use second"]


@pytest.mark.parametrize("error", [BrokerUnreachable("away"), Fenced("other"), ZeroDivisionError()])
def test_an_error_while_it_runs_is_handed_on(error: Exception) -> None:
    closing = Event()
    assert run(ScriptedStage(closing, in_turn=error), closing) == [error]


@pytest.mark.parametrize("error", [BrokerUnreachable("away"), NotCommitted("unseen")])
def test_broker_absent_at_close_is_no_failure(error: RecalibratorError) -> None:
    closing = Event()
    assert run(ScriptedStage(closing, in_close=error), closing) == []


def test_being_fenced_at_the_end_is_a_failure_all_the_same() -> None:
    closing, error = Event(), Fenced("other")
    assert run(ScriptedStage(closing, in_close=error), closing) == [error]


@pytest.mark.parametrize("hears", [True, False], ids=["webhooks", "no webhooks"])
def test_a_fit_without_webhooks_kept_a_thousand_statuses(*, hears: bool) -> None:
    """They took some 70 MB after 15 minutes: the thread takes statuses from its stage even if nobody listens."""

    class WithStatuses(ScriptedStage):
        def statuses(self) -> Sequence[WorkloadStatus]:
            self.calls.append("statuses")
            return [status]

    status, heard, closing = Recalibrator(settings()).status(), list[WorkloadStatus](), Event()
    stage, on_status = WithStatuses(closing), heard.append if hears else None
    StageThread("fit", lambda: stage, closing=closing, on_failure=print, metrics=Metrics(), on_status=on_status).run()
    assert "statuses" in stage.calls
    assert bool(heard) is hears


def test_news_and_dead_letters_are_logged_by_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """Thousands of letters are one line, which counts those of this stage alone."""
    closing, metrics = Event(), Metrics()
    for number in range(2_000):
        metrics.count("dead_letters", stage="join", reason="not_json" if number % 2 else "empty")
        metrics.count("dead_letters", stage="fit", reason="not_json")
    thread = StageThread("join", lambda: ScriptedStage(closing), closing=closing, on_failure=print, metrics=metrics)
    thread.run()
    lines = capsys.readouterr().out.splitlines()
    (letters,) = [line for line in lines if "dead letters" in line]
    assert "1000" in letters
    assert "2000" not in letters
    assert any("drift state" in line and "drifted" in line for line in lines)


def test_a_full_disk_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage is closed, says what it waits for, and is built again once there is room."""
    monkeypatch.setattr(stage_thread, "AGAIN_S", 0.0)
    closing, failures, troubles = Event(), list[BaseException](), list[str]()
    full = ScriptedStage(closing, in_turn=DiskFull("join.sqlite3: full"), in_close=NotCommitted("unseen"))
    stages = [full, full, ScriptedStage(closing)]

    def build() -> Stage:
        troubles.append(thread.report.trouble)
        return stages.pop(0)

    thread = StageThread("join", build, closing=closing, on_failure=failures.append, metrics=Metrics())
    thread.run()

    assert failures == []
    assert troubles == ["", "join.sqlite3: full", "join.sqlite3: full"]
    assert full.calls == 2 * ["start", "turn", "close"]
    assert thread.report.trouble == ""


def test_a_disk_that_fills_up_is_told_before_it_is_full() -> None:
    closing, metrics = Event(), Metrics()
    stage = ScriptedStage(closing)
    thread = StageThread(
        "join", lambda: stage, closing=closing, on_failure=print, metrics=metrics, free_bytes=lambda: 5e7
    )
    thread.run()

    assert thread.report.trouble == "only 0.05 GB are left"
    assert "ucci_recalibrator_disk_free_bytes 5e+07" in generate_latest(metrics.registry).decode()


def test_a_process_without_a_join_fills_no_disk() -> None:
    """A fit, or an API, in a process of its own told of 0 bytes left, and the alert spoke of a full disk for good."""
    assert "ucci_recalibrator_disk_free_bytes NaN" in generate_latest(Metrics().registry).decode()
