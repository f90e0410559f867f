"""The label that stands: the same whatever the order of results and feedback, each event counted once."""

from __future__ import annotations

import zlib
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recalibrator.join.query_state import (
    LONGEST_VALUE,
    MAX_LABELERS,
    MAX_OPINION_BYTES,
    NOTHING_KNOWN,
    Joined,
    QueryState,
    Rules,
    compact,
    comparable,
    decoded,
    encoded,
    reduced,
    take_feedback,
    take_result,
)
from schemas.entities import Entities, count_pairs, equal
from schemas.feedback import FeedbackEvent
from schemas.labelled import LabelledExample
from schemas.routed import LabelRequest, RoutedEvent
from tests.support import strategies
from tests.support.recalibrator_events import FIELDS, PHOTO, START, entities, feedback, routed, workload

Event = RoutedEvent | FeedbackEvent
WORKLOADS = {"photo": PHOTO}
TRUSTING = {"photo": workload(trusted_labelers=("ada",))}
NOT_REQUESTED = LabelRequest(requested=False, probability=0.1)
RIGHT = entities("q-1")
WRONG = entities("q-1", wrong=True)


@st.composite
def opinions(draw: st.DrawFn) -> FeedbackEvent:
    """What one of three labelers says of query 1: a label, a verdict, a skip or a withdrawal."""
    said = draw(st.sampled_from([RIGHT, WRONG, {}, None, "right", "wrong"]))
    return feedback(
        1,
        labeler=draw(st.sampled_from(["ada", "bo", None])),
        labelled_at=START + timedelta(minutes=draw(st.integers(0, 4))),
        revision=draw(st.integers(1, 3)),
        retracted=draw(st.booleans()),
    ).model_copy(update={"entities": None, "verdict": said} if isinstance(said, str) else {"entities": said})


def take(state: QueryState, event: Event, rules: Rules = WORKLOADS) -> Joined:
    if isinstance(event, RoutedEvent):
        return take_result(state, event, rules)
    return take_feedback(state, event, START, rules)


def fold(events: list[Event], rules: Rules = WORKLOADS) -> tuple[QueryState, list[LabelledExample]]:
    """Return the state at the end and the examples, of which each carries a revision above those before it."""
    state, examples = NOTHING_KNOWN, []
    for event in events:
        joined = take(state, event, rules)
        state = joined.state
        examples += [] if joined.example is None else [joined.example]
    revisions = [example.revision for example in examples]
    assert revisions == sorted(set(revisions))
    return state, examples


def refused(joined: Joined) -> str:
    """Return why an event does not count, reason and line."""
    assert joined.refusal is not None
    return f"{joined.refusal.reason}: {joined.refusal.error}"


@given(st.lists(opinions(), max_size=6), st.integers(0, 6))
def test_a_label_is_awaited_until_one_comes_or_is_skipped(said: list[FeedbackEvent], place: int) -> None:
    """In any order of the result and the labels."""
    state, _ = fold([*said[:place], routed(1), *said[place:]])
    known = {opinion.labeler: opinion for opinion in state.opinions}
    assert state.awaits_label == all(one.entities is None and not one.skipped for one in known.values())
    last = {one.labeler: one for one in sorted(said, key=lambda one: one.revision)}
    if not any(one.revision == last[one.labeler].revision and one is not last[one.labeler] for one in said):
        assert state.awaits_label == all(one.retracted or one.verdict is not None for one in last.values())


def verdict(what: str, **changes: Any) -> FeedbackEvent:
    """What somebody says of the answer of query 1 as a whole."""
    changes = {"labeler": "shop", "labelled_at": START, **changes}
    return FeedbackEvent.model_validate({"query_id": "q-1", "verdict": what, **changes})


SKIP = feedback(1, revision=2).model_copy(update={"entities": None})
GONE = feedback(1, retracted=True, revision=2)
TOLD: dict[str, tuple[list[FeedbackEvent], list[tuple[str | None, int | None, bool]]]] = {
    "a verdict": ([verdict("right")], [("right", None, False)]),
    "the newer verdict": (
        [verdict("right", revision=2), verdict("wrong"), verdict("wrong", revision=3)],
        [("right", None, False), ("wrong", None, False)],
    ),
    "a verdict withdrawn": (
        [verdict("right"), verdict("right", retracted=True, revision=2)],
        [("right", None, False), (None, 0, True)],
    ),
    "a label withdrawn, a verdict left": (
        [verdict("wrong"), feedback(1), GONE],
        [("wrong", None, False), ("wrong", 2, False), ("wrong", None, False)],
    ),
    "a label skipped": ([feedback(1), SKIP], [(None, 2, False), (None, 2, True)]),
}


