"""What moved: found where it moved, silent where nothing did, and the same after a restart at any point."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import timedelta
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from recalibrator.core import Recalibrator, TrafficSummarizer
from recalibrator.fit.data.label_table import LabelTable
from recalibrator.fit.movement.monitor import MovementMonitor
from recalibrator.fit.movement.series_table import MOST_SERIES, Series, SeriesTable
from recalibrator.grid import Grid
from schemas.movement import MovementStatus
from schemas.settings import WorkloadSettings
from schemas.traffic import GridSpec, SampledWords, TrafficProfile, TrafficSummary, VersionTraffic
from tests.support.recalibrator_events import FIELDS, START, routed

PHOTO = WorkloadSettings.model_validate(
    {"name": "photo", "fields": FIELDS, "target": {"micro_f1": 0.9}, "segments": ("source",)}
)
SHIFT_AT = 5_000
_A_SUMMARY = 50
_NO_LABELS = LabelTable(Grid(GridSpec()), 0.9, FIELDS, 10)


def stream(queries: int, missing_on_web: float) -> Iterator[TrafficSummary]:
    """Yield the summaries of the first queries of a stream."""
    return iter(_summaries(missing_on_web)[: queries // _A_SUMMARY])


def test_a_field_of_which_the_model_is_less_sure_is_named() -> None:
    """Its answers are as before, and so are queries: only its margin moved, in one segment."""
    found = watched(iter(_margins(less_sure=True)))
    first = found.movements[0].traits[0]
    assert (first.trait, first.segment, first.value) == ("margin:lens", "source", "web")
    assert found.sentence.startswith("answers with a margin of lens below 0.8 are more frequent since 01:2")


def test_margins_that_begin_to_be_known_are_no_movement() -> None:
    """Routers are updated one by one: results with margins among those without say nothing of queries."""
    assert watched(iter(_margins(known_from=SHIFT_AT))).movements == ()


def _margins(*, less_sure: bool = False, known_from: int = 0) -> list[TrafficSummary]:
    """Return summaries of queries whose lens is unsure one time in ten, and from the shift on more often on the web."""
    draw, summarizer, found = random.Random(4), TrafficSummarizer(PHOTO), list[TrafficSummary]()
    for number in range(8_000):
        source = draw.choice(["web", "app"])
        share = 0.4 if less_sure and number >= SHIFT_AT and source == "web" else 0.1
        margins = {"camera": 1.0, "lens": 0.7 if draw.random() < share else 0.97}
        event = routed(number, metadata={"source": source})
        assert event.small is not None
        known = margins if number >= known_from else None
        small = event.small.model_copy(update={"field_margins": known})
        summarizer.add(event.model_copy(update={"small": small}))
        if (number + 1) % _A_SUMMARY == 0 and (summary := summarizer.take()) is not None:
            found.append(summary)
    return found


@cache
def _summaries(missing_on_web: float, queries: int = 12_000, seed: int = 3) -> list[TrafficSummary]:
    """Return summaries of queries a third of which lack the camera, and more of the web's from the shift on.

    Queries without a camera escalate.
    """
    draw, summarizer, found = random.Random(seed), TrafficSummarizer(PHOTO), list[TrafficSummary]()
    for number in range(queries):
        source = draw.choice(["web", "web", "app"])
        share = missing_on_web if number >= SHIFT_AT and source == "web" else 0.3
        is_missing = draw.random() < share
        event = routed(number)
        assert event.small is not None
        entities = {"camera": None if is_missing else "Z6", "lens": "50mm"}
        summarizer.add(
            event.model_copy(
                update={
                    "metadata": {"source": source},
                    "small": event.small.model_copy(update={"entities": entities}),
                    "decision": event.decision.model_copy(update={"escalated": is_missing}),
                }
            )
        )
        if (number + 1) % _A_SUMMARY == 0 and (summary := summarizer.take()) is not None:
            found.append(summary)
    return found


def watched(summaries: Iterator[TrafficSummary]) -> MovementStatus:
    monitor = MovementMonitor()
    for summary in summaries:
        monitor.on_traffic(summary)
    return monitor.status(_NO_LABELS)


def test_a_field_that_goes_missing_in_a_segment_is_named() -> None:
    """The status says which field, since when, from which share to which, in which segment, and what it explains."""
    found = watched(stream(8_000, missing_on_web=0.6))
    assert len(found.movements) == 1
    movement = found.movements[0]
    first = movement.traits[0]
    assert (first.trait, first.segment, first.value) == ("field:camera", "source", "web")
    assert first.categories[0].category == "missing"
    assert first.categories[0].before == pytest.approx(0.3, abs=0.03)
    assert first.categories[0].after == pytest.approx(0.5, abs=0.03)
    assert first.escalation_explained == pytest.approx(1.0, abs=0.01)
    assert abs((movement.since - START).total_seconds() - SHIFT_AT) <= 250
    assert found.sentence == movement.sentence
    assert found.sentence.startswith("camera is missing more often since 01:2")
    assert "mainly where source is web; explains all of the rise in escalation" in found.sentence
    web = next(effect for effect in movement.escalation.effects if effect.value == "web")
    change = movement.escalation.after - movement.escalation.before
    assert web.within == pytest.approx(change, rel=0.15)


def test_examples_show_what_moved_by_id_alone() -> None:
    """Three ids from before have the camera, three from after lack it, in the segment that is named."""
    summaries = list(stream(8_000, missing_on_web=0.6))
    movement = watched(iter(summaries)).movements[0]
    traits = {one.query_id: one.traits for summary in summaries for one in summary.samples}
    assert len(movement.examples_before) == len(movement.examples_after) == 3
    assert {traits[one]["field:camera"] for one in movement.examples_before} == {"given"}
    assert {traits[one]["field:camera"] for one in movement.examples_after} == {"missing"}
    assert {traits[one]["segment:source"] for one in (*movement.examples_before, *movement.examples_after)} == {"web"}


def test_what_has_moved_becomes_what_is_usual() -> None:
    """Five thousand queries later the figures are final, and going on alike is no news."""
    found = watched(stream(12_000, missing_on_web=0.6))
    assert [one.is_settled for one in found.movements] == [True]
    assert found.movements[0].queries_after >= 5_000


def test_quiet_traffic_is_explained_by_nothing() -> None:
    found = watched(stream(12_000, missing_on_web=0.3))
    assert found.movements == ()
    assert found.is_watching
    assert found.sentence == "Nothing that is monitored has moved."


def _languages(segment: str | None, value: str | None, said: NDArray[np.int64]) -> TrafficProfile:
    counts = {name: (int((said == at).sum()), 0) for at, name in enumerate(("de", "none", "en"))}
    return TrafficProfile(segment=segment, value=value, queries=len(said), traits={"language": counts})


def _in_bursts(queries: int, seed: int) -> Iterator[TrafficSummary]:
    """Yield summaries of 250 queries: eight at a time from one source, and 3 % of these bursts in German."""
    rng, block, burst = np.random.default_rng(seed), 250, 8
    source = np.repeat(rng.choice(3, p=(0.5, 0.3, 0.2), size=queries // burst + 1), burst)
    german = np.repeat(rng.random(queries // burst + 1) < 0.03, burst)
    language = np.where(german[:queries], 0, 1 + (rng.random(queries) < 0.45))
    words = SampledWords(escalated=(False,) * 125, words=((1,),) * 125)
    for first in range(0, queries, block):
        said, sources = language[first : first + block], source[first : first + block]
        everywhere = _languages(None, None, said)
        by_source = (_languages("source", f"s{at}", said[sources == at]) for at in range(3))
        yield TrafficSummary(
            workload="photo",
            first_routed_at=START + timedelta(seconds=first),
            last_routed_at=START + timedelta(seconds=first + block - 1),
            grid=GridSpec(),
            versions=(VersionTraffic(calibration_version=1, queries=block),),
            profiles=(everywhere, *by_source),
            words=words,
        )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_quiet_traffic_in_bursts_is_explained_by_nothing(seed: int) -> None:
    """A rare language that comes eight queries at a time has neither risen nor fallen, in no source either."""
    assert watched(_in_bursts(40_000, seed)).movements == ()


def test_before_enough_queries_nothing_is_claimed() -> None:
    found = watched(stream(1_000, missing_on_web=0.3))
    assert not found.is_watching
    assert "do not know enough" in found.sentence


@pytest.mark.parametrize("restart_at", [10, 60, 104, 120, 205])
def test_a_restart_leaves_no_trace(restart_at: int) -> None:
    """A monitor restored while it learns, waits, explains or has settled goes on to the same bytes."""
    summaries = list(stream(11_000, missing_on_web=0.6))
    whole, first, second = MovementMonitor(), MovementMonitor(), MovementMonitor()
    for summary in summaries:
        whole.on_traffic(summary)
    for summary in summaries[:restart_at]:
        first.on_traffic(summary)
    second.load(json.loads(json.dumps(first.state())))
    for summary in summaries[restart_at:]:
        second.on_traffic(summary)
    assert json.dumps(second.state()) == json.dumps(whole.state())
    assert second.status(_NO_LABELS) == whole.status(_NO_LABELS)


def test_the_core_shows_and_keeps_what_moved() -> None:
    """The workload's status holds what moved, and a core restored from its snapshot says the same."""
    core = Recalibrator(PHOTO)
    for summary in stream(7_000, missing_on_web=0.6):
        core.observe(summary)
    moved = core.status().moved
    assert moved is not None
    assert len(moved.movements) == 1
    restored = Recalibrator.restore(PHOTO, core.snapshot())
    assert restored.status().moved == moved
    assert restored.snapshot() == core.snapshot()


