"""Labels that contradict what was known: asked about, weighed when refuted, believed otherwise, never lost.

Only public events go in: what routers route by the core's own versions, and what labelers say of it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from recalibrator.core import Recalibrator
from schemas import CalibrationVersion, Command, LabelledExample, OutcomeCounts, TrafficSummary
from schemas.draws import uniform
from tests.support.cascade_stream import START, Answers, World, drive, settings, typo_world
from tests.support.cores import detail, present, restarted

BEGINS, ENDS, QUERIES = 3_000, 9_000, 16_000
WORLD = typo_world(QUERIES, QUERIES, seed=4)

Event = LabelledExample | TrafficSummary | Command
Tell = Callable[[int, LabelledExample], LabelledExample | None]


def careless(label: LabelledExample) -> LabelledExample:
    """Miss one field that every answer has right."""
    assert label.large is None or label.large.true_positives > 0
    fewer = {
        model: one.model_copy(update={"true_positives": max(0, one.true_positives - 1)})
        for model, one in (("small", label.small), ("large", label.large))
        if one is not None
    }
    return label.model_copy(update=fewer | {"small_exact": False})


def careless_unless_trusted(number: int, label: LabelledExample) -> LabelledExample:
    lies = BEGINS <= number < ENDS and label.label_reason != "audit" and uniform(label.query_id, "lie") < 0.3
    return careless(label) if lies else label


def flattering_unless_trusted(number: int, label: LabelledExample) -> LabelledExample:
    """Call the small answer right where the large one differs."""
    if number < BEGINS or label.label_reason == "audit" or label.large is None or label.agree:
        return label
    predicted = present(label.small).predicted
    right = OutcomeCounts(true_positives=predicted, predicted=predicted)
    return label.model_copy(update={"small": right, "small_exact": True})


class Story:
    """A stream, the triggers of its versions, and what the core saw after each query."""

    def __init__(self, world: World, tell: Tell, queries: int = QUERIES) -> None:
        self.events: list[tuple[int, Event]] = []
        self.truths: dict[str, LabelledExample] = {}
        number, events = 0, self.events

        class Recording(Recalibrator):
            def observe(self, event: Event) -> CalibrationVersion | None:
                events.append((number, event))
                return super().observe(event)

        def drawn(at: int) -> Answers:
            nonlocal number
            number = at
            return world.draw(at)

        def told(at: int, label: LabelledExample) -> LabelledExample | None:
            self.truths[label.query_id] = label
            return tell(at, label)

        self.core = Recording(settings())
        self.run = drive(self.core, drawn, queries, tell=told)

    def triggers(self) -> list[str]:
        wanted = ("audit", "labels_refuted", "labels_confirmed", "labels_unanswered", "labels_released")
        return [version.evidence.trigger for _, version in self.run.versions if version.evidence.trigger in wanted]

    def first(self, trigger: str) -> tuple[int, CalibrationVersion]:
        return next(one for one in self.run.versions if one[1].evidence.trigger == trigger)


@pytest.fixture(scope="module")
def lied_to() -> Story:
    return Story(WORLD, careless_unless_trusted)


@pytest.fixture(scope="module")
def while_refuted() -> Story:
    return Story(WORLD, careless_unless_trusted, 6_500)


def test_wrong_labels_are_audited_weighed_and_released(lied_to: Story) -> None:
    asked, audit = lied_to.first("audit")
    refuted, quarantine = lied_to.first("labels_refuted")
    released, after = lied_to.first("labels_released")
    assert BEGINS < asked < refuted < BEGINS + 3_000
    assert ENDS < released < ENDS + 4_000
    assert audit.audit_probability > 0.0
    assert (quarantine.audit_probability, after.audit_probability) == (0.0, 0.0)
    assert audit.exploration_probability == settings().sampling.exploration_probability
    told: Any = after.evidence.details["label_audit"]
    assert told["quarantined"] > 200


def test_slips_hardly_move_the_threshold_and_none_is_lost(lied_to: Story) -> None:
    refuted, _ = lied_to.first("labels_refuted")
    during = slice(refuted + 500, ENDS)
    true_run = drive(Recalibrator(settings()), WORLD.draw, ENDS)
    believing = drive(
        Recalibrator(settings()),
        WORLD.draw,
        ENDS,
        tell=lambda number, label: careless_unless_trusted(number, label.model_copy(update={"label_reason": "random"})),
    )
    found, right, misled = (
        float((WORLD.uncertainty[during] > np.array(run.thresholds)[during]).mean())
        for run in (lied_to.run, true_run, believing)
    )
    assert abs(found - right) < 0.1 < misled - right
    status = lied_to.core.status()
    assert status.labels.received == lied_to.run.labels
    assert status.state == "active"


def test_labels_put_right_later_stayed_taken_for_slips(while_refuted: Story) -> None:
    """Their labeler notices and corrects all of them: they are true labels then, and so are those that follow."""
    core = restarted(while_refuted.core)
    for number, event in while_refuted.events:
        if isinstance(event, LabelledExample) and event != (truth := while_refuted.truths[event.query_id]):
            core.observe(truth.model_copy(update={"revision": 2, "labelled_at": START + timedelta(seconds=number)}))
    drive(core, WORLD.draw, 1_500, first=6_500)
    assert (detail(core, "label_audit")["quarantined"], core.status().state) == (0, "active")


def test_flattering_labels_are_decided_within_forty_answers() -> None:
    story = Story(WORLD, flattering_unless_trusted, 5_000)
    assert story.triggers()[:2] == ["audit", "labels_refuted"]
    told: Any = story.first("labels_refuted")[1].evidence.details["label_audit"]
    assert told["last"]["answers"] <= 40


def test_refuted_labels_take_back_the_change_that_they_told(lied_to: Story) -> None:
    known = [version for number, version in lied_to.run.versions if number < BEGINS][-1].evidence.effective_labels
    _, asking = lied_to.first("audit")
    _, quarantine = lied_to.first("labels_refuted")
    assert asking.evidence.effective_labels < 0.7 * known < 0.8 * quarantine.evidence.effective_labels


def test_the_first_labels_are_held_against_nothing() -> None:
    core = Recalibrator(settings())
    drive(core, WORLD.draw, 300, tell=lambda number, label: careless(label) if number >= 100 else label)
    assert 100 < core.status().labels.received < 250
    given_agreement = {"error_given_agreement", "right_given_disagreement"}
    seen = {one.name: one.alarms for one in core.status().drift.detectors if one.name in given_agreement}
    assert seen == dict.fromkeys(given_agreement, 0)


def test_nobody_is_asked_while_versions_are_held() -> None:
    core = Recalibrator(settings())
    drive(core, WORLD.draw, 2_900, tell=careless_unless_trusted)
    core.observe(Command(workload="w", action="pause", issued_by="me", issued_at=START + timedelta(seconds=290)))
    run = drive(core, WORLD.draw, 3_000, first=2_900, tell=careless_unless_trusted)
    assert run.versions == []
    assert "since" not in detail(core, "label_audit")


def test_a_restart_within_an_audit_gives_the_same_bytes(while_refuted: Story) -> None:
    whole, (asked, _) = Recalibrator(settings()), while_refuted.first("audit")
    restored = None
    for number, event in while_refuted.events:
        if restored is None and number > asked:
            restored = restarted(whole)
        version = whole.observe(event)
        assert restored is None or restored.observe(event) == version
    assert present(restored).snapshot() == whole.snapshot()