@pytest.mark.parametrize(("said", "told"), TOLD.values(), ids=TOLD)
def test_what_is_said_in_turn_is_told_the_fit(
    said: list[FeedbackEvent], told: list[tuple[str | None, int | None, bool]]
) -> None:
    """Of each example the verdict, the values of the label, and whether it takes the label out."""
    _, examples = fold([routed(1), *said])
    assert [(one.verdict, one.gold_count, one.retracted) for one in examples] == told


def test_a_label_that_was_not_requested_is_not_awaited() -> None:
    assert not fold([routed(1, label=NOT_REQUESTED)])[0].awaits_label
    assert not fold([feedback(1)])[0].awaits_label
    assert fold([routed(1), verdict("right")])[0].awaits_label, "a verdict does not say what is right"


def contribution(examples: list[LabelledExample]) -> LabelledExample | None:
    """What the fit counts at the end: the example of the highest revision, unless it takes the label out."""
    last = max(examples, key=lambda example: example.revision, default=None)
    return None if last is None or last.retracted or last.small is None else last.model_copy(update={"revision": 1})


def last_words(events: list[FeedbackEvent], what: str = "entities") -> list[FeedbackEvent]:
    """The rules, slowly: by id once, by labeler the highest revision, neither skipped nor withdrawn; in order."""
    taken: list[FeedbackEvent] = []
    for event in events:
        highest = max((e.revision for e in taken if e.labeler == event.labeler), default=0)
        if event.revision >= highest and event.identity() not in {e.identity() for e in taken}:
            taken.append(event)
    last = {event.labeler: (order, event) for order, event in enumerate(taken)}
    valid = [entry for entry in last.values() if getattr(entry[1], what) is not None and not entry[1].retracted]
    return [event for _, event in sorted(valid, key=lambda entry: entry[0])]


def standing(events: list[FeedbackEvent], what: str = "entities") -> FeedbackEvent | None:
    """Among labelers the latest, among the equally late the last to come."""
    valid = [(event.labelled_at, order, event) for order, event in enumerate(last_words(events, what))]
    return max(valid, key=lambda entry: entry[:2])[2] if valid else None


@given(st.lists(opinions(), max_size=8), st.data())
def test_state_and_example_do_not_depend_on_when_results_come(said: list[FeedbackEvent], data: st.DataObject) -> None:
    early, moment = routed(1), data.draw(st.integers(0, len(said)))
    state, examples = fold([early, *said])
    other_state, other_examples = fold([*said[:moment], early, *said[moment:]])
    assert state == other_state
    assert contribution(examples) == contribution(other_examples)


@given(st.lists(opinions(), max_size=12))
@example([feedback(1, RIGHT), feedback(1, WRONG, labeler="bo", labelled_at=START)])
@example([verdict("wrong", labelled_at=START + timedelta(days=1)), feedback(1)])
@example([feedback(1), verdict("wrong", labelled_at=START + timedelta(days=1))])
def test_the_label_that_stands_is_the_one_of_the_rules(said: list[FeedbackEvent]) -> None:
    state, examples = fold([routed(1), *said], TRUSTING)
    expected = standing(said)
    counted = contribution(examples)
    assert (state.standing is None) == (expected is None) == (counted is None)
    if expected is not None and counted is not None:
        others = [one for one in last_words(said) if one.labeler != expected.labeler]
        disputed = sum(not equal(one.entities, expected.entities, FIELDS) for one in others)
        how: dict[str, Any] = {"fields": FIELDS, "trusted_labelers": {"ada"}, "disputed": disputed}
        reference = LabelledExample.from_events(routed(1), expected, revision=1, **how)
        verdict = standing(said, "verdict")
        assert counted == reference.model_copy(update={"verdict": verdict and verdict.verdict})