def test_switched_off_nothing_is_counted_or_watched() -> None:
    """With ``explain_drift = false`` summaries hold no profiles, and the status says why nothing is explained."""
    off = PHOTO.model_copy(update={"explain_drift": False})
    summarizer, core = TrafficSummarizer(off), Recalibrator(off)
    for number in range(_A_SUMMARY):
        summarizer.add(routed(number))
    bare = summarizer.take()
    assert bare is not None
    assert (bare.profiles, bare.words.words, bare.samples) == ((), (), ())
    for summary in stream(7_000, missing_on_web=0.6):
        core.observe(summary)
    moved = core.status().moved
    assert moved is not None
    assert moved.movements == ()
    assert moved.sentence == "What moved is not watched: explain_drift is false for this workload."
    assert Recalibrator.restore(off, core.snapshot()).snapshot() == core.snapshot()


def test_switched_on_again_what_is_usual_is_learned_anew() -> None:
    """A snapshot of a time when nothing was watched leaves no stale counts to compare with."""
    core = Recalibrator(PHOTO.model_copy(update={"explain_drift": False}))
    core.observe(next(stream(_A_SUMMARY, missing_on_web=0.3)))
    again = Recalibrator.restore(PHOTO, core.snapshot())
    for summary in stream(5_000, missing_on_web=0.3):
        again.observe(summary)
    moved = again.status().moved
    assert moved is not None
    assert moved.is_watching


