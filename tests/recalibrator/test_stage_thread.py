"""A stage that fails ends the process with its error; one told to end while the broker is away ends in peace."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event

import pytest

from recalibrator.errors import RecalibratorError
from recalibrator.prometheus_metrics import Metrics
from recalibrator.stage import NotCommitted, Stage
from recalibrator.stage_thread import StageThread
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


@pytest.mark.parametrize("error", [BrokerUnreachable("away"), Fenced("other"), ZeroDivisionError()])
def test_an_error_while_it_runs_is_handed_on(error: Exception) -> None:
    closing = Event()
    assert run(ScriptedStage(closing, in_turn=error), closing) == [error]


@pytest.mark.parametrize("error", [BrokerUnreachable("away"), NotCommitted("unseen")])
def test_broker_absent_at_close_is_no_failure(error: RecalibratorError) -> None:
    """An unreachable broker is no failure once the service is closing."""
    closing = Event()
    assert run(ScriptedStage(closing, in_close=error), closing) == []


def test_being_fenced_at_the_end_is_a_failure_all_the_same() -> None:
    closing, error = Event(), Fenced("other")
    assert run(ScriptedStage(closing, in_close=error), closing) == [error]
