"""Profiles of traffic: they add up, stay small, and hold no text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from recalibrator.join.profile_counter import MAX_VALUES, SAMPLES, ProfileCounter, Profiles
from recalibrator.join.traffic_counter import TrafficSummarizer
from schemas.event import MAX_RECORD_BYTES
from schemas.routed import RoutedEvent
from schemas.settings import WorkloadSettings
from schemas.traffic import MAX_SAMPLED_WORDS, TrafficSummary
from tests.support.recalibrator_events import FIELDS, routed

PHOTO = WorkloadSettings.model_validate(
    {"name": "photo", "fields": FIELDS, "target": {"micro_f1": 0.9}, "segments": ("source",)}
)


def event(number: int) -> RoutedEvent:
    escalated = number % 3 == 0
    decision = routed(number).decision.model_copy(update={"escalated": escalated})
    metadata = {"source": ("web", "app")[number % 2]}
    return routed(number).model_copy(update={"decision": decision, "metadata": metadata})


def profiled(numbers: Iterable[int]) -> Profiles:
    counter = ProfileCounter(PHOTO)
    for number in numbers:
        counter.add(event(number))
    return counter.take()


def counts(parts: Iterable[Profiles]) -> Counter[tuple[object, ...]]:
    found: Counter[tuple[object, ...]] = Counter()
    for part in parts:
        for one in part.profiles:
            found[one.segment, one.value, "queries"] += one.queries
            for trait, categories in one.traits.items():
                for category, (queries, escalated) in categories.items():
                    found[one.segment, one.value, trait, category] += queries
                    found[one.segment, one.value, trait, category, "escalated"] += escalated
    return +found


@given(st.lists(st.integers(0, 200), min_size=1, max_size=30), st.data())
def test_profiles_of_parts_add_up_to_the_whole(numbers: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(numbers)))
    assert counts([profiled(numbers[:cut]), profiled(numbers[cut:])]) == counts([profiled(numbers)])


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=60, unique=True), st.randoms())
def test_samples_do_not_depend_on_arrival_order(numbers: list[int], random: object) -> None:
    mixed = list(numbers)
    random.shuffle(mixed)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    assert profiled(numbers) == profiled(mixed)


def test_frequent_values_keep_their_names() -> None:
    """Of many values of a segment the most frequent have profiles; the others share one, and none is lost."""
    counter = ProfileCounter(PHOTO)
    for number in range(400):
        source = "web" if number % 2 else f"partner-{number}"
        counter.add(routed(number).model_copy(update={"metadata": {"source": source}}))
    found = {one.value: one.queries for one in counter.take().profiles if one.segment == "source"}
    assert len(found) <= MAX_VALUES + 1
    assert found["web"] == 200
    assert sum(found.values()) == 400


def test_a_summary_holds_no_text_and_stays_small() -> None:
    """However much traffic one summary covers, its words are bounded hashes of a bounded sample."""
    summarizer = TrafficSummarizer(PHOTO)
    secret = "confidential"
    for number in range(3_000):
        long = " ".join(f"{secret}{number * 40 + word}" for word in range(40))
        summarizer.add(routed(number).model_copy(update={"text": long, "metadata": {"source": f"s{number}"}}))
    summary = summarizer.take()
    assert isinstance(summary, TrafficSummary)
    assert len(summary.words.words) == MAX_SAMPLED_WORDS
    assert len(summary.samples) == SAMPLES
    assert secret.encode() not in summary.to_json()
    assert len(summary.to_json()) < MAX_RECORD_BYTES / 10
    assert TrafficSummary.from_json(summary.to_json()) == summary
