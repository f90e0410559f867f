"""One word, one sentence and the numbers behind them, for each state that a workload can be in.

The log lines of the fit: each change of a workload's state once, nothing while all stays as it is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from recalibrator.core import Recalibrator
from recalibrator.fit.news import happening, status_news
from schemas import LabelledExample
from schemas.calibration import Target
from schemas.status import CommandOutcome, OutageStatus, WorkloadStatus
from tests.support.cascade_stream import drive, settings, typo_world
from tests.support.cores import driven, in_force

WORLD = typo_world(2_500, 9_999, seed=13)


@pytest.mark.parametrize("silent", ["kept", "escalated"])
def test_labels_of_one_side_alone_were_taken_for_all(silent: str) -> None:
    """People who see escalated queries alone, or kept ones, left the status at ``active`` without a word."""
    calm = typo_world(9_000, 9_999, seed=13)
    core = driven(calm, 2_500)
    assert core.status().state == "active"

    def tell(_: int, label: LabelledExample) -> LabelledExample | None:
        return None if (label.reason == "threshold") == (silent == "escalated") else label

    for first, queries in ((2_500, 800), (3_300, 4_200)):
        drive(core, calm.draw, queries, first=first, tell=tell)
        assert core.status().state == "labels_one_sided"
    assert f"nothing shows how good {silent} answers are" in core.status().sentence
    assert in_force(core).exploration_probability == core.settings.sampling.exploration_probability
    drive(core, calm.draw, 1_500, first=7_500)
    assert core.status().state == "active"


def test_margin_stayed_narrow_when_labels_stopped_coming() -> None:
    """Labels of long ago stayed recent for want of newer ones, and the error of the estimate what it was."""
    calm = typo_world(8_000, 8_999, seed=13)
    core = driven(calm, 2_500)
    at, before = in_force(core).uncertainty_threshold, core.evaluate().policies
    drive(core, calm.draw, 5_500, first=2_500, mean_delay=1e9)
    after = core.evaluate().policies
    assert after.error[after.index(at)] > 1.5 * before.error[before.index(at)]


@pytest.mark.parametrize(("mean_delay", "state"), [(10.0, "stale"), (600.0, "active")])
def test_labels_that_stopped_were_missed_for_minutes(mean_delay: float, state: str) -> None:
    """Where they come within seconds, half a minute without one says it; where they take minutes, it says nothing."""
    core = Recalibrator(settings())
    drive(core, WORLD.draw, 1_600, mean_delay=mean_delay)
    assert core.status().state == "active"
    drive(core, WORLD.draw, 600, first=1_600, mean_delay=1e9)
    status = core.status()
    assert (status.state, "last_label_at" in status.details) == (state, state == "stale")


AT = datetime(2026, 1, 31, tzinfo=UTC)


def status(state: str = "active", drift: str = "ok", **audit: Any) -> WorkloadStatus:
    watched = {"watches": "errors", "needs_labels": True, "statistic": 9.0, "bound": 5.0}
    detectors = [{"name": "outcomes", "state": drift} | watched, {"name": "traffic", "state": "ok"} | watched]
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


def with_(**parts: Any) -> WorkloadStatus:
    return status().model_copy(update=parts)


def outcome(action: str, issued_by: str, *, is_refused: bool) -> CommandOutcome:
    return CommandOutcome(action=action, note="…", issued_by=issued_by, issued_at=AT, is_refused=is_refused)


OK, DRIFTED = status(), status(drift="drifted")
DOWN = with_(outage=OutageStatus(large_failing=0.8))
ASIDE = with_(details={"labelers_set_aside": {"bob": {"labels": 40}}})
SUSPECTED = status("bad_labels_suspected", suspected="few_errors_where_answers_differ", since=AT.isoformat())
JUDGED = status(last={"verdict": "refuted", "answers": 40, "errors": 3, "at": AT.isoformat()})
PAUSED = with_(commands=(outcome("pause", "ada", is_refused=False),))
REFUSED = with_(commands=(*PAUSED.commands, outcome("refit", "bob", is_refused=True)))


@pytest.mark.parametrize(
    ("before", "after", "bad", "good", "facts"),
    [
        (status(suspected="errors", last={"verdict": "refuted"}),) * 2 + ({}, {}, {}),
        (OK, DRIFTED, {"drift state"}, {}, {"state": "drifted", "before": "ok", "detectors": ["outcomes"]}),
        (DRIFTED, OK, {}, {"drift state"}, {"state": "ok", "before": "drifted", "detectors": []}),
        (OK, SUSPECTED, {"workload state", "bad labels suspected"}, {}, {}),
        (SUSPECTED, JUDGED, {"suspected labels judged"}, {"workload state"}, {"verdict": "refuted", "answers": 40}),
        (OK, PAUSED, {}, {"command applied"}, {"issued_by": "ada"}),
        (PAUSED, REFUSED, {"command refused"}, {}, {"issued_by": "bob"}),
        (OK, DOWN, {"model outage"}, {}, {"large_failing": 0.8}),
        (DOWN, OK, {}, {"model outage over"}, {}),
        (OK, ASIDE, {"labels of a labeler set aside"}, {}, {"labeler": "bob"}),
        (ASIDE, OK, {}, {"labels of a labeler count again"}, {"labeler": "bob"}),
    ],
)
def test_each_change_is_logged_once(
    before: WorkloadStatus, after: WorkloadStatus, bad: set[str], good: set[str], facts: dict[str, Any]
) -> None:
    """Bad news is marked as bad; the facts of all log lines together are those expected."""
    found = list(status_news(before, after))
    assert sorted((news.event, news.is_bad) for news in found) == sorted(
        [*((event, True) for event in bad), *((event, False) for event in good)]
    )
    said = {name: fact for news in found for name, fact in news.facts.items() if news.event != "workload state"}
    assert said | facts == said
    assert {news.facts["workload"] for news in found} <= {"photo"}


def test_what_happened_is_kept_in_plain_words() -> None:
    """An outage, an alarm and a labeler set aside, each with its end; a word of the log alone is not kept."""
    steps = (OK, DOWN, OK, status(drift="suspected"), DRIFTED, OK, ASIDE, OK)
    found = [event for pair in pairwise(steps) for new in status_news(*pair) if (event := happening(new, AT))]
    ends = [end for kind in ("outage", "alarm", "set_aside") for end in (kind, f"{kind}_over")]
    assert [one.kind for one in found] == ends
    assert found[0].sentence == "The large model fails on 80% of calls"
    assert found[2].sentence == "Drift is suspected: outcomes"
    assert {one.labeler for one in found[4:]} == {"bob"}
