"""A recalibrator's status: lags added up over partitions, the oldest of their ages, labelers as the join told them."""

from __future__ import annotations

from datetime import timedelta

from recalibrator.stage import LabelFacts, StageReport, recalibrator_status
from schemas.status import LabelerStatus, RecalibratorStatus
from tests.support.recalibrator_events import START
from ucci_runtime.broker.records import Input, Lag


def test_lag_is_summed_by_topic() -> None:
    """Lag is reported by topic: records are summed, and the age is that of the worst partition."""
    lag = {Input("results", 0): Lag(3, 1.5), Input("results", 1): Lag(4, 0.5)}
    lag |= {Input("feedback", 0): Lag(0, 0.0), Input("unread", 0): Lag(9, None)}
    ann = LabelerStatus(labeler="ann", labels=2)
    stages = {"join": StageReport(is_ready=True, lag=lag, labels=LabelFacts({"photo": (ann,)})), "fit": StageReport()}
    status = recalibrator_status("r/join+fit", START, START + timedelta(seconds=5), stages, {})

    summed = {topic: (one.records, one.seconds) for topic, one in status.stages["join"].lag.items()}
    assert summed == {"feedback": (0, 0.0), "results": (7, 1.5), "unread": (9, None)}
    assert (status.stages["join"].ready, status.stages["fit"].ready) == (True, False)
    assert status.labelers == {"photo": (ann,)}
    assert RecalibratorStatus.from_json(status.to_json()) == status
