"""The log lines of the fit: each change of a workload's state once, nothing while all stays as it is."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from recalibrator.fit.news import happening, status_news
from recalibrator.stage import News
from schemas.calibration import Target
from schemas.status import CommandOutcome, OutageStatus, WorkloadStatus

DETECTOR = {"watches": "errors", "needs_labels": True, "statistic": 9.0, "bound": 5.0}


def status(state: str = "active", drift: str = "ok", **audit: Any) -> WorkloadStatus:
    detectors = [{"name": "outcomes", "state": drift} | DETECTOR, {"name": "traffic", "state": "ok"} | DETECTOR]
    return WorkloadStatus.model_validate(
        {
            "workload": "photo",
            "state": state,
            "sentence": "As it stands.",
            "target": Target(micro_f1=0.9),
            "drift": {"state": drift, "detectors": detectors},
            "details": {"label_audit": {"quarantined": 0, **audit}},
        }
    )


def between(before: WorkloadStatus, after: WorkloadStatus) -> dict[str, News]:
    found = list(status_news(before, after))
    assert len({news.event for news in found}) == len(found)
    return {news.event: news for news in found}


def test_nothing_changed_is_no_line() -> None:
    same = status(suspected="few_errors_where_answers_differ", last={"verdict": "refuted"})
    assert between(same, same) == {}


def test_a_drift_state_is_logged_with_the_detectors_that_alarm() -> None:
    line = between(status(), status(drift="drifted"))["drift state"]
    assert line.facts == {"workload": "photo", "state": "drifted", "before": "ok", "detectors": ["outcomes"]}
    assert line.is_bad
    assert not between(status(drift="drifted"), status())["drift state"].is_bad


def test_suspected_labels_are_logged_once_and_so_is_the_verdict() -> None:
    suspected = status("bad_labels_suspected", suspected="few_errors_where_answers_differ", since="2026-01-31T12:00:00")
    lines = between(status(), suspected)
    assert set(lines) == {"workload state", "bad labels suspected"}
    assert all(line.is_bad for line in lines.values())
    judged = status(last={"verdict": "refuted", "answers": 40, "errors": 3, "at": "2026-01-31T13:00:00"})
    line = between(suspected, judged)["suspected labels judged"]
    assert (line.facts["verdict"], line.facts["answers"], line.is_bad) == ("refuted", 40, True)


def test_commands_are_logged_once_with_who_issued_them() -> None:
    moment = "2026-01-31T12:00:00Z"
    first = {"action": "pause", "note": "paused", "issued_by": "ada", "issued_at": moment}
    second = {
        "action": "refit",
        "note": "refit refused: …",
        "issued_by": "bob",
        "issued_at": moment,
        "is_refused": True,
    }
    before = status().model_copy(update={"commands": (CommandOutcome.model_validate(first),)})
    after = status().model_copy(update={"commands": (*before.commands, CommandOutcome.model_validate(second))})
    lines = between(before, after)
    assert set(lines) == {"command refused"}
    assert (lines["command refused"].facts["issued_by"], lines["command refused"].is_bad) == ("bob", True)
    assert set(between(status(), before)) == {"command applied"}


def test_an_outage_and_labelers_set_aside_are_logged() -> None:
    bad = status().model_copy(update={"outage": OutageStatus(large_failing=0.6)})
    assert between(status(), bad)["model outage"].facts["large_failing"] == 0.6
    assert not between(bad, status())["model outage over"].is_bad
    distrusted = status().model_copy(update={"details": {"labelers_set_aside": {"eve": {"labels": 9}}}})
    assert between(status(), distrusted)["labels of a labeler set aside"].facts["labeler"] == "eve"
    assert set(between(distrusted, status())) == {"labels of a labeler count again"}


def test_what_happened_is_kept_in_plain_words() -> None:
    """An outage, an alarm and a labeler set aside, each with its end; a word of the log alone is not kept."""
    at = datetime(2026, 1, 31, tzinfo=UTC)
    down = status().model_copy(update={"outage": OutageStatus(large_failing=0.8)})
    aside = status().model_copy(update={"details": {"labelers_set_aside": {"bob": {"labels": 40}}}})
    steps = (status(), down, status(), status(drift="suspected"), status(drift="drifted"), status(), aside, status())
    found = [event for pair in pairwise(steps) for new in status_news(*pair) if (event := happening(new, at))]

    assert [one.kind for one in found] == [
        "outage",
        "outage_over",
        "alarm",
        "alarm_over",
        "set_aside",
        "set_aside_over",
    ]
    assert found[0].sentence == "The large model fails on 80% of calls"
    assert found[2].sentence == "Drift is suspected: outcomes"
    assert {one.labeler for one in found[4:]} == {"bob"}
