"""What the join keeps of answers and labels gives the same counts as the whole of them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recalibrator.join.row_content import LONGEST_VALUE, compact, comparable, reduced
from schemas.entities import count_pairs
from schemas.feedback import FeedbackEvent
from schemas.labelled import LabelledExample
from schemas.routed import LabelRequest, RoutedEvent
from tests.support import strategies, value_strategies
from tests.support.recalibrator_events import feedback, routed

WORDS = ("a", "B" * 20, " b" * 20, "c" * 40, "C" * 40, "c " * 40, "ﷺ" * 3, "ß" * 30, "ẞ" * 30, "x" * 33, "X" * 33)
values = st.one_of(st.none(), st.sampled_from(WORDS), st.lists(st.sampled_from(WORDS), max_size=4).map(tuple))
answers = st.dictionaries(st.sampled_from(["lens", "iso"]), values)


@given(answers, answers)
def test_reduced_values_are_equal_where_the_whole_ones_are(first: Any, second: Any) -> None:
    """And nowhere else."""
    assert count_pairs(reduced(first), reduced(second)) == count_pairs(first, second)


@given(value_strategies.entities)
def test_reducing_is_idempotent_and_keeps_values_short(entities: Any) -> None:
    once = reduced(entities)
    assert reduced(once) == once
    texts = [t for v in once.values() for t in ((v,) if isinstance(v, str) else v or ())]
    assert all(len(text) <= LONGEST_VALUE for text in texts)


@given(strategies.routed_events(query_id="q"), value_strategies.entities)
def test_a_row_gives_the_example_of_the_whole_result(result: RoutedEvent, gold: Any) -> None:
    kept, label = comparable(compact(result)), FeedbackEvent(query_id="q", entities=reduced(gold))
    whole = LabelledExample.from_events(result, FeedbackEvent(query_id="q", entities=gold))
    assert LabelledExample.from_events(kept, label) == whole


def test_a_requested_query_keeps_its_text_and_its_answers() -> None:
    long: dict[str, Any] = {"lens": "L" * 500}
    asked = routed(1, entities=long)
    assert (compact(asked).text, compact(asked).entities) == (asked.text, long)
    other = compact(asked.model_copy(update={"label": LabelRequest(requested=False, probability=0.1)}))
    assert asked.text not in other.text
    assert other.entities == reduced(long) != long
    assert feedback(1).query_id == other.query_id