def test_summaries_of_earlier_releases_say_nothing() -> None:
    monitor = MovementMonitor()
    for summary in stream(3_000, missing_on_web=0.3):
        monitor.on_traffic(summary.model_copy(update={"profiles": ()}))
    assert monitor.status(_NO_LABELS).series == 0


def test_a_segment_named_later_is_learned_first() -> None:
    """Once a workload names another segment, its values are learned anew before anything is said of them."""
    monitor = MovementMonitor()
    for summary in stream(5_000, missing_on_web=0.3):
        whole = tuple(one for one in summary.profiles if one.segment is None)
        words = summary.words.model_copy(update={"segments": {}})
        monitor.on_traffic(summary.model_copy(update={"profiles": whole, "words": words}))
    assert monitor.status(_NO_LABELS).is_watching
    later = list(stream(12_000, missing_on_web=0.3))
    monitor.on_traffic(later[0])
    assert not monitor.status(_NO_LABELS).is_watching
    for summary in later[1:]:
        monitor.on_traffic(summary)
    assert Series("field:camera", "source", "web") in monitor.table.series
    assert monitor.status(_NO_LABELS).movements == ()


def test_another_domain_is_named_and_then_learned() -> None:
    """Where most queries have mostly new words, that is said, and what is usual is learned from them."""
    monitor, summaries = MovementMonitor(), list(stream(11_000, missing_on_web=0.3))
    for summary in summaries[: SHIFT_AT // _A_SUMMARY]:
        monitor.on_traffic(summary)
    for summary in summaries[SHIFT_AT // _A_SUMMARY :]:
        strange = tuple((3_000 + at, 3_500 + at) for at in range(len(summary.words.words)))
        words = summary.words.model_copy(update={"words": strange})
        monitor.on_traffic(summary.model_copy(update={"words": words}))
    found = monitor.status(_NO_LABELS)
    assert [one.traits[0].trait for one in found.movements] == ["words"]
    assert found.sentence.startswith("queries of mostly rare or new words are more frequent")
    assert not found.is_watching


def test_hostile_counts_neither_overflow_nor_grow_the_state() -> None:
    """Counts as large as the contract takes, and names without end, leave numbers finite and the table bounded."""
    monitor = MovementMonitor()
    for summary in stream(2_500, missing_on_web=0.3):
        monitor.on_traffic(summary)
    most = 2**53 - 1
    for number in range(40):
        traits = {f"t{number}-{one}": {f"c{number}-{two}": (most, most) for two in range(30)} for one in range(50)}
        profile = TrafficProfile(queries=most, escalated=most, traits=traits)
        late = START + timedelta(seconds=10_000 + number)
        times = {"first_routed_at": late, "last_routed_at": late}
        summary = next(stream(50, missing_on_web=0.3))
        monitor.on_traffic(summary.model_copy(update={**times, "profiles": (profile,)}))
    found = monitor.status(_NO_LABELS)
    assert found.series <= MOST_SERIES
    assert MovementStatus.model_validate_json(found.model_dump_json()) == found


def test_categories_beyond_the_room_count_together() -> None:
    table = SeriesTable()
    for number in range(40):
        table.add(Series("latency"), {str(number): (1, 0)})
    table.close_block()
    assert len(table.categories[0]) == 12
    assert table.categories[0][-1] == "other"
    assert int(table.recent[0, 0, :, 0].sum()) == 40
