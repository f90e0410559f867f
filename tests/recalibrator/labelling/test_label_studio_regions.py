"""Annotations of every type of Label Studio: read as a person reads them, or refused with region, type and remedy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recalibrator.labelling.field_names import FieldNames
from recalibrator.labelling.label_studio_regions import entities_of
from recalibrator.labelling.label_tool import InvalidAnnotation
from tests.support.seen_in_label_studio import seen, spoken

FIELDS = ("camera", "iso")
Region = dict[str, Any]


def region(kind: str, name: str, value: Any, *, key: str | None = None, **more: Any) -> Region:
    return {"type": kind, "from_name": name, "to_name": "text", "value": {key or kind: value}, **more}


def span(text: str | None, *labels: str, kind: str = "labels", **more: Any) -> Region:
    value = {"start": 0, "end": 3, kind: list(labels)} | ({} if text is None else {"text": text})
    return {"type": kind, "from_name": "label", "to_name": "text", "value": value, **more}


def area(name: str, *texts: str, **more: Any) -> Region:
    return region("textarea", name, list(texts), key="text", **more)


CAMERA, ISO = span("abc", "camera", id="r1"), area("iso", "3200")
ARROW = {"type": "relation", "from_id": "r1", "to_id": "r2", "direction": "right", "labels": ["made-by"]}


def read(*regions: Region, covered: tuple[str, ...] = ()) -> dict[str, Any]:
    return entities_of(list(regions), FieldNames(FIELDS), covered)


BOTH = {"camera": "abc", "iso": "3200"}


@pytest.mark.parametrize(
    "regions",
    [
        (CAMERA, region("number", "iso", 3200)),
        (CAMERA, region("number", "iso", 3200.0)),
        (region("choices", "camera", ["abc"]), ISO),
        (region("choices", "camera", [["abc"]]), region("number", "iso", 3200)),
        (region("taxonomy", "camera", [["abc"]]), ISO),
        (CAMERA, region("rating", "iso", 3200)),
        (CAMERA, region("datetime", "iso", "3200")),
        (span("abc", "Camera"), ISO),
        (span("abc", " camera\u200b"), area("ISO", "3200")),
        (span("abc", "camera", kind="hypertextlabels"), ISO),
        (span("abc", "camera", kind="paragraphlabels"), ISO),
        (CAMERA, ISO, ARROW),
        (CAMERA, span("abc", "camera", id="r2"), ISO, ARROW | {"labels": None}),
        (CAMERA | {"parentID": "r0", "readonly": True, "hidden": True, "origin": "prediction", "score": 0.5}, ISO),
        (CAMERA | {"meta": {"lead_time": 4, "text": ["ABC"]}}, ISO),
        (CAMERA, area("camera", " ABC "), ISO),
        (CAMERA, area("camera", " "), area("camera"), ISO),
        (CAMERA, area("iso", "3200", id="r1")),
        ({"value": CAMERA["value"]}, ISO),
    ],
)
def test_each_type_is_read_as_it_is_shown(regions: tuple[Region, ...]) -> None:
    said = read(*regions)
    assert {name: spoken(value if isinstance(value, str) else value[0]) for name, value in said.items()} == BOTH


def test_two_labels_of_one_region_both_get_its_text() -> None:
    assert read(span("abc", "iso", "camera")) == {"iso": "abc", "camera": "abc"}


@pytest.mark.parametrize(
    ("regions", "place", "said"),
    [
        ((CAMERA, region("pairwise", "iso", "left", key="selected")), "result.1", "'iso' (pairwise)"),
        ((CAMERA, region("ranker", "iso", ["b", "a"])), "result.1", "ranker"),
        ((region("ranker", "rank", {"iso": ["a"]}), CAMERA), "result.0", "'iso' (ranker)"),
        ((CAMERA, region("reactcode", "iso", {"a": 1})), "result.1", "reactcode"),
        ((region("rectanglelabels", "box", ["camera"]), ISO), "result.0", "'camera' (rectanglelabels)"),
        ((CAMERA, region("taxonomy", "iso", [["a", "b"]])), "result.1.value.taxonomy", "a / b"),
        ((CAMERA, region("number", "iso", "3200")), "result.1.value.number", "number"),
        ((CAMERA, region("number", "iso", True)), "result.1.value.number", "number"),
        ((CAMERA, region("choices", "iso", None)), "result.1.value.choices", "NoneType"),
        (
            (CAMERA, region("choices", "iso", ["a"], id="r") | {"value": {"choices": ["a"], "number": 1}}),
            "result.1",
            "number",
        ),
        ((span(None, "camera"), ISO), "result.0.value.text", "saveTextResult"),
        ((span("abc"), ISO), "result.0.value.labels", "without a label"),
        ((span("abc", "kamera"), ISO), "result.0", "is camera meant?"),
        ((span("abc", "brand"), ISO), "result.0", "the fields are camera, iso"),
        ((CAMERA, region("number", "isoo", 3200)), "result.1", "is iso meant?"),
        ((CAMERA, region("number", "iso value", 3200)), "result.1", "is iso meant?"),
        ((region("choices", "quality", ["good"]),), "result", "names no field"),
        ((CAMERA | {"meta": {"text": ["xyz"]}}, ISO), "result.0.meta.text", "'xyz' is noted"),
        ((CAMERA, area("corrected", "xyz", id="r1"), ISO), "result.1", "perRegion"),
        ((CAMERA, area("camera", "xyz"), ISO), "result", "different values of camera"),
        ((CAMERA, ISO, region("number", "iso", 100)), "result", "iso (textarea) and iso (number) give different"),
        ((CAMERA, ISO, ARROW | {"labels": ["iso"]}), "result.2", "'iso' (relation)"),
        ((CAMERA, {"type": "number", "value": {"number": 1}}), "result.1.from_name", "control's name"),
        ((CAMERA, {"from_name": "iso", "value": {"number": 1}}), "result.1.type", "is required"),
        ((CAMERA, {"type": "number", "from_name": "iso"}), "result.1", "value"),
    ],
)
def test_what_is_not_read_in_full_is_refused(regions: tuple[Region, ...], place: str, said: str) -> None:
    """The line names the region, its type where that is to blame, and what to do."""
    with pytest.raises(InvalidAnnotation) as refused:
        read(*regions)
    assert refused.value.field == f"annotation.{place}"
    assert said in str(refused.value)


def test_controls_of_ones_own_stay_under_their_names() -> None:
    quality, comment = region("choices", "quality", ["good"]), area("comment", "hard to read")
    assert read(CAMERA, ISO, quality, comment, region("pairwise", "better", "left", key="selected")) == {
        **BOTH,
        "quality": "good",
        "comment": "hard to read",
        "better": None,
    }
    assert read(CAMERA, quality) == {"camera": "abc", "quality": "good"}
    # Where each field is known to have a control of its own, a comment alone says that the text holds nothing.
    assert read(comment, covered=FIELDS) == {"camera": None, "iso": None, "comment": "hard to read"}
    assert read(CAMERA, span("x", "brand"), covered=FIELDS) == {"camera": "abc", "brand": "x"}
    assert read() == {}


texts = st.sampled_from(["abc", "ABC ", "3200", "a\u200bbc", "Canon EOS", ""])
# Most are fields, so that many annotations are clear.
plain, odd = st.sampled_from(FIELDS), st.sampled_from(["Camera", "iso ", "quality", "comment", "kamera", "camera name"])
names = st.one_of(plain, plain, plain, plain, plain, odd)
ids = st.fixed_dictionaries({}, optional={"id": st.sampled_from(["r1", "r2", "r3", "r4", "r5"])})
notes = st.fixed_dictionaries(
    {}, optional={"meta": st.fixed_dictionaries({}, optional={"text": st.lists(texts, max_size=1)})}
)
numbers = st.sampled_from([3200, 3200.0, 2.8, 0, -1, 12])
paths = st.lists(st.lists(texts.filter(bool), min_size=1, max_size=2), max_size=2)
values = st.one_of(
    st.tuples(st.just("textarea"), st.lists(texts, max_size=2).map(lambda lines: {"text": lines})),
    st.tuples(st.just("choices"), st.lists(texts.filter(bool), max_size=2).map(lambda one: {"choices": one})),
    st.tuples(st.just("choices"), paths.map(lambda one: {"choices": one})),
    st.tuples(st.just("taxonomy"), paths.map(lambda one: {"taxonomy": one})),
    st.tuples(st.just("number"), numbers.map(lambda one: {"number": one})),
    st.tuples(st.just("rating"), st.integers(1, 5).map(lambda one: {"rating": one})),
    st.tuples(st.just("datetime"), st.just({"datetime": "2026-01-31"})),
    st.tuples(st.just("pairwise"), st.just({"selected": "left"})),
    st.tuples(st.just("ranker"), st.just({"ranker": ["b", "a"]})),
    st.tuples(st.just("rectangle"), st.just({"x": 1, "y": 2, "width": 3, "height": 4})),
)
answers = st.builds(
    lambda one, name, *more: {"type": one[0], "value": one[1], "from_name": name} | more[0] | more[1],
    *(values, names, ids, notes),
)
labels = st.builds(
    lambda text, own, kind, *more: span(text, *own, kind=kind) | more[0] | more[1],
    st.one_of(texts.filter(bool), texts.filter(bool), texts.filter(bool), st.none()),
    st.lists(names, min_size=1, max_size=2, unique=True) | st.lists(names, max_size=1),
    st.sampled_from(["labels", "hypertextlabels", "paragraphlabels"]),
    *(ids, notes),
)
arrows = st.builds(lambda own: {**ARROW, "labels": own}, st.none() | st.lists(names, max_size=1))


def consistent(result: list[Region]) -> bool:
    """Return whether each region of the text is labelled by one part: its parts would share text and note."""
    labelled = [one["id"] for one in result if "id" in one and one["type"].endswith("labels")]
    return len(labelled) == len(set(labelled))


@settings(max_examples=400)
@given(st.lists(st.one_of(labels, answers, answers, arrows), max_size=3).filter(consistent))
@example([CAMERA, ISO]).via("what is read")
def test_nothing_counts_but_what_a_person_would_say(result: list[Region]) -> None:
    """Either the reader says of each field what a reader does who was written apart, or both are not sure."""
    right = seen(result, FIELDS)
    if right is None:
        with pytest.raises(InvalidAnnotation) as refused:
            entities_of(result, FieldNames(FIELDS))
        assert (refused.value.field or "").startswith("annotation.result")
        return
    said = entities_of(result, FieldNames(FIELDS))
    for field in FIELDS:
        value = said.get(field)
        read_as = {spoken(text) for text in ([value] if isinstance(value, str) else value or ())}
        assert read_as - {""} == right.get(field, set())