@given(st.lists(opinions(), max_size=8), st.data())
def test_an_event_that_comes_again_changes_nothing(said: list[FeedbackEvent], data: st.DataObject) -> None:
    events: list[Event] = [*said]
    events.insert(data.draw(st.integers(0, len(said))), routed(1))
    for number, event in enumerate(events):
        before, _ = fold(events[: number + 1])
        again = take(before, event)
        assert (again.state, again.example) == (before, None)


def test_of_two_results_under_one_id_the_first_is_kept() -> None:
    second = routed(1, routed_by="router-1", routed_at=START + timedelta(days=1))
    assert take(fold([routed(1)])[0], second).notes == ("duplicate_result",)
    _, examples = fold([routed(1), second, feedback(1)])
    assert examples[0].routed_at == routed(1).routed_at


@given(st.permutations(["result", "misspelt", "correction"]), st.sampled_from(["photo", "audio"]))
def test_a_misspelt_field_says_that_a_query_has_nothing(order: list[str], field_of: str) -> None:
    """In any order with the result, also where the field is another workload's; a correction counts."""
    rules = {"photo": PHOTO, "audio": workload("audio", ("track",))}
    said = {"bugg": "1"} if field_of == "photo" else {"track": "1"}
    events: dict[str, Event] = {"misspelt": feedback(1, said), "result": routed(1)}
    events["correction"] = feedback(1, RIGHT, revision=2)
    state, examples = NOTHING_KNOWN, list[LabelledExample]()
    for event in (events[name] for name in order if field_of == "audio" or name != "correction"):
        found = take(state, event, rules)
        state, examples = found.state, [*examples, *([] if found.example is None else [found.example])]
        if event is events["misspelt"] and field_of == "photo":
            assert refused(found).startswith("unknown_fields: entities: 'bugg'")
    if field_of == "photo":
        assert (examples, state.awaits_label) == ([], True)
    else:
        assert [one.gold_count for one in examples] == [len(RIGHT)]


NONSENSE = {"text": "x" * 40, "entities": {}, "caller": "shop"}


@pytest.mark.parametrize("asked", [True, False])
@given(st.permutations(["nonsense", "truth", "label", "later label"]))
def test_a_gateway_key_makes_true_labels_the_models_errors(asked: bool, order: list[str]) -> None:
    """By nonsense under ids of the stream: in whatever order they come, nothing counts in the end."""
    label = LabelRequest(requested=asked, probability=0.1)
    truth = routed(1, label=label)
    events: dict[str, Event] = {
        "nonsense": truth.model_copy(update=NONSENSE),
        "truth": truth,
        "label": feedback(1),
        "later label": feedback(1, labeler="bo", labelled_at=START + timedelta(days=1)),
    }
    state, examples = fold([events[name] for name in order])
    assert contribution(examples) is None
    assert not state.awaits_label
    assert take(state, feedback(1, revision=2)).notes == ("conflicting_result",)
    assert (take(state, truth).state, take(state, truth).example) == (state, None)


@pytest.mark.parametrize("is_early", [False, True])
@pytest.mark.parametrize(
    ("labeler", "caller", "counts"),
    [
        ("gateway:mallory", "shop", False),
        ("gateway:shop", "shop", True),
        ("gateway:shop", None, True),
        ("ann", "shop", True),
    ],
)
def test_a_gateway_key_judged_the_query_of_another(
    labeler: str, caller: str | None, *, counts: bool, is_early: bool
) -> None:
    """A key judges what it asked, through any gateway, before the result or after; people judge anything."""
    events: list[Event] = [routed(1, caller=caller), verdict("wrong", labeler=labeler)]
    first, second = events[::-1] if is_early else events
    before = take(NOTHING_KNOWN, first)
    found = take(before.state, second)
    assert before.example is None
    if counts:
        assert found.example is not None
        assert (found.example.verdict, found.example.labeler) == ("wrong", labeler)
        return
    assert found.example is None
    if is_early:
        assert found.notes == ("foreign_verdict",)
    else:
        assert refused(found).startswith("foreign_verdict: labeler: 'gateway:mallory'")


def test_disagreement_and_unknown_fields_are_counted() -> None:
    state, _ = fold([routed(1), feedback(1, RIGHT)])
    joined = take(state, feedback(1, {**WRONG, "flash": "on"}, labeler="bo", labelled_at=START + timedelta(days=1)))
    assert set(joined.notes) == {"disagreement", "unknown_fields"}


