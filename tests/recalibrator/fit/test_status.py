"""One word, one sentence and the numbers behind them, for each state that a workload can be in.

The log lines of the fit: each change of a workload's state once, nothing while all stays as it is.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from recalibrator.core import Recalibrator
from recalibrator.fit.news import happening, status_news
from recalibrator.stage import News
from schemas import LabelledExample
from schemas.calibration import Target
from schemas.status import CommandOutcome, OutageStatus, WorkloadStatus
from tests.support.cascade_stream import START, drive, example, in_turn, settings, typo_world
from tests.support.orders import MAP, order

WORLD = typo_world(2_500, 9_999, seed=13)


def test_before_any_event_it_says_what_is_missing() -> None:
    status = Recalibrator(settings()).status()
    assert status.state == "cold_start"
    assert status.sentence.endswith("both models will answer every query, and about 250 labels more are needed.")
    assert (status.micro_f1, status.updated_at, status.cost) == (None, None, None)
    assert status.drift.state == "insufficient_labels"


def test_active_status_quotes_version_target_and_interval() -> None:
    core = Recalibrator(settings())
    run = drive(core, WORLD.draw, 2_500)
    status = core.status()
    assert status.state == "active"
    assert core.current is not None
    assert status.sentence.startswith(
        f"All is well: version {core.current.version} holds micro-F1 0.93, at an estimated 0.9"
    )
    assert status.micro_f1 is not None
    assert status.micro_f1.lower <= status.micro_f1.estimate <= status.micro_f1.upper
    assert status.labels.received == run.labels
    assert status.labels.delay_s.p50 is not None
    assert abs((status.labels.requested - run.labels) - status.labels.pending) <= 60
    assert status.cost is not None
    assert status.cost.paper < status.cost.sequential < 4.02
    assert status.queries == 2_400 or status.queries == 2_500  # noqa: PLR1714 - whole batches of 200 alone
    assert status.calibration_error.ece is not None


def test_few_labels_after_a_bootstrap_are_called_too_few() -> None:
    core = Recalibrator(settings())
    order(core, "bootstrap", map=MAP, uncertainty_threshold=0.2)
    drive(core, WORLD.draw, 300)
    status = core.status()
    assert status.state == "label_starved"
    assert status.drift.state == "insufficient_labels"
    assert status.sentence.partition(": ")[0].endswith("effective labels are too few to move the threshold")


@pytest.mark.parametrize("silent", ["kept", "escalated"])
def test_labels_of_one_side_alone_were_taken_for_all(silent: str) -> None:
    """People who see escalated queries alone, or kept ones, left the status at ``active`` without a word."""
    core, calm = Recalibrator(settings()), typo_world(9_000, 9_999, seed=13)
    drive(core, calm.draw, 2_500)
    assert core.status().state == "active"

    def tell(_: int, label: LabelledExample) -> LabelledExample | None:
        return None if (label.reason == "threshold") == (silent == "escalated") else label

    drive(core, calm.draw, 800, first=2_500, tell=tell)
    assert core.status().state == "labels_one_sided"
    drive(core, calm.draw, 4_200, first=3_300, tell=tell)
    status = core.status()
    assert status.state == "labels_one_sided"
    assert f"nothing shows how good {silent} answers are" in status.sentence
    assert core.current is not None
    assert core.current.exploration_probability == core.settings.sampling.exploration_probability
    drive(core, calm.draw, 1_500, first=7_500)
    assert core.status().state == "active"


def test_margin_stayed_narrow_when_labels_stopped_coming() -> None:
    """Labels of long ago stayed recent for want of newer ones, and the error of the estimate what it was."""
    core, calm = Recalibrator(settings()), typo_world(8_000, 8_999, seed=13)
    drive(core, calm.draw, 2_500)
    assert core.current is not None
    at = core.current.uncertainty_threshold
    before = core.evaluate().policies
    drive(core, calm.draw, 5_500, first=2_500, mean_delay=1e9)
    after = core.evaluate().policies
    assert after.error[after.index(at)] > 1.5 * before.error[before.index(at)]


def test_unanswered_requests_make_the_status_stale() -> None:
    """Requests that no label answers make it stale and one label heals it."""
    core = Recalibrator(settings())
    drive(core, WORLD.draw, 1_200)
    drive(core, WORLD.draw, 1_300, first=1_200, mean_delay=1e9)
    for first in (10_000, 11_400):
        drive(core, lambda number: WORLD.draw(number % 2_500), 1_400, first=first, mean_delay=1e9)
    status = core.status()
    assert status.state == "stale"
    assert status.drift.state in ("stale", "suspected", "drifted")
    assert core.current is not None
    assert status.sentence.startswith("No requested label has come in, so that the threshold stands still")
    late = START + timedelta(seconds=1_200)
    core.observe(example(WORLD.draw(3), "fresh", "w", late, version=None)[1])
    assert core.status().state == "active"


def test_labels_that_stopped_were_missed_for_minutes() -> None:
    """Where they come within seconds, half a minute without one says it; where they take minutes, it says nothing."""
    for mean_delay, state in ((10.0, "stale"), (600.0, "active")):
        core = Recalibrator(settings())
        drive(core, WORLD.draw, 1_600, mean_delay=mean_delay)
        assert core.status().state == "active"
        drive(core, WORLD.draw, 600, first=1_600, mean_delay=1e9)
        status = core.status()
        assert (mean_delay, status.state) == (mean_delay, state)
    assert "last_label_at" not in status.details


def test_an_infeasible_target_is_said_to_be_out_of_reach() -> None:
    core = Recalibrator(settings(target={"micro_f1": 0.99}))
    drive(core, WORLD.draw, 1_000)
    status = core.status()
    assert status.state == "infeasible"
    said = "No threshold has reached micro-F1 0.99 since 01 Jan 00:00 UTC: the best reaches 0.9"
    assert status.sentence.startswith(said)


def test_errors_among_equal_answers_bring_labels_under_suspicion() -> None:
    core = Recalibrator(settings())
    drive(core, WORLD.draw, 1_500)
    before = core.status().labels.received
    for number in range(400):
        wrong = example(WORLD.draw(number), f"bad-{number}", "w", START + timedelta(seconds=160 + number))[1]
        if wrong.agree:
            core.observe(wrong.model_copy(update={"small_exact": False, "gold_count": 12}))
    status = core.status()
    assert status.state == "bad_labels_suspected"
    assert status.labels.received > before
    said = "Labels call answers wrong on which both models agree more often than before since 01 Jan 00:0"
    assert status.sentence.startswith(said)


def test_a_pinned_version_that_misses_its_target_shows_it() -> None:
    core = Recalibrator(settings())
    world = in_turn(typo_world(1_500, 9_999, seed=14), typo_world(1_500, 0, seed=15))
    drive(core, world.draw, 1_500)
    order(core, "pin")
    drive(core, world.draw, 1_500, first=1_500)
    status = core.status()
    assert status.state == "pinned"
    assert status.micro_f1 is not None
    assert status.micro_f1.upper < 0.93


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
