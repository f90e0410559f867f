"""A segment whose answers get worse while its traffic stays as it was: labels alone show it, and it is named."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import cache

import pytest

from recalibrator.core import Recalibrator, TrafficSummarizer
from recalibrator.join.query_state import NOTHING_KNOWN, LabelRules, take_feedback, take_result
from schemas.labelled import LabelledExample
from schemas.movement import MovementStatus
from schemas.routed import LabelRequest
from schemas.settings import WorkloadSettings
from schemas.status import WorkloadStatus
from schemas.traffic import TrafficSummary
from tests.support.recalibrator_events import FIELDS, START, entities, feedback, routed

PHOTO = WorkloadSettings.model_validate(
    {"name": "photo", "fields": FIELDS, "target": {"micro_f1": 0.9}, "segments": ("source",)}
)
RULES = {"photo": LabelRules.of(PHOTO)}
SHIFT_AT, QUERIES, _A_SUMMARY, _LABEL_EVERY = 5_000, 9_000, 100, 5


@cache
def _events(
    wrong_on_web: float, *, wrong_before: float = 0.1, web_later: float = 0.5, seed: int = 5
) -> list[TrafficSummary | LabelledExample]:
    """Return a stream of which every fifth query is labelled, and half come from the web; one in ten others is wrong.

    From the shift on, another share of the web's answers is wrong, or another share of queries comes from there.
    """
    draw, summarizer = random.Random(seed), TrafficSummarizer(PHOTO)
    found: list[TrafficSummary | LabelledExample] = []
    for number in range(QUERIES):
        late = number >= SHIFT_AT
        source = "web" if draw.random() < (web_later if late else 0.5) else "app"
        wrong = {"app": 0.1, "web": wrong_on_web if late else wrong_before}
        is_wrong = draw.random() < wrong[source]
        label = LabelRequest(requested=True, probability=1.0 / _LABEL_EVERY)
        event = routed(number, metadata={"source": source}, label=label, entities=entities(f"q-{number}"))
        summarizer.add(event)
        if number % _LABEL_EVERY == 0:
            gold = {"camera": "another", "lens": "another"} if is_wrong else entities(f"q-{number}")
            joined = take_feedback(
                take_result(NOTHING_KNOWN, event, RULES).state, feedback(number, gold), START, RULES
            ).example
            assert joined is not None
            found.append(joined)
        if (number + 1) % _A_SUMMARY == 0 and (summary := summarizer.take()) is not None:
            found.append(summary)
    return found


def _watched(events: Iterator[TrafficSummary | LabelledExample]) -> WorkloadStatus:
    core = Recalibrator(PHOTO)
    for event in events:
        core.observe(event)
    return core.status()


def _moved(status: WorkloadStatus) -> MovementStatus:
    assert status.moved is not None
    return status.moved


def test_a_segment_whose_answers_fall_is_named() -> None:
    """Its traffic is as before: the sentence names the segment and says what it explains of the fall in micro-F1."""
    status = _watched(iter(_events(wrong_on_web=0.4)))
    moved = _moved(status)
    assert [one.traits[0].trait for one in moved.movements] == ["answers"]
    first = moved.movements[0].traits[0]
    assert (first.segment, first.value, first.categories[0].category) == ("source", "web", "wrong")
    assert first.escalation_explained is None
    assert first.micro_f1_explained == pytest.approx(1.0, abs=0.25)
    assert abs((moved.movements[0].since - START).total_seconds() - SHIFT_AT) <= 500
    assert moved.sentence.startswith("wrong answers are more frequent since 01:2")
    assert "where source is web; explains " in moved.sentence
    assert "of the fall in micro-F1 (0." in moved.sentence
    rate = moved.movements[0].micro_f1
    assert rate is not None
    assert rate.error is not None
    web = next(one for one in rate.effects if one.value == "web")
    assert web.within == pytest.approx(rate.after - rate.before, abs=2.0 * rate.error)
    assert abs(web.composition) < 0.02


def test_each_segment_has_its_own_micro_f1() -> None:
    """Of recent answers, with intervals that hold the truth: the web's lies low, the app's as before."""
    found = {(one.segment, one.value): one for one in _watched(iter(_events(wrong_on_web=0.4))).per_segment}
    web, app = found["source", "web"].micro_f1, found["source", "app"].micro_f1
    assert app.lower <= 0.9 <= app.upper
    assert web.upper < app.lower
    assert min(one.effective_labels for one in found.values()) >= 50.0


def test_where_answers_stay_as_they_were_nothing_is_named() -> None:
    status = _watched(iter(_events(wrong_on_web=0.1)))
    assert _moved(status).movements == ()
    assert {one.value for one in status.per_segment} == {"web", "app"}


def test_a_few_labels_of_a_segment_say_nothing() -> None:
    """Forty labels of either source are no estimate."""
    assert _watched(iter(_events(wrong_on_web=0.1)[:80])).per_segment == ()


def test_more_of_a_segment_explains_micro_f1_by_its_share() -> None:
    """Where a source that errs more grows, its share is named, and explains the fall in micro-F1; within it none."""
    moved = _moved(_watched(iter(_events(wrong_on_web=0.5, wrong_before=0.5, web_later=0.9))))
    first, rate = moved.movements[0].traits[0], moved.movements[0].micro_f1
    assert first.trait == "segment:source"
    assert first.micro_f1_explained is not None
    assert first.micro_f1_explained > 0.8
    assert rate is not None
    by_share = sum(one.composition for one in rate.effects if one.group == "source")
    assert by_share == pytest.approx((0.9 - 0.5) * (0.5 - 0.9), abs=0.04)
    assert "of the fall in micro-F1" in moved.sentence


def test_a_core_restored_says_the_same_of_its_segments() -> None:
    """A snapshot amid the movement holds the labels' segments, byte by byte."""
    events = _events(wrong_on_web=0.4)
    first = Recalibrator(PHOTO)
    for event in events[:-200]:
        first.observe(event)
    second = Recalibrator.restore(PHOTO, first.snapshot())
    for event in events[-200:]:
        first.observe(event)
        second.observe(event)
    assert second.snapshot() == first.snapshot()
    assert second.status() == first.status()


def test_labels_of_earlier_releases_name_no_segment() -> None:
    """Without traits there is no micro-F1 by segment, and a snapshot without them is taken."""
    events = [
        one.model_copy(update={"traits": None, "word": ()}) if isinstance(one, LabelledExample) else one
        for one in _events(wrong_on_web=0.1)
    ]
    core = Recalibrator(PHOTO)
    for event in events:
        core.observe(event)
    assert core.status().per_segment == ()
    state = json.loads(core.snapshot())
    del state["window"]["traits"]
    former = Recalibrator.restore(PHOTO, json.dumps(state).encode())
    assert former.status().per_field == core.status().per_field
    assert former.status().per_segment == ()
