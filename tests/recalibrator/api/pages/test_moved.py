"""What moved, on the page: the sentence first, the figures, and ids in place of texts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from recalibrator.api.pages.headline import Facts, headline
from schemas.calibration import Interval, Target
from schemas.movement import GroupEffect, MovedCategory, MovedTrait, Movement, MovementStatus, RateChange
from schemas.status import DetectorStatus, DriftStatus, SegmentScore, WorkloadStatus
from tests.support.api import START, WORKLOAD, make_api

SENTENCE = (
    "camera is missing more often since 02:10 UTC on 01 Jan (31 % → 52 % of queries), mainly where source is web."
)


def movement(**changes: Any) -> Movement:
    content = {
        "sentence": SENTENCE,
        "since": START,
        "noticed_at": START + timedelta(minutes=10),
        "queries_before": 6_000,
        "queries_after": 1_500,
        "traits": (
            MovedTrait(
                trait="field:camera",
                segment="source",
                value="<web>",
                categories=(MovedCategory(category="missing", before=0.31, after=0.52),),
                information=0.1,
                escalation_explained=0.7,
                micro_f1_explained=0.45,
            ),
        ),
        "escalation": RateChange(
            before=0.2,
            after=0.3,
            effects=(GroupEffect(group="source", value="<web>", composition=0.0, within=0.09),),
        ),
        "micro_f1": RateChange(
            before=0.93,
            after=0.91,
            error=0.004,
            effects=(GroupEffect(group="source", value="<web>", composition=0.0, within=-0.021),),
        ),
        "examples_before": ("q-1", "q-2"),
        "examples_after": ("q-<3>",),
        **changes,
    }
    return Movement.model_validate(content)


def status(moved: MovementStatus | None, drift: DriftStatus | None = None) -> WorkloadStatus:
    return WorkloadStatus(
        workload=WORKLOAD,
        state="active",
        sentence="It holds.",
        target=Target(micro_f1=0.9),
        drift=drift or DriftStatus(state="ok"),
        moved=moved,
    )


def page_of(moved: MovementStatus | None) -> str:
    api = make_api()
    assert api.cache.take("ucci.status", WORKLOAD.encode(), status(moved).to_json())
    answer = api.client.get(f"/workloads/{WORKLOAD}")
    assert answer.status_code == 200
    return answer.text[answer.text.index('id="moved"') :].split("</section>", 1)[0]


def test_the_section_says_what_moved_and_where() -> None:
    """Sentence, shares, segment, effects and ids are there; names that queries bring are escaped."""
    earlier = movement(sentence="queries in capitals are more frequent.", is_settled=True)
    shown = page_of(MovementStatus(sentence=SENTENCE, series=40, is_watching=True, movements=(movement(), earlier)))
    assert "Camera is missing more often since 02:10" in shown
    for words in (
        "31.0 %",
        "52.0 %",
        "70 %",
        "45 %",
        "+0.090",
        "-0.021",
        "0.200 → 0.300",
        "0.930 → 0.910",
        "error of 0.004",
        "source=&lt;web&gt;",
        "q-&lt;3&gt;",
    ):
        assert words in shown
    assert "Queries in capitals are more frequent." in shown
    assert "still counting" in shown
    assert "<web>" not in shown


def test_each_segment_has_its_micro_f1_on_the_page() -> None:
    """Behind the fields, with interval and labels; a value's name comes from queries and is escaped."""
    score = SegmentScore(
        segment="source",
        value="<web>",
        effective_labels=812.4,
        micro_f1=Interval(estimate=0.735, lower=0.703, upper=0.766),
    )
    api = make_api()
    known = status(None).model_copy(update={"per_segment": (score,)})
    assert api.cache.take("ucci.status", WORKLOAD.encode(), known.to_json())
    shown = api.client.get(f"/workloads/{WORKLOAD}").text
    for words in ("By segment", "source=&lt;web&gt;", "0.735", "0.703 to 0.766", "812"):
        assert words in shown
    assert "<web>" not in shown


@pytest.mark.parametrize(
    ("moved", "words"),
    [
        (None, "No summary of traffic with profiles has come in yet."),
        (MovementStatus(sentence="Nothing that is monitored has moved.", series=40), "40 series are watched."),
    ],
)
def test_the_section_says_when_there_is_nothing(moved: MovementStatus | None, words: str) -> None:
    assert words in page_of(moved)


def test_the_headline_says_what_moved_behind_an_alarm() -> None:
    """A drift alarm is followed by what moved; without an alarm the movement speaks for itself, until it is settled."""
    detector = DetectorStatus(
        name="agreement", watches="agreement", needs_labels=False, state="drifted", statistic=9.0, bound=8.0
    )
    moved = MovementStatus(sentence=SENTENCE, series=40, movements=(movement(),))
    alarmed = headline(status(moved, DriftStatus(state="drifted", detectors=(detector,))), Facts(START))
    assert alarmed.kind == "drift"
    assert alarmed.sentence.endswith(f"What moved: {SENTENCE}")
    alone = headline(status(moved), Facts(START))
    assert (alone.kind, alone.severity) == ("moved", "calm")
    assert alone.sentence == SENTENCE.replace("camera", "Camera")
    assert alone.act is not None
    assert alone.act.href.endswith("#moved")
    settled = MovementStatus(sentence=SENTENCE, series=40, movements=(movement(is_settled=True),))
    assert headline(status(settled), Facts(START)).kind == "well"