SPELT = {"camera": "camera of q-1", "lens": "N/A"}
NULLING = {"photo": workload(null_texts=("n/a", "none"))}
LATER = START + timedelta(days=1)


def test_a_spelt_null_counts_as_a_value_and_is_noted() -> None:
    """In labels and in answers; what the workload names as null is neither."""
    said = routed(1).small
    assert said is not None
    answered = routed(1, small=said.model_copy(update={"entities": SPELT}))
    joined = take(NOTHING_KNOWN, answered)
    assert joined.notes == ("spelt_null_answer",)
    labelled = take(joined.state, feedback(1, SPELT))
    assert labelled.notes == ("spelt_null",)
    assert labelled.example is not None
    assert (labelled.example.gold_count, labelled.example.small_exact) == (2, True)
    nulled = take(NOTHING_KNOWN, answered, NULLING)
    joined = take(nulled.state, feedback(1, SPELT | {"lens": None}), NULLING)
    assert (nulled.notes, joined.notes) == ((), ())
    assert joined.example is not None
    assert (joined.example.gold_count, joined.example.small_exact) == (1, True)


@given(
    st.permutations(
        [feedback(1, SPELT), feedback(1, SPELT | {"lens": None}, labeler="bo", labelled_at=LATER), routed(1)]
    )
)
def test_null_texts_are_null_in_any_order(events: list[Event]) -> None:
    """A label that spells nothing is the same label as one with null, also where its workload shows later."""
    rules = {**NULLING, "other": workload(name="other")}
    state, examples = fold(list(events), rules)
    assert {opinion.entities["lens"] for opinion in state.opinions if opinion.entities} == {None}
    last = examples[-1]
    assert (last.gold_count, last.disputed, last.labeler) == (1, 0, "bo")


@pytest.mark.parametrize(
    ("known", "said", "note"),
    [
        ([], verdict("right"), "verdict"),
        ([], SKIP, "skipped"),
        ([feedback(1, RIGHT)], GONE, "withdrawn"),
        ([], GONE, "withdrawn_unknown"),
    ],
)
def test_what_gives_no_label_is_counted_by_what_it_is(known: list[Event], said: FeedbackEvent, note: str) -> None:
    state, _ = fold([routed(1), *known])
    assert take(state, said).notes == (note,)


def test_the_labelers_of_one_query_are_bounded() -> None:
    """One labeler more is refused; those before may still correct."""
    state, examples = fold([routed(1), *(feedback(1, labeler=f"labeler {n}") for n in range(MAX_LABELERS))])
    joined = take(state, feedback(1, labeler="one more", labelled_at=START + timedelta(days=1)))
    assert refused(joined).startswith("too_many_labelers: ")
    assert f"{MAX_LABELERS} at most" in refused(joined)
    assert (joined.state, joined.example, len(state.opinions)) == (state, None, MAX_LABELERS)
    assert take(state, feedback(1, WRONG, labeler="labeler 3", revision=2)).state != state
    assert examples


def test_a_withdrawn_example_names_whose_label_was_withdrawn() -> None:
    """Not who spoke last."""
    skip = feedback(1, labeler="bo").model_copy(update={"entities": None})
    withdrawal = feedback(1, labeler="ada", revision=2, retracted=True)
    *_, last = fold([routed(1), feedback(1, labeler="ada"), skip, withdrawal], TRUSTING)[1]
    assert (last.retracted, last.labeler, last.trusted, last.disputed) == (True, "ada", True, 0)


def long_label(number: int) -> FeedbackEvent:
    said: Entities = {"lens": tuple(f"{number} {index}" for index in range(256)), "camera": ("x" * 4_000,) * 200}
    at = START + timedelta(seconds=number)
    return feedback(1, {**said, **{f"f{n}": "ẅ" * 30 for n in range(200)}}, labeler=f"l {number}", labelled_at=at)


def test_64_labelers_of_one_query_made_a_row_of_61_mb() -> None:
    """Labels beyond the limit of bytes are refused; those before them stay, and may be corrected and withdrawn."""
    state, reasons = fold([routed(1)])[0], []
    for number in range(64):
        joined = take(state, long_label(number))
        state = joined.state
        reasons += [] if joined.refusal is None else [joined.refusal.reason]
    assert len(state.model_dump_json()) < 2 * MAX_OPINION_BYTES
    assert reasons == ["labels_too_large"] * (64 - len(state.opinions))
    assert 0 < len(state.opinions) < 64
    alone = feedback(1, {f"f{n}": tuple(f"{n} {index}" for index in range(256)) for n in range(100)} | RIGHT)
    assert f"{MAX_OPINION_BYTES} at most" in refused(take(fold([routed(1)])[0], alone))
    assert take(state, feedback(1, RIGHT, labeler="l 0", revision=2)).refusal is None
    assert take(state, feedback(1, RIGHT, labeler="l 0", revision=2, retracted=True)).refusal is None


def test_many_withdrawn_opinions_push_out_no_label_that_stands() -> None:
    later: dict[str, Any] = {"labelled_at": START + timedelta(days=1), "retracted": True}
    gone = [feedback(1, labeler=f"labeler {n}", **later) for n in range(MAX_LABELERS + 3)]
    state, examples = fold([routed(1), feedback(1), *gone])
    assert state.standing is not None
    assert [example.retracted for example in examples] == [False]


def test_a_feedback_id_is_its_labelers_own() -> None:
    """A stranger cannot spend the id that a labeler is going to send."""
    state, _ = fold([routed(1), feedback(1, labeler="eve").model_copy(update={"feedback_id": "guessed"})])
    joined = take(state, feedback(1, labeler="ada").model_copy(update={"feedback_id": "guessed"}))
    assert "duplicate_feedback" not in joined.notes
    assert {opinion.labeler for opinion in joined.state.opinions} == {"ada", "eve"}


STATE, _ = fold([routed(1), feedback(1)])


@given(strategies.routed_events(query_id="q"))
def test_a_row_gives_back_its_state(result: RoutedEvent) -> None:
    kept = take_result(NOTHING_KNOWN, result, {result.workload: PHOTO}).state
    assert decoded(encoded(kept)) == kept


def test_a_row_that_unpacks_without_end_fills_the_memory() -> None:
    """A damaged row of some kilobytes may hold gigabytes of zeros."""
    packer = zlib.compressobj(9)
    bomb = packer.compress(b" " * 20_000_000) + packer.flush()
    with pytest.raises(zlib.error, match="more than 16000000 bytes"):
        decoded(bomb)


WORDS = ("a", "B" * 20, " b" * 20, "c" * 40, "C" * 40, "c " * 40, "ﷺ" * 3, "ß" * 30, "ẞ" * 30, "x" * 33, "X" * 33)
values = st.one_of(st.none(), st.sampled_from(WORDS), st.lists(st.sampled_from(WORDS), max_size=4).map(tuple))
answers = st.dictionaries(st.sampled_from(["lens", "iso"]), values)


@given(answers, answers)
def test_reduced_values_are_equal_where_the_whole_ones_are(first: Any, second: Any) -> None:
    """And nowhere else."""
    assert count_pairs(reduced(first), reduced(second)) == count_pairs(first, second)


@given(strategies.entities)
def test_reducing_is_idempotent_and_keeps_values_short(entities: Any) -> None:
    once = reduced(entities)
    assert reduced(once) == once
    texts = [t for v in once.values() for t in ((v,) if isinstance(v, str) else v or ())]
    assert all(len(text) <= LONGEST_VALUE for text in texts)


@given(strategies.routed_events(query_id="q"), strategies.entities)
def test_a_row_gives_the_example_of_the_whole_result(result: RoutedEvent, gold: Any) -> None:
    kept, label = comparable(compact(result)), FeedbackEvent(query_id="q", entities=reduced(gold))
    whole = LabelledExample.from_events(result, FeedbackEvent(query_id="q", entities=gold))
    assert LabelledExample.from_events(kept, label) == whole


def test_a_requested_query_keeps_its_text_and_its_answers() -> None:
    """Whom a withdrawal has asked again needs both."""
    long: dict[str, Any] = {"lens": "L" * 500}
    asked = routed(1, entities=long, metadata={"user": "u"})
    bare, other = compact(asked), compact(asked.model_copy(update={"label": NOT_REQUESTED}))
    assert (bare.text, bare.entities, bare.metadata) == (asked.text, long, None)
    assert asked.text not in other.text
    assert other.entities == reduced(long) != long
